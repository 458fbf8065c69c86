//! Lines of a trace, as the kernel prints them (kernel documentation, trace/ftrace, "The Ftrace format").
//!
//! Lines are not trusted: names of threads can contain anything.

use holdfast_sim::Cause;

/// `KVM_HC_KICK_CPU` (include/uapi/linux/kvm_para.h).
const KICK_CPU: u64 = 5;
/// Limit on CPU numbers: the maximum of Linux on x86-64.
const CPUS_MAX: u32 = 8192;

/// A line about a vCPU or pCPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line<'t> {
    /// Nanoseconds of the trace's clock.
    pub(super) at_ns: u64,
    /// The CPU that it happened on.
    pub(super) cpu: u32,
    /// The thread that ran there.
    pub(super) thread: u32,
    pub(super) event: Event<'t>,
}

/// An event of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event<'t> {
    /// The CPU switches threads.
    Switch {
        from: u32,
        /// Whether the previous thread is still runnable.
        runnable: bool,
        to: u32,
        name: &'t str,
    },
    /// A thread is woken.
    Waking(u32),
    /// The thread's vCPU enters its guest.
    Entry,
    /// The thread's vCPU leaves its guest.
    Exit(Cause),
    /// The thread's vCPU kicks the vCPU with this APIC ID.
    Kick(u32),
}

/// The parts of a line about an event: NAME-PID (TGID) [CPU] FLAGS SECONDS.FRACTION: EVENT: DETAILS.
pub struct Parts<'t> {
    /// The name of the thread and what follows it.
    pub head: &'t str,
    /// The number of the CPU.
    pub cpu: u32,
    /// Nanoseconds of the trace's clock.
    pub at_ns: u64,
    /// The name of the event.
    pub event: &'t str,
    /// What the event says.
    pub details: &'t str,
}

/// Returns the ways to read a line of a trace: a name can hold anything, brackets as well.
pub fn parts(line: &str) -> impl Iterator<Item = Parts<'_>> {
    line.match_indices(" [").filter_map(|(at, _)| {
        let (cpu, rest) = line[at + 2..].split_once(']')?;
        let (flags, rest) = rest.split_once(": ")?;
        let (event, details) = rest.split_once(": ")?;
        Some(Parts {
            head: &line[..at],
            cpu: cpu.parse().ok()?,
            at_ns: nanos(flags.split_whitespace().next_back()?)?,
            event: event.trim(),
            details,
        })
    })
}

/// Reads a line. Returns `None` if it is irrelevant or not a line of a trace.
pub(super) fn parse(line: &str) -> Option<Line<'_>> {
    let mut known = parts(line).filter(|parts| parts.cpu < CPUS_MAX);
    known.find_map(|parts| {
        Some(Line {
            at_ns: parts.at_ns,
            cpu: parts.cpu,
            thread: thread(parts.head)?,
            event: event_of(parts.event, parts.details)?,
        })
    })
}

/// Returns the number after the last dash. A group in parentheses may follow it.
fn thread(head: &str) -> Option<u32> {
    let head = head.trim_end();
    let head = match head.rsplit_once('(') {
        Some((before, group)) if group.ends_with(')') => before.trim_end(),
        _ => head,
    };
    head.rsplit_once('-')?.1.parse().ok()
}

/// Returns `SECONDS.FRACTION` in nanoseconds.
fn nanos(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    let digits = u32::try_from(fraction.len())
        .ok()
        .filter(|digits| (1..=9).contains(digits))?;
    let fraction: u64 = fraction.parse().ok()?;
    let seconds: u64 = seconds.parse().ok()?;
    seconds
        .checked_mul(1_000_000_000)?
        .checked_add(fraction * 10u64.pow(9 - digits))
}

fn event_of<'t>(name: &str, details: &'t str) -> Option<Event<'t>> {
    match name {
        "sched_switch" => {
            let (from, to) = details.rsplit_once(" ==> ")?;
            let (_, from) = from.rsplit_once(" prev_pid=")?;
            let (_, state) = from.split_once(" prev_state=")?;
            let (name, to) = to.strip_prefix("next_comm=")?.rsplit_once(" next_pid=")?;
            Some(Event::Switch {
                from: first(from)?,
                runnable: state.starts_with('R'),
                to: first(to)?,
                name,
            })
        }
        "sched_waking" => Some(Event::Waking(first(details.rsplit_once(" pid=")?.1)?)),
        "kvm_entry" => Some(Event::Entry),
        "kvm_exit" => {
            let (_, reason) = details.split_once("reason ")?;
            Some(Event::Exit(cause(reason.split_whitespace().next()?)))
        }
        "kvm_hypercall" => {
            let (number, arguments) = details.strip_prefix("nr ")?.split_once(" a0 ")?;
            let (_, target) = arguments.split_once(" a1 ")?;
            let target = hexadecimal(target.split_whitespace().next()?)?;
            (hexadecimal(number)? == KICK_CPU).then_some(Event::Kick(u32::try_from(target).ok()?))
        }
        _ => None,
    }
}

fn first(text: &str) -> Option<u32> {
    text.split_whitespace().next()?.parse().ok()
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

/// Returns the cause of an exit by KVM's names of AMD's and Intel's reasons (arch/x86/include/uapi/asm/svm.h, vmx.h).
fn cause(reason: &str) -> Cause {
    match reason {
        "hlt" | "HLT" => Cause::ExitHlt,
        "hypercall" | "VMCALL" => Cause::ExitHypercall,
        "msr" | "MSR_READ" | "MSR_WRITE" => Cause::ExitMsr,
        "cpuid" | "CPUID" => Cause::ExitCpuid,
        "avic_incomplete_ipi" | "avic_unaccelerated_access" | "APIC_ACCESS" | "APIC_WRITE" | "EOI_INDUCED" => {
            Cause::ExitApic
        }
        "io" | "IO_INSTRUCTION" | "EPT_MISCONFIG" => Cause::ExitPort,
        "interrupt" | "EXTERNAL_INTERRUPT" | "PREEMPTION_TIMER" => Cause::ExitInterrupt,
        "vintr" | "INTERRUPT_WINDOW" => Cause::ExitWindow,
        "pause" | "PAUSE_INSTRUCTION" => Cause::ExitPause,
        "npf" | "EPT_VIOLATION" | "PML_FULL" => Cause::ExitNestedFault,
        _ => Cause::HostOverhead,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn switch(line: &str) -> Event<'_> {
        parse(line).unwrap_or_else(|| panic!("{line}")).event
    }

    #[test]
    fn lines_of_linux_6_1_are_read() {
        let line =
            "           CPU 0/KVM-1234    [001] d..2.   123.456789: kvm_exit: vcpu 0 reason hlt rip 0x2010 info1 0x0";
        let read = parse(line).expect("a line");
        assert_eq!((read.at_ns, read.cpu, read.thread), (123_456_789_000, 1, 1234));
        assert_eq!(read.event, Event::Exit(Cause::ExitHlt));
        let kick = "CPU 1/KVM-9 (7) [000] ..... 1.5: kvm_hypercall: nr 0x5 a0 0x0 a1 0x3 a2 0x0 a3 0x0";
        assert_eq!(switch(kick), Event::Kick(3));
        let other = "CPU 1/KVM-9 [000] ..... 1.5: kvm_hypercall: nr 0xb a0 0x0 a1 0x3 a2 0x0 a3 0x0";
        assert_eq!(parse(other), None);
        let waking = "<idle>-0 [000] dNh3. 1.000001: sched_waking: comm=CPU 1/KVM pid=77 prio=120 target_cpu=001";
        assert_eq!(switch(waking), Event::Waking(77));
        assert_eq!(parse("# tracer: nop"), None);
        assert_eq!(parse("CPU:1 [LOST 5 EVENTS]"), None);
    }

    #[test]
    fn names_of_threads_can_hold_anything() {
        let line = "a [7] b: c-12 [001] d.... 1.000001: sched_switch: prev_comm=x ==> y prev_pid=9 prev_pid=12 prev_prio=120 \
                    prev_state=S ==> next_comm=n next_pid=1 next_pid=13 next_prio=120";
        let expected = Event::Switch {
            from: 12,
            runnable: false,
            to: 13,
            name: "n next_pid=1",
        };
        assert_eq!(switch(line), expected);
    }

    proptest! {
        #[test]
        fn nothing_in_a_line_makes_it_panic(cut in 0usize..400, noise in "[ -~\u{e9}\\]\\[:.=-]{0,40}", at in 0usize..200) {
            let whole = "  CPU 0/KVM-12 [001] d.... 99999999999.000001: sched_switch: prev_comm=x prev_pid=12 prev_prio=120 \
                         prev_state=R+ ==> next_comm=n next_pid=13 next_prio=120";
            let mut line: String = whole.chars().take(cut).collect();
            let at = at.min(line.len());
            line.insert_str(at, &noise);
            let _ = parse(&line);
        }
    }
}
