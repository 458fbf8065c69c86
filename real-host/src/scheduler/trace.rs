//! Recordings of a real kernel: the output of platforms/kvm/testhost/player.c becomes [`Event`]s.
//!
//! Lines of the kernel have the format of ftrace (kernel documentation, trace/ftrace). A recording that is cut short,
//! that lost events or that is no recording is an error, which names the line.

use std::collections::HashMap;
use std::fmt;

use super::scenario::Scenario;
use super::{Event, LEFT_OUT_NS, Thread, What};
use crate::tracing::{Parts, parts};

/// Largest share of the CPUs' time that threads outside a scenario may take. Kernel threads take about 0.001.
const OTHERS_MAX: f64 = 0.02;

/// A scenario that a real kernel played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The kernel's release (`uname -r`).
    pub release: String,
    /// Index of the scenario.
    pub scenario: usize,
    /// What happened, in the order of time.
    pub events: Vec<Event>,
}

/// Why a recording cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub wrong: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the recording: {}", self.line, self.wrong)
    }
}

impl std::error::Error for TraceError {}

/// What has been read so far of a scenario.
struct Part {
    scenario: usize,
    start_ns: Option<u64>,
    events: Vec<Event>,
    threads: HashMap<u32, Thread>,
    /// Since when each CPU runs a thread that is not of the scenario.
    others_since: Vec<Option<i64>>,
    others_ns: i64,
}

impl Part {
    /// Notes that `cpu` runs a thread that is not of the scenario from now on, or no longer.
    fn runs_other(&mut self, cpu: u32, other: bool, at_ns: i64) {
        let since = std::mem::replace(&mut self.others_since[cpu as usize], other.then_some(at_ns));
        if let Some(since) = since {
            let begin = LEFT_OUT_NS as i64;
            self.others_ns += (at_ns - since.max(begin)).max(0);
        }
    }
}

/// Reads the output of the player, which played `scenarios` or some of them.
///
/// # Errors
/// [`TraceError`], if it is not whole.
pub fn read(text: &str, scenarios: &[Scenario]) -> Result<Vec<Recording>, TraceError> {
    let mut release = None;
    let mut cpus = None;
    let mut part: Option<Part> = None;
    let mut whole = Vec::new();
    let mut done = false;
    for (number, line) in (1..).zip(text.lines()) {
        let error = |wrong: String| TraceError { line: number, wrong };
        if let Some(mark) = line.strip_prefix("@@") {
            let (word, value) = mark.split_once(' ').unwrap_or((mark, ""));
            match (word, &mut part) {
                ("linux", _) => release = Some(value.to_owned()),
                ("cpus", _) => cpus = value.parse::<u32>().ok(),
                ("scenario", None) => {
                    let found = scenarios.iter().position(|scenario| scenario.name == value);
                    let scenario = found.ok_or_else(|| error(format!("no scenario is called \"{value}\"")))?;
                    let needed = scenarios[scenario].cpus;
                    if cpus != Some(needed) {
                        let found = cpus.map_or("no number of".to_owned(), |cpus| cpus.to_string());
                        return Err(error(format!("{found} CPUs, scenario \"{value}\" has {needed}")));
                    }
                    part = Some(Part {
                        scenario,
                        start_ns: None,
                        events: Vec::new(),
                        threads: HashMap::new(),
                        others_since: vec![None; needed as usize],
                        others_ns: 0,
                    });
                }
                ("start", Some(part)) => {
                    let start = value
                        .parse()
                        .map_err(|_| error(format!("\"{value}\" is no time in nanoseconds")))?;
                    part.start_ns = Some(start);
                }
                ("end", Some(_)) => {
                    let part = part.take().unwrap_or_else(|| unreachable!("matched above"));
                    let name = &scenarios[part.scenario].name;
                    if *name != value {
                        return Err(error(format!("scenario \"{name}\" ends as \"{value}\"")));
                    }
                    check_whole(&part, &scenarios[part.scenario]).map_err(error)?;
                    let release = release
                        .clone()
                        .ok_or_else(|| error("no kernel release before it".to_owned()))?;
                    whole.push(Recording {
                        release,
                        scenario: part.scenario,
                        events: part.events,
                    });
                }
                ("failed", _) => return Err(error(format!("the player failed: {value}"))),
                ("done", None) => done = true,
                _ => return Err(error(format!("\"{line}\" out of place"))),
            }
            continue;
        }
        if line.contains("[LOST ") && line.starts_with("CPU:") {
            return Err(error(format!("events were lost: {line}")));
        }
        // Lines such as "##### CPU 2 buffer started ####" say where a CPU's events begin.
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let Some(part) = &mut part else {
            return Err(error(format!("\"{line}\" before any scenario")));
        };
        let start = part
            .start_ns
            .ok_or_else(|| error("an event before the time of the start".to_owned()))?;
        let event = event(line, start, &scenarios[part.scenario], part).map_err(error)?;
        if let (Some(event), Some(last)) = (&event, part.events.last())
            && event.at_ns < last.at_ns
        {
            return Err(error("time goes back".to_owned()));
        }
        part.events.extend(event);
    }
    if !done || part.is_some() {
        return Err(TraceError {
            line: text.lines().count(),
            wrong: "the recording is cut short: the player did not reach its end".to_owned(),
        });
    }
    Ok(whole)
}

/// Checks that every thread of `scenario` ran, and that events reach its end.
fn check_whole(part: &Part, scenario: &Scenario) -> Result<(), String> {
    for (of, threads) in scenario.threads.iter().enumerate() {
        for index in 0..threads.count {
            let thread = Thread { of, index };
            if !part.threads.values().any(|&known| known == thread) {
                return Err(format!("thread {}.{index} never appears", threads.name));
            }
        }
    }
    let last = part.events.last().map_or(0, |event| event.at_ns);
    let length = i64::from(scenario.ms) * 1_000_000;
    if last < length - length / 10 {
        return Err(format!(
            "the last event is {} ms after the start, of {} ms",
            last / 1_000_000,
            scenario.ms
        ));
    }
    let share = part.others_ns as f64 / (length - LEFT_OUT_NS as i64) as f64 / f64::from(scenario.cpus);
    if share > OTHERS_MAX {
        return Err(format!(
            "threads outside the scenario took {:.1} % of the CPUs' time",
            100.0 * share
        ));
    }
    Ok(())
}

/// Reads a line of the kernel.
fn event(line: &str, start_ns: u64, scenario: &Scenario, part: &mut Part) -> Result<Option<Event>, String> {
    let found = parts(line).next();
    let Parts {
        cpu,
        at_ns,
        event: name,
        details,
        ..
    } = found.ok_or_else(|| format!("\"{line}\" is no event of the kernel"))?;
    if cpu >= scenario.cpus {
        return Err(format!("CPU {cpu} of {}", scenario.cpus));
    }
    let since = i128::from(at_ns) - i128::from(start_ns);
    let at_ns = i64::try_from(since).map_err(|_| format!("{at_ns} ns is too far from the start"))?;
    let threads = &mut part.threads;
    let mut thread = |comm: &str, pid: &str| -> Result<Option<Thread>, String> {
        let pid = pid
            .parse()
            .map_err(|_| format!("\"{pid}\" is no number of a thread in \"{line}\""))?;
        if let Some(&known) = threads.get(&pid) {
            return Ok(Some(known));
        }
        let found = thread_named(comm, scenario);
        if let Some(found) = found {
            threads.insert(pid, found);
        }
        Ok(found)
    };
    let bad = || format!("\"{details}\" is no {name}");
    let what = match name {
        "sched_switch" => {
            let (from, to) = details.rsplit_once(" ==> ").ok_or_else(bad)?;
            let (from, state) = from.rsplit_once(" prev_state=").ok_or_else(bad)?;
            let (comm, pid) = pair(from, "prev_comm=", " prev_pid=").ok_or_else(bad)?;
            let from = thread(comm, pid)?;
            let (comm, pid) = pair(to, "next_comm=", " next_pid=").ok_or_else(bad)?;
            let to = thread(comm, pid)?;
            part.runs_other(cpu, to.is_none() && pid != "0", at_ns);
            What::Switch {
                cpu,
                from,
                runnable: state.starts_with('R'),
                to,
            }
        }
        "sched_wakeup" => {
            let (comm, pid) = pair(details, "comm=", " pid=").ok_or_else(bad)?;
            match thread(comm, pid)? {
                None => return Ok(None),
                Some(thread) => What::Wakeup(thread),
            }
        }
        // Migrations are counted when the thread runs.
        "sched_migrate_task" => return Ok(None),
        _ => return Err(format!("unexpected event \"{name}\"")),
    };
    Ok(Some(Event { at_ns, what }))
}

/// Returns the name of a thread and its number: `FIRST name SECOND number ...`.
fn pair<'t>(text: &'t str, first: &str, second: &str) -> Option<(&'t str, &'t str)> {
    let (comm, rest) = text.strip_prefix(first)?.rsplit_once(second)?;
    Some((comm, rest.split(' ').next()?))
}

/// Returns the thread that the player named `comm`.
fn thread_named(comm: &str, scenario: &Scenario) -> Option<Thread> {
    let (name, index) = comm.rsplit_once('.')?;
    let of = scenario.threads.iter().position(|threads| threads.name == name)?;
    let index = index.parse().ok().filter(|&index| index < scenario.threads[of].count)?;
    Some(Thread { of, index })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::figures::figures;
    use crate::scheduler::scenario::parse;

    /// A recording of Linux 6.1.
    const RECORDED: &str = include_str!("../../scheduler/recorded.txt");

    fn scenarios() -> Vec<Scenario> {
        let text = "[[scenario]]\nname = \"small\"\nabout = \"\"\nms = 1000\ncpus = 2\n\
                    threads = [{ name = \"busy\", count = 3 }, { name = \"sleeper\", count = 1, compute_us = 2000, sleep_us = 20000 }]";
        parse(text).expect("a scenario")
    }

    fn wrong(text: &str) -> String {
        read(text, &scenarios()).expect_err("a bad recording").to_string()
    }

    #[test]
    fn a_recording_of_a_real_kernel_is_read() {
        let read = read(RECORDED, &scenarios()).expect("a recording");
        assert_eq!(read.len(), 1);
        assert!(read[0].release.starts_with("6.1."), "{}", read[0].release);
        let figures = figures(&scenarios()[0], &read[0].events);
        let [busy, sleeper] = &figures.threads[..] else {
            panic!("{figures:?}")
        };
        assert!(
            busy.share.iter().all(|share| (40.0..=100.0).contains(share)),
            "{busy:?}"
        );
        assert!((5.0..=15.0).contains(&sleeper.share[1]), "{sleeper:?}");
        assert!(sleeper.wake_us.is_some() && sleeper.ends[2] > 80.0, "{sleeper:?}");
        assert!(busy.wake_us.is_none() && busy.ends[2] == 0.0, "{busy:?}");
    }

    #[test]
    fn a_recording_that_is_cut_short_or_lost_events_is_an_error() {
        let half = &RECORDED[..RECORDED.len() / 2];
        let half = &half[..half.rfind('\n').expect("lines")];
        assert!(wrong(half).contains("cut short"), "{}", wrong(half));
        assert!(wrong("").contains("cut short"));
        let end = RECORDED.find("@@end").expect("an end");
        let lost = format!("{}CPU:1 [LOST 7 EVENTS]\n{}", &RECORDED[..end], &RECORDED[end..]);
        assert!(wrong(&lost).contains("events were lost"), "{}", wrong(&lost));
        let without: String = RECORDED
            .lines()
            .filter(|line| !line.contains("busy.2"))
            .map(|line| format!("{line}\n"))
            .collect();
        assert!(
            wrong(&without).contains("thread busy.2 never appears"),
            "{}",
            wrong(&without)
        );
        let early: String = RECORDED.lines().take(60).map(|line| format!("{line}\n")).collect();
        let said = wrong(&format!("{early}@@end small\n@@done\n"));
        assert!(said.contains("ms after the start, of 1000 ms"), "{said}");
    }

    #[test]
    fn what_is_no_recording_is_named_with_its_line() {
        assert!(wrong("hello\n").starts_with("line 1 of the recording: \"hello\" before any scenario"));
        assert!(wrong("@@linux 6.1\n@@cpus 4\n@@scenario small\n").contains("line 3 of the recording: 4 CPUs"));
        assert!(wrong("@@scenario other\n").contains("no scenario is called \"other\""));
        assert!(wrong("@@failed /plan: No such file\n").contains("the player failed: /plan"));
        let begun = "@@linux 6.1\n@@cpus 2\n@@scenario small\n@@start 5\n";
        assert!(
            wrong(&format!("{begun}x-1 [000] d. 1.5: sched_switch: nonsense\n"))
                .contains("\"nonsense\" is no sched_switch")
        );
        assert!(wrong(&format!("{begun}x-1 [002] d. 1.5: sched_wakeup: comm=a pid=1\n")).contains("CPU 2 of 2"));
        assert!(wrong(&format!("{begun}x-1 [000] d. 1.5: irq_handler_entry: irq=1\n")).contains("unexpected event"));
        let back =
            "x-1 [000] d. 1.5: sched_wakeup: comm=busy.0 pid=1\nx-1 [000] d. 1.4: sched_wakeup: comm=busy.0 pid=1\n";
        assert!(wrong(&format!("{begun}{back}")).contains("line 6 of the recording: time goes back"));
    }

    #[test]
    fn a_recording_with_a_busy_stranger_is_an_error() {
        let second = RECORDED.replace("comm=busy.2", "comm=stranger");
        let scenario = "[[scenario]]\nname = \"small\"\nabout = \"\"\nms = 1000\ncpus = 2\n\
                    threads = [{ name = \"busy\", count = 2 }, { name = \"sleeper\", count = 1, compute_us = 2000, sleep_us = 20000 }]";
        let said = read(&second, &parse(scenario).expect("a scenario"))
            .expect_err("a stranger")
            .to_string();
        assert!(said.contains("threads outside the scenario took"), "{said}");
    }
}
