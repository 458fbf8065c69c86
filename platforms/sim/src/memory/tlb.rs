//! What the guests' TLBs may still hold. `translations.rs` checks that no stale translation is used.
//!
//! A TLB is as full as it can be: when its vCPU loads a space's tables or flushes, it holds everything that the tables
//! say at that time. What it has under a process-context identifier stays until it is flushed: a second level of 512
//! entries has room for four working sets such as a compiler's, one of 1536 entries for six (docs/spec/costs.md, Nested
//! page tables). Guests announce when they take translations away, and from when on they rely on no CPU using them
//! ([`Cpu`](holdfast_guest::Cpu)).

use holdfast_guest::Pcid;
use holdfast_machine::Picos;

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

/// The tables that a TLB was filled from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// The address space.
    pub space: u32,
    /// Number of changes that the tables had gone through.
    pub changes: u64,
}

/// What a vCPU's TLB holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tlb {
    /// What it has under each process-context identifier.
    pub held: [Held; Pcid::COUNT],
    /// The identifier of the loaded tables.
    pub loaded: usize,
}

/// What a TLB has under one process-context identifier.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    /// The tables that it was filled from. `None` before the first load.
    pub filled: Option<Filled>,
    /// Time by which user code with these tables will take longer until the TLB is full again.
    pub refill: Picos,
}

impl Tlb {
    /// What it has of the loaded tables.
    pub fn current(&mut self) -> &mut Held {
        &mut self.held[self.loaded]
    }
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
    pub fn fill(&mut self, space: u32) -> Filled {
        let changes = self.at(space).changes;
        Filled { space, changes }
    }

    /// Empties `held`, so that it fills again from the tables as they are now. User code then takes `refill` longer.
    pub fn empty(&mut self, held: &mut Held, refill: Picos) {
        if let Some(filled) = &mut held.filled {
            *filled = self.fill(filled.space);
            held.refill = refill;
        }
    }

    /// The change that `filled` lacks and that the guest relies on, if there is one.
    #[inline]
    pub fn missing_change(&self, filled: Filled) -> Option<u64> {
        // The space is in the table because its tables have been loaded.
        let flushed = self.0[filled.space as usize].flushed;
        (filled.changes < flushed).then_some(flushed)
    }
}
