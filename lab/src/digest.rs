//! Hashes that are the same on every machine.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher13};

/// Returns a hash of `parts`, the same in every build on every machine.
pub(crate) fn hash(parts: &[impl AsRef<[u8]>]) -> u128 {
    let mut hasher = SipHasher13::new();
    for part in parts.iter().map(AsRef::as_ref) {
        hasher.write(&(part.len() as u64).to_le_bytes());
        hasher.write(part);
    }
    hasher.finish128().as_u128()
}

/// Returns the hash of `parts` as text.
pub fn digest(parts: &[impl AsRef<[u8]>]) -> String {
    format!("{:032x}", hash(parts))
}
