//! Advice for hosts with one mistake each: the rule for it comes first, and its remedy gains what was said, or
//! something where nothing was said.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

use holdfast_lab::advise::{self, Advice, Measure, NAME, Outcome, Replays};
use holdfast_lab::experiment::Experiment;
use holdfast_lab::options::Options;
use holdfast_lab::plan::Plan;
use holdfast_lab::replay::{self, Replay};
use holdfast_lab::run::{self, CallOff, Execution};
use holdfast_recordings::account::Account;
use holdfast_recordings::import::Import;
use holdfast_recordings::repeat::Repeated;
use holdfast_sim::Config;

/// Draws of each replay.
const DRAWS: u32 = 3;

/// Hosts whose remedy no replay measures, and what follows the advice there. Of locks a replay knows nothing. Of the
/// guest that polls, it does not know that its device's thread waits for it, and so it fails the check; of the one that
/// spends its quota so, it has a part of the throttled time twice.
const UNMEASURED: [(&str, &[&str]); 4] = [
    (
        "no-pv",
        &[
            "vm.web.pv_unhalt=true",
            "vm.web.steal_time=true",
            "vm.web.preempted_flag=true",
        ],
    ),
    ("nopvspin", &["vm.web.nopvspin=false"]),
    // Linux stops polling for a vCPU when another thread wants its pCPU, so no gain is certain.
    ("polling", &[]),
    ("polling-quota", &["host.halt_poll=0"]),
];

/// Returns the host that `text` describes, with `set`.
fn host(text: &str, set: &[String]) -> Config {
    let experiment = Experiment::parse("host.toml", text).unwrap_or_else(|problems| panic!("{problems}"));
    let options = Options {
        set: set.to_vec(),
        ..Options::default()
    };
    let plan = Plan::new(experiment, &options).unwrap_or_else(|problems| panic!("{problems}"));
    Config {
        seed: 1,
        ..plan.cells[0].config.clone()
    }
}

/// Records the host `config` as a folder, and reads that: its account, and what its threads did.
fn recorded(config: &Config) -> (Account, Repeated) {
    let recording = replay::recording(config, &CallOff::new());
    let (_, files) = recording.unwrap_or_else(|error| panic!("{error}"));
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in &files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a new folder");
        fs::write(path, text).expect("a new file");
    }
    let import = Import::new(&[folder.path().to_owned()]).unwrap_or_else(|error| panic!("{error}"));
    let imported = import.account(|_| false).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(imported.source.errors, Vec::<String>::new());
    let repeated = import.repeats(&imported).unwrap_or_else(|error| panic!("{error}"));
    (imported.account, repeated)
}

/// Returns the advice for a recorded host.
fn advice(account: &Account, repeated: &Repeated) -> Advice {
    let proposals = advise::proposals(account);
    let checked = Replay::checked(NAME, account, repeated, &CallOff::new());
    let (replay, check) = checked.unwrap_or_else(|error| panic!("{error}"));
    if !check.passes() {
        return Advice::unmeasured(account, proposals, Ok(check));
    }
    let replays = Replays::new(account, replay, &proposals);
    let plan = replays.plan(DRAWS).unwrap_or_else(|problems| panic!("{problems}"));
    let outcomes = run::run(
        &plan,
        Execution {
            runner: &run::simulate,
            jobs: NonZeroUsize::MIN,
            call_off: &CallOff::new(),
            progress: &|_| (),
        },
    );
    Advice::measured(account, proposals, check, &replays, (&plan, &outcomes))
}

/// Returns the ready time of each guest of the host `config`, in ms, if it has an end of its own.
fn ready_ms(config: &Config) -> BTreeMap<String, f64> {
    let outcome = run::simulate(config, &CallOff::new()).unwrap_or_else(|failure| panic!("{failure}"));
    let measured = outcome.vms.iter().filter(|vm| vm.elapsed_ns.is_some());
    measured
        .map(|vm| (vm.name.clone(), vm.counters["ready_ns"] as f64 / 1e6))
        .collect()
}

/// Returns how the described host takes what a replay sets: its only host task is a guest there.
fn on_the_host((key, value): &(String, String)) -> String {
    match key.strip_prefix("vm.host-threads.") {
        Some(rest) => format!("task.web-io.{rest}={}", value.trim_matches(['[', ']'])),
        None => format!("{key}={value}"),
    }
}

/// Returns what is wrong with what `first` says of the guests' ready time, if anything.
fn misses(text: &str, account: &Account, first: &Outcome) -> Option<String> {
    let gain = first.gain.as_ref()?;
    let set: Vec<String> = first.proposal.set.iter().map(on_the_host).collect();
    let truth = ready_ms(&host(text, &set));
    let scale = account.length_ns as f64 / 20e9;
    let wrong = gain.vms.iter().filter_map(|vm| {
        let (said, true_ms) = (vm.ready_ms_per_20s?, *truth.get(&vm.vm)?);
        let (min, max) = (said.min * scale, said.max * scale);
        let before = vm.ready_before_ms_per_20s * scale;
        // A replay passes its check if it is as near as this.
        let near = 0.05 * before;
        let holds = (min - near..=max + near).contains(&true_ms);
        (!holds).then(|| {
            format!(
                "{}: {before:.1} ms before, {min:.1} to {max:.1} said, {true_ms:.1} true",
                vm.vm
            )
        })
    });
    let wrong: Vec<String> = wrong.collect();
    (!wrong.is_empty()).then(|| wrong.join("; "))
}

/// Returns what is wrong with what `first` says of the times from wakeup to pCPU, if it is for these.
fn misses_wakeups(text: &str, first: &Outcome) -> Option<String> {
    let gain = first
        .gain
        .as_ref()
        .filter(|_| first.proposal.measure == Measure::WakeToRun)?;
    let set: Vec<String> = first.proposal.set.iter().map(on_the_host).collect();
    let (truth, _) = recorded(&host(text, &set));
    let wrong = gain.vms.iter().filter_map(|vm| {
        let wakes = vm.wake_to_run?;
        let with = truth.vms.iter().find(|known| known.name == vm.vm)?;
        let names = ["wake_to_run_p50_us", "wake_to_run_p99_us"];
        let wrong = names
            .into_iter()
            .zip([wakes.p50, wakes.p99])
            .filter_map(|(name, said)| {
                let found = Account::figure(&with.figures, name)?.value?;
                let near = 0.05 * said.before_us;
                let holds = (said.after_us.min - near..=said.after_us.max + near).contains(&found);
                (!holds).then(|| format!("{} {name}: {said:?} said, {found:.1} true", vm.vm))
            });
        let wrong: Vec<String> = wrong.collect();
        (!wrong.is_empty()).then(|| wrong.join(", "))
    });
    let wrong: Vec<String> = wrong.collect();
    let quickens = gain
        .vms
        .iter()
        .any(|vm| vm.wake_to_run.is_some_and(|wakes| wakes.is_sooner_in_every_draw));
    match (wrong.is_empty(), quickens) {
        (true, true) => None,
        (true, false) => Some("no wakeup is sooner".to_owned()),
        (false, _) => Some(wrong.join("; ")),
    }
}

/// Returns what is wrong with the remedy `follow` of the host `text`, if its guests wait no less with it.
fn unhelpful(text: &str, follow: &[&str]) -> Option<String> {
    let follow: Vec<String> = follow.iter().map(|set| (*set).to_owned()).collect();
    // Six draws: one of them may be luck.
    let sum = |set: &[String]| {
        let config = host(text, set);
        let drawn = (1..=6).map(|seed| Config { seed, ..config.clone() });
        drawn.flat_map(|config| ready_ms(&config).into_values()).sum::<f64>()
    };
    let (before, after) = (sum(&[]), sum(&follow));
    (after >= before).then(|| format!("{before:.1} ms before, {after:.1} after"))
}

#[test]
fn the_mistake_of_a_host_is_named_first_and_its_remedy_gains_what_was_said() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration/misconfigured");
    let mut names: Vec<_> = fs::read_dir(folder)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    names.sort();
    assert_eq!(names.len(), 9);
    let mut failed = Vec::new();
    for path in names {
        let text = fs::read_to_string(&path).expect("an experiment");
        let rule = Experiment::parse("host.toml", &text)
            .expect("an experiment")
            .source
            .expect("the rule");
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let (account, threads) = recorded(&host(&text, &[]));
        let advice = advice(&account, &threads);
        println!("== {name}\n{}", advise::words(&advice));
        match advice.best().next() {
            Some(first) if first.proposal.rule == rule => {
                let unmeasured = UNMEASURED.iter().find(|(of, _)| *of == name);
                let miss = match unmeasured {
                    Some(_) if first.gain.is_some() => Some("measured".to_owned()),
                    Some((_, [])) => None,
                    Some((_, follow)) => unhelpful(&text, follow),
                    None if first.gain.is_none() && !first.proposal.set.is_empty() => Some("not measured".to_owned()),
                    None => misses(&text, &account, first).or_else(|| misses_wakeups(&text, first)),
                };
                failed.extend(miss.map(|miss| format!("{name}: {miss}")));
            }
            first => failed.push(format!(
                "{name}: {:?} in place of {rule}",
                first.map(|first| first.proposal.rule)
            )),
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
