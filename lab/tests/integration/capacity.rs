//! How many copies of a VM fit, found by halving the step, against runs of every number of copies.

use std::num::NonZeroUsize;
use std::path::Path;

use holdfast_lab::capacity::{Budget, Point, search};
use holdfast_lab::experiment::Experiment;
use holdfast_lab::options::Options;
use holdfast_lab::plan::Plan;
use holdfast_lab::run::{self, CallOff, Execution};

/// Share of the wanted time that copies may wait for, in percent.
const BUDGET: f64 = 5.0;
/// Most copies that are tried.
const MOST: usize = 9;
const VM: &str = "web";

/// A host with some copies of a VM.
fn host(workload: &str, scale: f64, count: usize) -> Experiment {
    let text = format!(
        "name = \"host\"\ntitle = \"copies of a VM\"\nmetric = \"own\"\nseeds = 2\nscale = {scale}\nlimit = \"600 s\"\n\
         [machine]\nsockets = 1\ncores = 8\nthreads = 1\n\
         [[vm]]\nname = \"{VM}\"\nvcpus = 2\ncount = {count}\nworkload = \"{workload}\"\n"
    );
    Experiment::parse("host.toml", &text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Returns the time ready without a pCPU of all copies in percent of the wanted time, by running every seed of the
/// experiment.
fn ready_percent(experiment: Experiment) -> f64 {
    let plan = Plan::new(experiment, &Options::default()).unwrap_or_else(|problems| panic!("{problems}"));
    let shares = plan.seeds.iter().map(|seed| {
        let mut config = plan.cells[0].config.clone();
        config.seed = *seed;
        let outcome = run::simulate(&config, &CallOff::new()).unwrap_or_else(|failure| panic!("{failure}"));
        let sum = |counter: &str| outcome.vms.iter().map(|vm| vm.counters[counter]).sum::<u64>() as f64;
        sum("ready_ns") / (sum("ready_ns") + sum("cpu_time_ns")) * 100.0
    });
    shares.sum::<f64>() / plan.seeds.len() as f64
}

/// Returns the most copies up to which every number of them stays within the budget.
fn true_knee(workload: &str, scale: f64) -> usize {
    let fits = |copies: &usize| ready_percent(host(workload, scale, *copies)) <= BUDGET;
    (1..=MOST).take_while(fits).last().unwrap_or(0)
}

/// Returns how many copies fit, as the command `capacity` finds it.
fn found(workload: &str, scale: f64) -> usize {
    let mut experiment = host(workload, scale, 1);
    experiment.let_count(VM);
    let point = |copies: usize| {
        let options = Options {
            set: vec![format!("vm.{VM}.count={copies}")],
            ..Options::default()
        };
        let read = |_: &Path| unreachable!("the experiment has no files");
        let plan = Plan::of_cells(experiment.clone(), &options, &read, None);
        let plan = plan.unwrap_or_else(|problems| panic!("{problems}"));
        let execution = Execution {
            runner: &run::simulate,
            jobs: NonZeroUsize::MIN,
            call_off: &CallOff::new(),
            progress: &|_| (),
        };
        Point::of(&plan, &run::run(&plan, execution), (VM, copies), None)
    };
    let capacity = search(VM, Budget::ReadyPercent(BUDGET), MOST, point).unwrap_or_else(|error| panic!("{error}"));
    capacity.expect("it was not called off").fits
}

#[test]
fn the_knee_is_that_of_runs_at_every_number_of_copies_or_one_beside() {
    for (workload, scale) in [("kernbench", 0.002), ("hackbench", 0.0005), ("pgbench", 0.05)] {
        let (truth, found) = (true_knee(workload, scale), found(workload, scale));
        println!("{workload}: {found} fit, {truth} in truth");
        assert!(
            (1..MOST).contains(&truth),
            "{workload}: {truth} fit, so nothing is shown"
        );
        assert!(found.abs_diff(truth) <= 1, "{workload}: {found} fit, {truth} in truth");
    }
}
