//! Scheduling domains: what pCPUs share, level by level (docs/spec/host.md, "Load balancing").
//!
//! A domain is a span of pCPUs divided into groups. Each group is a span of the level below. pCPUs of a domain share
//! one [`Span`]. The balancing state of each pCPU is in [`DomainState`].

use alloc::vec;
use alloc::vec::Vec;

use super::config::{BalanceConfig, DomainConfig};
use crate::boundary::PcpuPlace;
use crate::error::ConfigError;

/// Capacity of a pCPU that has its core to itself.
pub(crate) const POWER: u64 = 1024;

/// Capacity of all threads of a core together, in units where [`POWER`] is one thread that has the core to itself
/// (`smt_gain`).
const CORE_POWER: u64 = 1178;

/// A group of a domain: a slice of the span's pCPUs.
#[derive(Clone, Debug)]
pub(crate) struct SpanGroup {
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// Sum of the capacities of its pCPUs.
    pub(crate) power: u64,
}

/// A domain, shared by all pCPUs in it.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) config: DomainConfig,
    /// Threads spread over its groups even before one of them is full (`SD_PREFER_SIBLING` of the level below).
    pub(crate) spreads: bool,
    /// Its pCPUs are the threads of one core.
    pub(crate) is_core: bool,
    /// The pCPUs, group by group.
    pub(crate) pcpus: Vec<u32>,
    pub(crate) groups: Vec<SpanGroup>,
}

impl Span {
    /// Returns the pCPUs of group `index`.
    pub(crate) fn group(&self, index: usize) -> &[u32] {
        let group = &self.groups[index];
        &self.pcpus[group.first..group.first + group.count]
    }

    /// Returns the group indexes, from `local` around.
    pub(crate) fn groups_from(&self, local: usize) -> impl Iterator<Item = usize> + use<> {
        let count = self.groups.len();
        (0..count).map(move |step| (local + step) % count)
    }
}

/// A pCPU's place in a domain, and its balancing state there.
#[derive(Clone, Debug)]
pub(crate) struct DomainState {
    pub(crate) span: usize,
    /// The group that contains it.
    pub(crate) group: usize,
    /// When it last balanced. Ticks since power-on.
    pub(crate) last_balance: u64,
    /// The balancing interval in milliseconds.
    pub(crate) interval_ms: u64,
    pub(crate) failed: u32,
}

/// All domains of the host.
#[derive(Clone, Debug)]
pub(crate) struct Topology {
    pub(crate) spans: Vec<Span>,
    /// For each pCPU its domains, the smallest first.
    pub(crate) domains: Vec<Vec<DomainState>>,
    /// For each pCPU the number of domains, from the bottom, whose pCPUs share its last-level cache.
    pub(crate) cache_levels: Vec<usize>,
    /// For each pCPU its last-level cache.
    pub(crate) cache: Vec<u32>,
    /// For each pCPU its capacity.
    pub(crate) power: Vec<u64>,
}

/// A level: its parameters, and what the pCPUs of one span have in common.
struct Level {
    config: DomainConfig,
    /// Intervals follow the span, not the level.
    by_span: bool,
    is_core: bool,
    shares_cache: bool,
    key: fn(&PcpuPlace) -> (u32, u32),
}

impl Topology {
    pub(crate) fn new(places: &[PcpuPlace], config: &BalanceConfig) -> Result<Topology, ConfigError> {
        if places.is_empty() {
            return Err(ConfigError::NoPcpus);
        }
        let mut order: Vec<u32> = (0..places.len() as u32).collect();
        order.sort_by_key(|&pcpu| (places[pcpu as usize], pcpu));
        for pair in order.windows(2) {
            if places[pair[0] as usize] == places[pair[1] as usize] {
                return Err(ConfigError::SamePlace(places[pair[0] as usize]));
            }
        }
        // Threads of a core share its capacity. They are neighbors in `order`.
        let mut power = vec![POWER; places.len()];
        let core = |pcpu: &u32| (places[*pcpu as usize].socket, places[*pcpu as usize].core);
        for threads in order
            .chunk_by(|a, b| core(a) == core(b))
            .filter(|threads| threads.len() > 1)
        {
            for &pcpu in threads {
                power[pcpu as usize] = CORE_POWER / threads.len() as u64;
            }
        }
        let by_span = config.intervals_by_span;
        let level = |config, shares: [bool; 2], key| Level {
            config,
            by_span,
            is_core: shares[0],
            shares_cache: shares[1],
            key,
        };
        let levels = [
            level(config.smt, [true, true], |place| (place.socket, place.core)),
            level(config.cache, [false, true], |place| (place.socket, 0)),
            level(config.numa, [false, false], |_| (0, 0)),
        ];
        let mut topology = Topology {
            spans: Vec::new(),
            domains: vec![Vec::new(); places.len()],
            cache_levels: vec![0; places.len()],
            cache: places.iter().map(|place| place.socket).collect(),
            power,
        };
        // The groups of each pCPU's next domain. At the bottom they are single pCPUs.
        let mut groups: Vec<Vec<u32>> = order.iter().map(|&pcpu| vec![pcpu]).collect();
        for level in levels {
            groups = topology.add_level(&level, groups, places);
        }
        Ok(topology)
    }

    /// Joins `groups` into the spans of `level`. Returns the spans, which are the groups of the next level.
    fn add_level(&mut self, level: &Level, groups: Vec<Vec<u32>>, places: &[PcpuPlace]) -> Vec<Vec<u32>> {
        let key = |group: &Vec<u32>| (level.key)(&places[group[0] as usize]);
        let mut spans = Vec::new();
        let mut rest = groups.into_iter().peekable();
        while let Some(first) = rest.next() {
            let here = key(&first);
            let mut members = vec![first];
            while let Some(next) = rest.next_if(|group| key(group) == here) {
                members.push(next);
            }
            spans.push(members.concat());
            // A span of one group has nothing to balance.
            if members.len() > 1 {
                self.add_span(level, &members);
            }
        }
        spans
    }

    fn add_span(&mut self, level: &Level, members: &[Vec<u32>]) {
        let index = self.spans.len();
        let mut domain = level.config;
        if level.by_span {
            domain.min_interval_ms = members.iter().map(|pcpus| pcpus.len() as u64).sum();
            domain.max_interval_ms = 2 * domain.min_interval_ms;
        }
        let mut span = Span {
            config: domain,
            spreads: !level.shares_cache,
            is_core: level.is_core,
            pcpus: Vec::new(),
            groups: Vec::new(),
        };
        for (group, pcpus) in members.iter().enumerate() {
            let power = pcpus.iter().map(|&pcpu| self.power[pcpu as usize]).sum();
            span.groups.push(SpanGroup {
                first: span.pcpus.len(),
                count: pcpus.len(),
                power,
            });
            span.pcpus.extend(pcpus);
            for &pcpu in pcpus {
                self.domains[pcpu as usize].push(DomainState {
                    span: index,
                    group,
                    last_balance: 0,
                    interval_ms: domain.min_interval_ms,
                    failed: 0,
                });
                if level.shares_cache {
                    self.cache_levels[pcpu as usize] += 1;
                }
            }
        }
        self.spans.push(span);
    }

    /// Returns the domain of all pCPUs that share the last-level cache of `pcpu`, or `None` if it has the cache to
    /// itself.
    pub(crate) fn cache_span(&self, pcpu: u32) -> Option<&Span> {
        self.position(pcpu).map(|(span, _)| span)
    }

    /// Returns that domain, with the group of `pcpu`.
    pub(crate) fn position(&self, pcpu: u32) -> Option<(&Span, usize)> {
        let level = self.cache_levels[pcpu as usize].checked_sub(1)?;
        let domain = &self.domains[pcpu as usize][level];
        Some((&self.spans[domain.span], domain.group))
    }

    /// Returns the domain of the threads of the core of `pcpu`, or `None` if it has the core to itself.
    pub(crate) fn core_span(&self, pcpu: u32) -> Option<&Span> {
        let domain = self.domains[pcpu as usize].first()?;
        Some(&self.spans[domain.span]).filter(|span| span.is_core)
    }

    /// Returns the domain number `level` of `pcpu`.
    pub(crate) fn span_of(&self, pcpu: u32, level: usize) -> &Span {
        &self.spans[self.domains[pcpu as usize][level].span]
    }

    /// Returns the number of the smallest domain of `a` that contains `b`, if there is one.
    pub(crate) fn common_level(&self, a: u32, b: u32) -> Option<usize> {
        let contains = |span| self.domains[b as usize].iter().any(|other| other.span == span);
        self.domains[a as usize].iter().position(|domain| contains(domain.span))
    }

    /// Returns whether two pCPUs share a last-level cache.
    pub(crate) fn share_cache(&self, a: u32, b: u32) -> bool {
        self.cache[a as usize] == self.cache[b as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::config::{SchedConfig, SchedulerKind};

    fn places(sockets: u32, cores: u32, threads: u32) -> Vec<PcpuPlace> {
        let mut places = Vec::new();
        for socket in 0..sockets {
            for core in 0..cores {
                for thread in 0..threads {
                    places.push(PcpuPlace { socket, core, thread });
                }
            }
        }
        places
    }

    fn topology(sockets: u32, cores: u32, threads: u32) -> Topology {
        let config = SchedConfig::default().balance;
        Topology::new(&places(sockets, cores, threads), &config).expect("a valid topology")
    }

    #[test]
    fn each_level_spans_what_it_shares() {
        let topology = topology(2, 4, 2);
        assert!(topology.domains.iter().all(|domains| domains.len() == 3));
        let spans: Vec<_> = topology.domains[9]
            .iter()
            .map(|domain| topology.spans[domain.span].pcpus.len())
            .collect();
        assert_eq!(spans, [2, 8, 16]);
        assert_eq!(topology.cache_levels[9], 2);
        let core = &topology.spans[topology.domains[9][0].span];
        assert_eq!(core.pcpus, [8, 9]);
        assert_eq!(topology.domains[9][0].group, 1);
        assert_eq!(topology.power[9], 589);
    }

    #[test]
    fn intervals_by_span_grow_with_the_pcpus_of_a_span() {
        let later = SchedConfig::of(SchedulerKind::Cfs412).balance;
        let topology = Topology::new(&places(2, 4, 2), &later).expect("a valid topology");
        for span in &topology.spans {
            let pcpus = span.pcpus.len() as u64;
            let intervals = (span.config.min_interval_ms, span.config.max_interval_ms);
            assert_eq!(intervals, (pcpus, 2 * pcpus), "{:?}", span.pcpus);
        }
    }

    #[test]
    fn levels_of_one_group_degenerate() {
        assert!(topology(1, 1, 1).domains[0].is_empty());
        assert_eq!(topology(1, 8, 1).domains[3].len(), 1);
        assert_eq!(topology(4, 1, 1).domains[3].len(), 1);
        assert_eq!(topology(4, 1, 1).cache_levels[3], 0);
    }

    #[test]
    fn two_pcpus_cannot_share_a_place() {
        let place = PcpuPlace {
            socket: 0,
            core: 0,
            thread: 0,
        };
        let config = SchedConfig::default().balance;
        assert_eq!(
            Topology::new(&[place, place], &config).err(),
            Some(ConfigError::SamePlace(place))
        );
    }
}
