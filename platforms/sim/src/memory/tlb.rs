//! What the guests' TLBs may still hold. `translations.rs` checks that no stale translation is used.
//!
//! A TLB is as full as it can be: when its vCPU loads a space's tables or flushes, it holds everything that the tables
//! say at that time. Guests announce when they take translations away, and from when on they rely on no CPU using them
//! ([`Cpu`](holdfast_guest::Cpu)).

/// The address spaces of a guest.
#[derive(Debug, Default)]
pub struct Spaces(Vec<Space>);

#[derive(Clone, Copy, Debug, Default)]
struct Space {
    /// Number of times that translations were taken away.
    changes: u64,
    /// The last of those changes that the guest relies on being known everywhere.
    flushed: u64,
}

/// The tables that a vCPU's TLB was filled from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tlb {
    /// The address space.
    pub space: u32,
    /// Number of changes that the tables had gone through.
    pub changes: u64,
}

impl Spaces {
    fn at(&mut self, space: u32) -> &mut Space {
        let index = space as usize;
        if index >= self.0.len() {
            self.0.resize(index + 1, Space::default());
        }
        &mut self.0[index]
    }

    /// Translations are taken away from the tables of `space`. Returns the number of this change.
    pub fn change(&mut self, space: u32) -> u64 {
        self.at(space).changes += 1;
        self.at(space).changes
    }

    /// The guest relies on no CPU using what went from `space` up to `change`.
    pub fn flushed(&mut self, space: u32, change: u64) {
        let space = self.at(space);
        space.flushed = space.flushed.max(change);
    }

    /// A TLB that is filled from the tables of `space` now.
    pub fn fill(&mut self, space: u32) -> Tlb {
        let changes = self.at(space).changes;
        Tlb { space, changes }
    }

    /// The change that `tlb` lacks and that the guest relies on, if there is one.
    #[inline]
    pub fn missing_change(&self, tlb: Tlb) -> Option<u64> {
        // The space is in the table because its tables have been loaded.
        let flushed = self.0[tlb.space as usize].flushed;
        (tlb.changes < flushed).then_some(flushed)
    }
}
