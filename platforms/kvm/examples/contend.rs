//! Lock contention without a kernel on this host's KVM: `cargo run -p holdfast-kvm --example contend -- --vcpus 4
//! --lock pv-ticket`.
//!
//! Prints one line of JSON per run. The exit status is 0, 1 (a run failed) or 2 (bad usage).

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use holdfast_kvm::{Contention, Fault, Feature, Options, Report, Task, Vm, run};

const USAGE: &str = "usage: contend [--vcpus N] [--lock NAME] [--hold NS] [--think NS] [--duration MS] [--runs N] \
[--hogs N] [--pin] [--timed] [--nopvspin] [--without FEATURE] [--realtime] [--fault NAME] [--limit S]";

struct Wanted {
    vcpus: u32,
    hogs: u32,
    runs: u32,
    pin: bool,
    realtime: bool,
    contention: Contention,
    without: Vec<Feature>,
    fault: Option<Fault>,
    limit: Duration,
}

fn main() -> ExitCode {
    let wanted = match parse(std::env::args().skip(1)) {
        Ok(wanted) => wanted,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    for _ in 0..wanted.runs {
        match once(&wanted) {
            Ok(report) => println!("{}", json(&wanted, &report)),
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn once(wanted: &Wanted) -> Result<Report, holdfast_kvm::Error> {
    let task = wanted.fault.map_or(Task::Contention(wanted.contention), Task::Fault);
    let mut vm = Vm::new("vm1", wanted.vcpus, task);
    if wanted.pin {
        let pcpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        vm = vm.pinned((0..wanted.vcpus).map(|vcpu| vec![vcpu % pcpus]).collect());
    }
    if wanted.realtime {
        vm = vm.realtime();
    }
    vm = wanted.without.iter().fold(vm, |vm, &feature| vm.without(feature));
    let mut vms = vec![vm];
    if wanted.hogs > 0 {
        vms.push(Vm::new("hog", wanted.hogs, Task::Hog).memory(16 << 20).background());
    }
    let options = Options {
        limit: wanted.limit,
        ..Options::default()
    };
    run(&vms, &options)
}

fn json(wanted: &Wanted, report: &Report) -> String {
    let vm = &report.vms[0];
    let mut fields: BTreeMap<&str, String> = BTreeMap::new();
    fields.insert("lock", format!("\"{}\"", wanted.contention.lock));
    fields.insert("vcpus", wanted.vcpus.to_string());
    fields.insert("per_second", format!("{:.0}", vm.per_second().unwrap_or(0.0)));
    fields.insert(
        "boot_ms",
        format!("{:.1}", vm.boot.unwrap_or_default().as_secs_f64() * 1e3),
    );
    fields.insert("kicks", vm.vcpus.iter().map(|vcpu| vcpu.kicks).sum::<u64>().to_string());
    fields.insert("halts", vm.vcpus.iter().map(|vcpu| vcpu.halts).sum::<u64>().to_string());
    fields.insert("waits", vm.vcpus.iter().map(|vcpu| vcpu.waits).sum::<u64>().to_string());
    for name in [
        "hypercalls",
        "halt_exits",
        "directed_yield_attempted",
        "directed_yield_successful",
        "exits",
    ] {
        fields.insert(name, vm.stat(name).to_string());
    }
    let each: Vec<String> = vm.vcpus.iter().map(|vcpu| vcpu.acquisitions.to_string()).collect();
    fields.insert("acquisitions", format!("[{}]", each.join(",")));
    let guest: Vec<String> = vm
        .counters
        .iter()
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    fields.insert("counters", format!("{{{}}}", guest.join(",")));
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    format!("{{{}}}", fields.join(","))
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Wanted, String> {
    let mut wanted = Wanted {
        vcpus: 2,
        hogs: 0,
        runs: 1,
        pin: false,
        realtime: false,
        contention: Contention::default(),
        without: Vec::new(),
        fault: None,
        limit: Duration::from_secs(60),
    };
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{name}: a value expected"));
        match name.as_str() {
            "--pin" => wanted.pin = true,
            "--timed" => wanted.contention.timed = true,
            "--nopvspin" => wanted.contention.nopvspin = true,
            "--realtime" => wanted.realtime = true,
            "--vcpus" => wanted.vcpus = number(&name, value()?)? as u32,
            "--hogs" => wanted.hogs = number(&name, value()?)? as u32,
            "--runs" => wanted.runs = number(&name, value()?)? as u32,
            "--hold" => wanted.contention.hold_ns = number(&name, value()?)?,
            "--think" => wanted.contention.think_ns = number(&name, value()?)?,
            "--duration" => wanted.contention.duration_ns = number(&name, value()?)?.saturating_mul(1_000_000),
            "--limit" => wanted.limit = Duration::from_secs(number(&name, value()?)?),
            "--lock" => wanted.contention.lock = value()?.parse().map_err(|error| format!("{name}: {error}"))?,
            "--without" => wanted.without.push(feature(&value()?)?),
            "--fault" => wanted.fault = Some(fault(&value()?)?),
            _ => return Err(format!("unknown option {name}")),
        }
    }
    Ok(wanted)
}

fn number(name: &str, value: String) -> Result<u64, String> {
    value
        .parse()
        .map_err(|_| format!("{name}: a number expected, found {value}"))
}

fn feature(name: &str) -> Result<Feature, String> {
    let found = Feature::ALL
        .into_iter()
        .find(|feature| format!("{feature:?}").eq_ignore_ascii_case(name));
    found.ok_or(format!("--without: {name}: expected one of {:?}", Feature::ALL))
}

fn fault(name: &str) -> Result<Fault, String> {
    let all = [
        Fault::Panic,
        Fault::PageFault,
        Fault::TripleFault,
        Fault::Hang,
        Fault::Halt,
        Fault::Ring,
        Fault::Port,
    ];
    let found = all
        .into_iter()
        .find(|fault| format!("{fault:?}").eq_ignore_ascii_case(name));
    found.ok_or(format!("--fault: {name}: expected one of {all:?}"))
}
