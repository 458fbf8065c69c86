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

/// Bits of a descriptor's flags with the type of the value and its unit. They are 0 for a count: cumulative, and
/// without a unit.
const TYPE_AND_UNIT: u32 = 0xff;

/// Statistics by name.
pub(crate) type Values = BTreeMap<String, Value>;

/// A statistic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) value: u64,
    /// Whether it is a count. Others are a time, a present value or a peak.
    pub(crate) counts: bool,
}

/// Returns `values` without what was counted `before`. Times stay those since the creation.
pub(crate) fn since(mut values: Values, before: &Values) -> Values {
    for (name, value) in values.iter_mut().filter(|(_, value)| value.counts) {
        let before = before.get(name).map_or(0, |before| before.value);
        value.value = value.value.saturating_sub(before);
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
    counts: bool,
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
                counts: descriptor.counts,
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
        counts: u32_at(bytes, 0) & TYPE_AND_UNIT == 0,
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
            counts: true,
        };
        assert_eq!(descriptor(&bytes, 0x100), expected);
        // A present value, as the number of mapped pages, a peak, and a sum of times.
        for kind in [1, 2, 0x20] {
            bytes[0] = kind;
            assert!(!descriptor(&bytes, 0x100).counts);
        }
    }

    #[test]
    fn only_what_is_counted_begins_again() {
        let value = |value, counts| Value { value, counts };
        let values = |entries: &[(&str, Value)]| -> Values {
            entries.iter().map(|&(name, value)| (name.to_owned(), value)).collect()
        };
        let before = values(&[("exits", value(7, true)), ("pages", value(5, false))]);
        let now = values(&[
            ("exits", value(10, true)),
            ("pages", value(6, false)),
            ("halts", value(1, true)),
        ]);
        let expected = values(&[
            ("exits", value(3, true)),
            ("pages", value(6, false)),
            ("halts", value(1, true)),
        ]);
        assert_eq!(since(now, &before), expected);
    }
}
