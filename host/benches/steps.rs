//! What one step of the host costs on this machine: `cargo bench -p holdfast-host`, or `-- NAME` for the lines that
//! contain NAME.
//!
//! Medians over batches, in nanoseconds per call of `handle`; host time advances as it would between such events. How
//! many events of a kind switch threads is part of what they cost, and stands behind it.

use std::hint::black_box;
use std::time::Instant;

use holdfast_host::{
    Command, Cost, Event, Exit, GuestState, HardwareEvent, Host, HostConfig, HostInterrupt, Nanos, PcpuId, PcpuPlace,
    SchedConfig, SchedulerKind, VmConfig, VmGroup,
};

const GUEST: GuestState = GuestState {
    interrupts_enabled: true,
    cpl: 0,
    cr8: 0,
    undelivered: None,
    pv_eoi: false,
    word: 0,
};

/// With `paired`, the two vCPUs of each pCPU are one guest's.
fn host(kind: SchedulerKind, pcpus: u32, vms: u32, vcpus: u32, group: VmGroup, paired: bool) -> Host {
    let places: Vec<PcpuPlace> = (0..pcpus)
        .map(|pcpu| PcpuPlace {
            socket: pcpu / 16,
            core: pcpu % 16,
            thread: 0,
        })
        .collect();
    let config = HostConfig {
        sched: SchedConfig::of(kind),
        ..HostConfig::default()
    };
    let mut host = Host::new(&config, &places).expect("a valid host");
    for vm in 0..vms {
        let half = vcpus / 2;
        let on = |vcpu| {
            if paired {
                vec![vm * half + vcpu % half]
            } else {
                Vec::new()
            }
        };
        let affinity: Vec<Vec<u32>> = (0..vcpus).map(on).collect();
        host.add_vm(
            &VmConfig {
                group,
                ..VmConfig::default()
            },
            vcpus,
            &affinity,
        )
        .expect("a valid vm");
    }
    host.start(Nanos(0), &mut Vec::new());
    host
}

/// Median cost of `event(pcpu)` on all pCPUs in turn, `ns` of host time apart. Nanoseconds.
fn measure(name: &str, host: &mut Host, pcpus: u32, ns: u64, event: impl Fn(PcpuId) -> Event) -> f64 {
    let mut wanted = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    if wanted.next().is_some_and(|wanted| !name.contains(&wanted)) {
        return f64::NAN;
    }
    let mut out: Vec<Command> = Vec::with_capacity(1024);
    let mut now = 0;
    let mut switches = 0;
    let mut batches: Vec<f64> = (0..51)
        .map(|_| {
            let begin = Instant::now();
            for step in 0..2_000u32 {
                now += ns;
                host.handle(event(PcpuId(step % pcpus)), Nanos(now), &mut out);
                switches += u32::from(out.iter().any(is_switch));
                black_box(&out);
                out.clear();
            }
            begin.elapsed().as_nanos() as f64 / 2_000.0
        })
        .collect();
    batches.sort_by(f64::total_cmp);
    let median = batches[batches.len() / 2];
    let share = f64::from(switches) / (51.0 * 2_000.0);
    println!("{name:<58} {median:>7.0} ns, {share:.3} switches");
    median
}

fn is_switch(command: &Command) -> bool {
    matches!(
        command,
        Command::Charge {
            cost: Cost::ContextSwitch,
            ..
        }
    )
}

fn main() {
    let exit = |exit| {
        move |pcpu| {
            Event::Hardware(HardwareEvent::Exit {
                pcpu,
                exit,
                guest: GUEST,
            })
        }
    };
    let tick = exit(Exit::ExternalInterrupt(HostInterrupt::Timer));
    let call = Exit::Hypercall {
        number: 99,
        arguments: [0; 4],
    };
    for kind in SchedulerKind::ALL {
        let groups = VmGroup::OwnWithVcpuGroups { shares: 1024 };
        for (name, group, paired) in [
            ("root", VmGroup::Root, false),
            ("vcpu groups", groups, false),
            ("paired groups", groups, true),
        ] {
            // Twice as many vCPUs as pCPUs, on machines of one size and 56 times that: the cost must not follow. Where
            // a pCPU's two vCPUs are of two large guests, in groups that weigh next to nothing there, they take turns
            // more often: only pairs compare the same events.
            let shapes = [(8, 1, 16), (448, 8, 112)];
            let costs = shapes.map(|(pcpus, vms, vcpus)| {
                let shape = format!("{kind:?}, {vms} × {vcpus} vcpus on {pcpus}, {name}");
                let mut one = host(kind, pcpus, vms, vcpus, group, paired);
                let hypercall = measure(&format!("hypercall, {shape}"), &mut one, pcpus, 1_000, exit(call));
                let mut one = host(kind, pcpus, vms, vcpus, group, paired);
                let apart = 1_000_000 / u64::from(pcpus);
                [
                    hypercall,
                    measure(&format!("tick, {shape}"), &mut one, pcpus, apart, tick),
                ]
            });
            let ratio = |event: usize| costs[1][event] / costs[0][event];
            if !ratio(1).is_nan() {
                println!("448 against 8 pcpus: hypercall {:.2}, tick {:.2}", ratio(0), ratio(1));
            }
        }
    }
}
