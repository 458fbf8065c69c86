//! What one step of the host costs on this machine: `cargo bench -p holdfast-host`.
//!
//! Medians over batches, in nanoseconds per call of `handle`; host time advances as it would between such events.

use std::hint::black_box;
use std::time::Instant;

use holdfast_host::{
    Command, Event, Exit, GuestState, Host, HostConfig, HostInterrupt, Nanos, PcpuId, PcpuPlace, VmConfig, VmGroup,
};

const GUEST: GuestState = GuestState {
    interrupts_enabled: true,
    cpl: 0,
};

fn host(pcpus: u32, vms: u32, vcpus: u32, group: VmGroup) -> Host {
    let places: Vec<PcpuPlace> = (0..pcpus)
        .map(|pcpu| PcpuPlace {
            socket: pcpu / 16,
            core: pcpu % 16,
            thread: 0,
        })
        .collect();
    let mut host = Host::new(&HostConfig::default(), &places).expect("a valid host");
    for _ in 0..vms {
        host.add_vm(
            &VmConfig {
                group,
                ..VmConfig::default()
            },
            vcpus,
            &[],
        )
        .expect("a valid vm");
    }
    host.start(Nanos(0), &mut Vec::new());
    host
}

/// Median cost of `event(pcpu)` on all pCPUs in turn, `ns` of host time apart.
fn measure(name: &str, host: &mut Host, pcpus: u32, ns: u64, event: impl Fn(PcpuId) -> Event) {
    let mut out: Vec<Command> = Vec::with_capacity(1024);
    let mut now = 0;
    let mut batches: Vec<f64> = (0..51)
        .map(|_| {
            let begin = Instant::now();
            for step in 0..2_000u32 {
                now += ns;
                host.handle(event(PcpuId(step % pcpus)), Nanos(now), &mut out);
                black_box(&out);
                out.clear();
            }
            begin.elapsed().as_nanos() as f64 / 2_000.0
        })
        .collect();
    batches.sort_by(f64::total_cmp);
    println!("{name:<44} {:>7.0} ns", batches[batches.len() / 2]);
}

fn main() {
    let exit = |exit| {
        move |pcpu| Event::Exit {
            pcpu,
            exit,
            guest: GUEST,
        }
    };
    let tick = exit(Exit::ExternalInterrupt(HostInterrupt::Timer));
    let call = Exit::Hypercall {
        number: 99,
        arguments: [0; 4],
    };
    for (pcpus, vms, vcpus) in [(16, 1, 16), (16, 4, 16), (1024, 16, 256)] {
        for (name, group) in [
            ("root", VmGroup::Root),
            ("vcpu groups", VmGroup::OwnWithVcpuGroups { shares: 1024 }),
        ] {
            let shape = format!("{vms} × {vcpus} vcpus on {pcpus}, {name}");
            let mut host = host(pcpus, vms, vcpus, group);
            measure(&format!("hypercall, {shape}"), &mut host, pcpus, 1_000, exit(call));
            let mut host = self::host(pcpus, vms, vcpus, group);
            measure(
                &format!("tick, {shape}"),
                &mut host,
                pcpus,
                1_000_000 / u64::from(pcpus),
                tick,
            );
        }
    }
}
