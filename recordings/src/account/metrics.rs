//! An account as text for Prometheus ("text-based format", version 0.0.4).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::document::Account;
use super::figure::{Basis, Figure};

/// Returns `text` as the value of a label.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Returns all figures that are not unknown, one metric for each name, with labels for the VM, the vCPU and how far it
/// can be believed.
pub fn metrics(account: &Account) -> String {
    let mut rows: BTreeMap<&str, String> = BTreeMap::new();
    let mut add = |labels: &str, figures: &[Figure]| {
        for figure in figures {
            let Some(value) = figure.value else { continue };
            let basis = if figure.basis == Basis::Known {
                "known"
            } else {
                "inferred"
            };
            let text = rows.entry(figure.name).or_default();
            // A text grows.
            let _ = writeln!(text, "holdfast_{}{{{labels},basis=\"{basis}\"}} {value}", figure.name);
        }
    };
    for vm in &account.vms {
        let process = vm.process.map_or_else(String::new, |process| process.to_string());
        let of_vm = format!("vm=\"{}\",process=\"{process}\"", label(&vm.name));
        add(&format!("{of_vm},vcpu=\"\",thread=\"\""), &vm.figures);
        for vcpu in &vm.vcpus {
            let number = vcpu.number.map_or_else(String::new, |number| number.to_string());
            add(
                &format!("{of_vm},vcpu=\"{number}\",thread=\"{}\"", vcpu.thread),
                &vcpu.figures,
            );
        }
    }
    let mut text = String::new();
    for (name, rows) in rows {
        let _ = write!(text, "# TYPE holdfast_{name} gauge\n{rows}");
    }
    for (name, count) in [
        ("lost_events", account.faults.lost_events),
        ("gaps", account.faults.gaps),
        ("events", account.seen.events),
    ] {
        let _ = writeln!(
            text,
            "# TYPE holdfast_recording_{name} gauge\nholdfast_recording_{name} {count}"
        );
    }
    text
}
