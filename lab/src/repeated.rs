//! Guests that repeat the threads of a recorded host.

use holdfast_workloads::{Recorded, RecordedHost, recorded_fault};

use crate::units::digest;

/// What the key takes.
pub const EXPECTED: &str = "a file that `holdfast import --threads` has written, and at scale 1";

/// Fills `recorded`, a guest of `vcpus` vCPUs, with the threads of its guest in the file with this `text`.
///
/// # Errors
/// Returns what was found instead of such a file.
pub fn fill(recorded: &mut Recorded, text: &str, vcpus: u32) -> Result<(), String> {
    let host: RecordedHost = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if host.schema != RecordedHost::SCHEMA {
        return Err(format!(
            "schema {:?} in place of {:?}",
            host.schema,
            RecordedHost::SCHEMA
        ));
    }
    let Some(threads) = host.guests.get(&recorded.guest) else {
        let names: Vec<&str> = host.guests.keys().map(String::as_str).collect();
        return Err(format!("no guest {:?}, but {}", recorded.guest, names.join(", ")));
    };
    if threads.len() > vcpus as usize {
        return Err(format!(
            "{} threads of {:?} for {vcpus} vCPUs",
            threads.len(),
            recorded.guest
        ));
    }
    if let Some(fault) = recorded_fault(threads) {
        return Err(fault);
    }
    recorded.threads = threads.as_slice().into();
    recorded.digest = digest(&[text]);
    Ok(())
}
