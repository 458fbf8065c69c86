//! Guest images: the ELF files of `platforms/kvm/image`.

use std::fmt;
use std::sync::OnceLock;

use holdfast_protocol::layout::{IMAGE, MAGIC, MEMORY_END};
use object::elf::{EM_X86_64, ET_EXEC, PT_LOAD};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, SymbolKind};

/// The image built with this library.
static EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/image.elf"));

/// Size of the largest accepted segment in bytes: about a hundred times the size of the embedded image.
const IMAGE_BYTES_MAX: u64 = 64 << 20;

/// The reason why a file is not a guest image.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImageError {
    /// The file is not a complete ELF file.
    NotElf(String),
    /// The file is for another architecture, or is not a static executable.
    Foreign,
    /// The file is not a Holdfast image, or is one with another version of the protocol.
    NotHoldfast,
    /// A segment is outside of the memory for images.
    SegmentOutOfRange {
        /// Address of the segment.
        address: u64,
        /// Size of the segment in bytes.
        bytes: u64,
    },
    /// The file ends within a segment.
    Truncated,
    /// This entry point is outside of all segments.
    EntryOutOfRange(u64),
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImageError::NotElf(why) => write!(f, "not a complete ELF file: {why}"),
            ImageError::Foreign => write!(f, "not a static x86-64 executable"),
            ImageError::NotHoldfast => write!(
                f,
                "not a holdfast image of this version: the text {} is missing",
                String::from_utf8_lossy(&MAGIC)
            ),
            ImageError::SegmentOutOfRange { address, bytes } => {
                write!(
                    f,
                    "segment of {bytes} bytes at {address:#x} is outside of {IMAGE:#x}..{MEMORY_END:#x}"
                )
            }
            ImageError::Truncated => write!(f, "truncated: the file ends within a segment"),
            ImageError::EntryOutOfRange(entry) => write!(f, "entry point {entry:#x} is outside of all segments"),
        }
    }
}

impl std::error::Error for ImageError {}

/// A contiguous range of an image in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) address: u64,
    /// Content of the first bytes. Zeros follow up to `bytes`.
    pub(crate) content: Vec<u8>,
    pub(crate) bytes: u64,
}

/// A function of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Symbol {
    address: u64,
    bytes: u64,
    name: String,
}

/// A valid guest image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub(crate) segments: Vec<Segment>,
    pub(crate) entry: u64,
    symbols: Vec<Symbol>,
}

impl Image {
    /// Returns the image built with this library.
    ///
    /// # Panics
    /// Panics if the embedded image is invalid, which is a defect of the build.
    pub fn embedded() -> &'static Image {
        static IMAGE: OnceLock<Image> = OnceLock::new();
        IMAGE.get_or_init(|| Image::parse(EMBEDDED).unwrap_or_else(|error| panic!("the embedded image: {error}")))
    }

    /// Parses an ELF file.
    ///
    /// # Errors
    /// Returns an error if the file is not a guest image of this version.
    pub fn parse(file: &[u8]) -> Result<Image, ImageError> {
        let elf = ElfFile64::<Endianness>::parse(file).map_err(|error| ImageError::NotElf(error.to_string()))?;
        let (header, endian) = (elf.elf_header(), elf.endian());
        if header.e_machine(endian) != EM_X86_64 || header.e_type(endian) != ET_EXEC || endian != Endianness::Little {
            return Err(ImageError::Foreign);
        }
        let mut segments = Vec::new();
        for program in elf
            .elf_program_headers()
            .iter()
            .filter(|program| program.p_type(endian) == PT_LOAD)
        {
            let (address, bytes) = (program.p_paddr(endian), program.p_memsz(endian));
            let end = address.checked_add(bytes);
            let fits = address >= IMAGE && bytes <= IMAGE_BYTES_MAX && end.is_some_and(|end| end <= MEMORY_END);
            let content = program.data(endian, file).map_err(|()| ImageError::Truncated)?;
            if !fits || content.len() as u64 > bytes {
                return Err(ImageError::SegmentOutOfRange { address, bytes });
            }
            segments.push(Segment {
                address,
                content: content.to_vec(),
                bytes,
            });
        }
        let has_magic = |segment: &Segment| segment.content.windows(MAGIC.len()).any(|window| window == MAGIC);
        if !segments.iter().any(has_magic) {
            return Err(ImageError::NotHoldfast);
        }
        let entry = header.e_entry(endian);
        if !segments
            .iter()
            .any(|segment| (segment.address..segment.address + segment.bytes).contains(&entry))
        {
            return Err(ImageError::EntryOutOfRange(entry));
        }
        Ok(Image {
            segments,
            entry,
            symbols: symbols(&elf),
        })
    }

    /// Returns the address after the image's last byte.
    pub(crate) fn end(&self) -> u64 {
        self.segments
            .iter()
            .map(|segment| segment.address + segment.bytes)
            .max()
            .unwrap_or(IMAGE)
    }

    /// Returns the name of the function that contains `address`, and the offset in it.
    pub fn symbol(&self, address: u64) -> Option<(&str, u64)> {
        let after = self.symbols.partition_point(|symbol| symbol.address <= address);
        let symbol = self.symbols.get(after.checked_sub(1)?)?;
        let offset = address - symbol.address;
        // The end itself is the return address of a last call that does not return.
        (offset <= symbol.bytes).then_some((symbol.name.as_str(), offset))
    }

    /// Returns the addresses and the machine code of the functions whose name contains `name`.
    pub fn functions(&self, name: &str) -> Vec<(u64, &[u8])> {
        let found = self.symbols.iter().filter(|symbol| symbol.name.contains(name));
        found
            .filter_map(|symbol| Some((symbol.address, self.code(symbol.address, symbol.bytes)?)))
            .collect()
    }

    fn code(&self, address: u64, bytes: u64) -> Option<&[u8]> {
        self.segments.iter().find_map(|segment| {
            let start = usize::try_from(address.checked_sub(segment.address)?).ok()?;
            segment
                .content
                .get(start..start.checked_add(usize::try_from(bytes).ok()?)?)
        })
    }
}

fn symbols(elf: &ElfFile64<'_, Endianness>) -> Vec<Symbol> {
    let functions = elf.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text);
    let named = functions.filter_map(|symbol| {
        Some(Symbol {
            address: symbol.address(),
            bytes: symbol.size(),
            name: format!("{:#}", rustc_demangle::demangle(symbol.name().ok()?)),
        })
    });
    let mut symbols: Vec<Symbol> = named.collect();
    symbols.sort_by_key(|symbol| (symbol.address, symbol.bytes));
    symbols.dedup_by_key(|symbol| symbol.address);
    // Functions in assembly have no size. They extend to the next function.
    let starts: Vec<u64> = symbols.iter().skip(1).map(|symbol| symbol.address).collect();
    for (symbol, next) in symbols.iter_mut().zip(starts) {
        if symbol.bytes == 0 {
            symbol.bytes = next - symbol.address;
        }
    }
    symbols
}

#[cfg(test)]
mod tests;
