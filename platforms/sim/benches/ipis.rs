//! How many interrupts between vCPUs are simulated in a second of real time, from the sender's function to the end of
//! the receiver's: one at a time and to all others, by way of sending. A broadcast's cost must follow the number of
//! its targets alone.
#![allow(missing_docs)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use holdfast_sim::{CallOff, Config, Outcome, run};
use holdfast_workloads::{Ipi, Reach, Workload};

#[path = "../tests/sim/apicv.rs"]
#[allow(dead_code, unused_imports)]
mod apicv;
#[path = "../tests/sim/avic.rs"]
#[allow(dead_code, unused_imports)]
mod avic;
#[path = "../tests/sim/image.rs"]
#[allow(dead_code)]
mod image;

/// What a way of sending changes.
type Change = fn(&mut Config);

/// Ways of sending.
const WAYS: [(&str, Change); 7] = [
    ("xapic", |config| config.vms[0].boot.kernel.apic.nox2apic = true),
    ("x2apic", |_| {}),
    ("pv_ipi", |config| {
        config.vms[0].host.pv_send_ipi = true;
        config.vms[0].host.pv_eoi = true;
    }),
    ("avic", |config| {
        config.machine.avic = Some(avic::part());
        config.host.avic.enable = holdfast_host::AvicEnable::On;
    }),
    ("x2avic", |config| {
        let mut part = avic::part();
        part.hardware.x2avic = true;
        config.machine.avic = Some(part);
        config.host.avic.enable = holdfast_host::AvicEnable::On;
        config.host.avic.x2avic = true;
    }),
    ("apicv", |config| {
        config.machine.apicv = Some(apicv::part(false));
        config.host.apicv.enable = true;
    }),
    ("ipiv", |config| {
        config.machine.apicv = Some(apicv::part(true));
        config.host.apicv.enable = true;
    }),
];

/// A guest of `vcpus`, each with a pCPU, whose first one calls others.
fn config(change: Change, vcpus: u32, reach: Reach, busy: bool, calls: u64) -> Config {
    let mut config = image::config(vcpus, vcpus, 0, 1);
    config.vms[0].affinity = (0..vcpus).map(|vcpu| vec![vcpu]).collect();
    config.vms[0].boot.kernel.hz = 250;
    config.vms[0].boot.workload = Workload::Ipi(Ipi { reach, busy, calls });
    change(&mut config);
    config
}

fn play(config: &Config) -> Outcome {
    let outcome = run(config, &CallOff::new());
    outcome.unwrap_or_else(|failure| panic!("{failure}"))
}

fn ways(c: &mut Criterion) {
    for (name, reach, calls) in [
        ("unicast", Reach::Unicast, 20_000),
        ("broadcast", Reach::Broadcast, 4_000),
    ] {
        for (state, busy) in [("running", true), ("halted", false)] {
            let mut group = c.benchmark_group(format!("{name}_{state}_8_vcpus"));
            group.sample_size(10);
            for (way, change) in WAYS {
                let config = config(change, 8, reach, busy, calls);
                let targets = play(&config).vms[0].operations.expect("targets are counted");
                group.throughput(Throughput::Elements(targets));
                group.bench_function(way, |b| b.iter(|| play(&config)));
            }
        }
    }
}

fn broadcasts(c: &mut Criterion) {
    for (way, change) in WAYS {
        let mut group = c.benchmark_group(format!("broadcast_{way}"));
        group.sample_size(10);
        for vcpus in [16u32, 64, 255] {
            let calls = 100_000 / u64::from(vcpus);
            let config = config(change, vcpus, Reach::Broadcast, true, calls);
            let targets = play(&config).vms[0].operations.expect("targets are counted");
            group.throughput(Throughput::Elements(targets));
            group.bench_function(BenchmarkId::from_parameter(vcpus - 1), |b| b.iter(|| play(&config)));
        }
    }
}

criterion_group!(benches, ways, broadcasts);
criterion_main!(benches);
