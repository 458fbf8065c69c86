//! Process-context identifiers: a CPU's TLB keeps the translations of several address spaces (Linux 4.14,
//! 10af6235e0d3).

use crate::ids::{LocalId, TaskId};
use crate::local::Local32;

/// Number of identifiers that each CPU uses (`TLB_NR_DYN_ASIDS`).
const IDENTIFIERS: usize = 6;

/// A load of page tables under a process-context identifier (CR3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pcid {
    /// The identifier, below [`Pcid::COUNT`].
    pub number: usize,
    /// Whether the load keeps the translations that the TLB has under this identifier (bit 63 of CR3).
    pub keeps: bool,
}

impl Pcid {
    /// Number of identifiers that guests use on each CPU.
    pub const COUNT: usize = IDENTIFIERS;

    /// A load without identifiers. It empties the TLB.
    pub const NONE: Pcid = Pcid {
        number: 0,
        keeps: false,
    };
}

/// A version of an address space: which space it is, and how often translations were removed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// The slot of the space.
    pub(crate) space: TaskId,
    /// Number of the space among those that had this slot, from 1 (`mm->context.ctx_id`).
    pub(crate) context: u32,
    /// Number of its flushes (`tlb_gen`). It may wrap: a CPU does not miss 2³² flushes of a space.
    pub(crate) flushes: u32,
}

/// What the identifiers of one CPU stand for. Only that CPU uses it.
pub(crate) struct Identifiers {
    known: [Known; IDENTIFIERS],
    /// The identifier of the loaded tables.
    loaded: Local32,
    /// The identifier that the next unknown space gets, modulo their number.
    next: Local32,
}

/// What one identifier stands for. Context 0 is no space.
struct Known {
    space: LocalId<TaskId>,
    context: Local32,
    flushes: Local32,
}

impl Identifiers {
    pub(crate) fn new() -> Self {
        Identifiers {
            known: core::array::from_fn(|_| Known {
                space: LocalId::new(TaskId(0)),
                context: Local32::new(0),
                flushes: Local32::new(0),
            }),
            loaded: Local32::new(0),
            next: Local32::new(0),
        }
    }

    /// Chooses the identifier for a load of `wanted` (`choose_new_asid`). Its translations are kept if the TLB has seen
    /// all flushes. A space without an identifier takes one in turn from another space.
    pub(crate) fn choose(&self, wanted: Version) -> Pcid {
        let is_wanted = |known: &Known| known.space.get() == wanted.space && known.context.get() == wanted.context;
        let (number, keeps) = match self.known.iter().position(is_wanted) {
            Some(number) => (number, self.known[number].flushes.get() == wanted.flushes),
            None => {
                let number = self.next.get() as usize % IDENTIFIERS;
                self.next.add(1);
                (number, false)
            }
        };
        let known = &self.known[number];
        known.space.set(wanted.space);
        known.context.set(wanted.context);
        known.flushes.set(wanted.flushes);
        self.loaded.set(number as u32);
        Pcid { number, keeps }
    }

    /// The loaded tables' translations are flushed, and with that the TLB has seen `flushes`.
    pub(crate) fn flushed(&self, flushes: u32) {
        self.known[self.loaded.get() as usize].flushes.set(flushes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(space: u32, flushes: u32) -> Version {
        Version {
            space: TaskId(space),
            context: 1,
            flushes,
        }
    }

    #[test]
    fn a_space_keeps_its_identifier_until_as_many_others_were_loaded() {
        let identifiers = Identifiers::new();
        let first = identifiers.choose(version(0, 0));
        assert!(!first.keeps);
        for other in 1..IDENTIFIERS as u32 {
            assert!(!identifiers.choose(version(other, 0)).keeps);
            assert_eq!(identifiers.choose(version(0, 0)), Pcid { keeps: true, ..first });
        }
        // One more space takes the oldest identifier.
        assert_eq!(identifiers.choose(version(9, 0)), first);
        assert!(!identifiers.choose(version(0, 0)).keeps);
    }

    #[test]
    fn translations_flushed_elsewhere_are_not_kept() {
        let identifiers = Identifiers::new();
        identifiers.choose(version(1, 0));
        identifiers.flushed(1);
        identifiers.choose(version(2, 0));
        assert!(
            identifiers.choose(version(1, 1)).keeps,
            "this CPU took part in the flush"
        );
        identifiers.choose(version(2, 0));
        assert!(!identifiers.choose(version(1, 2)).keeps, "and missed the second");
        identifiers.choose(version(2, 0));
        assert!(
            identifiers.choose(version(1, 2)).keeps,
            "the load itself made up for it"
        );
    }

    #[test]
    fn a_new_space_in_an_old_slot_has_no_translations() {
        let identifiers = Identifiers::new();
        identifiers.choose(version(1, 0));
        let new = Version {
            context: 2,
            ..version(1, 0)
        };
        assert!(!identifiers.choose(new).keeps);
    }
}
