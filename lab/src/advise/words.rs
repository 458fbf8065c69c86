//! An advice as a text that fits a screen.

use holdfast_recordings::account::Basis;

use super::advice::Advice;
use super::proposal::Measure;
use super::wakes::WakeGain;
use super::worth::{ENOUGH, Gain, GuestGain, Knee, Outcome};

/// Columns of the text.
pub const WIDTH: usize = 80;
/// Most remedies that are described. Further ones get a line.
const DESCRIBED: usize = 3;
/// Most remedies that get a line.
const LISTED: usize = 4;
/// What is said of a gain about which neither the account nor a replay says anything.
const UNKNOWN: &str = "unknown: a replay cannot tell";
/// Changes of a neighbor below this are no cost worth a word, in percent.
const CHANGED: f64 = 1.0;

/// Returns the text of `advice`, each line with its line break.
pub fn words(advice: &Advice) -> String {
    let mut text = wrapped("", &advice.sentence, false);
    text.push('\n');
    text += &wrapped("", &replay(advice), false);
    let shown: Vec<&Outcome> = advice.best().collect();
    let (helping, idle): (Vec<&Outcome>, Vec<&Outcome>) = shown.into_iter().partition(|outcome| outcome.helps());
    for (number, outcome) in (1..).zip(helping.iter().take(DESCRIBED)) {
        text.push('\n');
        text += &described(number, outcome, advice.passes);
    }
    let mut lines: Vec<String> = (helping.iter().skip(DESCRIBED))
        .map(|outcome| format!("Less: {}", line(outcome)))
        .collect();
    lines.extend(idle.iter().map(|outcome| format!("No help: {}", line(outcome))));
    if !lines.is_empty() {
        text.push('\n');
    }
    for line in lines.iter().take(LISTED) {
        text += &wrapped("", line, false);
    }
    let knee = advice.knee.as_ref().map(|knee| self::knee(knee, helping.is_empty()));
    let end = match knee {
        Some(knee) => knee,
        None if advice.advice.is_empty() => "Nothing to advise: the rules find no cause in this account.".to_owned(),
        None => return text,
    };
    text.push('\n');
    text + &wrapped("", &end, false)
}

/// Says whether replays can be believed.
fn replay(advice: &Advice) -> String {
    let Some(check) = &advice.check else {
        let why = advice.without_replay.as_deref().unwrap_or("there is none");
        return format!("No replay: {why}. Nothing below is measured.");
    };
    let ms = |seconds: f64| seconds / advice.length_ns.max(1) as f64 * 20_000e9;
    let guests = check.guests.iter().map(|guest| {
        let change = guest.ready_s.ratio().map_or(0.0, |ratio| (ratio - 1.0) * 100.0);
        let (recorded, replayed) = (ms(guest.ready_s.recorded), ms(guest.ready_s.replayed));
        format!("{} {recorded:.0}, {replayed:.0} ({change:+.1} %)", guest.name)
    });
    let guests = guests.chain(check.missing.iter().map(|name| format!("{name} is missing")));
    let guests = guests.collect::<Vec<String>>().join("; ");
    let begin = match advice.passes {
        true => "The replay gives the recorded waits back",
        false => "The replay does NOT give the recorded waits back, so nothing below is measured",
    };
    format!("{begin}. CPU ready in ms per 20 s, recorded and replayed: {guests}.")
}

fn described(number: usize, outcome: &Outcome, passes: bool) -> String {
    let proposal = &outcome.proposal;
    let mut text = wrapped(&format!("{number}. "), &capital(&proposal.remedy), false);
    let inferred = if proposal.basis == Basis::Known {
        ""
    } else {
        "inferred: "
    };
    text += &wrapped("   why    ", &format!("{inferred}{}", proposal.seen), false);
    match &outcome.gain {
        Some(gain) => {
            let quickened = match proposal.measure {
                Measure::CpuReady => None,
                Measure::WakeToRun => quickened(gain),
            };
            text += &wrapped("   saves  ", &quickened.unwrap_or_else(|| saved(gain)), false);
            let cost: Vec<String> = gain.vms.iter().filter_map(cost).collect();
            let cost = if cost.is_empty() {
                "no VM".to_owned()
            } else {
                cost.join("; ")
            };
            text += &wrapped("   costs  ", &cost, false);
        }
        None => {
            let why = match proposal.measure {
                _ if proposal.set.is_empty() => ": a replay cannot answer it",
                // See `Replays::new`.
                Measure::WakeToRun if passes => ": timers end the waits of this replay",
                _ => "",
            };
            let most = match proposal.at_most_ms_per_20s {
                Some(most) => format!("at most {most:.0} ms of CPU time per 20 s by the account; not measured{why}"),
                None => UNKNOWN.to_owned(),
            };
            text += &wrapped("   saves  ", &most, false);
        }
    }
    text += &wrapped("   do     ", &proposal.apply, true);
    text + &wrapped("   undo   ", &proposal.undo, true)
}

fn range(gain: &Gain) -> String {
    let saved = gain.saved_ms_per_20s;
    format!("{:.0} ms per 20 s ({:.0} to {:.0})", saved.mean, saved.min, saved.max)
}

fn saved(gain: &Gain) -> String {
    let better: Vec<String> = better(gain).collect();
    format!("{} of CPU ready: {}", range(gain), better.join("; "))
}

/// Says how much sooner woken vCPUs have a pCPU, and the CPU ready of the VMs that have less of it.
fn quickened(gain: &Gain) -> Option<String> {
    let of = |gain: &WakeGain| {
        let (before, after) = (gain.before_us, gain.after_us);
        format!(
            "{before:.0} -> {:.0} us ({:.0} to {:.0})",
            after.mean, after.min, after.max
        )
    };
    let quicker = gain.vms.iter().filter_map(|vm| {
        let wakes = vm.wake_to_run.filter(|wakes| wakes.is_sooner_in_every_draw)?;
        let (median, p99) = (of(&wakes.p50), of(&wakes.p99));
        Some(format!("{}: median {median}, 99th percentile {p99}", vm.vm))
    });
    let quicker: Vec<String> = quicker.collect();
    let less = better(gain).map(|less| format!("CPU ready of {less}"));
    let said = quicker.iter().cloned().chain(less).collect::<Vec<String>>().join("; ");
    (!quicker.is_empty()).then(|| format!("from wakeup to pCPU, {said}"))
}

/// Returns CPU ready of each VM that has less of it.
fn better(gain: &Gain) -> impl Iterator<Item = String> {
    gain.vms.iter().filter_map(|vm| {
        let (ready, ran) = (vm.ready_ms_per_20s?, vm.ran_percent?);
        let change = (ready.mean < vm.ready_before_ms_per_20s * (1.0 - CHANGED / 100.0)).then_some(ran.mean)?;
        let gets = if change >= CHANGED {
            format!(", {change:.0} % more time on pCPUs")
        } else {
            String::new()
        };
        let before = vm.ready_before_ms_per_20s;
        Some(format!("{} {before:.0} -> {:.0}{gets}", vm.vm, ready.mean))
    })
}

fn cost(vm: &GuestGain) -> Option<String> {
    let (ready, ran) = (vm.ready_ms_per_20s?, vm.ran_percent?);
    let more = ready.mean - vm.ready_before_ms_per_20s;
    let worse = more > vm.ready_before_ms_per_20s * CHANGED / 100.0 && more >= 1.0;
    let less = ran.mean <= -CHANGED;
    (worse || less).then(|| {
        let less = if less {
            format!(", {:.0} % less time on pCPUs", -ran.mean)
        } else {
            String::new()
        };
        format!("{} {more:+.0} ms of CPU ready{less}", vm.vm)
    })
}

/// Returns a remedy in one line.
fn line(outcome: &Outcome) -> String {
    match &outcome.gain {
        Some(gain) => format!("{}: {}", outcome.proposal.remedy, range(gain)),
        None => match outcome.proposal.at_most_ms_per_20s {
            Some(most) => format!("{}: at most {most:.0} ms per 20 s", outcome.proposal.remedy),
            None => format!("{}: {UNKNOWN}", outcome.proposal.remedy),
        },
    }
}

fn knee(knee: &Knee, alone: bool) -> String {
    let begin = if alone {
        "Nothing helps; these vCPUs are simply too many. "
    } else {
        ""
    };
    let end = match (knee.enough_pcpus, knee.fits) {
        (Some(enough), Some(fits)) => format!(
            "The knee: {} such vCPUs need {enough} pCPUs for CPU ready of at most {ENOUGH:.0} % of the wanted time, so \
             {} pCPUs are enough for about {fits} of them.",
            knee.vcpus, knee.pcpus
        ),
        _ => format!(
            "The knee: {} such vCPUs are ready for more than {ENOUGH:.0} % of the wanted time even with a pCPU for each.",
            knee.vcpus
        ),
    };
    format!("{begin}{end}")
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().collect::<String>());
    first.unwrap_or_default() + letters.as_str()
}

/// Returns `text` after `head` in lines of at most [`WIDTH`] that go on below its begin. The lines of a `command` end
/// as a shell wants it.
fn wrapped(head: &str, text: &str, command: bool) -> String {
    let indent = " ".repeat(head.chars().count());
    let room = WIDTH - if command { 2 } else { 0 };
    let mut lines = vec![head.to_owned()];
    // A number and its unit stay together.
    for word in text.replace(" %", "\u{a0}%").split(' ') {
        let last = lines.last_mut().expect("there is a first line");
        let begun = last.chars().count() > indent.len();
        if begun && last.chars().count() + 1 + word.chars().count() > room {
            if command {
                last.push_str(" \\");
            }
            lines.push(format!("{indent}{word}"));
        } else {
            if begun {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines.join("\n").replace('\u{a0}', " ") + "\n"
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn commands_that_are_wrapped_can_be_typed() {
        let command = format!(
            "for p in {}; do taskset -pc 1 $p; done",
            "12345:0-3 ".repeat(12).trim_end()
        );
        let text = wrapped("   do     ", &command, true);
        assert!(text.lines().all(|line| line.chars().count() <= super::WIDTH), "{text}");
        assert!(text.lines().count() > 1);
        let typed: Vec<&str> = text.lines().map(|line| line.trim_end_matches(" \\").trim()).collect();
        assert_eq!(typed.join(" "), format!("do     {command}"));
    }
}
