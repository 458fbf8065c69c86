//! Serializes a lock by its name (for serde's `with`), where parameters travel to another program.

use alloc::string::String;

use holdfast_locks::LockKind;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

/// Writes the lock's name.
///
/// # Errors
/// Fails if the serializer fails.
pub fn serialize<S: Serializer>(kind: &LockKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.name())
}

/// Reads a lock's name.
///
/// # Errors
/// Fails if no lock has that name, or if the deserializer fails.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LockKind, D::Error> {
    let name = String::deserialize(deserializer)?;
    name.parse().map_err(D::Error::custom)
}
