//! Serializes a lock by its name (for serde's `with`), where parameters travel to another program.

use core::fmt;

use holdfast_locks::LockKind;
use serde::de::{Error, Visitor};
use serde::{Deserializer, Serializer};

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
    deserializer.deserialize_str(Name)
}

/// Visits the name where it lies, without an allocation: a kernel decodes its parameters before it has a heap.
struct Name;

impl Visitor<'_> for Name {
    type Value = LockKind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a lock")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<LockKind, E> {
        name.parse().map_err(E::custom)
    }
}
