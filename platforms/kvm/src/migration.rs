//! Migration of a guest to a new VM of the same host, with the same memory: what a VMM saves of a VM and restores.
//!
//! All vCPUs are stopped between two entries, with no emulation unfinished. The state is that of KVM's interface:
//! registers, MSRs with the paravirtual ones, LAPIC, pending events, MP state, XSAVE, and the VM's clock and interrupt
//! controllers. The time-stamp counter keeps its offset from the host's, so the guest sees how long it was stopped.
//!
//! **The latched kick**: KVM keeps a kick until its target halts (`pv_unhalted`), and no `ioctl` reads that flag.
//! `KVM_GET_MP_STATE` shows it only of a halted vCPU, as runnable (Linux `arch/x86/kvm/x86.c`,
//! `kvm_arch_vcpu_ioctl_get_mpstate`). Of a vCPU that was kicked before its halt it shows nothing. So the state of a
//! runnable vCPU is set to halted in the VM that it leaves, and read again. In the new VM the kick is repeated: it is
//! an interrupt message with a delivery mode of its own (`APIC_DM_REMRD`), which `KVM_SIGNAL_MSI` sends too.

#![expect(unsafe_code, reason = "ioctls that kvm-ioctls lacks, and XSAVE")]

use std::os::fd::AsRawFd;

use holdfast_abi::msr;
use kvm_bindings::{
    KVM_CLOCK_REALTIME, KVM_IRQCHIP_IOAPIC, KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE, KVM_MP_STATE_HALTED,
    KVM_MP_STATE_RUNNABLE, KVM_VCPU_TSC_CTRL, KVM_VCPU_TSC_OFFSET, Msrs, kvm_clock_data, kvm_debugregs,
    kvm_device_attr, kvm_irqchip, kvm_lapic_state, kvm_mp_state, kvm_msi, kvm_msr_entry, kvm_regs, kvm_sregs,
    kvm_vcpu_events, kvm_xcrs, kvm_xsave,
};
use kvm_ioctls::{Cap, VcpuFd, VmFd};

use crate::error::Error;
use crate::instance::Instance;
use crate::memory::Memory;
use crate::system::Host;
use crate::vm::Vm;

/// Number of MSRs in one call, below KVM's limit of 256.
const MSRS: usize = 128;
/// Delivery mode of a kick in an interrupt message: "remote read", which KVM uses for it (`APIC_DM_REMRD`).
const KICK: u32 = 3 << 8;
/// The `ioctl`s for attributes of a vCPU, `_IOW(KVMIO, 0xe1 and 0xe2, struct kvm_device_attr)`.
const KVM_SET_DEVICE_ATTR: libc::c_ulong = 0x4018_aee1;
const KVM_GET_DEVICE_ATTR: libc::c_ulong = 0x4018_aee2;
/// The instruction HLT.
const HLT: u8 = 0xf4;

/// What a migration did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Number of migrations.
    pub(crate) migrations: u64,
    /// Number of latched kicks that arrived.
    pub(crate) kicks: u64,
    /// Number of kicks, taken before the halt, that did not arrive.
    pub(crate) kicks_lost: u64,
}

/// The state of a vCPU.
struct SavedVcpu {
    mp_state: kvm_mp_state,
    kicked: bool,
    regs: kvm_regs,
    sregs: kvm_sregs,
    xsave: Box<kvm_xsave>,
    /// `None` on a host without XSAVE.
    xcrs: Option<kvm_xcrs>,
    debug: kvm_debugregs,
    lapic: kvm_lapic_state,
    msrs: Vec<kvm_msr_entry>,
    events: kvm_vcpu_events,
    /// Offset of the time-stamp counter. `None` on a host before Linux 5.16. The counter is an MSR there, and stands
    /// still meanwhile.
    tsc_offset: Option<u64>,
}

/// Moves the guest `vm` from `old` to a new VM with the same memory. `vcpus` are those of `old`, and stopped. With
/// `mp_state_only` latched kicks stay behind.
///
/// # Errors
/// Returns an error with the name of the `ioctl` if KVM refuses one. The guest cannot continue then.
pub(crate) fn to_new_vm(
    host: &Host,
    vm: &Vm,
    memory: &Memory,
    old: &Instance,
    vcpus: &[VcpuFd],
    mp_state_only: bool,
) -> Result<(Instance, Vec<VcpuFd>, Moved), Error> {
    let refused = |ioctl: &str| {
        let tried = format!("{}: migrate it ({ioctl})", vm.name);
        move |error| Error::host(tried, error)
    };
    let indices = host
        .kvm
        .get_msr_index_list()
        .map_err(refused("KVM_GET_MSR_INDEX_LIST"))?;
    let saved: Result<Vec<SavedVcpu>, Error> = (0..)
        .zip(vcpus)
        .map(|(number, vcpu)| save(host, vcpu, indices.as_slice(), &Refusal { vm: &vm.name, number }))
        .collect();
    let saved = saved?;
    let clock = old.fd.get_clock().map_err(refused("KVM_GET_CLOCK"))?;
    let chips = irqchips(&old.fd).map_err(refused("KVM_GET_IRQCHIP"))?;
    let (mut new, new_vcpus) = Instance::create(host, vm, memory)?;
    for chip in &chips {
        new.fd.set_irqchip(chip).map_err(refused("KVM_SET_IRQCHIP"))?;
    }
    for ((number, vcpu), state) in (0..).zip(&new_vcpus).zip(&saved) {
        restore(vcpu, state, &Refusal { vm: &vm.name, number })?;
    }
    let clock = kvm_clock_data {
        clock: clock.clock,
        realtime: clock.realtime,
        // KVM adds the time that has passed since, if it has told the real time.
        flags: clock.flags & KVM_CLOCK_REALTIME,
        ..kvm_clock_data::default()
    };
    new.fd.set_clock(&clock).map_err(refused("KVM_SET_CLOCK"))?;
    let mut moved = Moved {
        migrations: 1,
        ..Moved::default()
    };
    for (number, state) in (0..).zip(&saved).filter(|(_, state)| state.kicked) {
        if !mp_state_only {
            kick(&new.fd, number).map_err(refused("KVM_SIGNAL_MSI"))?;
            moved.kicks += 1;
        } else if !has_halted(memory, state) {
            moved.kicks_lost += 1;
        }
    }
    new.earlier = old.counts();
    Ok((new, new_vcpus, moved))
}

/// The vCPU that is named when KVM refuses something.
struct Refusal<'a> {
    vm: &'a str,
    number: u32,
}

impl Refusal<'_> {
    fn of(&self, ioctl: &str) -> impl FnOnce(kvm_ioctls::Error) -> Error {
        let tried = format!("{}: migrate vcpu {} ({ioctl})", self.vm, self.number);
        move |error| Error::host(tried, error)
    }
}

fn save(host: &Host, vcpu: &VcpuFd, indices: &[u32], refusal: &Refusal<'_>) -> Result<SavedVcpu, Error> {
    // First, since it carries out a pending INIT or SIPI.
    let mp_state = vcpu.get_mp_state().map_err(refusal.of("KVM_GET_MP_STATE"))?;
    let with_xcrs = host.kvm.check_extension(Cap::Xcrs);
    let tsc_offset = tsc_offset(vcpu);
    let mut msrs = read_msrs(vcpu, indices).map_err(refusal.of("KVM_GET_MSRS"))?;
    msrs.retain(|entry| entry.index != msr::TSC || tsc_offset.is_none());
    let saved = SavedVcpu {
        mp_state,
        kicked: false,
        regs: vcpu.get_regs().map_err(refusal.of("KVM_GET_REGS"))?,
        sregs: vcpu.get_sregs().map_err(refusal.of("KVM_GET_SREGS"))?,
        xsave: Box::new(vcpu.get_xsave().map_err(refusal.of("KVM_GET_XSAVE"))?),
        xcrs: with_xcrs
            .then(|| vcpu.get_xcrs())
            .transpose()
            .map_err(refusal.of("KVM_GET_XCRS"))?,
        debug: vcpu.get_debug_regs().map_err(refusal.of("KVM_GET_DEBUGREGS"))?,
        lapic: vcpu.get_lapic().map_err(refusal.of("KVM_GET_LAPIC"))?,
        msrs,
        events: vcpu.get_vcpu_events().map_err(refusal.of("KVM_GET_VCPU_EVENTS"))?,
        tsc_offset,
    };
    // Last, since it changes the state.
    let kicked = mp_state.mp_state == KVM_MP_STATE_RUNNABLE
        && is_kicked(vcpu).map_err(refusal.of("KVM_SET_MP_STATE and KVM_GET_MP_STATE"))?;
    Ok(SavedVcpu { kicked, ..saved })
}

/// Returns whether a kick of a runnable vCPU is latched. The vCPU is halted afterwards.
fn is_kicked(vcpu: &VcpuFd) -> Result<bool, kvm_ioctls::Error> {
    vcpu.set_mp_state(kvm_mp_state {
        mp_state: KVM_MP_STATE_HALTED,
    })?;
    Ok(vcpu.get_mp_state()?.mp_state == KVM_MP_STATE_RUNNABLE)
}

/// Returns whether the last instruction of a kicked vCPU was HLT. Its MP state then says all of the kick.
fn has_halted(memory: &Memory, state: &SavedVcpu) -> bool {
    // The image's memory is mapped one to one.
    let before = state.regs.rip.checked_sub(1);
    before.and_then(|address| memory.word(address)).map(|word| word as u8) == Some(HLT)
}

fn restore(vcpu: &VcpuFd, state: &SavedVcpu, refusal: &Refusal<'_>) -> Result<(), Error> {
    vcpu.set_mp_state(state.mp_state)
        .map_err(refusal.of("KVM_SET_MP_STATE"))?;
    vcpu.set_regs(&state.regs).map_err(refusal.of("KVM_SET_REGS"))?;
    // The base of the LAPIC, which is a system register, comes before its page.
    vcpu.set_sregs(&state.sregs).map_err(refusal.of("KVM_SET_SREGS"))?;
    if let Some(xcrs) = &state.xcrs {
        vcpu.set_xcrs(xcrs).map_err(refusal.of("KVM_SET_XCRS"))?;
    }
    // SAFETY: the state has 4 KiB, as KVM has filled it. It needs more only for a guest with states that this process
    // has requested (`arch_prctl`), and it has requested none.
    unsafe { vcpu.set_xsave(&state.xsave) }.map_err(refusal.of("KVM_SET_XSAVE"))?;
    vcpu.set_debug_regs(&state.debug)
        .map_err(refusal.of("KVM_SET_DEBUGREGS"))?;
    if let Some(mut offset) = state.tsc_offset {
        attribute(vcpu, KVM_SET_DEVICE_ATTR, &mut offset)
            .map_err(refusal.of("KVM_SET_DEVICE_ATTR, KVM_VCPU_TSC_OFFSET"))?;
    }
    vcpu.set_lapic(&state.lapic).map_err(refusal.of("KVM_SET_LAPIC"))?;
    // After the LAPIC, whose timer has its deadline in an MSR.
    write_msrs(vcpu, &state.msrs, refusal)?;
    vcpu.set_vcpu_events(&state.events)
        .map_err(refusal.of("KVM_SET_VCPU_EVENTS"))
}

/// Reads the MSRs that this vCPU has, of those with `indices`.
fn read_msrs(vcpu: &VcpuFd, indices: &[u32]) -> Result<Vec<kvm_msr_entry>, kvm_ioctls::Error> {
    let mut known = Vec::with_capacity(indices.len());
    let mut left = indices;
    while !left.is_empty() {
        let some = &left[..left.len().min(MSRS)];
        let mut msrs = entries(some.iter().map(|&index| kvm_msr_entry {
            index,
            ..kvm_msr_entry::default()
        }));
        let read = vcpu.get_msrs(&mut msrs)?;
        known.extend_from_slice(&msrs.as_slice()[..read.min(some.len())]);
        // KVM stops at the first one that it refuses.
        left = &left[(read + usize::from(read < some.len())).min(left.len())..];
    }
    Ok(known)
}

/// Gives this vCPU the MSRs of `saved` that it has with another value.
fn write_msrs(vcpu: &VcpuFd, saved: &[kvm_msr_entry], refusal: &Refusal<'_>) -> Result<(), Error> {
    let indices: Vec<u32> = saved.iter().map(|entry| entry.index).collect();
    let present = read_msrs(vcpu, &indices).map_err(refusal.of("KVM_GET_MSRS"))?;
    let is_same = |entry: &&kvm_msr_entry| {
        let found = present.iter().find(|found| found.index == entry.index);
        found.is_none_or(|found| found.data != entry.data)
    };
    let differing: Vec<kvm_msr_entry> = saved.iter().filter(is_same).copied().collect();
    for some in differing.chunks(MSRS) {
        let written = vcpu
            .set_msrs(&entries(some.iter().copied()))
            .map_err(refusal.of("KVM_SET_MSRS"))?;
        if let Some(entry) = some.get(written) {
            let ioctl = format!("KVM_SET_MSRS, {:#x} to {:#x}", entry.index, entry.data);
            return Err(refusal.of(&ioctl)(kvm_ioctls::Error::new(libc::EINVAL)));
        }
    }
    Ok(())
}

fn entries(entries: impl Iterator<Item = kvm_msr_entry>) -> Msrs {
    let entries: Vec<kvm_msr_entry> = entries.collect();
    Msrs::from_entries(&entries).expect("fewer entries than KVM's limit")
}

/// Returns the offset of the vCPU's time-stamp counter, or `None` if this host does not tell.
fn tsc_offset(vcpu: &VcpuFd) -> Option<u64> {
    let mut offset = 0;
    attribute(vcpu, KVM_GET_DEVICE_ATTR, &mut offset).ok()?;
    Some(offset)
}

/// Reads or writes the offset of the vCPU's time-stamp counter (Linux `Documentation/virt/kvm/devices/vcpu.rst`,
/// section 4).
fn attribute(vcpu: &VcpuFd, ioctl: libc::c_ulong, offset: &mut u64) -> Result<(), kvm_ioctls::Error> {
    let attribute = kvm_device_attr {
        group: KVM_VCPU_TSC_CTRL,
        attr: KVM_VCPU_TSC_OFFSET.into(),
        addr: std::ptr::from_mut(offset).expose_provenance() as u64,
        flags: 0,
    };
    // SAFETY: the argument is the structure of both calls, and names a word that KVM may read and write, which is
    // borrowed for the call.
    match unsafe { libc::ioctl(vcpu.as_raw_fd(), ioctl, &raw const attribute) } {
        0 => Ok(()),
        _ => Err(kvm_ioctls::Error::last()),
    }
}

/// Returns the state of the interrupt controllers other than the LAPICs.
fn irqchips(fd: &VmFd) -> Result<Vec<kvm_irqchip>, kvm_ioctls::Error> {
    let chips = [KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE, KVM_IRQCHIP_IOAPIC].map(|chip_id| {
        let mut chip = kvm_irqchip {
            chip_id,
            ..kvm_irqchip::default()
        };
        fd.get_irqchip(&mut chip).map(|()| chip)
    });
    chips.into_iter().collect()
}

/// Kicks vCPU `number`, as another vCPU's hypercall would.
pub(crate) fn kick(fd: &VmFd, number: u32) -> Result<(), kvm_ioctls::Error> {
    // Physical destination, in the address.
    let message = kvm_msi {
        address_lo: msr::APIC_BASE_ADDRESS as u32 | number << 12,
        data: KICK,
        ..kvm_msi::default()
    };
    fd.signal_msi(message).map(drop)
}
