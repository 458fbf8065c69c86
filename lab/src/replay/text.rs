//! Events as the kernel prints them in its file `trace`, with `record-tgid` and all digits of times in ns.

use std::collections::HashMap;
use std::fmt::Write as _;

use holdfast_recordings::event::{Event, Left, Name, Tid, What};
use holdfast_recordings::timeline::reasons;

/// Returns the text of `events`. `process` says the process of a thread, if it is known.
pub fn text(events: &[Event], process: impl Fn(Tid) -> Option<Tid>) -> String {
    let mut text = "# tracer: nop\n#\n".to_owned();
    let mut names: HashMap<Tid, Name> = HashMap::new();
    for event in events {
        if let What::Switch {
            prev,
            prev_name,
            next,
            next_name,
            ..
        } = event.what
        {
            names.extend([(prev, prev_name), (next, next_name)]);
        }
        let Some(what) = what(&event.what) else { continue };
        let name = match event.thread {
            0 => "<idle>",
            thread => names.get(&thread).map_or("<...>", Name::as_str),
        };
        let process = process(event.thread).map_or("-------".to_owned(), |process| format!("{process:7}"));
        let (seconds, ns) = (event.at / 1_000_000_000, event.at % 1_000_000_000);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{name:>16}-{:<7} ({process}) [{:03}] d..2. {seconds:5}.{ns:09}: {what}",
            event.thread, event.cpu
        );
    }
    text
}

/// Returns name and text of an event, or `None` if this module does not print it.
fn what(what: &What) -> Option<String> {
    Some(match what {
        What::Switch {
            prev,
            prev_name,
            left,
            next,
            next_name,
            next_prio,
        } => {
            let state = match left {
                Left::Ready => "R+",
                Left::Asleep => "S",
                Left::Dead => "X",
            };
            format!(
                "sched_switch: prev_comm={prev_name} prev_pid={prev} prev_prio=120 prev_state={state} ==> \
                 next_comm={next_name} next_pid={next} next_prio={next_prio}"
            )
        }
        What::Waking {
            woken, name, target, ..
        } => format!("sched_waking: comm={name} pid={woken} prio=120 target_cpu={target:03}"),
        What::Entry { vcpu } => format!("kvm_entry: vcpu {vcpu}, rip 0x0"),
        What::Exit { vcpu, reason, isa } => {
            let name = reasons::name(*reason, *isa);
            format!("kvm_exit: vcpu {} reason {name} rip 0x0", vcpu.unwrap_or_default())
        }
        What::HaltEnd { ns, slept, .. } => {
            let how = if *slept { "wait" } else { "poll" };
            format!("kvm_vcpu_wakeup: {how} time {ns} ns, polling valid")
        }
        What::Hypercall { nr, args } => {
            format!(
                "kvm_hypercall: nr {nr:#x} a0 {:#x} a1 {:#x} a2 0x0 a3 0x0",
                args[0], args[1]
            )
        }
        What::Ipi { icr_low, destination } => {
            let vector = icr_low & 0xff;
            format!("kvm_apic_ipi: dst {destination:x} vec {vector} (Fixed|physical|de-assert|edge|dst)")
        }
        What::Interrupt { apic, vector } => {
            format!("kvm_apic_accept_irq: apicid {apic:x} vec {vector} (Fixed|edge)")
        }
        _ => return None,
    })
}
