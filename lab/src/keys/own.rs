//! Parameters of workloads that a program adds.

use std::collections::BTreeMap;

use holdfast_workloads::{OwnWorkload, Parameter, Workload};

use super::names::Item;
use super::{KEYS, Target};
use crate::diagnostic::one_of;
use crate::draft::{Draft, DraftVm};
use crate::extensions::Extensions;
use crate::slot::Slot;

fn workload(vm: &mut DraftVm) -> Option<&mut OwnWorkload> {
    match &mut vm.boot.workload {
        Workload::Own(own) => Some(own),
        _ => None,
    }
}

/// Returns the parameter that `item` names, if its guest has it.
pub(super) fn parameter<'d>(draft: &'d mut Draft, item: &Item) -> Option<Parameter<'d>> {
    let own = workload(&mut draft.vms[item.instance])?;
    own.parameters.iter_mut().find(|parameter| parameter.name == item.name)
}

/// Returns what the guest of `item` could take instead of it. `None` if it has no parameters or the key is another.
pub(super) fn needs(draft: &mut Draft, item: &Item) -> Option<String> {
    if !matches!(KEYS[item.key].target, Target::Own) {
        return None;
    }
    let own = workload(&mut draft.vms[item.instance])?;
    let of = own.name();
    let names: Vec<&str> = own.parameters.iter_mut().map(|parameter| parameter.name).collect();
    let known = one_of(&item.name, names.iter().copied());
    (!names.is_empty()).then(|| format!("a parameter of \"{of}\", {known}"))
}

/// Returns the paths and values of all parameters. A path has `*` where all guests that have the parameter agree.
pub(super) fn shown(draft: &mut Draft) -> Vec<(String, String)> {
    let mut by_name: BTreeMap<&str, Vec<(String, String)>> = BTreeMap::new();
    for vm in &mut draft.vms {
        let name = vm.name.clone();
        for parameter in workload(vm).into_iter().flat_map(|own| own.parameters.iter_mut()) {
            let value = Slot::of(parameter.place).show();
            by_name.entry(parameter.name).or_default().push((name.clone(), value));
        }
    }
    let mut shown = Vec::new();
    for (parameter, values) in by_name {
        let path = |vm: &str| format!("vm.{vm}.own.{parameter}");
        let (_, first) = &values[0];
        if values.iter().all(|(_, value)| value == first) {
            shown.push((path("*"), first.clone()));
            continue;
        }
        shown.extend(values.into_iter().map(|(vm, value)| (path(&vm), value)));
    }
    shown
}

/// Says of each parameter what it is and takes.
pub(super) fn about(with: Extensions) -> String {
    let about = |workload: &OwnWorkload| {
        let mut parameters = workload.parameters.clone();
        let about = |parameter: Parameter<'_>| {
            let (name, about, range) = (parameter.name, parameter.about, parameter.range);
            let slot = Slot::of(parameter.place);
            let (kind, default) = (slot.kind(range), slot.show());
            format!(
                "`{name}` of \"{}\": {about}; {kind}, default {default}.",
                workload.name()
            )
        };
        parameters.iter_mut().map(about).collect::<Vec<_>>()
    };
    with.workloads.iter().flat_map(about).collect::<Vec<_>>().join(" ")
}
