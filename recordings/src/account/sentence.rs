//! The most important thing that an account says, in one sentence.

use super::document::{Account, VmAccount};
use super::figure::Basis;

/// Share of the wanted time from which on a wait is worth a sentence, in percent.
const WORTH: f64 = 1.0;

/// Returns `share` of a whole, in percent, in words.
fn part(share: f64) -> String {
    const WORDS: [(f64, &str); 7] = [
        (100.0, "all"),
        (90.0, "nine tenths"),
        (75.0, "three quarters"),
        (66.7, "two thirds"),
        (50.0, "half"),
        (33.3, "a third"),
        (25.0, "a quarter"),
    ];
    let near = WORDS.iter().find(|(value, _)| (share - value).abs() < 2.5);
    near.map_or_else(|| format!("{share:.0} %"), |(_, word)| (*word).to_owned())
}

fn value(vm: &VmAccount, name: &str) -> Option<f64> {
    Account::figure(&vm.figures, name)?.value
}

/// Returns the sentence.
pub fn sentence(account: &Account) -> String {
    let Some(first) = account.vms.first() else {
        return match account.seen.switches {
            0 => "No switch of threads was recorded, so nothing can be said.".to_owned(),
            _ => "No vCPU was found: no thread has the name of one, and none entered a guest.".to_owned(),
        };
    };
    let ready = Account::figure(&first.figures, "ready_of_wanted_percent");
    let Some(ready) = ready.filter(|figure| figure.basis != Basis::Unknown) else {
        return "sched_switch was not recorded, so nothing can be said about waits for pCPUs.".to_owned();
    };
    let share = ready.value.unwrap_or(0.0);
    if share < WORTH {
        return format!(
            "No VM waited for pCPUs for more than {} % of the CPU time that it wanted.",
            if share < 0.1 { "0.1" } else { "1" }
        );
    }
    // A throttled vCPU has no pCPU, whatever runs on the one that it had.
    let of_ready = |name: &str| value(first, name).unwrap_or(0.0) / value(first, "ready_percent").unwrap_or(100.0);
    let throttled = (of_ready("throttled_percent") * 100.0).min(100.0);
    let total: f64 = first.behind.iter().map(|row| row.ns as f64).sum();
    let behind = first
        .behind
        .first()
        .filter(|row| total > 0.0 && row.name != "unknown")
        .map(|row| {
            let what = match row.name.as_str() {
                "idle" => "while the pCPU was idle".to_owned(),
                name => format!("behind {name}"),
            };
            format!(", {} of that {what}", part(row.ns as f64 / total * 100.0))
        });
    let behind = match throttled >= 50.0 {
        true => Some(format!(", {} of that while its quota was spent", part(throttled))),
        false => behind,
    };
    let who = match first.process {
        None => "The vCPUs (of which VMs is not known)".to_owned(),
        Some(_) => first.name.clone(),
    };
    let unknown = value(first, "unknown_percent").filter(|share| *share >= 5.0);
    let doubt = unknown.map(|share| format!(" ({share:.0} % of their time is not known)"));
    format!(
        "{who}: {share:.0} % of the wanted CPU time was spent waiting for a pCPU{}{}.",
        behind.unwrap_or_default(),
        doubt.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn parts_are_said_in_words_where_they_are_near() {
        assert_eq!(part(66.0), "two thirds");
        assert_eq!(part(99.0), "all");
        assert_eq!(part(42.0), "42 %");
    }
}
