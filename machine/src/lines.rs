//! Cache lines: which CPUs hold a copy, which one may write, and when a transfer ends.
//!
//! The model is a directory at the granularity of one access. A line is owned by its last writer and shared by the CPUs
//! that have read it since. An access that misses waits until the line is free and takes the transfer time of the
//! distance. It then keeps the line busy: a write for the whole transfer, a read for the shorter time in which the
//! owner's cache answers one reader. So the n spinners on one line receive a release one after another. A queue lock's
//! hand-over uses the successor's own line and does not queue.
//!
//! Farther transfers take longer: the costs of a profile increase from core to socket to other socket.
//!
//! Deliberately absent: capacity and conflict evictions, prefetching, memory bandwidth.

use crate::profile::Costs;
use crate::time::{Picos, Time};
use crate::topology::Topology;

/// Lines whose addresses are known that a CPU fetches at the same time: the line fill buffers of an L1 data cache
/// (Intel 64 and IA-32 Architectures Optimization Reference Manual, Nehalem to Broadwell: 10).
const AT_ONCE: u32 = 10;

/// Transfers, in thousandths, that a CPU waits for if it fetches `milli` thousandths of lines whose addresses it knows:
/// the first one, and of the others as many as do not fit in at the same time.
///
/// [`Lines`] is for single accesses, this for the lines of a section that are known by their number only.
pub fn overlapped(milli: u32) -> u32 {
    milli.min(1_000) + milli.saturating_sub(1_000) / AT_ONCE
}

/// The index of a cache line in [`Lines`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId(pub u32);

/// The kind of an access to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load, which needs a copy of the line.
    Load,
    /// A plain store, which needs exclusive ownership. The store buffer hides the wait from the CPU.
    Store,
    /// A locked read-modify-write, which needs exclusive ownership and waits for it.
    Rmw,
}

/// The cost of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Time of the instruction itself.
    pub instruction: Picos,
    /// Time that the CPU then waits for the line.
    pub transfer: Picos,
    /// Whether the access changed the line's state.
    pub changed: bool,
}

const NO_OWNER: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Line {
    busy_until: Time,
    owner: u32,
    /// Whether no other CPU has a copy.
    exclusive: bool,
}

/// All cache lines of a machine.
#[derive(Clone, Debug)]
pub struct Lines {
    lines: Vec<Line>,
    /// Bit sets of the sharing pCPUs, `words` words for each line.
    sharers: Vec<u64>,
    words: usize,
    distances: Distances,
    load_hit: Picos,
    store: Picos,
    rmw_hit: Picos,
    read_occupancy: Picos,
}

impl Lines {
    /// Returns an empty set of lines for a machine with this `topology` and these `costs`.
    pub fn new(topology: &Topology, costs: &Costs) -> Lines {
        Lines {
            lines: Vec::new(),
            sharers: Vec::new(),
            words: (topology.pcpus() as usize).div_ceil(64),
            distances: Distances::new(topology, costs),
            load_hit: costs.load_hit,
            store: costs.store,
            rmw_hit: costs.rmw_hit,
            read_occupancy: costs.read_occupancy,
        }
    }

    /// Adds a line that no CPU has a copy of. Returns its index.
    pub fn add(&mut self) -> LineId {
        let id = LineId(self.lines.len() as u32);
        self.lines.push(Line {
            busy_until: Time(0),
            owner: NO_OWNER,
            exclusive: false,
        });
        self.sharers.resize(self.sharers.len() + self.words, 0);
        id
    }

    /// Returns the time of a transfer to `pcpu` of a line that `owner` changed last and that is not busy.
    pub fn latency(&self, owner: u32, pcpu: u32) -> Picos {
        if owner == pcpu {
            return Picos::ZERO;
        }
        self.distances.from(owner, pcpu)
    }

    /// Returns the number of lines.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns whether there are no lines.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Performs `access` to line `id` by `pcpu` at `now`. Calls must come in the order of their times.
    #[inline(always)]
    pub fn access(&mut self, id: LineId, pcpu: u32, access: Access, now: Time) -> Charge {
        let line = &mut self.lines[id.0 as usize];
        if line.owner == pcpu && line.exclusive {
            let instruction = match access {
                Access::Load => self.load_hit,
                Access::Store => self.store,
                Access::Rmw => self.rmw_hit,
            };
            return Charge {
                instruction,
                transfer: Picos::ZERO,
                changed: false,
            };
        }
        let first = id.0 as usize * self.words;
        let sharers = &mut self.sharers[first..first + self.words];
        let (word, bit) = (pcpu as usize / 64, 1u64 << (pcpu % 64));
        if access == Access::Load {
            if sharers[word] & bit != 0 {
                return Charge {
                    instruction: self.load_hit,
                    transfer: Picos::ZERO,
                    changed: false,
                };
            }
            let start = line.busy_until.max(now);
            let latency = self.distances.from(line.owner, pcpu);
            line.busy_until = start + self.read_occupancy;
            line.exclusive = line.owner == NO_OWNER;
            if line.exclusive {
                line.owner = pcpu;
            }
            sharers[word] |= bit;
            let transfer = (start + latency).since(now);
            return Charge {
                instruction: self.load_hit,
                transfer,
                changed: true,
            };
        }
        let start = line.busy_until.max(now);
        let latency = self.distances.farthest(line.owner, sharers, pcpu);
        line.busy_until = start + latency;
        line.owner = pcpu;
        line.exclusive = true;
        sharers.fill(0);
        sharers[word] = bit;
        match access {
            Access::Store => Charge {
                instruction: self.store,
                transfer: Picos::ZERO,
                changed: true,
            },
            _ => Charge {
                instruction: self.rmw_hit,
                transfer: (start + latency).since(now),
                changed: true,
            },
        }
    }
}

/// Transfer times between pairs of pCPUs.
#[derive(Clone, Debug)]
struct Distances {
    /// The core and the socket of each pCPU.
    places: Vec<(u32, u32)>,
    per_core: u32,
    per_socket: u32,
    core: Picos,
    socket: Picos,
    cross: Picos,
}

impl Distances {
    fn new(topology: &Topology, costs: &Costs) -> Distances {
        let (per_core, per_socket) = (topology.threads, topology.threads * topology.cores);
        Distances {
            places: (0..topology.pcpus())
                .map(|pcpu| (pcpu / per_core, pcpu / per_socket))
                .collect(),
            per_core,
            per_socket,
            core: costs.transfer_core,
            socket: costs.transfer_socket,
            cross: costs.transfer_cross,
        }
    }

    /// Returns the transfer time from `owner`, another pCPU, to `pcpu`. A line without an owner comes from the socket's
    /// last-level cache.
    fn from(&self, owner: u32, pcpu: u32) -> Picos {
        if owner == NO_OWNER {
            return self.socket;
        }
        let (theirs, mine) = (self.places[owner as usize], self.places[pcpu as usize]);
        if theirs.0 == mine.0 {
            self.core
        } else if theirs.1 == mine.1 {
            self.socket
        } else {
            self.cross
        }
    }

    /// Returns the transfer time to `pcpu` from the farthest CPU that must give up its copy. The owner is a sharer.
    #[inline]
    fn farthest(&self, owner: u32, sharers: &[u64], pcpu: u32) -> Picos {
        if owner == NO_OWNER {
            return self.socket;
        }
        let (core, socket) = self.places[pcpu as usize];
        let (core, socket) = (core * self.per_core, socket * self.per_socket);
        let mut from_sharers = Picos::ZERO;
        for (word, &bits) in sharers.iter().enumerate() {
            let first = word as u32 * 64;
            let in_socket = bits & range_mask(first, socket, self.per_socket);
            let in_core = bits & range_mask(first, core, self.per_core);
            if bits != in_socket {
                return self.cross;
            }
            if in_socket != in_core {
                from_sharers = from_sharers.max(self.socket);
            } else if in_core & !range_mask(first, pcpu, 1) != 0 {
                from_sharers = from_sharers.max(self.core);
            }
        }
        from_sharers
    }
}

/// Returns the mask of pCPUs `start..start + count` in the word whose bit 0 stands for pCPU `first`.
#[inline]
fn range_mask(first: u32, start: u32, count: u32) -> u64 {
    let below = |bit: u32| match bit.saturating_sub(first) {
        bits @ 0..64 => (1u64 << bits) - 1,
        _ => u64::MAX,
    };
    below(start + count) & !below(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// One line as the documentation describes it: a set of CPUs with a copy, searched CPU by CPU.
    #[derive(Default)]
    struct Reference {
        holders: BTreeSet<u32>,
        owner: Option<u32>,
        busy_until: Time,
    }

    impl Reference {
        fn access(&mut self, topology: &Topology, costs: &Costs, pcpu: u32, access: Access, now: Time) -> Charge {
            let core = |pcpu| pcpu / topology.threads;
            let distance = |other: u32| match other {
                _ if core(other) == core(pcpu) => costs.transfer_core,
                _ if topology.socket_of(other) == topology.socket_of(pcpu) => costs.transfer_socket,
                _ => costs.transfer_cross,
            };
            let (instruction, hits) = match access {
                Access::Load => (costs.load_hit, self.holders.contains(&pcpu)),
                Access::Store => (costs.store, self.holders == [pcpu].into()),
                Access::Rmw => (costs.rmw_hit, self.holders == [pcpu].into()),
            };
            let start = self.busy_until.max(now);
            let (latency, occupancy) = match access {
                Access::Load => {
                    let latency = self.owner.map_or(costs.transfer_socket, distance);
                    (latency, costs.read_occupancy)
                }
                Access::Store | Access::Rmw => {
                    let others = self.holders.iter().filter(|&&other| other != pcpu);
                    let latency = others.map(|&other| distance(other)).max();
                    let latency = latency.unwrap_or(costs.transfer_socket);
                    (latency, latency)
                }
            };
            if !hits {
                self.busy_until = start + occupancy;
                if access != Access::Load {
                    self.holders.clear();
                    self.owner = Some(pcpu);
                }
                self.owner.get_or_insert(pcpu);
                self.holders.insert(pcpu);
            }
            let is_hidden = hits || access == Access::Store;
            Charge {
                instruction,
                transfer: if is_hidden {
                    Picos::ZERO
                } else {
                    (start + latency).since(now)
                },
                changed: !hits,
            }
        }
    }

    proptest! {
        /// Any accesses of any machine cost what the reference says, on each line as if it were the only one.
        #[test]
        fn accesses_cost_what_the_reference_says(
            (sockets, cores, threads) in (1u32..4, 1u32..40, 1u32..4),
            places in proptest::collection::vec(0u32..1_000, 1..5),
            accesses in proptest::collection::vec((0usize..3, 0usize..5, 0u32..4, 0u8..4, 0u64..300), 1..60),
        ) {
            let topology = Topology { sockets, cores, threads };
            let costs = Costs {
                load_hit: Picos(1),
                store: Picos(2),
                rmw_hit: Picos(20),
                transfer_core: Picos(50),
                transfer_socket: Picos(100),
                transfer_cross: Picos(300),
                read_occupancy: Picos(30),
                ..Costs::default()
            };
            let mut lines = Lines::new(&topology, &costs);
            prop_assert!(lines.is_empty());
            let ids = [lines.add(), lines.add(), lines.add()];
            prop_assert_eq!((lines.len(), lines.is_empty()), (3, false));
            let mut references: [Reference; 3] = Default::default();
            let mut now = Time(0);
            for (line, place, next_to, access, passed) in accesses {
                let pcpu = (places[place % places.len()] + next_to) % topology.pcpus();
                let access = [Access::Load, Access::Load, Access::Store, Access::Rmw][usize::from(access)];
                now += Picos(passed);
                let expected = references[line].access(&topology, &costs, pcpu, access, now);
                prop_assert_eq!(lines.access(ids[line], pcpu, access, now), expected);
            }
        }
    }

    fn lines() -> (Lines, LineId) {
        let topology = Topology {
            sockets: 2,
            cores: 2,
            threads: 1,
        };
        let costs = Costs {
            load_hit: Picos(1),
            store: Picos(2),
            rmw_hit: Picos(20),
            transfer_socket: Picos(100),
            transfer_cross: Picos(300),
            read_occupancy: Picos(30),
            ..Costs::default()
        };
        let mut lines = Lines::new(&topology, &costs);
        let line = lines.add();
        (lines, line)
    }

    #[test]
    fn an_owned_line_costs_only_the_instruction() {
        let (mut lines, line) = lines();
        lines.access(line, 0, Access::Rmw, Time(0));
        let charge = lines.access(line, 0, Access::Rmw, Time(1000));
        assert_eq!(
            charge,
            Charge {
                instruction: Picos(20),
                transfer: Picos::ZERO,
                changed: false
            }
        );
    }

    #[test]
    fn distance_decides_the_transfer() {
        let (mut lines, line) = lines();
        lines.access(line, 0, Access::Rmw, Time(0));
        assert_eq!(lines.access(line, 1, Access::Rmw, Time(1000)).transfer, Picos(100));
        assert_eq!(lines.access(line, 2, Access::Rmw, Time(2000)).transfer, Picos(300));
    }

    #[test]
    fn a_line_that_is_not_busy_takes_the_time_of_its_distance() {
        let (lines, _) = lines();
        let latencies = [0, 1, 2].map(|pcpu| lines.latency(0, pcpu));
        assert_eq!(latencies, [Picos::ZERO, Picos(100), Picos(300)]);
    }

    #[test]
    fn readers_of_one_line_are_served_one_after_another() {
        let (mut lines, line) = lines();
        lines.access(line, 0, Access::Store, Time(0));
        assert_eq!(lines.access(line, 1, Access::Load, Time(1000)).transfer, Picos(100));
        assert_eq!(lines.access(line, 2, Access::Load, Time(1000)).transfer, Picos(330));
        assert_eq!(lines.access(line, 3, Access::Load, Time(1000)).transfer, Picos(360));
        assert_eq!(lines.access(line, 3, Access::Load, Time(1400)).transfer, Picos::ZERO);
    }

    /// As many CPUs as there are add to one word at the same time: each waits for all those before it, and then for its
    /// own transfer.
    #[test]
    fn additions_to_one_line_are_served_one_after_another() {
        let (mut lines, line) = lines();
        lines.access(line, 3, Access::Rmw, Time(0));
        let added = |lines: &mut Lines, pcpu| lines.access(line, pcpu, Access::Rmw, Time(1000)).transfer;
        assert_eq!(added(&mut lines, 0), Picos(300), "from the other socket");
        assert_eq!(added(&mut lines, 1), Picos(300 + 100), "then within the socket");
        assert_eq!(added(&mut lines, 2), Picos(300 + 100 + 300), "then to the other socket");
        assert_eq!(added(&mut lines, 3), Picos(300 + 100 + 300 + 100), "then within that");
        assert_eq!(lines.access(line, 3, Access::Rmw, Time(1800)).transfer, Picos::ZERO);
    }

    #[test]
    fn range_masks_are_ranges() {
        for (first, start, count) in [
            (0, 0, 1),
            (0, 60, 8),
            (64, 60, 8),
            (64, 0, 64),
            (64, 128, 3),
            (0, 0, 64),
        ] {
            let counted = (0..64).filter(|bit| (start..start + count).contains(&(first + bit)));
            assert_eq!(
                range_mask(first, start, count),
                counted.fold(0, |mask, bit| mask | 1 << bit)
            );
        }
    }

    #[test]
    fn a_write_takes_every_copy_away() {
        let (mut lines, line) = lines();
        lines.access(line, 0, Access::Store, Time(0));
        lines.access(line, 1, Access::Load, Time(1000));
        let store = lines.access(line, 0, Access::Store, Time(2000));
        assert_eq!(store.transfer, Picos::ZERO, "the store buffer hides it");
        let load = lines.access(line, 1, Access::Load, Time(2010));
        assert_eq!(
            load.transfer,
            Picos(190),
            "the rest of the store's transfer, then the way back"
        );
    }

    #[test]
    fn lines_whose_addresses_are_known_come_ten_at_a_time() {
        let waits = [0, 300, 1_000, 11_000, 21_000].map(overlapped);
        assert_eq!(waits, [0, 300, 1_000, 2_000, 3_000]);
    }
}
