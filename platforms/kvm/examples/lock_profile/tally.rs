//! Counts and times of one operation.

use std::collections::BTreeMap;

use crate::classes;
use crate::hooks::Kind;
use crate::records::Run;
use crate::symbols::Symbols;

/// Where a spinlock is taken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    pub function: String,
    pub class: &'static str,
    /// The class of the outermost spinlock that is held at that moment. Empty: none is.
    pub under: &'static str,
}

/// What happens at a site in a whole run, in instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Taken {
    pub count: f64,
    /// From the entry of the lock function to the entry of the unlock function.
    pub held: f64,
    /// `held` without the times for which locks nested in this one are held.
    pub own: f64,
    /// Sum of the distances from the begins of the iterations.
    pub at: f64,
}

/// One operation's counts, for all its iterations together.
#[derive(Debug)]
pub struct Tally {
    pub operation: String,
    pub iterations: f64,
    pub instructions: f64,
    pub kernel: f64,
    pub sites: BTreeMap<Site, Taken>,
    /// Calls of other hooked functions.
    pub calls: BTreeMap<&'static str, f64>,
}

struct Held {
    address: u64,
    site: Site,
    since: u64,
    at: u64,
    nested: u64,
}

impl Tally {
    pub fn of(run: &Run, symbols: &Symbols) -> Tally {
        let mut tally = Tally {
            operation: run.operation.clone(),
            iterations: run.iterations as f64,
            instructions: run.instructions as f64,
            kernel: run.kernel as f64,
            sites: BTreeMap::new(),
            calls: BTreeMap::new(),
        };
        let mut held: Vec<Held> = Vec::new();
        for call in &run.calls {
            match call.kind {
                Kind::Lock => {
                    // A lock that is in the list was tried in vain before.
                    held.retain(|other| other.address != call.first);
                    let function = symbols.function(call.caller);
                    let begin = run.begins.partition_point(|begin| *begin <= call.kernel);
                    held.push(Held {
                        address: call.first,
                        site: Site {
                            function: function.to_owned(),
                            class: classes::class(symbols, &run.offsets, call.first, function),
                            under: held.first().map_or("", |outer| outer.site.class),
                        },
                        since: call.kernel,
                        at: call.kernel - run.begins[begin.saturating_sub(1)].min(call.kernel),
                        nested: 0,
                    });
                }
                Kind::Unlock => tally.release(&mut held, call.first, call.kernel),
                other => {
                    if let Some(name) = counter(other) {
                        *tally.calls.entry(name).or_default() += 1.0;
                    }
                }
            }
        }
        tally
    }

    fn release(&mut self, held: &mut Vec<Held>, address: u64, now: u64) {
        let Some(index) = held.iter().rposition(|held| held.address == address) else {
            return;
        };
        let done = held.remove(index);
        let time = now - done.since;
        if let Some(outer) = index.checked_sub(1).map(|outer| &mut held[outer]) {
            outer.nested += time;
        }
        let taken = self.sites.entry(done.site).or_default();
        taken.count += 1.0;
        taken.held += time as f64;
        taken.own += time.saturating_sub(done.nested) as f64;
        taken.at += done.at as f64;
    }

    /// Takes out what `background`, the same CPU in user mode, does in as many instructions.
    pub fn subtract(&mut self, background: &Tally) {
        let ratio = self.instructions / background.instructions;
        for (site, noise) in &background.sites {
            if let Some(taken) = self.sites.get_mut(site) {
                let kept = ((taken.count - noise.count * ratio) / taken.count).max(0.0);
                for part in [&mut taken.count, &mut taken.held, &mut taken.own, &mut taken.at] {
                    *part *= kept;
                }
            }
        }
        let kernel = background.kernel * ratio;
        self.kernel = (self.kernel - kernel).max(0.0);
        self.instructions = (self.instructions - kernel).max(0.0);
        self.sites.retain(|_, taken| taken.count > 0.0);
    }

    pub fn spinlocks(&self) -> f64 {
        self.sites.values().map(|taken| taken.count).sum::<f64>() / self.iterations
    }

    pub fn held(&self) -> f64 {
        self.sites.values().map(|taken| taken.held).sum::<f64>() / self.iterations
    }
}

fn counter(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::RwLock => "rwlocks",
        Kind::Mutex => "mutexes",
        Kind::MutexWait => "mutex_waits",
        Kind::Read => "rwsem_reads",
        Kind::Write => "rwsem_writes",
        Kind::VmaRead => "vma_reads",
        Kind::Wakeup => "wakeups",
        Kind::Switch => "switches",
        Kind::RescheduleIpi => "reschedule_ipis",
        Kind::CallIpi => "call_ipis",
        Kind::Lock | Kind::Unlock | Kind::Wait => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Call;

    fn symbols() -> Symbols {
        Symbols::parse("ffffffff81000000 T __schedule\nffffffff81000100 T pipe_write\nffffffff81000200 T end\n")
            .expect("symbols")
    }

    fn call(kind: Kind, kernel: u64, first: u64, caller: u64) -> Call {
        Call {
            kind,
            kernel,
            first,
            caller: 0xffff_ffff_8100_0000 + caller,
        }
    }

    fn run(calls: Vec<Call>) -> Run {
        Run {
            operation: "test".to_owned(),
            iterations: 2,
            instructions: 1_000,
            kernel: 800,
            begins: vec![0, 100],
            calls,
            ..Run::default()
        }
    }

    #[test]
    fn a_nested_lock_counts_in_its_own_right_and_not_in_the_outer_lock_s_own_time() {
        let tally = Tally::of(
            &run(vec![
                call(Kind::Lock, 110, 1, 0x104),
                call(Kind::Lock, 120, 2, 0x4),
                call(Kind::Unlock, 150, 2, 0),
                call(Kind::Unlock, 160, 1, 0),
                call(Kind::Switch, 170, 0, 0),
            ]),
            &symbols(),
        );
        let taken: Vec<_> = tally
            .sites
            .iter()
            .map(|(site, taken)| (site.class, site.under, *taken))
            .collect();
        let expected = |count, held, own, at| Taken { count, held, own, at };
        assert_eq!(
            taken,
            [
                ("rq", "pipe", expected(1.0, 30.0, 30.0, 20.0)),
                ("pipe", "", expected(1.0, 50.0, 20.0, 10.0)),
            ]
        );
        assert_eq!((tally.spinlocks(), tally.held()), (1.0, 40.0));
        assert_eq!(tally.calls["switches"], 1.0);
    }

    #[test]
    fn a_failed_attempt_is_no_acquisition() {
        let calls = vec![
            call(Kind::Lock, 110, 1, 0x104),
            call(Kind::Lock, 120, 1, 0x104),
            call(Kind::Unlock, 125, 1, 0),
        ];
        let tally = Tally::of(&run(calls), &symbols());
        assert_eq!((tally.spinlocks(), tally.held()), (0.5, 2.5));
    }

    #[test]
    fn the_background_is_taken_out_in_proportion() {
        let calls = || vec![call(Kind::Lock, 110, 1, 0x4), call(Kind::Unlock, 120, 1, 0)];
        let (one, two) = (run(calls()), run([calls(), calls()].concat()));
        let background = Tally::of(&one, &symbols());
        let mut tally = Tally::of(&two, &symbols());
        tally.subtract(&background);
        assert_eq!(tally.spinlocks(), 0.5);
        let mut nothing = Tally::of(&one, &symbols());
        nothing.subtract(&background);
        assert!(nothing.sites.is_empty());
    }
}
