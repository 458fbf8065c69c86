//! The kernel's symbols (`/proc/kallsyms`).

/// Functions and variables of a kernel.
pub struct Symbols {
    /// Sorted by address.
    functions: Vec<(u64, String)>,
    /// Sorted by address. Variables of each CPU have the address of their template.
    variables: Vec<(u64, String)>,
    per_cpu: std::ops::Range<u64>,
}

impl Symbols {
    pub fn parse(text: &str) -> Result<Symbols, String> {
        let (mut functions, mut variables) = (Vec::new(), Vec::new());
        let (mut start, mut end) = (0, 0);
        for (index, line) in text.lines().enumerate() {
            // A name of a module is followed by "[module]".
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [address, kind, name, ..] = fields[..] else {
                continue;
            };
            let address = u64::from_str_radix(address, 16)
                .map_err(|error| format!("line {}: address {address:?}: {error}", index + 1))?;
            match name {
                "__per_cpu_start" => start = address,
                "__per_cpu_end" => end = address,
                _ if kind.eq_ignore_ascii_case("t") || kind.eq_ignore_ascii_case("w") => {
                    functions.push((address, name.to_owned()));
                }
                _ if fields.len() > 3 => {}
                _ => variables.push((address, name.to_owned())),
            }
        }
        if functions.is_empty() {
            return Err("no functions: expected the text of /proc/kallsyms".to_owned());
        }
        functions.sort();
        variables.sort();
        Ok(Symbols {
            functions,
            variables,
            per_cpu: start..end,
        })
    }

    pub fn function_address(&self, name: &str) -> Option<u64> {
        let found = self.functions.iter().find(|(_, other)| other == name);
        found.map(|(address, _)| *address)
    }

    pub fn functions_that_begin_with(&self, prefix: &str) -> impl Iterator<Item = (u64, String)> {
        let found = self.functions.iter().filter(move |(_, name)| name.starts_with(prefix));
        found.cloned()
    }

    /// The function that `address` is in, without the suffixes that compilers add to parts of functions.
    pub fn function(&self, address: u64) -> &str {
        at(&self.functions, address).map_or("unknown", |name| name.split('.').next().unwrap_or(name))
    }

    /// The kernel's own variable at `address`, if it is in the kernel's image.
    pub fn variable(&self, address: u64) -> Option<&str> {
        if address < 0xffff_ffff_8000_0000 || self.per_cpu.contains(&address) {
            return None;
        }
        at(&self.variables, address)
    }

    /// The variable of each CPU at `address`, if it is in the area of a CPU, given the offsets of the areas.
    pub fn per_cpu_variable(&self, address: u64, offsets: &[u64]) -> Option<&str> {
        let template = offsets.iter().map(|offset| address.wrapping_sub(*offset));
        let template = template.into_iter().find(|template| self.per_cpu.contains(template))?;
        at(&self.variables, template)
    }

    /// Returns `true` if `address` is in the area of a CPU's variables, those made after the start included.
    pub fn is_per_cpu(&self, address: u64, offsets: &[u64]) -> bool {
        // The kernel gives the rest of a CPU's area back, and then objects lie there (`pcpu_embed_first_chunk`).
        let kept = self.per_cpu.end - self.per_cpu.start + RESERVED;
        let starts = offsets.iter().map(|offset| offset.wrapping_add(self.per_cpu.start));
        starts.into_iter().any(|start| address.wrapping_sub(start) < kept)
    }
}

/// Bytes after a CPU's variables for those of modules, and for some that are made later: 8 and 28 KiB
/// (`PERCPU_MODULE_RESERVE`, `PERCPU_DYNAMIC_RESERVE`), and two pages to which each is rounded up.
const RESERVED: u64 = 44 << 10;

fn at(symbols: &[(u64, String)], address: u64) -> Option<&str> {
    let above = symbols.partition_point(|(start, _)| *start <= address);
    symbols[..above].last().map(|(_, name)| name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_the_function_or_variable_that_holds_them() {
        let symbols = Symbols::parse(
            "0000000000000000 A __per_cpu_start\n0000000000002000 A runqueues\n0000000000003000 A __per_cpu_end\n\
             ffffffff81000000 T start\nffffffff81000100 t walk.part.0\nffffffff82000000 D list_lock\n\
             ffffffffc0000000 t other\t[module]\n",
        )
        .expect("symbols");
        assert_eq!(symbols.function(0xffff_ffff_8100_0104), "walk");
        assert_eq!(symbols.function(0xffff_ffff_8100_00ff), "start");
        assert_eq!(symbols.function(0xffff_ffff_c000_0004), "other");
        assert_eq!(symbols.variable(0xffff_ffff_8200_0008), Some("list_lock"));
        assert_eq!(symbols.variable(0xffff_8880_0000_0000), None);
        let offsets = [0xffff_8880_7dc0_0000];
        assert_eq!(
            symbols.per_cpu_variable(0xffff_8880_7dc0_2040, &offsets),
            Some("runqueues")
        );
        assert_eq!(symbols.per_cpu_variable(0xffff_8880_7dd0_2040, &offsets), None);
        let two = [0xffff_8880_7dc0_0000, 0xffff_8880_7dc8_0000];
        assert!(symbols.is_per_cpu(0xffff_8880_7dc0_4000, &two), "made after the start");
        assert!(symbols.is_per_cpu(0xffff_8880_7dc8_4000, &two));
        assert!(!symbols.is_per_cpu(0xffff_8880_7dc4_0000, &two), "given back");
        assert!(!symbols.is_per_cpu(0xffff_8880_7dd0_0000, &two));
        assert!(Symbols::parse("").is_err_and(|message| message.contains("kallsyms")));
    }
}
