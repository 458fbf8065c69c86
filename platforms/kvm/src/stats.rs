//! KVM's binary statistics, `KVM_GET_STATS_FD` (Linux `Documentation/virt/kvm/api.rst`, 4.133).
//!
//! ```text
//! header: flags, name_size, num_desc, id_offset, desc_offset, data_offset    u32 each
//! descriptor: flags u32, exponent s16, size u16, offset u32, bucket_size u32, name
//! ```

#![expect(unsafe_code, reason = "kvm-ioctls has no call for statistics")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

/// The `ioctl` for the file of statistics, `_IO(KVMIO, 0xce)`.
const KVM_GET_STATS_FD: libc::c_ulong = 0xaece;
const HEADER_BYTES: usize = 24;
const DESCRIPTOR_BYTES: usize = 16;
/// Largest accepted number of descriptors. The kernel has about sixty.
const DESCRIPTORS_MAX: u32 = 4096;
const NAME_BYTES_MAX: u32 = 256;

/// Bits of a descriptor's flags with the type of the value, which is 0 for sums, and its unit, which is 0 for numbers.
const TYPE: u32 = 0xf;
const UNIT: u32 = 0xf0;

/// Statistics by name.
pub(crate) type Values = BTreeMap<String, Value>;

/// A statistic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) value: u64,
    pub(crate) kind: Kind,
}

/// The kind of a statistic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The number of events since the creation.
    Count,
    /// The sum of times since the creation.
    Time,
    /// A present value or a peak.
    Level,
}

impl Kind {
    fn of(flags: u32) -> Kind {
        match (flags & TYPE, flags & UNIT) {
            (0, 0) => Kind::Count,
            (0, _) => Kind::Time,
            _ => Kind::Level,
        }
    }
}

/// Returns `values` without what was counted `before`. Times stay those since the creation.
pub(crate) fn since(mut values: Values, before: &Values) -> Values {
    for (name, value) in values.iter_mut().filter(|(_, value)| value.kind == Kind::Count) {
        let before = before.get(name).map_or(0, |before| before.value);
        value.value = value.value.saturating_sub(before);
    }
    values
}

/// Returns `values` with the counts and times of `earlier`, a VM that these continue.
pub(crate) fn after(mut values: Values, earlier: &Values) -> Values {
    for (name, value) in values.iter_mut().filter(|(_, value)| value.kind != Kind::Level) {
        let earlier = earlier.get(name).map_or(0, |earlier| earlier.value);
        value.value = value.value.saturating_add(earlier);
    }
    values
}

/// The file with the statistics of a VM or a vCPU.
#[derive(Debug)]
pub(crate) struct Statistics {
    file: File,
    known: Vec<Descriptor>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Descriptor {
    name: String,
    /// Offset of the value in the file.
    at: u64,
    /// Number of values. A histogram has more than one.
    values: u16,
    kind: Kind,
}

impl Statistics {
    /// Opens the statistics of the VM or vCPU `of`. Returns `None` on a host before Linux 5.14.
    pub(crate) fn of(of: &impl AsRawFd) -> Option<Statistics> {
        // SAFETY: the call takes no argument, accesses no memory, and returns a new descriptor or an error.
        let fd = unsafe { libc::ioctl(of.as_raw_fd(), KVM_GET_STATS_FD, 0) };
        if fd < 0 {
            return None;
        }
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        let file = unsafe { File::from_raw_fd(fd) };
        let known = describe(&file).ok()?;
        Some(Statistics { file, known })
    }

    /// Returns all statistics with a single value.
    pub(crate) fn read(&self) -> Values {
        let single = self.known.iter().filter(|descriptor| descriptor.values == 1);
        let value = |descriptor: &Descriptor| {
            let mut bytes = [0; 8];
            self.file.read_exact_at(&mut bytes, descriptor.at).ok()?;
            let value = Value {
                value: u64::from_le_bytes(bytes),
                kind: descriptor.kind,
            };
            Some((descriptor.name.clone(), value))
        };
        single.filter_map(value).collect()
    }
}

fn describe(file: &File) -> io::Result<Vec<Descriptor>> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0)?;
    let field = |index: usize| u32_at(&header, index * 4);
    let (name_bytes, count, descriptors, data) = (field(1), field(2), field(4), field(5));
    if count > DESCRIPTORS_MAX || name_bytes > NAME_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let stride = DESCRIPTOR_BYTES + name_bytes as usize;
    let mut all = vec![0; stride * count as usize];
    file.read_exact_at(&mut all, descriptors.into())?;
    Ok(all.chunks_exact(stride).map(|bytes| descriptor(bytes, data)).collect())
}

fn descriptor(bytes: &[u8], data: u32) -> Descriptor {
    let name = &bytes[DESCRIPTOR_BYTES..];
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    Descriptor {
        name: String::from_utf8_lossy(&name[..end]).into_owned(),
        at: u64::from(data) + u64::from(u32_at(bytes, 8)),
        values: u16::from_le_bytes([bytes[6], bytes[7]]),
        kind: Kind::of(u32_at(bytes, 0)),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_locates_its_value() {
        let mut bytes = vec![0; DESCRIPTOR_BYTES];
        bytes[6] = 1;
        bytes[8] = 0x20;
        bytes.extend(b"halt_exits\0\0\0");
        let expected = Descriptor {
            name: "halt_exits".to_owned(),
            at: 0x120,
            values: 1,
            kind: Kind::Count,
        };
        assert_eq!(descriptor(&bytes, 0x100), expected);
        // A present value, as the number of mapped pages, a peak, and a sum of times.
        for (flags, kind) in [(1, Kind::Level), (2, Kind::Level), (0x20, Kind::Time)] {
            bytes[0] = flags;
            assert_eq!(descriptor(&bytes, 0x100).kind, kind);
        }
    }

    fn values(entries: &[(&str, u64, Kind)]) -> Values {
        let values = entries
            .iter()
            .map(|&(name, value, kind)| (name.to_owned(), Value { value, kind }));
        values.collect()
    }

    #[test]
    fn only_counts_begin_again_and_all_sums_continue_those_of_an_earlier_vm() {
        use Kind::{Count, Level, Time};
        let before = values(&[("exits", 7, Count), ("wait_ns", 3, Time), ("pages", 5, Level)]);
        let now = [
            ("exits", 10, Count),
            ("wait_ns", 4, Time),
            ("pages", 6, Level),
            ("halts", 1, Count),
        ];
        let begun = [
            ("exits", 3, Count),
            ("wait_ns", 4, Time),
            ("pages", 6, Level),
            ("halts", 1, Count),
        ];
        let continued = [
            ("exits", 17, Count),
            ("wait_ns", 7, Time),
            ("pages", 6, Level),
            ("halts", 1, Count),
        ];
        assert_eq!(since(values(&now), &before), values(&begun));
        assert_eq!(after(values(&now), &before), values(&continued));
    }
}
