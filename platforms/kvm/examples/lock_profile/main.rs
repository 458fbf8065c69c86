//! Turns the records of the lock probe (`platforms/kvm/testhost/locks`) into a kernel profile.
//!
//! Usage: `lock_profile hooks SYMBOLS`: prints the functions that the probe hooks.
//!        `lock_profile profile SERIES RELEASE EMULATOR SYMBOLS COUNTS SCOPES`: prints the profile.

mod classes;
mod hooks;
mod output;
mod records;
mod scopes;
mod symbols;
mod tally;

use std::process::ExitCode;

use symbols::Symbols;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["hooks", symbols] => read_symbols(symbols).map(|symbols| hooks::listing(&symbols)),
        ["profile", series, release, emulator, symbols, counts, scopes] => {
            profile([series, release, emulator], symbols, counts, scopes)
        }
        _ => {
            Err("usage: lock_profile hooks SYMBOLS | profile SERIES RELEASE EMULATOR SYMBOLS COUNTS SCOPES".to_owned())
        }
    };
    match result {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
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

fn read_records(path: &str) -> Result<Vec<records::Run>, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("read {path}: {error}"))?;
    records::runs(&bytes).map_err(|message| format!("{path}: {message}"))
}

fn profile(head: [&str; 3], symbols: &str, counts: &str, scopes: &str) -> Result<String, String> {
    let symbols = read_symbols(symbols)?;
    let counted = read_records(counts)?;
    let mut tallies: Vec<tally::Tally> = counted.iter().map(|run| tally::Tally::of(run, &symbols)).collect();
    let background = tallies
        .iter()
        .position(|tally| tally.operation == "user")
        .ok_or_else(|| format!("{counts}: no operation `user`, whose locks are the background's"))?;
    let background = tallies.remove(background);
    for tally in &mut tallies {
        tally.subtract(&background);
    }
    let scopes = scopes::Scopes::of(&read_records(scopes)?, &symbols);
    Ok(output::profile(head, &background, &tallies, &scopes))
}
