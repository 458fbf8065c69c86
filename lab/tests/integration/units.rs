//! Plans as units: any division among processes gives the bytes of one run, and no damage goes unnoticed.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use holdfast_lab::collect;
use holdfast_lab::file::WriteError;
use holdfast_lab::options::Options;
use holdfast_lab::run::{Execution, Runner};
use holdfast_lab::units::{self, Build, Cache, Finished, Header, Record, Rules, Shard, Unit, Units, Work};
use holdfast_sim::{CallOff, Config, Failure};
use proptest::prelude::*;

use crate::fake::{elapsed_ns, execute, plan, simulate};

const BUILD: Build = Build {
    id: "one",
    version: "1",
    extensions: holdfast_lab::extensions::Extensions::NONE,
};
const OTHER: Build = Build {
    id: "another",
    version: "2",
    extensions: holdfast_lab::extensions::Extensions::NONE,
};
const STRICT: Rules = Rules {
    mixed_builds: false,
    skip_damaged: false,
};

fn fake_units(build: Build) -> Units {
    Units::new(plan(&Options::default()), "fake.toml", build)
}

/// Runs as [`simulate`] does; two units of twelve fail.
fn flawed(config: &Config, call_off: &CallOff) -> Result<holdfast_sim::Outcome, Failure> {
    match (config.seed, elapsed_ns(config) > 10_000_000_000) {
        (2, true) if !config.vms[1].measured => Err(Failure::LostKick("vcpu 3".to_owned())),
        _ => simulate(config, call_off),
    }
}

/// The bytes that one run gives.
fn expected() -> String {
    let units = fake_units(BUILD);
    collect::results(
        &units.plan,
        &execute(&units.plan, &flawed, 2),
        "fake.toml",
        BUILD.version,
    )
    .to_json()
}

/// Runs `chosen` units. Returns their records as lines in the order in which they ended.
fn ran(units: &Units, chosen: &[usize], cache: Option<&Cache>, runner: Runner<'_>) -> (Vec<String>, Finished) {
    let lines = Mutex::new(Vec::new());
    let work = Work {
        units,
        cache,
        execution: Execution {
            runner,
            jobs: NonZeroUsize::new(2).expect("two"),
            call_off: &CallOff::new(),
            progress: &|_| {},
        },
        damaged: &|_| {},
    };
    let keep = |_: usize, record: Record| -> Result<(), WriteError> {
        lines.lock().expect("no panic").push(record.line());
        Ok(())
    };
    let finished = units::run(chosen, work, &keep).expect("a writable cache");
    (lines.into_inner().expect("no panic"), finished)
}

/// The records of all units, in the order of the plan.
fn all_lines(build: Build) -> Vec<String> {
    let units = fake_units(build);
    let each = (0..units.ids.len()).flat_map(|index| ran(&units, &[index], None, &flawed).0);
    each.collect()
}

/// Writes files of lines, each after the line of the plan.
fn files(folder: &Path, build: Build, parts: &[Vec<String>]) -> Vec<PathBuf> {
    let header = Header::of(&fake_units(build)).line();
    let write = |(number, lines): (usize, &Vec<String>)| {
        let path = folder.join(format!("{number}.jsonl"));
        fs::write(&path, format!("{header}{}", lines.concat())).expect("writable");
        path
    };
    parts.iter().enumerate().map(write).collect()
}

/// Merges files; an error as text.
fn merged(paths: &[PathBuf], build: Build, rules: Rules) -> Result<(String, usize), String> {
    let inputs = units::inputs(paths, rules).map_err(|problems| problems.to_string())?;
    let merged = units::merge(inputs, build, rules).map_err(|problems| problems.to_string())?;
    let gathered = merged.gather();
    let results = collect::results(
        &gathered.plan,
        &gathered.outcomes,
        "fake.toml",
        &merged.version(rules.mixed_builds),
    );
    Ok((results.to_json(), gathered.missing.len()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_division_in_any_order_merges_to_the_bytes_of_one_run(
        owners in prop::collection::vec(0_usize..5, 12),
        twice in prop::collection::vec(0_usize..12, 0..4),
        order in Just((0..12_usize).collect::<Vec<_>>()).prop_shuffle(),
        files_order in Just((0..5_usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let lines = all_lines(BUILD);
        let mut parts = vec![Vec::new(); 5];
        for index in order {
            parts[owners[index]].push(lines[index].clone());
        }
        for index in twice {
            parts[(owners[index] + 1) % 5].push(lines[index].clone());
        }
        let folder = tempfile::tempdir().expect("a folder");
        let paths = files(folder.path(), BUILD, &parts);
        let paths: Vec<PathBuf> = files_order.into_iter().map(|number| paths[number].clone()).collect();
        prop_assert_eq!(merged(&paths, BUILD, STRICT), Ok((expected(), 0)));
    }

    #[test]
    fn shards_divide_the_units_whatever_their_predicted_costs(
        costs in prop::collection::vec(prop::option::of(0.0..600.0_f64), 0..60),
        count in 1_u32..9,
    ) {
        let ids = fake_units(BUILD).ids;
        let listed: Vec<_> = costs.iter().enumerate().map(|(index, cost)| (ids[index % 12], *cost)).collect();
        let mut all: Vec<usize> = (1..=count).flat_map(|number| Shard { number, count }.select(&listed)).collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..listed.len()).collect::<Vec<_>>());
    }

    #[test]
    fn a_changed_or_shortened_record_is_noticed(unit in 0_usize..12, place in 0.0..1.0_f64, bit in 0_u8..7) {
        let line = all_lines(BUILD)[unit].trim_end().to_owned();
        let at = (place * line.len() as f64) as usize;
        prop_assert!(Record::parse(&line).is_ok());
        prop_assert!(Record::parse(&line[..at]).is_err());
        let mut bytes = line.into_bytes();
        bytes[at] ^= 1 << bit;
        if let Ok(changed) = String::from_utf8(bytes) {
            prop_assert!(Record::parse(&changed).is_err(), "{}", changed);
        }
    }
}

#[test]
fn a_shard_balances_what_is_predicted() {
    let ids = fake_units(BUILD).ids;
    let listed: Vec<_> = ids
        .iter()
        .zip(1..)
        .map(|(id, cost)| (*id, Some(f64::from(cost))))
        .collect();
    let load = |number: u32| -> usize {
        let mine = Shard { number, count: 3 }.select(&listed);
        assert!(mine.is_sorted_by(|a, b| a > b), "the longest unit is first: {mine:?}");
        mine.into_iter().map(|position| position + 1).sum()
    };
    assert_eq!([load(1), load(2), load(3)].iter().sum::<usize>(), 78);
    assert!((1..=3).all(|number| (24..=28).contains(&load(number))));
}

#[test]
fn damaged_and_foreign_lines_are_refused_by_file_and_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut lines = all_lines(BUILD);
    let last = lines.pop().expect("twelve");
    let cut = last[..last.len() / 2].to_owned();
    let changed = lines[3].replacen("\"wall_s\":", "\"wall_s\":1", 1);
    let foreign = "{\"schema\":\"holdfast.bench/1\"}\n".to_owned();
    lines.splice(3..4, [changed, foreign]);
    lines.push(cut);
    let paths = files(folder.path(), BUILD, &[lines]);
    let refused = merged(&paths, BUILD, STRICT).expect_err("damaged");
    let name = paths[0].display();
    for expected in [
        format!("{name}:5: found a record that does not match its checksum, expected a whole record"),
        format!("{name}:6: found \"schema\": \"holdfast.bench/1\", expected a line of holdfast.plan/1"),
        format!("{name}:14: found a truncated record, expected a whole record"),
    ] {
        assert!(refused.contains(&expected), "{refused}");
    }
    assert_eq!(refused.lines().count(), 3);
    let tolerant = Rules {
        skip_damaged: true,
        ..STRICT
    };
    let (text, missing) = merged(&paths, BUILD, tolerant).expect("the rest is sound");
    assert_eq!(missing, 2);
    assert!(text.contains("\"complete\": false"));
}

#[test]
fn other_builds_and_plans_are_refused_unless_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let (ours, theirs) = (all_lines(BUILD), all_lines(OTHER));
    let mine = files(&folder.path().join(""), BUILD, &[ours[..6].to_vec()]);
    let other = folder.path().join("other");
    fs::create_dir(&other).expect("writable");
    let other = files(&other, OTHER, &[theirs[6..].to_vec()]);
    let both = [mine, other].concat();
    let refused = merged(&both, BUILD, STRICT).expect_err("two builds");
    assert!(
        refused.contains("found a plan of the build another (2), expected one (1)"),
        "{refused}"
    );
    // A record alone says where it comes from, too.
    let stray = folder.path().join("stray.jsonl");
    fs::write(&stray, &theirs[6]).expect("writable");
    let refused = merged(&[both[0].clone(), stray], BUILD, STRICT).expect_err("another build");
    assert!(
        refused.contains("stray.jsonl:1: found a record of the build another (2)"),
        "{refused}"
    );

    let told = Rules {
        mixed_builds: true,
        ..STRICT
    };
    let (text, missing) = merged(&both, BUILD, told).expect("told");
    assert_eq!(missing, 0);
    assert_eq!(
        text,
        expected().replace("\"version\": \"1\"", "\"version\": \"1 and 2\"")
    );

    let fewer = plan(&Options {
        seeds: Some(2),
        ..Options::default()
    });
    let fewer = Header::of(&Units::new(fewer, "fake.toml", BUILD)).line();
    let path = folder.path().join("fewer.jsonl");
    fs::write(&path, fewer).expect("writable");
    let refused = merged(&[both[0].clone(), path], BUILD, STRICT).expect_err("two plans");
    assert!(
        refused.contains("found another plan (of the experiment fake, with 8 units)"),
        "{refused}"
    );
}

#[test]
fn two_outcomes_of_one_unit_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let units = fake_units(BUILD);
    let changed = |config: &Config, call_off: &CallOff| {
        let mut outcome = simulate(config, call_off)?;
        outcome.history_hash ^= 1;
        Ok(outcome)
    };
    let other = ran(&units, &[0], None, &changed).0;
    let paths = files(folder.path(), BUILD, &[all_lines(BUILD), other]);
    let refused = merged(&paths, BUILD, STRICT).expect_err("they differ");
    assert!(
        refused.contains("1.jsonl:2: found another outcome of case quiet, variant ticket, seed 1"),
        "{refused}"
    );
}

#[test]
fn a_cache_saves_runs_and_heals() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::open(folder.path()).expect("writable");
    let units = fake_units(BUILD);
    let runs = AtomicUsize::new(0);
    let counted = |config: &Config, call_off: &CallOff| {
        runs.fetch_add(1, Ordering::Relaxed);
        flawed(config, call_off)
    };
    let all: Vec<usize> = (0..12).collect();
    let count = |chosen: &[usize]| {
        let before = runs.load(Ordering::Relaxed);
        let (lines, finished) = ran(&units, chosen, Some(&cache), &counted);
        assert_eq!(lines.len(), chosen.len());
        assert_eq!(finished.ran, runs.load(Ordering::Relaxed) - before);
        finished.ran
    };
    assert_eq!(count(&all[..7]), 7);
    assert_eq!(count(&all), 5);
    assert_eq!(count(&all), 0);
    for (index, text) in [(3, ""), (4, "{\"schema\":\"holdfast.record/1\",")] {
        fs::write(cache.path(units.ids[index]), text).expect("writable");
    }
    fs::copy(cache.path(units.ids[6]), cache.path(units.ids[5])).expect("writable");
    assert_eq!(count(&all), 3);
    assert_eq!(count(&all), 0);
    let header = folder.path().join("plan.jsonl");
    fs::write(&header, Header::of(&units).line()).expect("writable");
    assert_eq!(
        merged(&[header, folder.path().to_owned()], BUILD, STRICT),
        Ok((expected(), 0))
    );
}

#[test]
fn a_broken_assertion_is_recorded_and_not_cached() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::open(folder.path()).expect("writable");
    let panics = |_: &Config, _: &CallOff| panic!("out of memory");
    let (lines, _) = ran(&fake_units(BUILD), &[0], Some(&cache), &panics);
    assert!(lines[0].contains("internal error, please report it: out of memory"));
    assert!(!cache.has(fake_units(BUILD).ids[0]));
}

#[test]
fn a_plan_in_a_file_is_the_same_plan() {
    let folder = tempfile::tempdir().expect("a folder");
    let units = fake_units(BUILD);
    let path = folder.path().join("plan.jsonl");
    let lines: String = (4..8).map(|index| Unit::of(&units, index).line()).collect();
    fs::write(&path, Header::of(&units).line() + &lines).expect("writable");
    let selection = units::load(&path, BUILD, None).expect("sound");
    let ids: Vec<_> = selection
        .chosen
        .iter()
        .map(|index| selection.units.ids[*index])
        .collect();
    assert_eq!(ids, units.ids[4..8]);
    assert_eq!(selection.header, Header::of(&units));
    // A shard makes only the cells of its own units.
    let shard = Shard { number: 1, count: 4 };
    let one = units::load(&path, BUILD, Some(shard)).expect("sound");
    assert_eq!((one.chosen.len(), one.units.plan.cells.len()), (1, 1));
    assert_eq!(one.header, selection.header);
    let unknown = Unit {
        case: "unknown".to_owned(),
        id: Unit::of(&units, 0).id,
        ..Unit::of(&units, 4)
    };
    fs::write(&path, Header::of(&units).line() + &unknown.line()).expect("writable");
    let refused = units::load(&path, BUILD, None).expect_err("no such cell").to_string();
    assert!(refused.contains(":2: found the unit"), "{refused}");
    fs::write(&path, Header::of(&units).line() + &lines).expect("writable");
    let refused = units::load(&path, OTHER, None).expect_err("another build").to_string();
    assert!(refused.contains("found a plan of the build one (1), expected one of this program's build another (2)"));
    fs::write(&path, Header::of(&units).line().replacen("quiet", "quite", 1)).expect("writable");
    let refused = units::load(&path, BUILD, None).expect_err("changed").to_string();
    assert!(
        refused.contains("plan.jsonl:1: found a plan that does not match its hash"),
        "{refused}"
    );
}

#[test]
fn progress_is_what_the_cache_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let units = fake_units(BUILD);
    let path = folder.path().join("fake.plan.jsonl");
    // Two units had records when the plan was submitted.
    let predicted_s = |index: usize| (index >= 8).then_some(2.0);
    let line = |index: usize| {
        let unit = Unit::of(&units, index);
        Unit {
            predicted_s: predicted_s(index),
            ..unit
        }
        .line()
    };
    let lines: String = (2..12).map(line).collect();
    fs::write(&path, Header::of(&units).line() + &lines).expect("writable");
    let cache = Cache::open(&folder.path().join("cache")).expect("a cache");
    let now = || SystemTime::now() + Duration::from_secs(60);
    let begun = units::status(&path, &cache, now()).expect("a plan");
    assert_eq!(
        (begun.units, begun.done, begun.left_cpu_s, begun.left_s),
        (12, 2, None, None)
    );
    let all: Vec<usize> = (0..12).collect();
    ran(&units, &all[..8], Some(&cache), &flawed);
    let half = units::status(&path, &cache, now()).expect("a plan");
    assert_eq!((half.done, half.failed), (8, 2));
    assert_eq!(half.left_cpu_s, Some(8.0), "four units of 2 s");
    assert!(half.left_s.is_some() && half.at_once.is_some(), "{half:?}");
    // A damaged record is no progress.
    fs::write(cache.path(units.ids[3]), "{").expect("writable");
    assert_eq!(units::status(&path, &cache, now()).expect("a plan").done, 7);
    ran(&units, &all, Some(&cache), &flawed);
    let whole = units::status(&path, &cache, now()).expect("a plan");
    assert_eq!((whole.done, whole.left_cpu_s, whole.left_s), (12, Some(0.0), Some(0.0)));
}

#[test]
fn shards_last_a_minute_but_are_no_more_than_units() {
    let costs = |count: usize, cost: Option<f64>| vec![cost; count];
    assert_eq!(units::shards(&costs(10_000, Some(0.1)), None), 17);
    assert_eq!(units::shards(&costs(10_000, Some(600.0)), None), 1000);
    assert_eq!(units::shards(&costs(30, Some(600.0)), None), 30);
    assert_eq!(units::shards(&costs(10_000, None), None), 200);
    assert_eq!(units::shards(&[], None), 1);
    // Units without a prediction count as average ones.
    let mixed = [costs(60, Some(1.0)), costs(60, None)].concat();
    assert_eq!(units::shards(&mixed, None), 2);
    // Of what the experiment states, if no record is there.
    assert_eq!(units::shards(&costs(10_000, None), Some(0.1)), 17);
    assert_eq!(units::shards(&mixed, Some(0.1)), 2);
}

#[test]
fn an_identity_depends_on_parameters_seed_and_build() {
    let ids = |options: &Options, build| Units::new(plan(options), "x", build).ids;
    let base = ids(&Options::default(), BUILD);
    assert_eq!(base, ids(&Options::default(), BUILD));
    let set = |text: &str| Options {
        set: vec![text.to_owned()],
        ..Options::default()
    };
    for other in [
        ids(&set("host.hz=100"), BUILD),
        ids(&set("machine.costs.hypercall=\"1 us\""), BUILD),
        ids(&Options::default(), OTHER),
    ] {
        assert!(other.iter().all(|id| !base.contains(id)));
    }
    let mut unique = base.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), 12);
    // A run of fewer seeds shares its units with one of more.
    let fewer = Options {
        seeds: Some(1),
        ..Options::default()
    };
    assert_eq!(ids(&fewer, BUILD), base[..4]);
}

#[test]
fn parameters_are_resolved_for_each_cell() {
    let plan = plan(&Options::default());
    let of = |cell: usize, key: &str| plan.cells[cell].parameters.get(key).map(ToString::to_string);
    assert_eq!(of(0, "vm.*.lock").as_deref(), Some("\"ticket\""));
    assert_eq!(of(1, "vm.*.lock").as_deref(), Some("\"tas\""));
    assert_eq!(of(0, "vm.build.workload").as_deref(), Some("\"kernbench\""));
    assert_eq!(of(2, "vm.noise.workload").as_deref(), Some("\"hog\""));
    assert_eq!(of(0, "host.hz"), of(2, "host.hz"));
    assert!(of(0, "vm.build.kernbench.jobs").is_some() || of(0, "vm.*.kernbench.jobs").is_some());
    assert!(
        plan.cells[0]
            .parameters
            .keys()
            .any(|key| key.starts_with("machine.costs."))
    );
}
