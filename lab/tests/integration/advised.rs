//! Advice for hosts with one mistake each: the rule for it comes first, and its remedy gains what was said.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

use holdfast_lab::advise::{self, Advice, NAME, Outcome, Replays};
use holdfast_lab::experiment::Experiment;
use holdfast_lab::options::Options;
use holdfast_lab::plan::Plan;
use holdfast_lab::replay::{self, Replay};
use holdfast_lab::run::{self, CallOff, Execution};
use holdfast_recordings::account::{self, Account, Books};
use holdfast_recordings::repeat::Repeated;
use holdfast_sim::Config;
use holdfast_sim::timeline::{Thread, Timeline};

use crate::recorded::record;
use crate::repeated::repeats;

/// Draws of each replay.
const DRAWS: u32 = 3;

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

/// Returns `numbers` as Linux lists them.
fn listed(config: &Config, numbers: &[u32]) -> String {
    let all: Vec<u32> = (0..config.machine.topology.pcpus()).collect();
    replay::listed(if numbers.is_empty() { &all } else { numbers })
}

/// Records the host `config`: its account, with what files beside a recording would say, and what its threads did.
fn recorded(config: &Config) -> (Account, Repeated) {
    let (outcome, timeline) = record(config);
    let mut beside = replay::beside(&timeline, None);
    beside.halt_poll_ns = Some(config.host.halt_poll_ns);
    for (index, (vm, ended)) in (0..).zip(config.vms.iter().zip(&outcome.vms)) {
        let files = beside
            .vms
            .get_mut(&replay::process(index))
            .expect("each guest has files");
        let share = vm
            .host
            .quota
            .as_ref()
            .map(|quota| quota.quota_ns as f64 / quota.period_ns as f64);
        files.quota = Some(share);
        files.throttled = share.map(|_| ended.counters["bandwidth_throttled_ns"]);
    }
    for (index, vcpu) in (0..).zip(&timeline.vcpus) {
        let thread = replay::thread_id(&timeline, Thread::Vcpu(index));
        let affinity = config.vms[vcpu.vm as usize].affinity.get(vcpu.number as usize);
        let allowed = listed(config, affinity.map_or(&[][..], |set| set));
        beside.allowed.insert(thread, allowed);
    }
    (of(&timeline, &beside), repeats(&timeline))
}

fn of(timeline: &Timeline, beside: &holdfast_recordings::hosts::Beside) -> Account {
    let mut follower = account::follower(beside);
    let mut books = Books::default();
    for event in replay::events(timeline, None) {
        follower.follow(&event, &mut books);
    }
    follower.end(Some(timeline.to.0 / 1000), &mut books);
    account::of(&books, &follower, beside)
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

/// Returns what is wrong with what `first` says of the guests' ready time, if anything.
fn misses(text: &str, account: &Account, first: &Outcome) -> Option<String> {
    let gain = first.gain.as_ref()?;
    let set = first.proposal.set.iter();
    let set: Vec<String> = set.map(|(key, value)| format!("{key}={value}")).collect();
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

#[test]
fn the_mistake_of_a_host_is_named_first_and_its_remedy_gains_what_was_said() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration/misconfigured");
    let mut names: Vec<_> = fs::read_dir(folder)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    names.sort();
    assert_eq!(names.len(), 3);
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
                let measurable = !first.proposal.set.is_empty();
                if measurable && first.gain.is_none() {
                    failed.push(format!("{name}: not measured"));
                }
                failed.extend(misses(&text, &account, first).map(|miss| format!("{name}: {miss}")));
            }
            first => failed.push(format!(
                "{name}: {:?} in place of {rule}",
                first.map(|first| first.proposal.rule)
            )),
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
