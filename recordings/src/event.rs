//! The events of a recording, whatever file they were read from.

use std::fmt;
use std::ops::Deref;

/// A thread ID of the recorded host. 0 is the idle thread of each CPU.
pub type Tid = u32;

/// The name of a thread, as the kernel keeps it: at most 15 bytes.
///
/// It is part of the event, so that reading allocates nothing for each event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Name {
    bytes: [u8; 15],
    length: u8,
}

impl Name {
    /// Takes the bytes before the first NUL, at most 15. A byte that is not UTF-8 becomes `?`.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let mut name = Self::default();
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        if bytes[..end].is_ascii() {
            name.length = end.min(name.bytes.len()) as u8;
            name.bytes[..usize::from(name.length)].copy_from_slice(&bytes[..usize::from(name.length)]);
            return name;
        }
        for chunk in bytes[..end].utf8_chunks() {
            for character in chunk.valid().chars() {
                let mut encoded = [0; 4];
                if !name.push(character.encode_utf8(&mut encoded).as_bytes()) {
                    return name;
                }
            }
            for _ in chunk.invalid() {
                if !name.push(b"?") {
                    return name;
                }
            }
        }
        name
    }

    fn push(&mut self, bytes: &[u8]) -> bool {
        let begin = usize::from(self.length);
        let Some(place) = self.bytes.get_mut(begin..begin + bytes.len()) else {
            return false;
        };
        place.copy_from_slice(bytes);
        self.length += bytes.len() as u8;
        true
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).expect("only whole characters are pushed")
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self::new(text.as_bytes())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// One event of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time on the recording's clock, in ns. Never decreases from one event to the next.
    pub at: u64,
    /// The CPU that wrote the event, by Linux's number.
    pub cpu: u32,
    /// The thread that ran on that CPU.
    pub thread: Tid,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// `sched_switch`: the CPU changes from one thread to another.
    Switch {
        /// The thread that ran.
        prev: Tid,
        /// Name of `prev`.
        prev_name: Name,
        /// What became of `prev`.
        left: Left,
        /// The thread that runs now.
        next: Tid,
        /// Name of `next`.
        next_name: Name,
        /// The kernel's priority of `next`: 120 + nice for the fair class, below 100 for real time.
        next_prio: i32,
    },
    /// `sched_waking`, `sched_wakeup`, `sched_wakeup_new`: a thread becomes ready.
    ///
    /// `thread` of a `sched_waking` is the waker. A `sched_wakeup` may come from another CPU, in the context of any
    /// thread.
    Waking {
        /// The thread that is woken.
        woken: Tid,
        /// Its name.
        name: Name,
        /// The CPU that it is to run on. In `sched_waking`, the CPU where it ran before.
        target: u32,
        /// It is in the queue of `target` (`sched_wakeup`). `false`: it is about to be (`sched_waking`).
        queued: bool,
    },
    /// `sched_migrate_task`: a thread moves to another CPU.
    Migrate {
        /// The thread.
        moved: Tid,
        /// From this CPU.
        from: u32,
        /// To this CPU.
        to: u32,
    },
    /// `kvm_entry`: the thread enters guest mode as this vCPU of its VM.
    Entry {
        /// Number of the vCPU in its VM.
        vcpu: u32,
    },
    /// `kvm_exit`: the thread leaves guest mode.
    Exit {
        /// Number of the vCPU in its VM, if the kernel writes it.
        vcpu: Option<u32>,
        /// The hardware's code of the reason.
        reason: u32,
        /// 1: Intel's VMX. 2: AMD's SVM. 0: the source does not say it.
        isa: u32,
    },
    /// `kvm_vcpu_wakeup`: a halted vCPU goes on.
    HaltEnd {
        /// How long it was halted, in ns.
        ns: u64,
        /// It slept. `false`: an event came while the host polled.
        slept: bool,
        /// The wait ended with an event for the guest.
        valid: bool,
    },
    /// `kvm_hypercall`: the guest calls its host.
    Hypercall {
        /// The number of the call. 5 is a kick.
        nr: u64,
        /// Its first two arguments.
        args: [u64; 2],
    },
    /// `kvm_apic_ipi`: the vCPU that runs sends an inter-processor interrupt.
    Ipi {
        /// Low half of the interrupt command register.
        icr_low: u32,
        /// Destination, as the guest wrote it.
        destination: u32,
    },
    /// `kvm_apic_accept_irq`: the local APIC of a vCPU takes an interrupt.
    Interrupt {
        /// ID of that APIC.
        apic: u32,
        /// Vector of the interrupt.
        vector: u8,
    },
    /// `kvm_inj_virq`: a virtual interrupt is injected at the next entry.
    Injected {
        /// Vector of the interrupt.
        vector: u8,
    },
    /// `kvm_msr`: the guest accesses a model-specific register, and exits for it.
    Msr {
        /// Number of the register.
        number: u32,
        /// Value that is read or written.
        value: u64,
        /// It is written. `false`: read.
        write: bool,
    },
    /// `kvm_userspace_exit`: the thread returns from `KVM_RUN` to its VMM.
    UserExit {
        /// `KVM_EXIT_...`, as the interface of KVM numbers them. `None`: a signal or an error ended it.
        reason: Option<u32>,
    },
    /// `kvm_halt_poll_ns`: the time for which a halted vCPU polls changes.
    PollTime {
        /// Number of the vCPU in its VM.
        vcpu: u32,
        /// New time, in ns.
        ns: u64,
        /// Old time, in ns.
        before: u64,
    },
    /// `kvm_ple_window_update`: the window of pause-loop exits changes.
    PauseWindow {
        /// Number of the vCPU in its VM.
        vcpu: u32,
        /// New window, in cycles.
        cycles: u32,
        /// Old window, in cycles.
        before: u32,
    },
    /// `kvm_apicv_inhibit_changed`: APIC virtualization is allowed or forbidden for a VM.
    ApicInhibit {
        /// The kernel's number of the reason.
        reason: u32,
        /// The reason now holds. `false`: it has ended.
        holds: bool,
        /// All reasons that hold, as bits.
        all: u64,
    },
    /// `sched_process_fork`: a thread begins.
    Forked {
        /// The thread that made it.
        parent: Tid,
        /// The new thread.
        child: Tid,
        /// Its name, so far that of its parent.
        name: Name,
    },
    /// The source names a thread: a `COMM` record of perf, a saved command line of trace-cmd.
    Named {
        /// The thread.
        named: Tid,
        /// Its process (thread group), if the source says it.
        process: Option<Tid>,
        /// Its name.
        name: Name,
    },
    /// A thread ended (`sched_process_exit`). Its ID may come back as another thread.
    Ended {
        /// The thread.
        ended: Tid,
    },
    /// Events of this CPU are missing since the last one that it wrote.
    ///
    /// perf counts some losses only at the end, and without a CPU: then the CPU is `u32::MAX`, and the events are
    /// missing anywhere before.
    Lost {
        /// How many, if the source says it.
        events: Option<u64>,
    },
}

/// What became of a thread that left its CPU (`prev_state` of `sched_switch`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It can go on: it was preempted (`R`, `R+`).
    Ready,
    /// It waits for something (`S`, `D`, and others).
    Asleep,
    /// It ended (`X`, `Z`).
    Dead,
}

#[cfg(test)]
mod tests {
    use super::Name;

    #[test]
    fn a_name_has_whole_characters_of_its_first_15_bytes() {
        for (bytes, expected) in [
            (&b"CPU 0/KVM\0\0rest"[..], "CPU 0/KVM"),
            (b"0123456789abcdefgh", "0123456789abcde"),
            ("0123456789abcd\u{e9}".as_bytes(), "0123456789abcd"),
            (b"a\xffb\xc3", "a?b?"),
            (b"", ""),
        ] {
            assert_eq!(&*Name::new(bytes), expected);
        }
    }
}
