//! Handling of spinning guests: handlers, filters and windows, and which of them each kernel had (docs/spec/host.md,
//! "Pause exits").
//!
//! Version numbers that the document marks are from memory and uncertain. Dates of merges that were looked up: directed
//! yield, March 2011 (commit 217ece6129f2); `ready` and the yield after a kick, July 2019 (d73eb57b80b9, 266e85a5ec91).

use crate::error::{ConfigError, in_range};

/// What the host does when a guest's pause loop exits (docs/spec/host.md, "Pause exits").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PauseExit {
    /// The host does not ask for pause exits. If one comes, it enters the guest again.
    #[default]
    None,
    /// The vCPU sleeps until an event, at most this long. 2.6.33 to 2.6.38 used 100 µs.
    Sleep {
        /// Longest sleep.
        ns: u64,
    },
    /// Directed yield to another vCPU of the VM, as introduced in 2.6.39. The search begins behind the vCPU boosted
    /// last. Its only filters are "not halted, not in guest mode" and [`PauseHandling::filters`].
    DirectedYield,
}

/// Filters that later kernels added to the choice of the target of a directed yield (docs/spec/host.md, "Pause exits").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct YieldFilters {
    /// 3.6: a vCPU that is itself in the handler is skipped every second time.
    pub eligibility: bool,
    /// 3.9: a yield is refused (−ESRCH) if both pCPUs have one thread only, so that no thread waits.
    pub undercommit: bool,
    /// 3.9: the search gives up after this many refusals. 0: it examines all vCPUs.
    pub tries: u32,
    /// 3.10: only vCPUs that wait for a pCPU are candidates. Until 5.2 these are the preempted ones
    /// ([`YieldFilters::ready`]).
    pub preempted: bool,
    /// 4.14: if the spinner spins in kernel mode, a preempted vCPU is a candidate only if it was preempted in kernel
    /// mode.
    pub in_kernel: bool,
    /// 5.3: vCPUs that were just woken count as waiting, too.
    pub ready: bool,
    /// 6.9: a vCPU preempted in user mode is a candidate all the same if an interrupt is pending for it.
    pub pending_interrupt: bool,
}

impl YieldFilters {
    /// 2.6.39 to 3.5.
    pub const NONE: YieldFilters = YieldFilters {
        eligibility: false,
        undercommit: false,
        tries: 0,
        preempted: false,
        in_kernel: false,
        ready: false,
        pending_interrupt: false,
    };
    /// 3.6 to 3.8.
    pub const LINUX_3_6: YieldFilters = YieldFilters {
        eligibility: true,
        ..YieldFilters::NONE
    };
    /// Filters of Linux 3.9.
    pub const LINUX_3_9: YieldFilters = YieldFilters {
        undercommit: true,
        tries: 3,
        ..YieldFilters::LINUX_3_6
    };
    /// 3.10 to 4.13: 4.12 is one of these.
    pub const LINUX_3_10: YieldFilters = YieldFilters {
        preempted: true,
        ..YieldFilters::LINUX_3_9
    };
    /// 4.14 to 5.2: 4.19 is one of these.
    pub const LINUX_4_14: YieldFilters = YieldFilters {
        in_kernel: true,
        ..YieldFilters::LINUX_3_10
    };
    /// 5.3 to 6.8.
    pub const LINUX_5_3: YieldFilters = YieldFilters {
        ready: true,
        ..YieldFilters::LINUX_4_14
    };
    /// 6.9 and later.
    pub const LINUX_6_9: YieldFilters = YieldFilters {
        pending_interrupt: true,
        ..YieldFilters::LINUX_5_3
    };
}

/// How the window of a vCPU changes (docs/spec/host.md, "Pause windows"). Parameters below the window multiply and
/// divide, others add and subtract. A parameter of 0 resets the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowRule {
    /// Growth of a vCPU's window at each pause exit (kvm_intel `ple_window_grow`, 2 since 3.18). Below the base window
    /// it is a factor, otherwise a summand. With 0 the window stays.
    pub grow: u32,
    /// Shrinking of the window when a vCPU gets a pCPU again (kvm_intel `ple_window_shrink`). Below the base window it
    /// is a divisor, otherwise a subtrahend. With 0 the window returns to its base.
    pub shrink: u32,
    /// Largest window (kvm_intel `ple_window_max`). `None` is the most that the CPU's field holds.
    pub max: Option<u32>,
}

impl WindowRule {
    /// Until 3.17: the window stays as it is.
    pub const FIXED: WindowRule = WindowRule {
        grow: 0,
        shrink: 0,
        max: None,
    };
    /// 3.18 and later.
    pub const DYNAMIC: WindowRule = WindowRule {
        grow: 2,
        ..WindowRule::FIXED
    };
}

/// Parameters of a CPU's pause detection, in its own units (docs/spec/host.md, "Pause detection").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PauseControls {
    /// No pause exits.
    #[default]
    Off,
    /// Intel: VMCS fields 0x4020 and 0x4022, cycles of the time-stamp counter.
    Ple {
        /// Longest time between two PAUSEs of one loop. Intel only (kvm_intel `ple_gap`).
        gap: u32,
        /// How long a pause loop may last before it exits. Intel only (kvm_intel `ple_window`).
        window: u32,
    },
    /// AMD: VMCB fields 0x3e and 0x3c.
    Filter {
        /// Number of PAUSEs of one loop that pass before the next one exits. AMD only (kvm_amd `pause_filter_count`).
        ///
        /// 16 bits.
        count: u32,
        /// Longest time between two PAUSEs of one loop. With 0 all PAUSEs count. AMD only (kvm_amd
        /// `pause_filter_thresh`).
        ///
        /// In cycles, 16 bits.
        threshold: u32,
    },
}

impl PauseControls {
    /// KVM's defaults for Intel CPUs since 3.0 (2.6.37 had a gap of 41).
    pub const INTEL: PauseControls = PauseControls::Ple { gap: 128, window: 4096 };
    /// KVM's defaults for AMD CPUs.
    pub const AMD: PauseControls = PauseControls::Filter {
        count: 3000,
        threshold: 128,
    };

    /// Returns the largest window that the CPU's field holds.
    pub fn window_max(&self) -> u32 {
        match self {
            PauseControls::Off | PauseControls::Ple { .. } => u32::MAX,
            PauseControls::Filter { .. } => u32::from(u16::MAX),
        }
    }
}

/// A host's handling of spinning guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseHandling {
    /// The action of a pause exit.
    pub exit: PauseExit,
    /// Filters on the targets of its directed yield.
    pub filters: YieldFilters,
    /// How the window changes.
    pub window: WindowRule,
    /// Whether the host uses the pause filter's threshold (4.17). Without it the window does not move.
    pub filter_threshold: bool,
    /// AMD: the PAUSE that exited is skipped, as on Intel, instead of executed again. Since some version after 4.19
    /// (uncertain).
    pub skips_amd_pause: bool,
    /// The kick hypercall tries a directed yield to its target: since July 2019.
    pub kick_yields: bool,
}

impl PauseHandling {
    /// No pause exits.
    pub const NONE: PauseHandling = PauseHandling {
        exit: PauseExit::None,
        filters: YieldFilters::NONE,
        window: WindowRule::FIXED,
        filter_threshold: false,
        skips_amd_pause: false,
        kick_yields: false,
    };
    /// 2.6.33 to 2.6.38.
    pub const SLEEP_2010: PauseHandling = PauseHandling {
        exit: PauseExit::Sleep { ns: 100_000 },
        ..PauseHandling::NONE
    };
    /// 2.6.39 to 3.5.
    pub const DIRECTED_YIELD_2011: PauseHandling = PauseHandling {
        exit: PauseExit::DirectedYield,
        ..PauseHandling::NONE
    };

    const fn filtered(self, filters: YieldFilters) -> PauseHandling {
        PauseHandling { filters, ..self }
    }

    /// The handling of each kernel, by name, in the order of time. Several names can mean the same.
    pub const PRESETS: [(&str, PauseHandling); 15] = {
        let first = PauseHandling::DIRECTED_YIELD_2011;
        let dynamic = PauseHandling {
            window: WindowRule::DYNAMIC,
            ..first.filtered(YieldFilters::LINUX_3_10)
        };
        let threshold = PauseHandling {
            filter_threshold: true,
            ..dynamic.filtered(YieldFilters::LINUX_4_14)
        };
        let kicks = PauseHandling {
            kick_yields: true,
            ..threshold.filtered(YieldFilters::LINUX_5_3)
        };
        let skips = PauseHandling {
            skips_amd_pause: true,
            ..kicks.filtered(YieldFilters::LINUX_6_9)
        };
        [
            ("none", PauseHandling::NONE),
            ("sleep-100us", PauseHandling::SLEEP_2010),
            ("directed-yield-2011", first),
            ("linux-2.6.37", PauseHandling::SLEEP_2010),
            ("linux-3.0", first),
            ("linux-3.3", first),
            ("linux-3.6", first.filtered(YieldFilters::LINUX_3_6)),
            ("linux-3.9", first.filtered(YieldFilters::LINUX_3_9)),
            ("linux-3.10", first.filtered(YieldFilters::LINUX_3_10)),
            ("linux-3.18", dynamic),
            ("linux-4.12", dynamic),
            ("linux-4.19", threshold),
            ("linux-5.4", kicks),
            ("linux-6.6", kicks),
            ("linux-6.12", skips),
        ]
    };

    /// Checks the handling together with the parameters of the CPU.
    ///
    /// # Errors
    /// Fails if no loop stays within the gap, no loop exceeds the window, the CPU's field cannot hold the window, or it
    /// grows or shrinks by a factor of 1.
    pub(crate) fn check(&self, controls: &PauseControls) -> Result<(), ConfigError> {
        let most = i64::from(controls.window_max());
        let base = match *controls {
            PauseControls::Off => 1,
            PauseControls::Ple { gap, window } => {
                in_range("pause gap", gap, 1, most - 1)?;
                in_range("pause window", window, i64::from(gap) + 1, most)?;
                window
            }
            PauseControls::Filter { count, threshold } => {
                in_range("pause filter count", count, 1, most)?;
                in_range("pause filter threshold", threshold, 0, most)?;
                count
            }
        };
        if let Some(max) = self.window.max {
            in_range("largest pause window", max, i64::from(base), most)?;
        }
        for (name, parameter) in [
            ("growth of the pause window", self.window.grow),
            ("shrinking of the pause window", self.window.shrink),
        ] {
            if parameter == 1 {
                return Err(ConfigError::FactorOfOne(name));
            }
        }
        if let PauseExit::Sleep { ns } = self.exit {
            in_range("pause sleep", ns, 1, 1_000_000_000)?;
        }
        Ok(())
    }

    /// Returns the first preset that equals this one.
    pub fn preset(&self) -> Option<&'static str> {
        let found = PauseHandling::PRESETS.iter().find(|(_, preset)| preset == self);
        found.map(|(name, _)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_has_the_first_name_of_its_values() {
        for (name, preset) in PauseHandling::PRESETS {
            let first = match name {
                "linux-2.6.37" => "sleep-100us",
                "linux-3.0" | "linux-3.3" => "directed-yield-2011",
                "linux-4.12" => "linux-3.18",
                "linux-6.6" => "linux-5.4",
                name => name,
            };
            assert_eq!(preset.preset(), Some(first), "{name}");
        }
        let changed = PauseHandling {
            kick_yields: true,
            ..PauseHandling::NONE
        };
        assert_eq!(changed.preset(), None);
    }
}
