//! `bzImage`, the file format of installed x86 kernels (Linux `Documentation/arch/x86/boot.rst`).

use std::fmt;

/// Offset of the setup header. The other offsets are also from the start of the file.
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
/// Number of setup sectors if the field is 0.
const SETUP_SECTORS_DEFAULT: usize = 4;
/// Version 2.12 (Linux 3.8), the first whose header announces the 64-bit entry.
const VERSION_MIN: u16 = 0x020c;
const LOADED_HIGH: u8 = 1;
/// `XLF_KERNEL_64`: the kernel has a 64-bit entry.
const KERNEL_64: u16 = 1;
/// Offset of the 64-bit entry in the kernel.
const ENTRY_64: u64 = 0x200;
/// Largest accepted end of a kernel in memory. Real kernels have about 10 MiB.
const BYTES_MAX: u64 = 1 << 30;

/// The reason why a file is not a bootable kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BzImageError {
    /// The file has no setup header.
    NotBzImage,
    /// The header has this version, which is too old.
    TooOld(u16),
    /// The kernel has no 64-bit entry.
    Not64Bit,
    /// The file is shorter than its header claims.
    Truncated {
        /// Expected size in bytes.
        expected: u64,
        /// Size in bytes of the file.
        found: u64,
    },
    /// The kernel's load address, or its size after decompression, is outside of guest memory.
    OutOfRange {
        /// Load address.
        address: u64,
        /// Size in bytes that the kernel needs there.
        bytes: u64,
    },
}

impl fmt::Display for BzImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BzImageError::NotBzImage => write!(f, "not a bzImage: the setup header of Linux is missing"),
            BzImageError::TooOld(version) => write!(
                f,
                "boot protocol {}.{:02}, expected 2.12 or later (linux 3.8)",
                version >> 8,
                version & 0xff
            ),
            BzImageError::Not64Bit => write!(f, "a kernel without a 64-bit entry"),
            BzImageError::Truncated { expected, found } => {
                write!(f, "truncated: {found} bytes, but its header claims {expected}")
            }
            BzImageError::OutOfRange { address, bytes } => {
                write!(
                    f,
                    "the kernel needs {bytes} bytes at {address:#x}, which is outside of guest memory"
                )
            }
        }
    }
}

impl std::error::Error for BzImageError {}

/// A valid kernel.
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
    /// Parses a `bzImage`.
    ///
    /// # Errors
    /// Returns an error if the file is not a bootable 64-bit kernel.
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
        // The header ends at the target of the jump over it.
        let header_end = MAGIC + usize::from(file[0x201]);
        let version = u16::from_le_bytes([file[VERSION], file[VERSION + 1]]);
        if version < VERSION_MIN {
            return Err(BzImageError::TooOld(version));
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
            return Err(BzImageError::OutOfRange { address, bytes });
        }
        Ok(image)
    }

    /// Returns the kernel's release, as `uname -r` prints it, or an empty string if the file has none.
    pub fn release(&self) -> String {
        let pointer = u16::from_le_bytes([self.file[RELEASE], self.file[RELEASE + 1]]);
        let text = match pointer {
            0 => &[],
            // The pointer counts from the second sector, and the text is within the setup sectors.
            _ => self.file[..self.kernel.start]
                .get(SECTOR + usize::from(pointer)..)
                .unwrap_or_default(),
        };
        let word = text.split(|byte| !byte.is_ascii_graphic()).next().unwrap_or_default();
        String::from_utf8_lossy(word).into_owned()
    }

    /// Returns the setup header and its offset in the boot parameters.
    pub(crate) fn header(&self) -> (u64, &[u8]) {
        (HEADER as u64, &self.file[HEADER..self.header_end])
    }

    /// Returns the bytes to load at [`BzImage::address`].
    pub(crate) fn kernel(&self) -> &[u8] {
        &self.file[self.kernel.clone()]
    }

    /// Returns the preferred load address, from which the kernel need not move.
    pub(crate) fn address(&self) -> u64 {
        u64_at(&self.file, PREFERRED_ADDRESS)
    }

    /// Returns the number of bytes at the load address that the kernel needs before it reads the memory map.
    pub(crate) fn init_bytes(&self) -> u64 {
        u32_at(&self.file, INIT_SIZE).into()
    }

    /// Returns the address of the 64-bit entry.
    pub(crate) fn entry(&self) -> u64 {
        self.address() + ENTRY_64
    }

    /// Returns the length of the longest command line in bytes.
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

    /// Returns a file with the layout that the kernel's build produces and 4 KiB of program.
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
    fn a_kernel_is_parsed_and_other_files_are_refused_with_the_reason() {
        let image = BzImage::parse(sample()).expect("complete");
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
        assert_eq!(changed(VERSION, &[0x0b, 2]), Err(BzImageError::TooOld(0x020b)));
        assert_eq!(changed(XLOAD_FLAGS, &[0]), Err(BzImageError::Not64Bit));
        assert!(matches!(
            changed(PREFERRED_ADDRESS, &[0, 0, 0, 0, 1]),
            Err(BzImageError::OutOfRange { .. })
        ));
    }

    #[test]
    fn a_truncated_file_is_refused_with_both_sizes() {
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
        fn no_header_makes_parsing_panic(at in 0x1f1usize..0x270, bytes in proptest::collection::vec(any::<u8>(), 1..16)) {
            if let Ok(image) = changed(at, &bytes) {
                prop_assert!(image.release().len() < image.file.len());
                prop_assert!(image.header().1.len() + HEADER <= image.file.len());
                prop_assert!(image.address() + image.init_bytes() <= BYTES_MAX);
                prop_assert!(image.kernel().len() as u64 <= image.init_bytes());
            }
        }
    }
}
