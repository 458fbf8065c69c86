//! Lazy preemption: how long a halted vCPU waits whose pCPU has other work when an interrupt wakes it.

use holdfast_lab::experiment::Experiment;
use holdfast_lab::options::Options;
use holdfast_lab::plan::Plan;
use holdfast_lab::shipped::{self, EXPERIMENTS};
use holdfast_sim::CallOff;

/// Nanoseconds from a call of halted vCPUs to the end of its handler: median and 99th percentile. A second guest
/// computes on the pCPUs of the halted ones, with few ticks of its own.
fn call_ns(model: &str, hz: u32) -> [u64; 2] {
    let shipped = shipped::find(EXPERIMENTS, "ipi-bench").expect("it is shipped");
    let experiment = Experiment::parse(shipped.file, shipped.text).expect("a valid experiment");
    let (preempt, hz) = (format!("host.preempt={model}"), format!("host.hz={hz}"));
    let options = Options {
        seeds: Some(1),
        scale: Some(0.01),
        cases: vec!["unicast-halted".to_owned()],
        variants: vec!["x2apic".to_owned()],
        set: ["vm.neighbour.workload=hog", "vm.neighbour.hz=10", &preempt, &hz]
            .map(str::to_owned)
            .to_vec(),
        ..Options::default()
    };
    let plan = Plan::new(experiment, &options).unwrap_or_else(|problems| panic!("{problems}"));
    let mut config = plan.cells[0].config.clone();
    config.seed = 1;
    let outcome = holdfast_sim::run(&config, &CallOff::new()).unwrap_or_else(|failure| panic!("{failure}"));
    ["ipi_latency_p50_ns", "ipi_latency_p99_ns"].map(|name| outcome.vms[0].counters[name])
}

#[test]
fn under_lazy_preemption_a_woken_vcpu_waits_for_the_hosts_tick() {
    let at_once = ["none", "voluntary", "full"].map(|model| call_ns(model, 250));
    assert_eq!(at_once[0], at_once[1]);
    assert_eq!(at_once[0], at_once[2]);
    let [median, _] = at_once[0];
    assert!(median < 200_000, "{median} ns");
    let [lazy_median, lazy_high] = call_ns("lazy", 250);
    // A tick of 250 Hz is 4 ms away, or less.
    assert!((500_000..=4_100_000).contains(&lazy_median), "{lazy_median} ns");
    assert!((2_000_000..=4_500_000).contains(&lazy_high), "{lazy_high} ns");
    // With four times as many ticks it waits for a quarter.
    let [fast_median, _] = call_ns("lazy", 1000);
    assert!(
        (2..=6).contains(&(lazy_median / fast_median)),
        "{lazy_median} and {fast_median} ns"
    );
}
