//! Resident memory of blocked flows and vCPUs. Prints figures, and does not measure time.
#![allow(missing_docs)]

use std::hint::black_box;
use std::rc::Rc;

use holdfast_guest::{GuestImage, Machine, Report};
use holdfast_locks::CpuId;
use holdfast_sim::{CallOff, Config, SimMachine, run, run_images};
use holdfast_workloads::{Boot, Hog, Workload};

#[path = "../tests/sim/image.rs"]
#[allow(dead_code)]
mod image;

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok())
        .unwrap_or(0)
        * 4096
}

/// Makes many flows that each block a few calls deep, as a system call does.
struct Blocked {
    machine: SimMachine,
    flows: usize,
}

fn block(machine: SimMachine, hub: &<SimMachine as Machine>::Context, mine: *const <SimMachine as Machine>::Context) {
    let frame = black_box([0u64; 64]);
    // SAFETY: the flow's context is in a table that outlives the flow.
    #[allow(unsafe_code)]
    machine.switch(unsafe { &*mine }, hub);
    black_box(frame);
}

impl GuestImage for Blocked {
    fn boot(&self, _: CpuId) -> ! {
        let machine = self.machine;
        machine.report(Report::Begin);
        let hub = Rc::new(machine.empty_context());
        let before = resident_bytes();
        let mut contexts: Vec<Box<<SimMachine as Machine>::Context>> = Vec::with_capacity(self.flows);
        for index in 0..self.flows {
            let hub_of_flow = hub.clone();
            let table: *const Vec<Box<<SimMachine as Machine>::Context>> = &contexts;
            // SAFETY: the table has room for all flows from the start and outlasts this flow.
            #[allow(unsafe_code)]
            let body = move || block(machine, &hub_of_flow, unsafe { &*(&(*table))[index] });
            contexts.push(Box::new(machine.new_context(Box::new(body))));
            machine.switch(&hub, &contexts[index]);
        }
        let each = (resident_bytes() - before) / self.flows;
        println!("{} blocked flows: {each} bytes resident each", self.flows);
        machine.report(Report::Done { operations: None });
        unreachable!("the run is over")
    }

    fn interrupt(&self, _: u8) {}
}

fn vcpus(pcpus: u32, vms: u32, each: u32) {
    let mut config: Config = image::config(pcpus, each, 0, 1);
    config.vms[0].boot = Boot {
        workload: Workload::Hog(Hog::default()),
        ..Boot::default()
    };
    config.vms = vec![config.vms[0].clone(); vms as usize];
    config.limit_ns = 50_000_000;
    let before = resident_bytes();
    let started = std::time::Instant::now();
    // A hog is never done: the run ends at its limit, with its memory still in use.
    let result = run_watching(&config);
    println!(
        "{} vcpus on {pcpus} pcpus: {} bytes resident each, 50 virtual ms in {:.1} s ({result})",
        vms * each,
        (result_peak(before)) / (vms * each) as usize,
        started.elapsed().as_secs_f64()
    );
}

fn run_watching(config: &Config) -> &'static str {
    match run(config, &CallOff::new()) {
        Err(holdfast_sim::Failure::Limit(_)) => "ran to its limit",
        Err(_) => "failed",
        Ok(_) => "ended",
    }
}

/// The high-water mark of resident memory, minus the memory in use before.
fn result_peak(before: usize) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak
        .and_then(|text| text.trim().trim_end_matches(" kB").parse::<usize>().ok())
        .unwrap_or(0);
    (kib * 1024).saturating_sub(before)
}

fn main() {
    if std::env::args().any(|argument| argument == "vcpus") {
        vcpus(1024, 64, 64);
        return;
    }
    let config = image::config(1, 1, 0, 1);
    let outcome = run_images(&config, &CallOff::new(), |_, machine| {
        Box::new(Blocked {
            machine,
            flows: 100_000,
        })
    });
    assert!(outcome.is_ok(), "{outcome:?}");
    // In a process of its own, since freed memory is not given back.
    let again = std::env::current_exe().and_then(|program| std::process::Command::new(program).arg("vcpus").status());
    assert!(again.is_ok_and(|status| status.success()));
}
