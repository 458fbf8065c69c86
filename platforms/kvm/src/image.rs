//! The guest image: the ELF file of `platforms/kvm/image`.

use std::sync::OnceLock;

use holdfast_protocol::layout::IMAGE;
use object::elf::PT_LOAD;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, SymbolKind};

/// The image built with this library.
static EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/image.elf"));

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

/// The guest image.
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
        IMAGE.get_or_init(|| Image::read(EMBEDDED))
    }

    fn read(file: &[u8]) -> Image {
        let elf = ElfFile64::<Endianness>::parse(file).expect("the image is an ELF file");
        let endian = elf.endian();
        let loaded = elf.elf_program_headers().iter();
        let loaded = loaded.filter(|program| program.p_type(endian) == PT_LOAD);
        let segments = loaded.map(|program| Segment {
            address: program.p_paddr(endian),
            content: program.data(endian, file).expect("the image is whole").to_vec(),
            bytes: program.p_memsz(endian),
        });
        Image {
            segments: segments.collect(),
            entry: elf.elf_header().e_entry(endian),
            symbols: symbols(&elf),
        }
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
