//! `[[idle_states]]` of a machine profile: how deep a pCPU sleeps, and how long it needs to wake up.

use holdfast_machine::IdleState;

use super::{Cost, read_cost};
use crate::document::Reader;

/// An idle state of a CPU model, as stated in a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct IdleProfile {
    /// Name, for example `C1E`.
    pub name: String,
    /// Time from an interrupt to the first instruction.
    pub exit: Cost,
    /// Shortest idle time for which the kernel enters the state.
    pub residency: Cost,
}

/// Returns the states in order of depth, or `None` if a time is too large.
pub(super) fn build(states: &[IdleProfile], frequency_hz: u64) -> Option<Vec<IdleState>> {
    let built = states.iter().map(|state| {
        Some(IdleState {
            exit: state.exit.amount.picos(frequency_hz)?,
            residency: state.residency.amount.picos(frequency_hz)?,
        })
    });
    built.collect()
}

/// Reads the tables, of which there may be none. Returns `None` after a mistake in them.
pub(super) fn read(reader: &mut Reader<'_, '_>) -> Option<Vec<IdleProfile>> {
    let mut states: Vec<IdleProfile> = Vec::new();
    let mut is_whole = true;
    for (table, place) in reader.tables("idle_states") {
        let mut inner = Reader::new(table, place.clone(), reader.findings());
        let (name, exit, residency) = (
            inner.text("name"),
            read_cost(&mut inner, "exit"),
            read_cost(&mut inner, "residency"),
        );
        inner.finish();
        let (Some(name), Some(exit), Some(residency)) = (name, exit, residency) else {
            is_whole = false;
            continue;
        };
        let picos = |cost: &Cost| cost.amount.picos(1_000_000_000);
        let is_shallower =
            |state: &IdleProfile| picos(&exit) < picos(&state.exit) || picos(&residency) <= picos(&state.residency);
        if states.last().is_some_and(is_shallower) {
            let expected = "a deeper state than the one before: a longer residency, and no shorter exit";
            reader
                .findings()
                .add(place, table.path.clone(), format!("{name:?}"), expected);
            is_whole = false;
        }
        states.push(IdleProfile {
            name: name.to_owned(),
            exit,
            residency,
        });
    }
    is_whole.then_some(states)
}
