//! `bzImage`: the form in which x86 kernels are installed (kernel documentation, arch/x86/boot, "The Linux/x86 Boot Protocol").

use std::fmt;

/// The setup header and what lies before it; what follows is a program.
const HEADER: usize = 0x1f1;
const HEADER_END_MIN: usize = 0x268;
const BOOT_FLAG: usize = 0x1fe;
const MAGIC: usize = 0x202;
const VERSION: usize = 0x206;
const SYSTEM_SIZE: usize = 0x1f4;
const RELEASE: usize = 0x20e;
const LOAD_FLAGS: usize = 0x211;
const XLOAD_FLAGS: usize = 0x236;
const COMMAND_LINE_BYTES: usize = 0x238;
const PREFERRED_ADDRESS: usize = 0x258;
const INIT_SIZE: usize = 0x260;

const SECTOR: usize = 512;
/// Sectors of setup where the field says 0.
const SETUP_SECTORS_DEFAULT: usize = 4;
/// 2.12 (Linux 3.8): the 64-bit entry is told of.
const VERSION_MIN: u16 = 0x020c;
const LOADED_HIGH: u8 = 1;
/// `XLF_KERNEL_64`: there is a 64-bit entry, 0x200 into the kernel.
const KERNEL_64: u16 = 1;
/// Where that is.
const ENTRY_64: u64 = 0x200;
/// Kernels are 10 MiB; this is for what claims to be one.
const BYTES_MAX: u64 = 1 << 30;

/// Why a file is no kernel that can be booted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BzImageError {
    /// It has no setup header.
    NotBzImage,
    /// It has a header of this version.
    Old(u16),
    /// It has no 64-bit entry: a 32-bit kernel.
    Not64Bit,
    /// Its header says that it is longer.
    Truncated {
        /// Bytes that it must have.
        expected: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// It wants to lie, or to unpack itself, where no guest has memory.
    Place {
        /// Where.
        address: u64,
        /// How much it needs there.
        bytes: u64,
    },
}

impl fmt::Display for BzImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BzImageError::NotBzImage => write!(f, "not a bzImage: no setup header of Linux in it"),
            BzImageError::Old(version) => write!(
                f,
                "boot protocol {}.{:02}: 2.12 or later expected, which kernels since 3.8 have",
                version >> 8,
                version & 0xff
            ),
            BzImageError::Not64Bit => write!(f, "a kernel without 64-bit entry"),
            BzImageError::Truncated { expected, found } => {
                write!(f, "truncated: {found} bytes, of {expected} that its header tells of")
            }
            BzImageError::Place { address, bytes } => {
                write!(f, "it needs {bytes} bytes at {address:#x}, where no guest has memory")
            }
        }
    }
}

impl std::error::Error for BzImageError {}

/// A kernel, checked.
#[derive(Clone, PartialEq, Eq)]
pub struct BzImage {
    file: Vec<u8>,
    header_end: usize,
    kernel: std::ops::Range<usize>,
}

impl fmt::Debug for BzImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BzImage of {} bytes", self.file.len())
    }
}

impl BzImage {
    /// Reads a `bzImage`.
    ///
    /// # Errors
    /// [`BzImageError`].
    pub fn parse(file: Vec<u8>) -> Result<BzImage, BzImageError> {
        let is_boot = file.get(BOOT_FLAG..BOOT_FLAG + 2) == Some(&[0x55, 0xaa]);
        if !is_boot || file.get(MAGIC..MAGIC + 4) != Some(b"HdrS") {
            return Err(BzImageError::NotBzImage);
        }
        let found = file.len() as u64;
        let truncated = |expected: usize| BzImageError::Truncated {
            expected: expected as u64,
            found,
        };
        if file.len() < HEADER_END_MIN {
            return Err(truncated(HEADER_END_MIN));
        }
        // The jump over the header tells where that ends.
        let header_end = MAGIC + usize::from(file[0x201]);
        let version = u16::from_le_bytes([file[VERSION], file[VERSION + 1]]);
        if version < VERSION_MIN {
            return Err(BzImageError::Old(version));
        }
        let flags = u16::from_le_bytes([file[XLOAD_FLAGS], file[XLOAD_FLAGS + 1]]);
        if file[LOAD_FLAGS] & LOADED_HIGH == 0 || flags & KERNEL_64 == 0 {
            return Err(BzImageError::Not64Bit);
        }
        let sectors = match usize::from(file[HEADER]) {
            0 => SETUP_SECTORS_DEFAULT,
            sectors => sectors,
        };
        let start = (sectors + 1) * SECTOR;
        let bytes = u32_at(&file, SYSTEM_SIZE) as usize * 16;
        let end = start + bytes;
        // The last paragraph may be short.
        if file.len() + 16 <= end || header_end < HEADER_END_MIN || header_end > start {
            return Err(truncated(end.max(header_end)));
        }
        let image = BzImage {
            kernel: start..end.min(file.len()),
            header_end,
            file,
        };
        let (address, bytes) = (image.address(), image.init_bytes());
        if address < super::boot::LOW_END
            || address.saturating_add(bytes) > BYTES_MAX
            || bytes < image.kernel.len() as u64
        {
            return Err(BzImageError::Place { address, bytes });
        }
        Ok(image)
    }

    /// The kernel's release, as `uname -r` says it; empty if the file does not tell.
    pub fn release(&self) -> String {
        let pointer = u16::from_le_bytes([self.file[RELEASE], self.file[RELEASE + 1]]);
        let text = match pointer {
            0 => &[],
            // Seen from the magic's sector, and within the setup.
            _ => self.file[..self.kernel.start]
                .get(SECTOR + usize::from(pointer)..)
                .unwrap_or_default(),
        };
        let word = text.split(|byte| !byte.is_ascii_graphic()).next().unwrap_or_default();
        String::from_utf8_lossy(word).into_owned()
    }

    /// The setup header, and where it lies in the boot parameters.
    pub(crate) fn header(&self) -> (u64, &[u8]) {
        (HEADER as u64, &self.file[HEADER..self.header_end])
    }

    /// What is loaded at [`BzImage::address`].
    pub(crate) fn kernel(&self) -> &[u8] {
        &self.file[self.kernel.clone()]
    }

    /// Where it prefers to lie, and so need not move.
    pub(crate) fn address(&self) -> u64 {
        u64_at(&self.file, PREFERRED_ADDRESS)
    }

    /// Bytes from there that it needs before it knows the memory map.
    pub(crate) fn init_bytes(&self) -> u64 {
        u32_at(&self.file, INIT_SIZE).into()
    }

    /// The first instruction.
    pub(crate) fn entry(&self) -> u64 {
        self.address() + ENTRY_64
    }

    /// The longest command line.
    pub(crate) fn command_line_bytes(&self) -> u32 {
        u32_at(&self.file, COMMAND_LINE_BYTES)
    }
}

fn u32_at(file: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([file[at], file[at + 1], file[at + 2], file[at + 3]])
}

fn u64_at(file: &[u8], at: usize) -> u64 {
    u64::from(u32_at(file, at)) | u64::from(u32_at(file, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As the kernel's own build makes them, with 4 KiB of program.
    fn sample() -> Vec<u8> {
        let mut file = vec![0; 5 * SECTOR + 4096];
        file[HEADER] = 4;
        file[SYSTEM_SIZE..SYSTEM_SIZE + 4].copy_from_slice(&256u32.to_le_bytes());
        file[BOOT_FLAG..BOOT_FLAG + 2].copy_from_slice(&[0x55, 0xaa]);
        file[0x200..0x202].copy_from_slice(&[0xeb, 0x6a]);
        file[MAGIC..MAGIC + 4].copy_from_slice(b"HdrS");
        file[VERSION..VERSION + 2].copy_from_slice(&0x020fu16.to_le_bytes());
        file[LOAD_FLAGS] = LOADED_HIGH;
        file[XLOAD_FLAGS] = 0x7f;
        file[PREFERRED_ADDRESS..PREFERRED_ADDRESS + 8].copy_from_slice(&0x100_0000u64.to_le_bytes());
        file[INIT_SIZE..INIT_SIZE + 4].copy_from_slice(&0x200_0000u32.to_le_bytes());
        file
    }

    fn changed(at: usize, bytes: &[u8]) -> Result<BzImage, BzImageError> {
        let mut file = sample();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        BzImage::parse(file)
    }

    #[test]
    fn a_whole_one_is_taken_and_others_are_refused_by_what_they_are() {
        let image = BzImage::parse(sample()).expect("whole");
        assert_eq!((image.entry(), image.kernel().len()), (0x100_0200, 4096));
        assert_eq!(image.header().1.len(), 0x26c - HEADER);
        assert_eq!(image.release(), "");
        let mut told = sample();
        told[RELEASE..RELEASE + 2].copy_from_slice(&0x100u16.to_le_bytes());
        told[0x300..0x30e].copy_from_slice(b"6.1.0-1-amd64 ");
        assert_eq!(
            BzImage::parse(told).map(|image| image.release()),
            Ok("6.1.0-1-amd64".to_owned())
        );
        assert_eq!(BzImage::parse(Vec::new()), Err(BzImageError::NotBzImage));
        assert_eq!(BzImage::parse(b"\x7fELF".repeat(500)), Err(BzImageError::NotBzImage));
        assert_eq!(changed(VERSION, &[0x0b, 2]), Err(BzImageError::Old(0x020b)));
        assert_eq!(changed(XLOAD_FLAGS, &[0]), Err(BzImageError::Not64Bit));
        assert!(matches!(
            changed(PREFERRED_ADDRESS, &[0, 0, 0, 0, 1]),
            Err(BzImageError::Place { .. })
        ));
    }

    #[test]
    fn truncated_ones_say_what_is_missing() {
        let whole = sample();
        for bytes in (0x206..whole.len() - 16).step_by(97) {
            let found = BzImage::parse(whole[..bytes].to_vec());
            assert!(
                matches!(found, Err(BzImageError::Truncated { .. })),
                "{bytes}: {found:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn nothing_in_a_header_makes_it_panic(at in 0x1f1usize..0x270, bytes in proptest::collection::vec(any::<u8>(), 1..16)) {
            if let Ok(image) = changed(at, &bytes) {
                prop_assert!(image.release().len() < image.file.len());
                prop_assert!(image.header().1.len() + HEADER <= image.file.len());
                prop_assert!(image.address() + image.init_bytes() <= BYTES_MAX);
                prop_assert!(image.kernel().len() as u64 <= image.init_bytes());
            }
        }
    }
}
