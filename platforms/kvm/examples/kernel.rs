//! The guest kernel with a workload on this host's KVM: `cargo run -p holdfast-kvm --example kernel -- kernbench
//! --vcpus 4`.
//!
//! Prints the report's counters, one per line. The exit status is 0, 1 (a run failed) or 2 (bad usage).

use std::process::ExitCode;
use std::time::Duration;

use holdfast_kvm::{Options, Report, Task, Vm, run};
use holdfast_workloads::{Aim7, Amqp, Boot, Contend, Kernbench, KernelConfig, Pgbench, Startup, Workload};

const USAGE: &str =
    "usage: kernel contend|kernbench|pgbench|aim7|amqp|startup [--vcpus N] [--vms N] [--lock NAME] [--limit S]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match start(&arguments) {
        Err(usage) => {
            eprintln!("{usage}\n{USAGE}");
            ExitCode::from(2)
        }
        Ok(Err(error)) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
        Ok(Ok(report)) => {
            print(&report);
            ExitCode::SUCCESS
        }
    }
}

fn start(arguments: &[String]) -> Result<Result<Report, holdfast_kvm::Error>, String> {
    let (name, options) = arguments.split_first().ok_or("a workload expected")?;
    let mut boot = Boot {
        workload: workload(name)?,
        kernel: KernelConfig {
            lock: holdfast_locks::LockKind::PvTicket,
            ..KernelConfig::default()
        },
        ..Boot::default()
    };
    let (mut vcpus, mut vms, mut limit) = (2, 1, 60);
    for pair in options.chunks(2) {
        let [name, value] = pair else {
            return Err(format!("{}: a value expected", pair[0]));
        };
        let number = || {
            value
                .parse()
                .map_err(|_| format!("{name}: a number expected, found {value}"))
        };
        match name.as_str() {
            "--vcpus" => vcpus = number()?,
            "--vms" => vms = number()?,
            "--limit" => limit = number()?,
            "--lock" => boot.kernel.lock = value.parse().map_err(|error| format!("{name}: {error}"))?,
            _ => return Err(format!("unknown option {name}")),
        }
    }
    let vms: Vec<Vm> = (1..=vms)
        .map(|number| Vm::new(format!("vm{number}"), vcpus, Task::Kernel(boot.clone())))
        .collect();
    let options = Options {
        limit: Duration::from_secs(limit.into()),
        ..Options::default()
    };
    Ok(run(&vms, &options))
}

/// Returns a small workload, which takes a few seconds on hardware.
fn workload(name: &str) -> Result<Workload, String> {
    Ok(match name {
        "contend" => Workload::Contend(Contend {
            calls: 20_000,
            ..Contend::default()
        }),
        "kernbench" => Workload::Kernbench(Kernbench {
            scale: 0.002,
            ..Kernbench::default()
        }),
        "pgbench" => Workload::Pgbench(Pgbench {
            transactions: 500,
            ..Pgbench::default()
        }),
        "aim7" => Workload::Aim7(Aim7 {
            users: 8,
            jobs: 5,
            ..Aim7::default()
        }),
        "amqp" => Workload::Amqp(Amqp {
            messages: 2_000,
            ..Amqp::default()
        }),
        "startup" => Workload::Startup(Startup::default()),
        _ => return Err(format!("no workload {name}")),
    })
}

fn print(report: &Report) {
    for vm in &report.vms {
        let elapsed = vm.elapsed_ns.unwrap_or(0) as f64 / 1e9;
        println!(
            "{}: {elapsed:.3} s, {:?} operations, up in {:?}",
            vm.name,
            vm.operations,
            vm.boot.unwrap_or_default()
        );
        for (name, value) in &vm.counters {
            println!("  {name} {value}");
        }
        for name in [
            "exits",
            "hypercalls",
            "halt_exits",
            "irq_injections",
            "directed_yield_successful",
        ] {
            println!("  vcpus.{name} {}", vm.stat(name));
        }
    }
}
