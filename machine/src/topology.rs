//! The topology of a machine, and how an operating system numbers its pCPUs. The simulator itself numbers them thread
//! first, then core, then socket. Users write and read the numbers of their own hosts.

/// The numbers of sockets, cores and threads. pCPUs are numbered thread first, then core, then socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Number of sockets, each with one last-level cache.
    ///
    /// At least 1.
    pub sockets: u32,
    /// Number of cores per socket.
    ///
    /// At least 1.
    pub cores: u32,
    /// Number of hardware threads per core.
    ///
    /// At least 1.
    pub threads: u32,
}

impl Topology {
    /// Returns the number of pCPUs.
    pub fn pcpus(&self) -> u32 {
        self.sockets * self.cores * self.threads
    }

    /// Returns the socket of `pcpu`, which is also its memory node.
    pub fn socket_of(&self, pcpu: u32) -> u32 {
        pcpu / (self.cores * self.threads)
    }

    /// Returns the other threads of the core of `pcpu`.
    pub fn siblings_of(&self, pcpu: u32) -> impl Iterator<Item = u32> + use<> {
        let first = pcpu - pcpu % self.threads;
        (first..first + self.threads).filter(move |&other| other != pcpu)
    }
}

/// How Linux numbers the pCPUs. Its numbers follow the firmware's tables of processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbering {
    /// The first thread of each core, socket by socket, then the second of each: with 2 sockets of 16 cores and 2
    /// threads, 0 and 32 are siblings, and a socket is 0-15,32-47. Most servers.
    #[default]
    Linux,
    /// The threads of a core have adjacent numbers: 0 and 1 are siblings, and a socket is 0-31. Virtual machines, and
    /// some firmware.
    SiblingsAdjacent,
    /// As [`Numbering::Linux`], but the sockets alternate: with 2 sockets, one has the even numbers.
    SocketsAlternate,
}

impl Numbering {
    /// Every numbering.
    pub const ALL: [Numbering; 3] = [
        Numbering::Linux,
        Numbering::SiblingsAdjacent,
        Numbering::SocketsAlternate,
    ];

    /// Returns the number of the pCPU at `index`, which counts threads first, then cores, then sockets.
    pub fn number(self, topology: &Topology, index: u32) -> u32 {
        let Topology {
            sockets,
            cores,
            threads,
        } = *topology;
        let (thread, core, socket) = (index % threads, index / threads % cores, index / threads / cores);
        match self {
            Numbering::SiblingsAdjacent => index,
            Numbering::Linux => (thread * sockets + socket) * cores + core,
            Numbering::SocketsAlternate => (thread * cores + core) * sockets + socket,
        }
    }

    /// Returns the index of the pCPU that Linux calls `number`: the reverse of [`Numbering::number`].
    pub fn index(self, topology: &Topology, number: u32) -> u32 {
        let Topology {
            sockets,
            cores,
            threads,
        } = *topology;
        let (thread, core, socket) = match self {
            Numbering::SiblingsAdjacent => return number,
            Numbering::Linux => (number / cores / sockets, number % cores, number / cores % sockets),
            Numbering::SocketsAlternate => (number / sockets / cores, number / sockets % cores, number % sockets),
        };
        (socket * cores + core) * threads + thread
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_those_of_a_server_of_two_sockets() {
        let topology = Topology {
            sockets: 2,
            cores: 16,
            threads: 2,
        };
        let of = |numbering: Numbering, indexes: &[u32]| -> Vec<u32> {
            indexes
                .iter()
                .map(|index| numbering.number(&topology, *index))
                .collect()
        };
        // Both threads of the first two cores, and the first thread of the other socket.
        let some = [0, 1, 2, 3, 32];
        assert_eq!(of(Numbering::Linux, &some), [0, 32, 1, 33, 16]);
        assert_eq!(of(Numbering::SiblingsAdjacent, &some), some);
        assert_eq!(of(Numbering::SocketsAlternate, &some), [0, 32, 2, 34, 1]);
    }

    #[test]
    fn pcpus_are_numbered_thread_first_then_core_then_socket() {
        let topology = Topology {
            sockets: 3,
            cores: 4,
            threads: 2,
        };
        assert_eq!(topology.pcpus(), 24);
        let sockets: Vec<u32> = (0..24).map(|pcpu| topology.socket_of(pcpu)).collect();
        assert_eq!(sockets, [[0; 8], [1; 8], [2; 8]].concat());
        let siblings: Vec<Vec<u32>> = (8..11).map(|pcpu| topology.siblings_of(pcpu).collect()).collect();
        assert_eq!(siblings, [[9], [8], [11]]);
        let alone = Topology { threads: 1, ..topology };
        assert_eq!(alone.siblings_of(5).count(), 0);
    }

    proptest! {
        #[test]
        fn every_pcpu_has_one_number(sockets in 1_u32..5, cores in 1_u32..9, threads in 1_u32..5) {
            let topology = Topology { sockets, cores, threads };
            for numbering in Numbering::ALL {
                for index in 0..topology.pcpus() {
                    let number = numbering.number(&topology, index);
                    prop_assert!(number < topology.pcpus());
                    prop_assert_eq!(numbering.index(&topology, number), index);
                }
            }
        }
    }
}
