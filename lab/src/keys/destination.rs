//! The keys of the other host to which guests migrate.

use crate::keys::Key;

/// What the path of each key of the other host begins with.
pub(crate) const TO: &str = "host.migration.to.";
/// Keys of the machine that the other host can have of its own.
const OF_MACHINE: [&str; 8] = [
    "profile",
    "cpu",
    "ple",
    "ple_gap",
    "ple_window",
    "pause_filter",
    "pause_filter_count",
    "pause_filter_threshold",
];

/// Returns the path of the key of the other host that sets what `key` sets of the first one. `None` if both hosts have
/// the same.
pub(crate) fn path_at_destination(key: &Key) -> Option<String> {
    let host = key.path.strip_prefix("host.");
    let host = host.filter(|rest| key.is_of_host() && !rest.starts_with("migration."));
    let machine = key
        .path
        .strip_prefix("machine.")
        .filter(|rest| OF_MACHINE.contains(rest));
    host.or(machine).map(|rest| format!("{TO}{rest}"))
}
