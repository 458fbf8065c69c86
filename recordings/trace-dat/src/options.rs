//! Options: what a file says beside its sections.

use crate::clock::{Correction, TimeShift, TscScale};
use crate::error::Error;
use crate::input::Bytes;

/// The events of one CPU in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuData {
    /// The CPU, by Linux's number.
    pub cpu: u32,
    /// Where its data begins, in bytes from the begin of the file.
    pub at: u64,
    /// Its length in the file, in bytes.
    pub bytes: u64,
}

/// A buffer of the recorded kernel: the main one, or an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    /// Name of the instance. Empty for the main one.
    pub name: String,
    /// Its clock, if the file says it for each buffer.
    pub clock: Option<String>,
    /// Length of its pages, in bytes.
    pub page_size: u32,
    /// The data of its CPUs.
    pub cpus: Vec<CpuData>,
    /// Where its section begins.
    pub(crate) at: u64,
    /// Its data is compressed.
    pub(crate) packed: bool,
}

/// A guest that was recorded at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Its name.
    pub name: String,
    /// Identity of its recording.
    pub id: u64,
    /// Number of each vCPU, and the thread of the host that runs it.
    pub vcpus: Vec<(u32, u32)>,
}

/// CPUs of a machine, at most.
pub(crate) const CPUS_MAX: u32 = 1 << 14;

/// Sections of version 7, by the option that has their place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    pub(crate) header_info: Option<u64>,
    pub(crate) ftrace_formats: Option<u64>,
    pub(crate) formats: Option<u64>,
    pub(crate) symbols: Option<u64>,
    pub(crate) printk: Option<u64>,
    pub(crate) cmdlines: Option<u64>,
}

/// All options of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) places: Places,
    pub(crate) clock: Option<String>,
    pub(crate) uname: Option<String>,
    pub(crate) offset: i64,
    pub(crate) cpus: Option<u32>,
    pub(crate) id: Option<u64>,
    pub(crate) time_shift: Option<TimeShift>,
    pub(crate) guests: Vec<Guest>,
    pub(crate) tsc: Option<TscScale>,
}

/// Returns a text without the NUL that ends it.
fn text(data: &[u8]) -> String {
    let end = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    String::from_utf8_lossy(&data[..end]).trim().to_owned()
}

/// Returns the clock in brackets of the file `trace_clock`, or the text if it has none.
pub(crate) fn chosen_clock(text: &str) -> &str {
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or(text, |(clock, _)| clock)
}

/// Reads a number with an optional sign, decimal or hexadecimal with `0x`.
fn signed(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = match digits.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    value.ok().map(|value| if negative { -value } else { value })
}

impl Options {
    /// Reads the data of one option. Options that are not known are passed over, as the format says.
    pub(crate) fn add(&mut self, id: u16, data: &[u8], at: u64, version: u32) -> Result<(), Error> {
        let mut bytes = Bytes::new(data, at, "an option");
        match id {
            3 => self.buffers.push(buffer(&mut bytes, version)?),
            4 => self.clock = Some(chosen_clock(&text(data)).to_owned()),
            5 => self.uname = Some(text(data)),
            7 => {
                let offset = text(data);
                let number = signed(&offset).ok_or_else(|| Error::damaged(at, "an offset that is no number"))?;
                self.offset = self.offset.wrapping_add(number);
            }
            8 => self.cpus = Some(bytes.u32()?),
            11 => self.id = Some(bytes.u64()?),
            12 => self.time_shift = Some(time_shift(&mut bytes)?),
            13 => self.guests.push(guest(&mut bytes)?),
            14 => {
                let (mult, shift) = (bytes.u32()?, bytes.u32()?);
                self.tsc = Some(TscScale {
                    mult,
                    shift,
                    offset: bytes.u64()?,
                });
            }
            16 => self.places.header_info = Some(bytes.u64()?),
            17 => self.places.ftrace_formats = Some(bytes.u64()?),
            18 => self.places.formats = Some(bytes.u64()?),
            19 => self.places.symbols = Some(bytes.u64()?),
            20 => self.places.printk = Some(bytes.u64()?),
            21 => self.places.cmdlines = Some(bytes.u64()?),
            _ => {}
        }
        Ok(())
    }
}

/// Reads a number of CPUs.
pub(crate) fn cpu_count(count: u32, at: u64) -> Result<u32, Error> {
    match count {
        0..=CPUS_MAX => Ok(count),
        _ => Err(Error::damaged(at, format!("{count} CPUs"))),
    }
}

fn buffer(bytes: &mut Bytes<'_>, version: u32) -> Result<Buffer, Error> {
    let mut buffer = Buffer {
        at: bytes.u64()?,
        name: bytes.text()?,
        ..Buffer::default()
    };
    if version < 7 {
        // The CPUs are at the place `at`. Some writers have the number of CPUs here.
        return Ok(buffer);
    }
    buffer.clock = Some(bytes.text()?);
    buffer.page_size = bytes.u32()?;
    let count = cpu_count(bytes.u32()?, bytes.at())?;
    for _ in 0..count {
        let cpu = bytes.u32()?;
        buffer.cpus.push(CpuData {
            cpu,
            at: bytes.u64()?,
            bytes: bytes.u64()?,
        });
    }
    Ok(buffer)
}

fn time_shift(bytes: &mut Bytes<'_>) -> Result<TimeShift, Error> {
    let (peer, flags) = (bytes.u64()?, bytes.u32()?);
    let count = cpu_count(bytes.u32()?, bytes.at())?;
    let mut cpus: Vec<Vec<Correction>> = Vec::new();
    for _ in 0..count {
        let samples = u64::from(bytes.u32()?);
        let (mut times, mut offsets, mut scales) = (
            bytes.part(samples * 8)?,
            bytes.part(samples * 8)?,
            bytes.part(samples * 8)?,
        );
        let mut cpu = Vec::new();
        while !times.is_empty() {
            let (at, offset, scaling) = (times.u64()?, offsets.u64()? as i64, scales.u64()?);
            cpu.push(Correction {
                at,
                scaling,
                fraction_bits: 0,
                offset,
            });
        }
        cpus.push(cpu);
    }
    // Later versions have the bits behind the binary point of each scale.
    for correction in cpus.iter_mut().flatten() {
        if bytes.is_empty() {
            break;
        }
        correction.fraction_bits = bytes.u64()?;
    }
    for cpu in &mut cpus {
        cpu.sort_by_key(|correction| correction.at);
    }
    Ok(TimeShift { peer, flags, cpus })
}

fn guest(bytes: &mut Bytes<'_>) -> Result<Guest, Error> {
    let mut guest = Guest {
        name: bytes.text()?,
        id: bytes.u64()?,
        vcpus: Vec::new(),
    };
    let count = cpu_count(bytes.u32()?, bytes.at())?;
    for _ in 0..count {
        guest.vcpus.push((bytes.u32()?, bytes.u32()?));
    }
    Ok(guest)
}

#[cfg(test)]
mod tests {
    use super::{Options, chosen_clock, signed};

    #[test]
    fn options_of_a_guest_are_understood() {
        let mut options = Options::default();
        let mut shift = 77u64.to_le_bytes().to_vec();
        shift.extend([0u32, 1, 2].iter().flat_map(|word| word.to_le_bytes()));
        // Times, offsets, scales, bits.
        shift.extend([20u64, 10, 1, 2, 3, 3, 1, 1].iter().flat_map(|word| word.to_le_bytes()));
        options.add(12, &shift, 0, 7).expect("a time shift");
        let found = options.time_shift.expect("a time shift");
        assert_eq!((found.peer, found.cpus[0][0].at, found.cpus[0][0].offset), (77, 10, 2));
        assert_eq!(found.apply(0, 10), 10 * 3 / 2 + 2);
        assert!(Options::default().add(12, &shift[..shift.len() - 20], 100, 7).is_err());

        let mut options = Options::default();
        let mut guest = b"vm\0".to_vec();
        guest.extend(9u64.to_le_bytes());
        guest.extend([2u32, 0, 1001, 1, 1002].iter().flat_map(|word| word.to_le_bytes()));
        options.add(13, &guest, 0, 7).expect("a guest");
        assert_eq!(options.guests[0].vcpus, [(0, 1001), (1, 1002)]);
    }

    #[test]
    fn a_count_of_cpus_is_not_believed() {
        let mut data = 0u64.to_le_bytes().to_vec();
        data.extend(b"\0local\0");
        data.extend([4096u32, u32::MAX].iter().flat_map(|word| word.to_le_bytes()));
        let error = Options::default().add(3, &data, 50, 7).expect_err("too many");
        assert_eq!(
            error.to_string(),
            format!("at byte {}: damaged: 4294967295 CPUs", 50 + data.len())
        );
    }

    #[test]
    fn texts_of_tracefs_are_understood() {
        assert_eq!(chosen_clock("local global [x86-tsc] mono"), "x86-tsc");
        assert_eq!(chosen_clock("mono"), "mono");
        assert_eq!(
            (signed("-0x10"), signed("+12"), signed("a")),
            (Some(-16), Some(12), None)
        );
    }
}
