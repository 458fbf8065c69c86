//! The figures of a vCPU or a VM, each with how far it can be believed.

use super::figure::Figure;
use super::tally::Tally;
use crate::hosts::VmFiles;
use crate::hosts::names::Role;
use crate::timeline::{Faults, Seen, State};

/// What figures depend on besides the tally.
#[derive(Clone, Copy, Debug)]
pub struct Context<'c> {
    /// What was wrong with the recording.
    pub faults: &'c Faults,
    /// How many events of each kind there were.
    pub seen: &'c Seen,
    /// Waiting time behind vCPUs: of the same VM, of other VMs, and of VMs that are not known. In ns.
    pub behind_vcpus: [u64; 3],
    /// The process of the VM, if known.
    pub process: Option<u32>,
    /// What files say of the VM.
    pub files: Option<&'c VmFiles>,
    /// Files say which threads are the kernel's.
    pub knows_kernel: bool,
    /// Waited for a pCPU by the kernel's own count, in ns.
    pub run_delay: Option<u64>,
    /// The number of vCPUs.
    pub vcpus: u64,
}

const LOST: &str = "events are missing";
const NO_SWITCHES: &str = "sched_switch was not recorded";
const NO_KVM: &str = "kvm_entry and kvm_exit were not recorded";
const NO_WAKEUPS: &str = "sched_waking was not recorded";
const NO_HALTS: &str = "kvm_vcpu_wakeup was not recorded";

/// Waiting time behind threads other than vCPUs, in ns.
#[derive(Clone, Copy, Debug, Default)]
struct Behind {
    own: u64,
    vhost: u64,
    kernel: u64,
    others: u64,
}

fn behind_threads(tally: &Tally, process: Option<u32>) -> Behind {
    let mut behind = Behind::default();
    for (thread, _, ns) in tally.behind_threads.iter() {
        let is_own = |of: Option<u32>| of.is_some() && of == process;
        match thread.role {
            Role::Vhost(owner) if is_own(owner) => behind.vhost = behind.vhost.saturating_add(ns),
            Role::Vhost(_) => behind.others = behind.others.saturating_add(ns),
            Role::Kernel => behind.kernel = behind.kernel.saturating_add(ns),
            _ if is_own(thread.process) => behind.own = behind.own.saturating_add(ns),
            _ => behind.others = behind.others.saturating_add(ns),
        }
    }
    behind.others = behind.others.saturating_add(tally.behind_threads.rest().1);
    behind
}

/// Returns `part` of `whole` in percent.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64 * 100.0
}

/// Names of the shares of the recorded time, in the order of [`State::ALL`].
const SHARES: [&str; State::ALL.len()] = [
    "guest_percent",
    "host_percent",
    "running_percent",
    "polling_percent",
    "ready_percent",
    "halted_percent",
    "asleep_percent",
    "unknown_percent",
];

/// Returns all figures of `tally`.
pub fn figures(tally: &Tally, context: &Context<'_>) -> Vec<Figure> {
    let mut figures = shares(tally, context);
    figures.extend(ready(tally, context));
    figures.extend(behind(tally, context));
    figures.extend(wakeups(tally, context));
    figures.extend(guest(tally, context));
    let doubt = context.faults.any().then_some(LOST);
    figures.into_iter().map(|figure| figure.at_best(doubt)).collect()
}

fn shares(tally: &Tally, context: &Context<'_>) -> Vec<Figure> {
    let recorded = tally.recorded();
    let share = |state: State| {
        let (name, value) = (SHARES[state as usize], percent(tally.of(state), recorded));
        match state {
            State::Guest | State::Host if context.seen.entries == 0 || context.seen.exits == 0 => {
                Figure::unknown(name, NO_KVM)
            }
            State::Polling if context.seen.halt_ends == 0 => Figure::unknown(name, NO_HALTS),
            State::Ready if context.seen.switches == 0 => Figure::unknown(name, NO_SWITCHES),
            State::Ready if context.seen.wakeups == 0 => Figure::inferred(name, value, NO_WAKEUPS),
            State::Halted if context.seen.exits == 0 => Figure::unknown(name, NO_KVM),
            _ => Figure::known(name, value),
        }
    };
    let mut shares = vec![Figure::known("recorded_s", recorded as f64 / 1e9)];
    shares.extend(State::ALL.map(share));
    shares
}

fn ready(tally: &Tally, context: &Context<'_>) -> Vec<Figure> {
    let (ready, recorded) = (tally.of(State::Ready), tally.recorded());
    let share = ready as f64 / recorded.max(1) as f64;
    let figure = |name: &'static str, value: f64| match context.seen {
        seen if seen.switches == 0 => Figure::unknown(name, NO_SWITCHES),
        seen if seen.wakeups == 0 => Figure::inferred(name, value, NO_WAKEUPS),
        _ => Figure::known(name, value),
    };
    let stolen = figure("steal_percent", share * 100.0);
    let stolen = stolen.at_best(Some(
        "if the guest is told its steal time: KVM reports all waiting time of the thread",
    ));
    let delay = "run_delay_ms";
    vec![
        figure("ready_ms_per_20s", share * context.vcpus as f64 * 20_000.0),
        figure(
            "ready_of_wanted_percent",
            percent(ready, ready.saturating_add(tally.ran())),
        ),
        figure("waits_per_s", tally.waits as f64 / seconds(recorded)),
        figure("longest_wait_ms", tally.longest.0 as f64 / 1e6),
        stolen,
        match context.run_delay {
            Some(ns) => Figure::known(delay, ns as f64 / 1e6),
            None => Figure::unknown(delay, "no copies of schedstat beside the recording"),
        },
    ]
}

fn seconds(ns: u64) -> f64 {
    ns.max(1) as f64 / 1e9
}

fn behind(tally: &Tally, context: &Context<'_>) -> Vec<Figure> {
    const NO_PROCESS: &str = "which VM a thread belongs to: no process of it is recorded";
    let ready = tally.of(State::Ready);
    let share = |ns: u64| percent(ns, ready);
    let [siblings, others, unknown] = context.behind_vcpus;
    let threads = behind_threads(tally, context.process);
    let of_vcpus = |name: &'static str, ns: u64| match unknown {
        0 => Figure::known(name, share(ns)),
        // At least this much is, which is nothing to say if none of it is known.
        _ if (siblings, others) == (0, 0) => Figure::unknown(name, NO_PROCESS),
        _ => Figure::inferred(name, share(ns), "at least: the VMs of some threads are not known"),
    };
    let of_process = |name: &'static str, ns: u64| match context.process {
        Some(_) => Figure::known(name, share(ns)),
        None => Figure::unknown(name, NO_PROCESS),
    };
    let by_name = (!context.knows_kernel).then_some("kernel threads are told by their names");
    let throttled = "throttled_percent";
    let throttled = match context.files {
        Some(VmFiles {
            throttled: Some(ns), ..
        }) => Figure::known(throttled, percent(*ns, tally.recorded())),
        Some(VmFiles { quota: Some(None), .. }) => Figure::known(throttled, 0.0),
        Some(VmFiles {
            quota: Some(Some(_)), ..
        }) => Figure::inferred(
            throttled,
            percent(tally.behind_idle_long, tally.recorded()),
            "at least: ready for 1 ms and more while the pCPU was idle, with a quota",
        ),
        _ => Figure::unknown(throttled, "no files of control groups beside the recording"),
    };
    let lazily = "until_exit_percent";
    let lazily = if context.seen.exits == 0 {
        Figure::unknown(lazily, NO_KVM)
    } else if context.seen.wakeups == 0 {
        Figure::unknown(lazily, NO_WAKEUPS)
    } else {
        Figure::inferred(
            lazily,
            share(tally.until_exit.1),
            "at most: woken while a vCPU stayed in its guest, which gave up the pCPU at its next exit",
        )
    };
    vec![
        Figure::known(
            "behind_vcpus_percent",
            share(siblings.saturating_add(others).saturating_add(unknown)),
        ),
        of_vcpus("behind_siblings_percent", siblings),
        of_vcpus("behind_other_vms_percent", others),
        of_process("behind_own_threads_percent", threads.own),
        of_process("behind_own_vhost_percent", threads.vhost),
        Figure::known("behind_kernel_percent", share(threads.kernel)).at_best(by_name),
        Figure::known("behind_other_threads_percent", share(threads.others)).at_best(by_name),
        Figure::known("behind_idle_percent", share(tally.behind_idle)),
        Figure::known("behind_unknown_percent", share(tally.behind_unknown)),
        lazily,
        throttled,
    ]
}

/// Quantiles of the time from wakeup to run.
const QUANTILES: [(&str, f64); 6] = [
    ("wake_to_run_p10_us", 0.1),
    ("wake_to_run_p50_us", 0.5),
    ("wake_to_run_p90_us", 0.9),
    ("wake_to_run_p99_us", 0.99),
    ("wake_to_run_p999_us", 0.999),
    ("wake_to_run_max_us", 1.0),
];

fn wakeups(tally: &Tally, context: &Context<'_>) -> Vec<Figure> {
    let quantile = |(name, quantile): (&'static str, f64)| match &tally.wakes {
        Some(wakes) => Figure::known(name, wakes.value_at_quantile(quantile) as f64 / 1e3),
        None if context.seen.wakeups == 0 => Figure::unknown(name, NO_WAKEUPS),
        None => Figure::unknown(name, "no wakeup of it was recorded"),
    };
    let mut figures: Vec<Figure> = QUANTILES.into_iter().map(quantile).collect();
    let halts = tally.polls_won.0.saturating_add(tally.polls_paid.0);
    let of_halts = |name: &'static str, value: f64| match context.seen.halt_ends {
        0 => Figure::unknown(name, NO_HALTS),
        _ => Figure::known(name, value),
    };
    let recorded = tally.recorded();
    figures.extend([
        of_halts("halts_per_s", halts as f64 / seconds(recorded)),
        of_halts("polls_won_percent", percent(tally.polls_won.0, halts)),
        of_halts("polling_won_percent", percent(tally.polls_won.1, recorded)),
        of_halts("polling_paid_percent", percent(tally.polls_paid.1, recorded)),
    ]);
    figures
}

fn guest(tally: &Tally, context: &Context<'_>) -> Vec<Figure> {
    let recorded = tally.recorded();
    let per_second = |count: u64| count as f64 / seconds(recorded);
    let of_exits = |name: &'static str, value: f64| match context.seen.exits {
        0 => Figure::unknown(name, NO_KVM),
        _ => Figure::known(name, value),
    };
    let (spun, halted) = ("spun_percent", "halted_for_kick_percent");
    vec![
        of_exits("exits_per_s", per_second(tally.exits.total().0)),
        of_exits("pause_exits_per_s", per_second(tally.pauses.0)),
        match context.seen.exits {
            0 => Figure::unknown(spun, NO_KVM),
            // Hardware counts pauses, and exits only for long loops of them.
            _ => Figure::inferred(
                spun,
                percent(tally.pauses.1, recorded),
                "guest time between an entry and a pause exit: at most this much in spins that exited, and nothing of \
                 shorter spins",
            ),
        },
        match (context.seen.hypercalls, context.seen.halt_ends) {
            (_, 0) => Figure::unknown(halted, NO_HALTS),
            (0, _) => Figure::inferred(halted, 0.0, "no kick was recorded: no PV spinlocks, or no contention"),
            _ => Figure::inferred(
                halted,
                percent(tally.kicked.1, recorded),
                "halts that a vCPU ended within its kick hypercall",
            ),
        },
        match context.seen.hypercalls {
            0 => Figure::inferred("kicks_per_s", 0.0, "no hypercall was recorded"),
            _ => Figure::known("kicks_per_s", per_second(tally.kicks.total().0)),
        },
        match context.seen.ipis {
            0 => Figure::unknown(
                "ipis_per_s",
                "no kvm_apic_ipi was recorded: hardware may send them without the host",
            ),
            _ => Figure::known("ipis_per_s", per_second(tally.ipis.total().0)),
        },
    ]
}
