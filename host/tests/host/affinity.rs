//! vCPUs that are sent to a pCPU, while they run, wait and sleep.

use holdfast_abi::lapic;
use holdfast_host::{Event, HostConfig, PcpuId, VcpuId, VmConfig, VmId, VmmEvent};

use crate::rig::{Cpu, Rig, some_guest};
use crate::world::Rng;

/// A random walk of pinned vCPUs: each is only ever in its guest where it was sent last.
#[test]
fn vcpus_run_where_they_are_sent() {
    let mut random = Rng(5);
    let mut rig = Rig::new(
        &HostConfig::default(),
        &VmConfig::default(),
        3,
        vec![Cpu::default(); 4],
        false,
    );
    rig.start();
    let mut allowed = [None; 4];
    let (mut sent, mut seen) = (0, 0);
    for _ in 0..4000 {
        let ns = random.below(40_000);
        rig.pass(ns);
        match (some_guest(&rig, &mut random), random.below(3)) {
            (Some(pcpu), 0) => {
                while rig.serve(pcpu).is_some() {}
                rig.write(pcpu, lapic::SVR, lapic::SVR_ENABLE | 0xff);
                rig.set_irqs(pcpu, true);
                // Not in a handler, which may just have begun.
                if rig.guest_on(pcpu).is_some_and(|vcpu| rig.cpus[vcpu as usize].irqs) {
                    rig.halt(pcpu);
                }
            }
            (_, 1) => {
                let idle = (0..3).find(|&pcpu| rig.guest_on(pcpu).is_none());
                let Some(pcpu) = idle.map(PcpuId) else { continue };
                let (vcpu, to) = (random.below(4), random.below(4) as u32);
                let only = Some(PcpuId(to)).filter(|only| only.0 < 3);
                allowed[vcpu as usize] = only;
                let vcpu = VcpuId(vcpu as u32);
                rig.event(Event::Vmm(VmmEvent::Affinity { pcpu, vcpu, only }));
                rig.pass(10_000);
                sent += 1;
            }
            _ => {
                let to = random.below(4);
                let Some(pcpu) = (0..3).find(|&pcpu| rig.guest_on(pcpu).is_none()) else {
                    continue;
                };
                rig.event(Event::Vmm(VmmEvent::Msi {
                    pcpu: PcpuId(pcpu),
                    vm: VmId(0),
                    address: holdfast_abi::msi::address(to as u8),
                    data: 0x41,
                }));
            }
        }
        for pcpu in 0..3 {
            let Some(vcpu) = rig.guest_on(pcpu) else { continue };
            assert!(
                allowed[vcpu as usize].is_none_or(|only| only == PcpuId(pcpu)),
                "vcpu {vcpu}"
            );
            seen += u32::from(allowed[vcpu as usize].is_some());
        }
    }
    assert!(sent > 200 && seen > 500, "{sent} sent, {seen} looks at pinned vcpus");
}
