//! Turns the records of the lock probe (`platforms/kvm/testhost/locks`) into a kernel profile.
//!
//! Usage: `lock_profile hooks SYMBOLS`: prints the functions that the probe hooks.
//!        `lock_profile pack IMAGE`: prints the blocks of a disk's image that are not zero, each after its number.
//!        `lock_profile profile SERIES RELEASE EMULATOR COUNTS SCOPES LINES`: prints the profile. COUNTS, SCOPES and
//!        LINES name two files each, NAME.records and NAME.symbols: modules have other addresses in each boot.
//!        `lock_profile entries SYMBOLS`: prints the functions whose entries are counted for programs.
//!        `lock_profile programs SYMBOLS RECORDS`: prints what programs do per operation.
//!        `lock_profile lines LINES...`: prints the cache lines of each class's sections.

mod classes;
mod hooks;
mod lines;
mod output;
mod programs;
mod records;
mod scopes;
mod symbols;
mod tally;

use std::fs::File;
use std::io::{Read, Write};
use std::process::ExitCode;

use symbols::Symbols;

/// Bytes of a block in a packed image.
const BLOCK: usize = 4096;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["hooks", symbols] => read_symbols(symbols).map(|symbols| hooks::listing(&symbols).into_bytes()),
        ["entries", symbols] => read_symbols(symbols).map(|symbols| programs::listing(&symbols).into_bytes()),
        ["programs", symbols, records] => read_records(records)
            .and_then(|runs| programs::table(&runs, &read_symbols(symbols)?))
            .map(String::into_bytes),
        ["pack", image] => pack(image),
        ["profile", series, release, emulator, counts, scopes, lines] => {
            profile([series, release, emulator], counts, scopes, lines).map(String::into_bytes)
        }
        ["lines", ref machines @ ..] => {
            let read = |name: &&str| {
                Ok((
                    (*name).rsplit('/').next().unwrap_or_default().to_owned(),
                    read_lines(name)?,
                ))
            };
            let machines: Result<Vec<_>, String> = machines.iter().map(read).collect();
            machines.map(|machines| lines::table(&machines).into_bytes())
        }
        _ => Err(
            "usage: lock_profile hooks SYMBOLS | entries SYMBOLS | programs SYMBOLS RECORDS | pack IMAGE | \
             profile SERIES RELEASE EMULATOR COUNTS SCOPES LINES | lines LINES..."
                .to_owned(),
        ),
    };
    let written = result.and_then(|bytes| {
        let written = std::io::stdout().lock().write_all(&bytes);
        written.map_err(|error| format!("write to standard output: {error}"))
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("lock_profile: {message}");
            ExitCode::FAILURE
        }
    }
}

fn read_symbols(path: &str) -> Result<Symbols, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("read {path}: {error}"))?;
    Symbols::parse(&text).map_err(|message| format!("{path}: {message}"))
}

fn pack(path: &str) -> Result<Vec<u8>, String> {
    let failed = |error| format!("read {path}: {error}");
    let mut image = File::open(path).map_err(failed)?;
    let (mut packed, mut block) = (Vec::new(), [0; BLOCK]);
    for number in 0..image.metadata().map_err(failed)?.len() / BLOCK as u64 {
        image.read_exact(&mut block).map_err(failed)?;
        if block.iter().any(|byte| *byte != 0) {
            packed.extend_from_slice(&number.to_le_bytes());
            packed.extend_from_slice(&block);
        }
    }
    Ok(packed)
}

fn read_records(path: &str) -> Result<Vec<records::Run>, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("read {path}: {error}"))?;
    records::runs(&bytes).map_err(|message| format!("{path}: {message}"))
}

fn read_lines(name: &str) -> Result<lines::Lines, String> {
    let symbols = read_symbols(&format!("{name}.symbols"))?;
    Ok(lines::Lines::of(&read_records(&format!("{name}.records"))?, &symbols))
}

fn profile(head: [&str; 3], counts: &str, scopes: &str, lines: &str) -> Result<String, String> {
    let (symbols, counted) = (
        read_symbols(&format!("{counts}.symbols"))?,
        read_records(&format!("{counts}.records"))?,
    );
    let mut tallies: Vec<tally::Tally> = counted.iter().map(|run| tally::Tally::of(run, &symbols)).collect();
    let background = tallies
        .iter()
        .position(|tally| tally.operation == "user")
        .ok_or_else(|| format!("{counts}: no operation `user`, whose locks are the background's"))?;
    let background = tallies.remove(background);
    for tally in &mut tallies {
        tally.subtract(&background);
    }
    let scope_symbols = read_symbols(&format!("{scopes}.symbols"))?;
    let scopes = scopes::Scopes::of(&read_records(&format!("{scopes}.records"))?, &scope_symbols);
    Ok(output::profile(
        head,
        &background,
        &tallies,
        &scopes,
        &read_lines(lines)?,
    ))
}
