//! One vCPU: its initial registers, its exits, and the signal that ends its run.

#![expect(unsafe_code, reason = "signals and CPU affinity of threads")]

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::thread::JoinHandleExt;
use std::sync::Once;
use std::thread::JoinHandle;

use holdfast_protocol::layout;
use kvm_bindings::{KVM_MP_STATE_RUNNABLE, kvm_mp_state, kvm_regs, kvm_segment};
use kvm_ioctls::{VcpuExit, VcpuFd};

use crate::error::Error;
use crate::linux::Ports;

const CR0_PE: u64 = 1;
const CR0_MP: u64 = 1 << 1;
const CR0_ET: u64 = 1 << 4;
const CR0_NE: u64 = 1 << 5;
const CR0_WP: u64 = 1 << 16;
const CR0_PG: u64 = 1 << 31;
const CR4_PAE: u64 = 1 << 5;
const EFER_LME: u64 = 1 << 8;
const EFER_LMA: u64 = 1 << 10;
/// The bit of RFLAGS that is always 1.
const RFLAGS_FIXED: u64 = 1 << 1;

/// The initial state of a vCPU, in long mode with flat segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) entry: u64,
    pub(crate) stack: u64,
    /// Values of RDI and RSI.
    pub(crate) arguments: (u64, u64),
    /// Selectors of the code and the data segment.
    pub(crate) selectors: (u16, u16),
    /// Address and limit of the descriptor table, or (0, 0) if the guest loads its own before it loads a segment.
    pub(crate) descriptors: (u64, u16),
}

impl Start {
    /// Returns the initial state of vCPU `number` of an image. The selectors are those of the image's own tables.
    pub(crate) fn image(entry: u64, stack: u64, number: u32) -> Start {
        Start {
            entry,
            stack,
            arguments: (number.into(), 0),
            selectors: (0x08, 0x10),
            descriptors: (0, 0),
        }
    }
}

/// Sets the registers of vCPU `number` and makes it runnable.
pub(crate) fn prepare(vcpu: &VcpuFd, number: u32, start: Start) -> Result<(), Error> {
    let refused = |what: &str| {
        let tried = format!("set {what} of vcpu {number}");
        move |error| Error::host(tried, error)
    };
    let mut system = vcpu.get_sregs().map_err(refused("system registers"))?;
    let code = kvm_segment {
        base: 0,
        limit: u32::MAX,
        selector: start.selectors.0,
        type_: 11,
        present: 1,
        s: 1,
        l: 1,
        g: 1,
        ..kvm_segment::default()
    };
    let data = kvm_segment {
        selector: start.selectors.1,
        type_: 3,
        l: 0,
        db: 1,
        ..code
    };
    system.cs = code;
    (system.ds, system.es, system.fs, system.gs, system.ss) = (data, data, data, data, data);
    (system.gdt.base, system.gdt.limit) = start.descriptors;
    system.cr3 = layout::TABLES;
    system.cr4 = CR4_PAE;
    system.cr0 = CR0_PE | CR0_MP | CR0_ET | CR0_NE | CR0_WP | CR0_PG;
    system.efer = EFER_LME | EFER_LMA;
    vcpu.set_sregs(&system).map_err(refused("system registers"))?;
    let registers = kvm_regs {
        rip: start.entry,
        rsp: start.stack,
        rdi: start.arguments.0,
        rsi: start.arguments.1,
        rflags: RFLAGS_FIXED,
        ..kvm_regs::default()
    };
    vcpu.set_regs(&registers).map_err(refused("registers"))?;
    // All vCPUs of an image start at once. Its boot CPU sends no INIT.
    let runnable = kvm_mp_state {
        mp_state: KVM_MP_STATE_RUNNABLE,
    };
    vcpu.set_mp_state(runnable).map_err(refused("state"))
}

/// The reason why a vCPU left the guest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The guest has reported something.
    Report,
    /// The guest accessed a port or an address, which the VMM has emulated.
    Answered,
    /// A signal interrupted the thread, which must check whether to stop.
    Signal,
    /// The guest caused a triple fault.
    TripleFault,
    /// KVM cannot run this guest.
    Refused(String),
    /// An exit that no correct guest causes.
    Unexpected(String),
}

/// Runs the guest until its next exit. `ports` are those of a Linux guest. The image has a doorbell only.
pub(crate) fn run(vcpu: &mut VcpuFd, ports: Option<&Ports>) -> Exit {
    match enter(vcpu, ports) {
        Some(exit) => exit,
        None => internal_error(vcpu),
    }
}

/// The suberror `KVM_INTERNAL_ERROR_EMULATION`.
const EMULATION: u32 = 1;

/// Returns the exit that is KVM's internal error.
fn internal_error(vcpu: &mut VcpuFd) -> Exit {
    // SAFETY: KVM has filled this part of the union, since it left the guest with `KVM_EXIT_INTERNAL_ERROR`.
    let suberror = unsafe { vcpu.get_kvm_run().__bindgen_anon_1.internal.suberror };
    match suberror {
        EMULATION => Exit::Refused(
            "kvm cannot emulate the instruction: a host without hardware virtualization, which interprets kernel \
             code, cannot run guests of this kind"
                .to_owned(),
        ),
        other => Exit::Unexpected(format!("internal error of kvm, suberror {other}")),
    }
}

/// Runs the guest as [`run`] does. Returns `None` for an internal error of KVM.
fn enter(vcpu: &mut VcpuFd, ports: Option<&Ports>) -> Option<Exit> {
    let exit = vcpu.run();
    if let Some(ports) = ports {
        match exit {
            Ok(VcpuExit::IoOut(port, data)) if ports.output(port, data) => return Some(Exit::Report),
            Ok(VcpuExit::IoIn(port, data)) => ports.input(port, data),
            // As on a bus without a device at the address.
            Ok(VcpuExit::MmioRead(_, data)) => data.fill(u8::MAX),
            Ok(VcpuExit::IoOut(..) | VcpuExit::MmioWrite(..)) => {}
            other => return classify(other),
        }
        return Some(Exit::Answered);
    }
    classify(exit)
}

fn classify(exit: Result<VcpuExit<'_>, kvm_ioctls::Error>) -> Option<Exit> {
    Some(match exit {
        Ok(VcpuExit::InternalError) => return None,
        Ok(VcpuExit::IoOut(layout::DOORBELL, _)) => Exit::Report,
        Ok(VcpuExit::IoOut(port, data)) => Exit::Unexpected(format!(
            "output of {} bytes, {:x?}, to port {port:#x}",
            data.len(),
            &data[..data.len().min(8)]
        )),
        Ok(VcpuExit::IoIn(port, _)) => Exit::Unexpected(format!("input from port {port:#x}")),
        Ok(VcpuExit::MmioRead(address, data)) => Exit::Unexpected(format!(
            "read of {} bytes at {address:#x}, which has neither memory nor a device",
            data.len()
        )),
        Ok(VcpuExit::MmioWrite(address, data)) => Exit::Unexpected(format!(
            "write of {data:x?} at {address:#x}, which has neither memory nor a device"
        )),
        Ok(VcpuExit::Shutdown) => Exit::TripleFault,
        Ok(VcpuExit::Intr) => Exit::Signal,
        Ok(VcpuExit::FailEntry(reason, _)) => Exit::Refused(format!("the cpu cannot enter it, reason {reason:#x}")),
        Ok(other) => Exit::Unexpected(format!("{other:?}")),
        Err(error) => match io::Error::from(error).kind() {
            io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => Exit::Signal,
            _ => Exit::Refused(io::Error::from(error).to_string()),
        },
    })
}

/// Returns the number of the signal that makes a thread leave the guest.
fn signal_number() -> libc::c_int {
    libc::SIGRTMIN()
}

extern "C" fn on_signal(_: libc::c_int) {}

/// Installs a handler that does nothing, so that the signal only interrupts. Takes effect once per process.
pub(crate) fn prepare_signal() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a zeroed value is a valid action without flags and with an empty mask.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = on_signal as *const () as libc::sighandler_t;
        // SAFETY: the action is valid, and its handler does nothing. Without SA_RESTART, KVM_RUN ends with EINTR.
        let result = unsafe { libc::sigaction(signal_number(), &raw const action, std::ptr::null_mut()) };
        assert_eq!(result, 0, "the kernel knows its own real-time signals");
    });
}

/// Makes `thread` leave the guest. A thread that is only about to enter misses the signal, so the caller must repeat
/// it.
pub(crate) fn interrupt<T>(thread: &JoinHandle<T>) {
    // SAFETY: the handle has not been joined, so the thread's id is valid, even if it has ended.
    unsafe { libc::pthread_kill(thread.as_pthread_t(), signal_number()) };
}

/// Pins the calling thread to `pcpus`.
///
/// # Errors
/// Returns an error if a CPU does not exist or is not allowed for this process.
pub fn pin_to(pcpus: &[u32]) -> io::Result<()> {
    // SAFETY: a zeroed value is the empty set.
    let mut set: libc::cpu_set_t = unsafe { MaybeUninit::zeroed().assume_init() };
    for &pcpu in pcpus {
        if pcpu >= libc::CPU_SETSIZE as u32 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("pcpu {pcpu}, expected a number below {}", libc::CPU_SETSIZE),
            ));
        }
        // SAFETY: the number is within the set, as checked above.
        unsafe { libc::CPU_SET(pcpu as usize, &mut set) };
    }
    // SAFETY: the set is valid and has the given size. 0 means the calling thread.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets the nice level of the calling thread.
///
/// # Errors
/// Returns an error if the level is below the present one and this process lacks `CAP_SYS_NICE`.
pub(crate) fn set_nice(level: i8) -> io::Result<()> {
    // SAFETY: the call takes plain numbers. On Linux 0 means the calling thread, not the process.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, level.into()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
