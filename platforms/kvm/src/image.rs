//! Guest images: ELF files as `platforms/kvm/image` links them.

use std::fmt;
use std::sync::OnceLock;

use holdfast_protocol::layout::{IMAGE, MAGIC, MEMORY_END};
use object::elf::{EM_X86_64, ET_EXEC, PT_LOAD};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, SymbolKind};

/// The image that was built with this library.
static EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/image.elf"));

/// The largest image that is read: a hundred times what ours has.
const IMAGE_BYTES_MAX: u64 = 64 << 20;

/// Why a file is no guest image.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImageError {
    /// It is no ELF file, or a part of one.
    NotElf(String),
    /// It is for another machine, or not linked to fixed addresses.
    Foreign,
    /// It is no Holdfast image, or of another version of the protocol.
    NotOurs,
    /// A segment does not lie where images do.
    Place {
        /// Where it lies.
        address: u64,
        /// How long it is.
        bytes: u64,
    },
    /// A segment reaches beyond the end of the file.
    Truncated,
    /// It begins to execute outside of its segments.
    Entry(u64),
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImageError::NotElf(why) => write!(f, "not a whole ELF file: {why}"),
            ImageError::Foreign => write!(f, "not a static x86-64 executable"),
            ImageError::NotOurs => write!(
                f,
                "not a holdfast image of this version: {} expected in it",
                String::from_utf8_lossy(&MAGIC)
            ),
            ImageError::Place { address, bytes } => {
                write!(
                    f,
                    "a segment of {bytes} bytes at {address:#x}: images lie from {IMAGE:#x} on"
                )
            }
            ImageError::Truncated => write!(f, "truncated: a segment reaches beyond the end of the file"),
            ImageError::Entry(entry) => write!(f, "its entry {entry:#x} lies outside of its segments"),
        }
    }
}

impl std::error::Error for ImageError {}

/// A part of an image in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) address: u64,
    /// What it begins with; zeros follow up to `bytes`.
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

/// A guest image, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub(crate) segments: Vec<Segment>,
    pub(crate) entry: u64,
    symbols: Vec<Symbol>,
}

impl Image {
    /// The image that was built with this library.
    ///
    /// # Panics
    /// Never: it is ours.
    pub fn embedded() -> &'static Image {
        static IMAGE: OnceLock<Image> = OnceLock::new();
        IMAGE.get_or_init(|| Image::parse(EMBEDDED).unwrap_or_else(|error| panic!("the embedded image: {error}")))
    }

    /// Reads an ELF file.
    ///
    /// # Errors
    /// [`ImageError`].
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
                return Err(ImageError::Place { address, bytes });
            }
            segments.push(Segment {
                address,
                content: content.to_vec(),
                bytes,
            });
        }
        let is_ours = |segment: &Segment| segment.content.windows(MAGIC.len()).any(|window| window == MAGIC);
        if !segments.iter().any(is_ours) {
            return Err(ImageError::NotOurs);
        }
        let entry = header.e_entry(endian);
        if !segments
            .iter()
            .any(|segment| (segment.address..segment.address + segment.bytes).contains(&entry))
        {
            return Err(ImageError::Entry(entry));
        }
        Ok(Image {
            segments,
            entry,
            symbols: symbols(&elf),
        })
    }

    /// First byte after it.
    pub(crate) fn end(&self) -> u64 {
        self.segments
            .iter()
            .map(|segment| segment.address + segment.bytes)
            .max()
            .unwrap_or(IMAGE)
    }

    /// The function that `address` lies in, and how far.
    pub fn symbol(&self, address: u64) -> Option<(&str, u64)> {
        let after = self.symbols.partition_point(|symbol| symbol.address <= address);
        let symbol = self.symbols.get(after.checked_sub(1)?)?;
        let offset = address - symbol.address;
        // At its very end: the address after a call that does not return.
        (offset <= symbol.bytes).then_some((symbol.name.as_str(), offset))
    }

    /// Address and machine code of the functions whose name contains `name`.
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
    // Functions of assembly have no size: they reach to the next one.
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
