//! Events as the kernel writes them into its buffers: bytes, whose meaning the formats of tracefs describe.

use std::sync::Arc;

use holdfast_trace_dat::format::{Field, Format, Formats};

use crate::event::{Left, Name, What};

use super::foreign;

/// Bits of `prev_state` without the flag of a preemption: TASK_REPORT and the idle state, `include/linux/sched.h`.
const STATE_MASK: i64 = 0xff;
/// EXIT_DEAD and EXIT_ZOMBIE.
const STATE_DEAD: i64 = 0x30;

/// How an event is read.
struct Plan {
    kind: Kind,
    /// The fields that `FIELDS` of the kind names, in its order.
    fields: Vec<Option<Field>>,
}

/// Events that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Switch,
    Waking,
    Wakeup,
    Migrate,
    Fork,
    End,
    Entry,
    Exit,
    HaltEnd,
    Hypercall,
    Ipi,
    Interrupt,
    Injected,
    Msr,
    UserExit,
    PollTime,
    PauseWindow,
    ApicInhibit,
}

/// The name of each event that is read, and its fields. A field after `?` may be missing.
const EVENTS: &[(&str, Kind, &[&str])] = &[
    (
        "sched:sched_switch",
        Kind::Switch,
        &[
            "prev_pid",
            "prev_comm",
            "prev_state",
            "next_pid",
            "next_comm",
            "next_prio",
        ],
    ),
    ("sched:sched_waking", Kind::Waking, &["pid", "comm", "target_cpu"]),
    ("sched:sched_wakeup", Kind::Wakeup, &["pid", "comm", "target_cpu"]),
    ("sched:sched_wakeup_new", Kind::Wakeup, &["pid", "comm", "target_cpu"]),
    (
        "sched:sched_migrate_task",
        Kind::Migrate,
        &["pid", "orig_cpu", "dest_cpu"],
    ),
    (
        "sched:sched_process_fork",
        Kind::Fork,
        &["parent_pid", "child_pid", "child_comm"],
    ),
    ("sched:sched_process_exit", Kind::End, &["pid"]),
    ("kvm:kvm_entry", Kind::Entry, &["vcpu_id"]),
    ("kvm:kvm_exit", Kind::Exit, &["exit_reason", "?isa", "?vcpu_id"]),
    ("kvm:kvm_vcpu_wakeup", Kind::HaltEnd, &["ns", "waited", "valid"]),
    ("kvm:kvm_hypercall", Kind::Hypercall, &["nr", "a0", "a1"]),
    ("kvm:kvm_apic_ipi", Kind::Ipi, &["icr_low", "dest_id"]),
    ("kvm:kvm_apic_accept_irq", Kind::Interrupt, &["apicid", "vec"]),
    ("kvm:kvm_inj_virq", Kind::Injected, &["?vector", "?irq", "?soft"]),
    ("kvm:kvm_msr", Kind::Msr, &["ecx", "data", "write"]),
    ("kvm:kvm_userspace_exit", Kind::UserExit, &["reason", "errno"]),
    ("kvm:kvm_halt_poll_ns", Kind::PollTime, &["vcpu_id", "new", "old"]),
    (
        "kvm:kvm_ple_window_update",
        Kind::PauseWindow,
        &["vcpu_id", "new", "old"],
    ),
    (
        "kvm:kvm_apicv_inhibit_changed",
        Kind::ApicInhibit,
        &["reason", "set", "inhibits"],
    ),
];

/// Reads events by the formats of a recording.
#[derive(Default)]
pub(super) struct Decoder {
    /// By the number of the event.
    plans: Vec<Option<Plan>>,
    /// `common_pid`, which all events have at the same place.
    thread: Option<Field>,
}

/// An event could not be read. The text says which.
pub(super) struct Undecoded(pub(super) String);

impl Decoder {
    /// Finds the events that are read. Returns too what is wrong with the format of one.
    pub(super) fn new(formats: &Formats) -> (Self, Vec<String>) {
        let mut decoder = Self::default();
        let mut wrong = Vec::new();
        for format in formats.iter() {
            if decoder.thread.is_none() {
                decoder.thread = format.field("common_pid").cloned();
            }
            match plan(format) {
                Ok(None) => {}
                Ok(Some(plan)) => {
                    let index = usize::from(format.id);
                    if decoder.plans.len() <= index {
                        decoder.plans.resize_with(index + 1, || None);
                    }
                    decoder.plans[index] = Some(plan);
                }
                Err(error) => wrong.push(error),
            }
        }
        (decoder, wrong)
    }

    /// Reads an event. `None`: one that is not read.
    #[inline]
    pub(super) fn read(&self, data: &[u8]) -> Result<Option<What>, Undecoded> {
        let Some(id) = data.first_chunk().map(|id| u16::from_le_bytes(*id)) else {
            return Err(Undecoded("an event of less than 2 bytes".into()));
        };
        let Some(Some(plan)) = self.plans.get(usize::from(id)) else {
            return Ok(None);
        };
        match plan.read(data) {
            Some(What::Injected { vector: 0 }) if plan.kind == Kind::Injected => Ok(None),
            Some(what) => Ok(Some(what)),
            None => Err(Undecoded(format!("an event {id} of {} bytes", data.len()))),
        }
    }

    /// Returns the thread that ran when the event was written.
    #[inline]
    pub(super) fn thread(&self, data: &[u8]) -> u32 {
        self.thread.as_ref().and_then(|field| field.number(data)).unwrap_or(0) as u32
    }
}

/// Returns how the events of a format are read. `None`: not at all.
fn plan(format: &Arc<Format>) -> Result<Option<Plan>, String> {
    let name = format!("{}:{}", format.system, format.name);
    let Some((_, kind, fields)) = EVENTS.iter().find(|event| event.0 == name) else {
        return Ok(None);
    };
    let find = |field: &&str| match field.strip_prefix('?') {
        Some(field) => Ok(format.field(field).cloned()),
        None => match format.field(field) {
            Some(found) => Ok(Some(found.clone())),
            None => Err(match foreign::of_fields(&name, |field| format.field(field).is_some()) {
                Some(architecture) => foreign::said(&format.name, architecture),
                None => format!("the format of {name} has no field `{field}`"),
            }),
        },
    };
    let fields = fields.iter().map(find).collect::<Result<_, _>>()?;
    Ok(Some(Plan { kind: *kind, fields }))
}

impl Plan {
    fn read(&self, data: &[u8]) -> Option<What> {
        let number = |index: usize| self.fields[index].as_ref()?.number(data);
        let name = |index: usize| Some(Name::new(self.fields[index].as_ref()?.bytes(data)?));
        let word = |index: usize| number(index).map(|number| number as u32);
        let long = |index: usize| number(index).map(|number| number as u64);
        let flag = |index: usize| number(index).map(|number| number != 0);
        // A pointer or a `long` of a 32-bit kernel has a sign that its value has not.
        Some(match self.kind {
            Kind::Switch => What::Switch {
                prev: word(0)?,
                prev_name: name(1)?,
                left: left(number(2)?),
                next: word(3)?,
                next_name: name(4)?,
                next_prio: word(5)? as i32,
            },
            Kind::Waking | Kind::Wakeup => What::Waking {
                woken: word(0)?,
                name: name(1)?,
                target: word(2)?,
                queued: self.kind == Kind::Wakeup,
            },
            Kind::Migrate => What::Migrate {
                moved: word(0)?,
                from: word(1)?,
                to: word(2)?,
            },
            Kind::Fork => What::Forked {
                parent: word(0)?,
                child: word(1)?,
                name: name(2)?,
            },
            Kind::End => What::Ended { ended: word(0)? },
            Kind::Entry => What::Entry { vcpu: word(0)? },
            Kind::Exit => What::Exit {
                vcpu: word(2),
                reason: word(0)?,
                isa: word(1).unwrap_or(0),
            },
            Kind::HaltEnd => What::HaltEnd {
                ns: long(0)?,
                slept: flag(1)?,
                valid: flag(2)?,
            },
            Kind::Hypercall => What::Hypercall {
                nr: long(0)?,
                args: [long(1)?, long(2)?],
            },
            Kind::Ipi => What::Ipi {
                icr_low: word(0)?,
                destination: word(1)?,
            },
            Kind::Interrupt => What::Interrupt {
                apic: word(0)?,
                vector: word(1)? as u8,
            },
            // An interrupt by an instruction of the guest has no sender, and no vector here.
            Kind::Injected if flag(2) == Some(true) => What::Injected { vector: 0 },
            Kind::Injected => What::Injected {
                vector: word(0).or_else(|| word(1))? as u8,
            },
            Kind::Msr => What::Msr {
                number: word(0)?,
                value: long(1)?,
                write: flag(2)?,
            },
            Kind::UserExit => What::UserExit {
                reason: if number(1)? < 0 { None } else { Some(word(0)?) },
            },
            Kind::PollTime => What::PollTime {
                vcpu: word(0)?,
                ns: long(1)?,
                before: long(2)?,
            },
            Kind::PauseWindow => What::PauseWindow {
                vcpu: word(0)?,
                cycles: word(1)?,
                before: word(2)?,
            },
            Kind::ApicInhibit => What::ApicInhibit {
                reason: word(0)?,
                holds: flag(1)?,
                all: long(2)?,
            },
        })
    }
}

/// What a state of `sched_switch` means. A preempted thread has no state but a flag above them.
fn left(state: i64) -> Left {
    match state & STATE_MASK {
        0 => Left::Ready,
        state if state & STATE_DEAD != 0 => Left::Dead,
        _ => Left::Asleep,
    }
}
