//! Reads the topology of a real host, and how it numbers its pCPUs, from `lscpu -p` or libvirt's capabilities.

use std::collections::BTreeMap;

use holdfast_machine::{Numbering, Topology};

/// A real host's topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostTopology {
    /// Sockets (or, where a socket has several last-level caches, these), cores and threads.
    pub(crate) topology: Topology,
    /// How the host numbers its pCPUs.
    pub(crate) numbering: Numbering,
}

/// A pCPU as the host lists it: its number, core, and last-level cache or socket.
type Listed = (u32, String, String);

/// What is accepted.
pub(crate) const EXPECTED: &str =
    "the output of `lscpu -p` or of `virsh capabilities`, of a host whose cores and sockets are all alike";

/// Reads `text`.
///
/// # Errors
/// What was found instead.
pub(crate) fn read(text: &str) -> Result<HostTopology, String> {
    let listed = if text.contains("<cpu ") {
        libvirt(text)?
    } else {
        lscpu(text)?
    };
    if listed.is_empty() {
        return Err("no line with a pCPU".to_owned());
    }
    let mut sockets: BTreeMap<&str, BTreeMap<&str, u32>> = BTreeMap::new();
    for (_, core, socket) in &listed {
        *sockets.entry(socket).or_default().entry(core).or_default() += 1;
    }
    let first = sockets.values().next().map_or(0, BTreeMap::len);
    let threads = sockets.values().flat_map(BTreeMap::values).copied().max().unwrap_or(0);
    let alike = |cores: &BTreeMap<&str, u32>| cores.len() == first && cores.values().all(|count| *count == threads);
    if !sockets.values().all(alike) {
        return Err("sockets or cores of several sizes".to_owned());
    }
    let topology = Topology {
        sockets: sockets.len() as u32,
        cores: first as u32,
        threads,
    };
    let numbering = Numbering::ALL
        .into_iter()
        .find(|numbering| fits(*numbering, &topology, &listed));
    let numbering = numbering.ok_or("pCPUs that are numbered in a way of their own")?;
    Ok(HostTopology { topology, numbering })
}

/// Returns whether `numbering` puts the same pCPUs into the same cores and sockets as the list.
fn fits(numbering: Numbering, topology: &Topology, listed: &[Listed]) -> bool {
    let mut cores: BTreeMap<u32, (&str, &str)> = BTreeMap::new();
    let mut sockets: BTreeMap<u32, &str> = BTreeMap::new();
    let mut names: BTreeMap<&str, u32> = BTreeMap::new();
    let mut seen = vec![false; topology.pcpus() as usize];
    listed.iter().all(|(number, core, socket)| {
        let Some(seen) = seen.get_mut(*number as usize) else {
            return false;
        };
        if std::mem::replace(seen, true) {
            return false;
        }
        let index = numbering.index(topology, *number);
        let (of_core, of_socket) = (index / topology.threads, topology.socket_of(index));
        *cores.entry(of_core).or_insert((socket, core)) == (socket.as_str(), core.as_str())
            && *sockets.entry(of_socket).or_insert(socket) == socket.as_str()
            && *names.entry(socket).or_insert(of_socket) == of_socket
    })
}

/// Reads lines as `lscpu -p` writes them: number, core, socket, node, a gap, and the caches, of which the last is the
/// last level.
fn lscpu(text: &str) -> Result<Vec<Listed>, String> {
    let mut listed = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [number, core, socket, rest @ ..] = &fields[..] else {
            return Err(format!("the line {:?}", shortened(line)));
        };
        let number = number.parse().map_err(|_| format!("the line {:?}", shortened(line)))?;
        // The last level of cache divides a socket further, never joins two. Without caches the socket counts.
        let caches = rest.get(1..).unwrap_or_default();
        let cache = caches.last().filter(|_| caches.len() >= 4).copied().unwrap_or_default();
        listed.push((number, (*core).to_owned(), format!("{socket}/{cache}")));
    }
    Ok(listed)
}

/// Reads the elements `<cpu id='0' socket_id='0' die_id='0' core_id='0' siblings='0,32'/>` of `virsh capabilities`.
fn libvirt(text: &str) -> Result<Vec<Listed>, String> {
    let mut listed = Vec::new();
    for element in text.split("<cpu ").skip(1) {
        let element = element.split('>').next().unwrap_or_default();
        let attribute = |name: &str| {
            let at = element.find(&format!("{name}="))? + name.len() + 1;
            let quote = element[at..]
                .chars()
                .next()
                .filter(|quote| ['\'', '"'].contains(quote))?;
            element[at + 1..].split(quote).next()
        };
        // The guest's CPU model is an element of this name, too, and has no number.
        let Some(number) = attribute("id").and_then(|number| number.parse().ok()) else {
            continue;
        };
        let (Some(core), Some(socket)) = (attribute("core_id"), attribute("socket_id")) else {
            return Err(format!("a cpu {number} without core_id and socket_id"));
        };
        let die = attribute("die_id").unwrap_or_default();
        listed.push((number, format!("{die}/{core}"), socket.to_owned()));
    }
    Ok(listed)
}

/// Returns the beginning of a line that may be long.
fn shortened(line: &str) -> String {
    line.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Writes what `lscpu -p` says of a machine.
    fn written(topology: &Topology, numbering: Numbering) -> String {
        let mut text = "# The following is the parsable format\n# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n".to_owned();
        for number in 0..topology.pcpus() {
            let index = numbering.index(topology, number);
            let (core, socket) = (index / topology.threads, topology.socket_of(index));
            text += &format!("{number},{core},{socket},{socket},,{core},{core},{core},{socket}\n");
        }
        text
    }

    proptest! {
        #[test]
        fn what_lscpu_says_is_read_back(sockets in 1_u32..4, cores in 1_u32..6, threads in 1_u32..3, way in 0..3_usize) {
            let topology = Topology { sockets, cores, threads };
            let numbering = Numbering::ALL[way];
            let read = read(&written(&topology, numbering)).expect("a topology");
            prop_assert_eq!(read.topology, topology);
            // Small machines are numbered alike in several ways.
            for number in 0..topology.pcpus() {
                let (one, other) = (numbering.index(&topology, number), read.numbering.index(&topology, number));
                prop_assert_eq!(topology.socket_of(one), topology.socket_of(other));
                prop_assert_eq!(one / threads, other / threads);
            }
        }

        #[test]
        fn no_text_panics(text in "(<cpu |id='|[0-9]{1,9}|,|'|\n|#|core_id=|socket_id=|>|x){0,60}") {
            let _ = read(&text);
        }
    }

    #[test]
    fn several_last_level_caches_of_a_socket_count_as_sockets() {
        let text = "0,0,0,0,,0,0,0,0\n1,1,0,0,,1,1,1,0\n2,2,0,0,,2,2,2,1\n3,3,0,0,,3,3,3,1\n";
        let topology = read(text).expect("a topology").topology;
        assert_eq!((topology.sockets, topology.cores, topology.threads), (2, 2, 1));
    }

    #[test]
    fn libvirt_capabilities_are_read() {
        let text = "<cpu mode='x'/><cpu id='0' socket_id='0' die_id='0' core_id='0' siblings='0,2'/>\
            <cpu id='1' socket_id='1' die_id='0' core_id='0' siblings='1,3'/>\
            <cpu id='2' socket_id='0' die_id='0' core_id='0' siblings='0,2'/>\
            <cpu id='3' socket_id='1' die_id='0' core_id='0' siblings='1,3'/>";
        let read = read(text).expect("a topology");
        assert_eq!(read.topology.pcpus(), 4);
        assert_eq!((read.topology.sockets, read.numbering), (2, Numbering::Linux));
    }

    #[test]
    fn what_is_no_topology_is_refused_with_what_was_found() {
        for (text, found) in [
            ("", "no line with a pCPU"),
            ("hello", "the line \"hello\""),
            ("0,0,0\n1,1,0\n2,2,1\n", "several sizes"),
            ("0,0,0\n1,1,0\n2,2,1\n5,3,1\n", "a way of their own"),
            ("<cpu id='3'/>", "a cpu 3 without core_id"),
        ] {
            let refused = read(text).expect_err(text);
            assert!(refused.contains(found), "{text}: {refused}");
        }
    }
}
