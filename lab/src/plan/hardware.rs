//! Checks for features that the host should use and the machine lacks.

use holdfast_host::{AvicDriver, AvicEnable};
use holdfast_machine::{CpuModel, PauseHardware};

use crate::diagnostic::{Findings, Place};
use crate::draft::Draft;

/// Reports features that `draft` asks for and the CPU model lacks, since a run would silently measure without them.
/// `asked`: whether a key was set explicitly.
pub(super) fn check(draft: &Draft, asked: &dyn Fn(&str) -> Option<Place>, findings: &mut Findings) {
    let (machine, host) = (&draft.machine, &draft.host);
    // A profile that states no costs of a feature cannot have it.
    let avic = machine.cpu.avic.filter(|_| machine.avic.is_some());
    let apicv = machine.cpu.apicv.filter(|_| machine.apicv.is_some());
    let with = |has: fn(&CpuModel) -> bool| {
        let models = CpuModel::ALL.iter().filter(|model| has(model));
        models.map(|model| model.name).collect::<Vec<_>>().join(", ")
    };
    let wants = [
        (
            "host.avic",
            host.avic.enable == AvicEnable::On && avic.is_none(),
            "AVIC",
            "off, auto",
            with(|model| model.avic.is_some()),
        ),
        (
            "host.x2avic",
            host.avic.x2avic && avic.is_none_or(|avic| !avic.hardware.x2avic),
            "x2AVIC",
            "false",
            with(|model| model.avic.is_some_and(|avic| avic.hardware.x2avic)),
        ),
        (
            "host.apicv",
            host.apicv.enable && apicv.is_none(),
            "APICv",
            "false",
            with(|model| model.apicv.is_some()),
        ),
        (
            "host.ipiv",
            host.apicv.ipiv && apicv.is_none_or(|apicv| !apicv.ipiv),
            "IPI virtualization",
            "false",
            with(|model| model.apicv.is_some_and(|apicv| apicv.ipiv)),
        ),
        (
            "host.idle_hlt",
            host.idle_hlt && avic.is_none_or(|avic| !avic.hardware.idle_hlt),
            "the idle HLT intercept",
            "false",
            with(|model| model.avic.is_some_and(|avic| avic.hardware.idle_hlt)),
        ),
        (
            "machine.ple",
            machine.pauses.enabled() && machine.cpu.year > 0 && machine.cpu.pauses.is_none(),
            "PLE",
            "false",
            with(|model| model.pauses == Some(PauseHardware::Ple)),
        ),
    ];
    for (key, lacks, what, expected, models) in wants {
        if let Some(place) = asked(key).filter(|_| lacks) {
            let (machine, cpu) = (&machine.name, machine.cpu.name);
            let found = format!("{what}, which machine {machine:?} (CPU model {cpu}) has not");
            let expected =
                format!("{expected}, or a CPU model with it (machine.cpu: {models}) and a profile with its costs");
            findings.add(&place, key, found, expected);
        }
    }
    let later = [
        ("host.avic", host.avic.enable == AvicEnable::Auto, "on, off"),
        ("host.x2avic", host.avic.x2avic, "false"),
        ("host.avic_hybrid", host.avic.hybrid, "false"),
    ];
    for (key, wanted, expected) in later {
        let lacks = wanted && host.avic.driver == AvicDriver::Linux4_7;
        if let Some(place) = asked(key).filter(|_| lacks) {
            let found = "a feature that host.avic_driver \"linux-4.7\" does not know".to_owned();
            findings.add(&place, key, found, expected.to_owned());
        }
    }
}
