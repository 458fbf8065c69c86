//! Parameters of workloads and guest policies that a program adds.

use std::collections::BTreeMap;

use holdfast_workloads::{Parameter, Parameters, Workload};

use crate::diagnostic::one_of;
use crate::draft::{Draft, DraftVm};
use crate::extensions::Extensions;
use crate::slot::Slot;

/// Returns the parameters of a guest's workload and of its policy. Of two with one name, the workload's is set.
fn of_guest(vm: &mut DraftVm) -> impl Iterator<Item = Parameter<'_>> {
    let workload = match &mut vm.boot.workload {
        Workload::Own(own) => Some(own.parameters.iter_mut()),
        _ => None,
    };
    let policy = vm.boot.kernel.policy.parameters.iter_mut();
    workload.into_iter().flatten().chain(policy)
}

/// Returns the parameter `name` of `vm`, if it has it.
pub(super) fn parameter<'v>(vm: &'v mut DraftVm, name: &str) -> Option<Parameter<'v>> {
    of_guest(vm).find(|parameter| parameter.name == name)
}

/// Returns what `vm` could take instead of `name`. `None` if it has no parameters.
pub(super) fn needs(vm: &mut DraftVm, name: &str) -> Option<String> {
    let of = format!(
        "\"{}\" and \"{}\"",
        vm.boot.workload.name(),
        vm.boot.kernel.policy.name()
    );
    let names: Vec<&str> = of_guest(vm).map(|parameter| parameter.name).collect();
    let known = one_of(name, names.iter().copied());
    (!names.is_empty()).then(|| format!("a parameter of {of}, {known}"))
}

/// Returns the paths and values of all parameters. A path has `*` where all guests that have the parameter agree.
pub(super) fn shown(draft: &mut Draft) -> Vec<(String, String)> {
    let mut by_name: BTreeMap<&str, Vec<(String, String)>> = BTreeMap::new();
    for vm in &mut draft.vms {
        let name = vm.name.clone();
        for parameter in of_guest(vm) {
            let of_name = by_name.entry(parameter.name).or_default();
            if of_name.last().is_none_or(|(last, _)| *last != name) {
                of_name.push((name.clone(), Slot::of(parameter.place).show()));
            }
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
    let about = |of: &str, parameters: &Parameters| {
        let about = |parameter: Parameter<'_>| {
            let (name, about, range) = (parameter.name, parameter.about, parameter.range);
            let slot = Slot::of(parameter.place);
            let (kind, default) = (slot.kind(range), slot.show());
            format!("`{name}` of \"{of}\": {about}; {kind}, default {default}.")
        };
        parameters.clone().iter_mut().map(about).collect::<Vec<_>>()
    };
    let workloads = with.workloads.iter().flat_map(|of| about(of.name(), &of.parameters));
    let policies = with
        .guest_policies
        .iter()
        .flat_map(|of| about(of.name(), &of.parameters));
    workloads.chain(policies).collect::<Vec<_>>().join(" ")
}
