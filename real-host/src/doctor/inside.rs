//! What this machine is offered, if it is itself a guest, and what it loses by what it is not offered.

use super::check::Check;
use super::features::FEATURES;

/// What the hypervisor below says of itself in CPUID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inside {
    /// Its signature, as `KVMKVMKVM`.
    pub hypervisor: String,
    /// KVM's paravirtual features, leaf 0x40000001 EAX (Documentation/virt/kvm/x86/cpuid.rst). `None` if it is another
    /// hypervisor.
    pub features: Option<u32>,
    /// KVM's hints, EDX of the same leaf.
    pub hints: u32,
}

/// Signature of KVM.
const KVM: &str = "KVMKVMKVM";
/// Hint that vCPUs are never preempted for long (`KVM_HINTS_REALTIME`).
const REALTIME: u32 = 1;
/// The first leaf of a hypervisor. With Hyper-V's interface those of KVM follow in steps of 0x100.
#[cfg(target_arch = "x86_64")]
const LEAVES: std::ops::Range<u32> = 0x4000_0000..0x4001_0000;

/// Asks the CPU. `None` if it is no virtual one.
#[cfg(target_arch = "x86_64")]
pub fn ask() -> Option<Inside> {
    let info = raw_cpuid::CpuId::new().get_feature_info()?;
    if !info.has_hypervisor() {
        return None;
    }
    let signature = |leaf: u32| {
        let found = raw_cpuid::cpuid!(leaf);
        let bytes = [found.ebx, found.ecx, found.edx].map(u32::to_le_bytes).concat();
        let text = String::from_utf8_lossy(&bytes);
        text.trim_end_matches(|letter: char| !letter.is_ascii_graphic())
            .to_owned()
    };
    let kvm = LEAVES.step_by(0x100).find(|leaf| signature(*leaf) == KVM);
    Some(match kvm {
        Some(leaf) => {
            let found = raw_cpuid::cpuid!(leaf + 1);
            Inside {
                hypervisor: KVM.to_owned(),
                features: Some(found.eax),
                hints: found.edx,
            }
        }
        None => Inside {
            hypervisor: signature(LEAVES.start),
            features: None,
            hints: 0,
        },
    })
}

/// Asks the CPU, whose hypervisor leaves are not known.
#[cfg(not(target_arch = "x86_64"))]
pub fn ask() -> Option<Inside> {
    None
}

/// Adds the checks of what this machine is offered, if it is a guest.
pub fn examine(inside: Option<&Inside>, checks: &mut Vec<Check>) {
    let Some(inside) = inside else { return };
    let Some(features) = inside.features else {
        let found = format!("{}, not KVM", inside.hypervisor);
        checks.push(
            Check::unknown("this guest", "hypervisor", found)
                .means("what it offers is not known; the simulator's guests are KVM's"),
        );
        return;
    };
    checks.push(Check::good("this guest", "hypervisor", &inside.hypervisor));
    for (bit, name, lack) in FEATURES {
        checks.push(if features >> bit & 1 == 1 {
            Check::good("this guest", name, "offered to this machine")
        } else {
            Check::lacking("this guest", name, "not offered to this machine")
                .means(lack)
                .change("on the host below: expose it (QEMU: -cpu host, or the feature by name), or use a newer kernel")
        });
    }
    if inside.hints & REALTIME != 0 {
        checks.push(
            Check::note("this guest", "hint of dedicated CPUs", "set")
                .means("the kernel spins where it would halt: right only if the vCPUs are pinned and alone"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    fn checks(features: Option<u32>, hints: u32) -> Vec<Check> {
        let inside = Inside {
            hypervisor: if features.is_some() { KVM } else { "XenVMMXenVMM" }.to_owned(),
            features,
            hints,
        };
        let mut checks = Vec::new();
        examine(Some(&inside), &mut checks);
        checks
    }

    #[test]
    fn each_feature_that_is_not_offered_has_its_price() {
        for bit in 0..32 {
            let checks = checks(Some(!(1 << bit)), 0);
            let lacking: Vec<&Check> = checks
                .iter()
                .filter(|check| check.verdict == Verdict::Lacking)
                .collect();
            let known = FEATURES.iter().find(|(known, _, _)| *known == bit);
            assert_eq!(
                lacking.iter().map(|check| check.name).collect::<Vec<_>>(),
                Vec::from_iter(known.map(|row| row.1))
            );
            assert!(
                lacking
                    .iter()
                    .all(|check| check.means.is_some() && check.change.is_some())
            );
        }
    }

    #[test]
    fn another_hypervisor_and_bare_metal_are_told_apart() {
        let other = checks(None, 0);
        assert_eq!((other.len(), other[0].verdict), (1, Verdict::Unknown));
        let mut none = Vec::new();
        examine(None, &mut none);
        assert!(none.is_empty(), "{none:?}");
        assert!(
            checks(Some(!0), REALTIME)
                .iter()
                .any(|check| check.name.contains("dedicated"))
        );
    }

    #[test]
    fn the_cpu_answers_with_a_signature() {
        if let Some(inside) = ask() {
            assert!(inside.hypervisor.len() <= 12, "{inside:?}");
            assert_eq!(inside.features.is_some(), inside.hypervisor == KVM, "{inside:?}");
        }
    }
}
