//! Cache lines: who has a copy, who may write, and until when the line is on its way.
//!
//! The model is a directory at the grain of one access. A line is owned by its last writer and shared by those that read
//! it since. An access by a CPU that lacks what it needs waits until the line is free, takes the distance's transfer time,
//! and keeps the line busy: a write for the whole transfer, a read for the shorter time that the owner's cache needs to
//! answer one reader. So a release broadcast to n spinners is served one after another, and a queue lock's hand-over, on a
//! line of its own, is not.
//!
//! Deliberately missing: capacity and conflict evictions, prefetching, memory bandwidth.

use crate::profile::{Costs, Topology};
use crate::time::{Picos, Time};

/// A cache line's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId(pub u32);

/// What an access does to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load: needs a copy.
    Load,
    /// A plain store: needs the line alone, but the store buffer hides the wait from the storer.
    Store,
    /// A locked read-modify-write: needs the line alone, and waits for it.
    Rmw,
}

/// What an access cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// How long the CPU is busy with the instruction itself.
    pub instruction: Picos,
    /// How long it then waits for the line.
    pub transfer: Picos,
    /// Whether the line's state changed.
    pub changed: bool,
}

const NOBODY: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Line {
    busy_until: Time,
    owner: u32,
    /// The owner is the only one with a copy.
    exclusive: bool,
}

/// All cache lines of a machine.
#[derive(Clone, Debug)]
pub struct Lines {
    lines: Vec<Line>,
    /// `words` 64-bit words of sharers for each line, bit = pCPU.
    sharers: Vec<u64>,
    words: usize,
    distances: Distances,
    load_hit: Picos,
    store: Picos,
    rmw_hit: Picos,
    read_occupancy: Picos,
}

impl Lines {
    /// Lines for a machine of this shape and cost; none yet.
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

    /// A fresh line that no CPU has a copy of.
    pub fn add(&mut self) -> LineId {
        let id = LineId(self.lines.len() as u32);
        self.lines.push(Line {
            busy_until: Time(0),
            owner: NOBODY,
            exclusive: false,
        });
        self.sharers.resize(self.sharers.len() + self.words, 0);
        id
    }

    /// How many lines there are.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Performs `access` by `pcpu` at `now`. Calls must come in the order of their times.
    #[inline]
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
            line.exclusive = line.owner == NOBODY;
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

/// How long a line travels between two pCPUs.
#[derive(Clone, Debug)]
struct Distances {
    /// Core and socket of each pCPU.
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

    /// From `owner`, or from this socket's last-level cache where nobody is.
    fn from(&self, owner: u32, pcpu: u32) -> Picos {
        if owner == NOBODY || owner == pcpu {
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

    /// From the farthest of all that must give up their copy.
    fn farthest(&self, owner: u32, sharers: &[u64], pcpu: u32) -> Picos {
        let from_owner = if owner == pcpu {
            Picos::ZERO
        } else {
            self.from(owner, pcpu)
        };
        let (core, socket) = self.places[pcpu as usize];
        let (core, socket) = (core * self.per_core, socket * self.per_socket);
        let mut from_sharers = Picos::ZERO;
        for (word, &bits) in sharers.iter().enumerate() {
            let first = word as u32 * 64;
            let in_socket = bits & range_mask(first, socket, self.per_socket);
            let in_core = bits & range_mask(first, core, self.per_core);
            if bits != in_socket {
                return self.cross.max(from_owner);
            }
            if in_socket != in_core {
                from_sharers = from_sharers.max(self.socket);
            } else if in_core & !range_mask(first, pcpu, 1) != 0 {
                from_sharers = from_sharers.max(self.core);
            }
        }
        from_sharers.max(from_owner)
    }
}

/// The bits of the word that starts at pCPU `first` that stand for pCPUs `start` to `start + count`.
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
    fn readers_of_one_line_are_served_one_after_another() {
        let (mut lines, line) = lines();
        lines.access(line, 0, Access::Store, Time(0));
        assert_eq!(lines.access(line, 1, Access::Load, Time(1000)).transfer, Picos(100));
        assert_eq!(lines.access(line, 2, Access::Load, Time(1000)).transfer, Picos(330));
        assert_eq!(lines.access(line, 3, Access::Load, Time(1000)).transfer, Picos(360));
        assert_eq!(lines.access(line, 3, Access::Load, Time(1400)).transfer, Picos::ZERO);
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
        assert_eq!(load.transfer, Picos(190), "until the store is through, then back");
    }
}
