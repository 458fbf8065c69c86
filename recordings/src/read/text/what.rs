//! What an event prints, in the kernel's words (`key=value`) and in those of trace-cmd's plug-ins (`NAME:TID [PRIO]`).

use crate::event::{Left, Name, Tid, What};

use super::super::exits::exit_reason;

/// What the text of an event lacks.
type Missing = &'static str;

/// Reads the name of an event, a colon, and what it prints. `None`: an event that is not read.
pub(super) fn read(text: &str) -> Result<Option<What>, Missing> {
    if let Some(record) = text.strip_prefix("PERF_RECORD_") {
        return Ok(perf_record(record));
    }
    let (name, body) = match text.split_once(": ") {
        Some((name, body)) => (name, body.trim()),
        None => (text.strip_suffix(':').unwrap_or(text), ""),
    };
    // perf may print a period before the name, and prints its group in it.
    let name = name.rsplit([' ', ':']).next().unwrap_or(name);
    Ok(Some(match name {
        "sched_switch" => switch(body)?,
        "sched_waking" => waking(body, false)?,
        "sched_wakeup" | "sched_wakeup_new" => waking(body, true)?,
        "sched_migrate_task" => What::Migrate {
            moved: number(body, "pid=")?,
            from: number(body, "orig_cpu=")?,
            to: number(body, "dest_cpu=")?,
        },
        "sched_process_exit" => What::Ended {
            ended: number(body, "pid=")?,
        },
        "sched_process_fork" => What::Forked {
            parent: number(body, " pid=")?,
            child: number(body, "child_pid=")?,
            name: between(body, "child_comm=", " child_pid=")?,
        },
        "kvm_entry" => What::Entry {
            vcpu: number(body, "vcpu ")?,
        },
        "kvm_exit" => exit(body)?,
        "kvm_vcpu_wakeup" => What::HaltEnd {
            ns: number(body, "time ")?,
            slept: body.starts_with("wait"),
            valid: !body.ends_with("invalid"),
        },
        "kvm_hypercall" => What::Hypercall {
            nr: number(body, "nr ")?,
            args: [number(body, "a0 ")?, number(body, "a1 ")?],
        },
        "kvm_apic_ipi" => ipi(body)?,
        "kvm_apic_accept_irq" => What::Interrupt {
            apic: hexadecimal(body, "apicid ")?,
            vector: number(body, "vec ")?,
        },
        // An interrupt by an instruction of the guest (`Soft/INTn`) has no sender.
        "kvm_inj_virq" if body.starts_with("Soft") => return Ok(None),
        "kvm_inj_virq" => What::Injected {
            vector: number(body, if body.starts_with("irq") { "irq " } else { "IRQ " })?,
        },
        "kvm_msr" => What::Msr {
            number: hexadecimal(body, "msr_read ").or_else(|_| hexadecimal(body, "msr_write "))?,
            value: hexadecimal(body, " = 0x")?,
            write: body.starts_with("msr_write"),
        },
        "kvm_userspace_exit" => What::UserExit {
            reason: match body.contains("KVM_EXIT_") {
                true => Some(number(body, "(")?),
                false => None,
            },
        },
        "kvm_halt_poll_ns" => What::PollTime {
            vcpu: number(body, "vcpu ")?,
            ns: number(body, "halt_poll_ns ")?,
            before: number(body, "(grow ").or_else(|_| number(body, "(shrink "))?,
        },
        "kvm_ple_window_update" => What::PauseWindow {
            vcpu: number(body, "vcpu ")?,
            cycles: number(body, "new ")?,
            before: number(body, "old ")?,
        },
        "kvm_apicv_inhibit_changed" => What::ApicInhibit {
            reason: number(body, "reason=")?,
            holds: body.starts_with("set"),
            all: hexadecimal(body, "inhibits=0x")?,
        },
        _ => return Ok(None),
    }))
}

/// Reads a record of `perf script --show-lost-events` or `--show-task-events`.
fn perf_record(text: &str) -> Option<What> {
    if let Some(count) = text.strip_prefix("LOST") {
        let events = count.rsplit(' ').next().and_then(|count| count.parse().ok());
        return Some(What::Lost { events });
    }
    let text = text.strip_prefix("COMM")?;
    let (name, ids) = text.split_once(": ")?.1.rsplit_once(':')?;
    let (process, thread) = ids.split_once('/')?;
    Some(What::Named {
        named: thread.trim().parse().ok()?,
        process: process.parse().ok(),
        name: name.into(),
    })
}

/// Returns what follows a key.
fn find<'a>(body: &'a str, key: &'static str) -> Result<&'a str, Missing> {
    match body.find(key) {
        Some(at) => Ok(&body[at + key.len()..]),
        None => Err(key.trim()),
    }
}

/// Reads a decimal number at the begin.
fn digits<T: std::str::FromStr>(text: &str) -> Option<T> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// Reads a number at the begin, hexadecimal with `0x`, else decimal.
fn prefixed<T: TryFrom<u64>>(text: &str) -> Option<T> {
    let value = match text.strip_prefix("0x") {
        Some(text) => {
            let end = text.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(text.len());
            u64::from_str_radix(&text[..end], 16).ok()?
        }
        None => digits(text)?,
    };
    T::try_from(value).ok()
}

/// Reads the number that follows a key.
fn number<T: TryFrom<u64>>(body: &str, key: &'static str) -> Result<T, Missing> {
    prefixed(find(body, key)?).ok_or(key.trim())
}

/// Reads a priority at the begin. A deadline's is -1.
fn priority(text: &str) -> Option<i32> {
    match text.strip_prefix('-') {
        Some(text) => Some(-digits::<i32>(text)?),
        None => digits(text),
    }
}

/// Reads the hexadecimal number without `0x` that follows a key.
fn hexadecimal<T: TryFrom<u64>>(body: &str, key: &'static str) -> Result<T, Missing> {
    let text = find(body, key)?;
    let end = text.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(text.len());
    let value = u64::from_str_radix(&text[..end], 16).map_err(|_| key.trim())?;
    T::try_from(value).map_err(|_| key.trim())
}

/// Reads the name between two keys.
fn between(body: &str, key: &'static str, end: &'static str) -> Result<Name, Missing> {
    let text = find(body, key)?;
    // A name may have anything in it: the last one ends it.
    let end = text.find(end).ok_or(end.trim())?;
    Ok(Name::from(&text[..end]))
}

/// Reads `NAME:TID [PRIO]` and returns what follows.
fn plugin_thread(text: &str) -> Option<(Name, Tid, i32, &str)> {
    let (thread, after) = text.rsplit_once(" [")?;
    let (name, tid) = thread.trim().rsplit_once(':')?;
    let (prio, after) = after.split_once(']')?;
    Some((name.into(), tid.parse().ok()?, prio.trim().parse().ok()?, after))
}

/// Reads a state as `sched_switch` prints it.
fn left(state: &str) -> Left {
    match state.as_bytes() {
        [b'R', ..] => Left::Ready,
        [b'X' | b'Z' | b'x', ..] => Left::Dead,
        _ => Left::Asleep,
    }
}

fn switch(body: &str) -> Result<What, Missing> {
    let (before, after) = body.split_once(" ==> ").ok_or("an arrow")?;
    if !before.starts_with("prev_comm=") {
        let (prev_name, prev, _, state) = plugin_thread(before).ok_or("the thread before")?;
        let (next_name, next, next_prio, _) = plugin_thread(after).ok_or("the next thread")?;
        let left = left(state.trim());
        return Ok(What::Switch {
            prev,
            prev_name,
            left,
            next,
            next_name,
            next_prio,
        });
    }
    Ok(What::Switch {
        prev: number(before, " prev_pid=")?,
        prev_name: between(before, "prev_comm=", " prev_pid=")?,
        left: left(find(before, " prev_state=")?),
        next: number(after, " next_pid=")?,
        next_name: between(after, "next_comm=", " next_pid=")?,
        next_prio: priority(find(after, " next_prio=")?).ok_or("next_prio=")?,
    })
}

fn waking(body: &str, queued: bool) -> Result<What, Missing> {
    if body.starts_with("comm=") {
        return Ok(What::Waking {
            woken: number(body, " pid=")?,
            name: between(body, "comm=", " pid=")?,
            target: number(body, "target_cpu=")?,
            queued,
        });
    }
    let (name, woken, _, after) = plugin_thread(body).ok_or("the woken thread")?;
    let target = number(after, "CPU:")?;
    Ok(What::Waking {
        woken,
        name,
        target,
        queued,
    })
}

fn exit(body: &str) -> Result<What, Missing> {
    let name = find(body, "reason ")?;
    // A kernel may print no instruction pointer.
    let ends = [" rip ", " info", " intr_info "].iter();
    let end = ends.filter_map(|key| name.find(key)).min().unwrap_or(name.len());
    let name = name[..end].trim();
    let words = |name: &str| name.rsplit_once(' ').map(|(name, _)| name.to_owned());
    // Without a name the kernel prints the number. A flag such as `FAILED_VMENTRY` may follow the name.
    let (reason, isa) = exit_reason(name)
        .or_else(|| exit_reason(&words(name)?))
        .or_else(|| Some((prefixed(name.trim_start_matches("UNKNOWN (").trim_end_matches(')'))?, 0)))
        .ok_or("a known reason")?;
    let vcpu = number(body, "vcpu ").ok();
    Ok(What::Exit { vcpu, reason, isa })
}

/// Puts the interrupt command register together again: Intel SDM volume 3, section 13.6.1.
fn ipi(body: &str) -> Result<What, Missing> {
    let mut fields = find(body, "(")?.trim_end_matches(')').split('|');
    let mut next = |names: &[&str]| -> u32 {
        let field = fields.next().unwrap_or_default();
        names.iter().position(|name| *name == field).unwrap_or(0) as u32
    };
    let mode = next(&["Fixed", "LowPrio", "SMI", "Res3", "NMI", "INIT", "SIPI", "ExtINT"]);
    let logical = next(&["physical", "logical"]);
    let assert = next(&["de-assert", "assert"]);
    let level = next(&["edge", "level"]);
    let shorthand = next(&["dst", "self", "all", "all-but-self"]);
    let vector: u32 = number(body, "vec ")?;
    Ok(What::Ipi {
        icr_low: vector | mode << 8 | logical << 11 | assert << 14 | level << 15 | shorthand << 18,
        destination: hexadecimal(body, "dst ")?,
    })
}
