//! Checks for features that the host should use and the machine lacks.

use crate::diagnostic::{Findings, Place};
use crate::draft::Draft;
use holdfast_host::AvicEnable;

/// Reports features that `draft` asks for and the CPU model lacks, since a run would silently measure without them.
/// `asked`: whether a key was set explicitly.
pub(super) fn check(draft: &Draft, asked: &dyn Fn(&str) -> Option<Place>, findings: &mut Findings) {
    let (machine, host) = (&draft.machine, &draft.host);
    let avic = machine.avic.as_ref();
    let apicv = machine.apicv.as_ref();
    let wants = [
        (
            "host.avic",
            host.avic.enable == AvicEnable::On && avic.is_none(),
            "AVIC",
            "off, auto, or a machine with [avic]",
        ),
        (
            "host.x2avic",
            host.avic.x2avic && avic.is_none_or(|avic| !avic.x2avic),
            "x2AVIC",
            "false, or a machine with x2avic in [avic]",
        ),
        (
            "host.apicv",
            host.apicv.enable && apicv.is_none(),
            "APICv",
            "false, or a machine with [apicv]",
        ),
        (
            "host.ipiv",
            host.apicv.ipiv && apicv.is_none_or(|apicv| !apicv.ipiv),
            "IPI virtualization",
            "false, or a machine with ipiv in [apicv]",
        ),
    ];
    for (key, lacks, what, expected) in wants {
        if let Some(place) = asked(key).filter(|_| lacks) {
            let found = format!("{what}, which machine {:?} has not", machine.name);
            findings.add(&place, key, found, expected);
        }
    }
}
