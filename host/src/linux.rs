//! The versions of Linux that a host or a guest can be.

use crate::sched::config::SchedulerKind;

/// A version of Linux. Each has a scheduler of its own; versions between two of them are like the older one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Linux {
    /// 2.6.37 of January 2011.
    V2_6_37,
    /// 3.3 of March 2012.
    #[default]
    V3_3,
    /// 4.12 of July 2017.
    V4_12,
    /// 6.1 of December 2022.
    V6_1,
    /// 6.6 of October 2023.
    V6_6,
    /// 6.12 of November 2024.
    V6_12,
    /// 6.18 of November 2025.
    V6_18,
    /// 7.3 of 2026.
    V7_3,
}

impl Linux {
    /// Every version, the oldest first.
    pub const ALL: [Linux; 8] = [
        Linux::V2_6_37,
        Linux::V3_3,
        Linux::V4_12,
        Linux::V6_1,
        Linux::V6_6,
        Linux::V6_12,
        Linux::V6_18,
        Linux::V7_3,
    ];

    /// Returns the name in experiments.
    pub const fn name(self) -> &'static str {
        match self {
            Linux::V2_6_37 => "linux-2.6.37",
            Linux::V3_3 => "linux-3.3",
            Linux::V4_12 => "linux-4.12",
            Linux::V6_1 => "linux-6.1",
            Linux::V6_6 => "linux-6.6",
            Linux::V6_12 => "linux-6.12",
            Linux::V6_18 => "linux-6.18",
            Linux::V7_3 => "linux-7.3",
        }
    }

    /// Returns the version called `name`.
    pub fn by_name(name: &str) -> Option<Linux> {
        Linux::ALL.into_iter().find(|version| version.name() == name)
    }

    /// Returns the version's scheduler.
    pub const fn scheduler(self) -> SchedulerKind {
        match self {
            Linux::V2_6_37 => SchedulerKind::Cfs2637,
            Linux::V3_3 => SchedulerKind::Cfs33,
            Linux::V4_12 => SchedulerKind::Cfs412,
            Linux::V6_1 => SchedulerKind::Cfs61,
            Linux::V6_6 => SchedulerKind::Eevdf66,
            Linux::V6_12 => SchedulerKind::Eevdf612,
            Linux::V6_18 => SchedulerKind::Eevdf618,
            Linux::V7_3 => SchedulerKind::Eevdf73,
        }
    }

    /// Returns the name of the version's handling of pause exits in
    /// [`PauseHandling::PRESETS`](crate::PauseHandling::PRESETS).
    pub(crate) const fn pauses(self) -> &'static str {
        match self {
            Linux::V2_6_37 => "linux-2.6.37",
            Linux::V3_3 => "linux-3.3",
            Linux::V4_12 => "linux-4.12",
            Linux::V6_1 => "linux-5.4",
            Linux::V6_6 => "linux-6.6",
            Linux::V6_12 | Linux::V6_18 | Linux::V7_3 => "linux-6.12",
        }
    }
}
