//! Pause-loop detection and handling of this host's KVM, by its modules' parameters and its kernel's version.

use std::path::Path;

use holdfast_host::PauseHandling;
use holdfast_lab::amount::Amount;
use holdfast_lab::profile::PauseDetection;

use crate::doctor::{Files, kernel_version};

/// Returns the detector's settings from the parameters of the KVM modules. Without such a module detection is off.
pub fn of_this_host() -> PauseDetection {
    of(&Files::new(Path::new("/")))
}

fn of(files: &Files) -> PauseDetection {
    let number = |module: &str, name: &str| {
        let value = files.number(&format!("/sys/module/{module}/parameters/{name}"))?;
        u32::try_from(value).ok().filter(|&number| number > 0)
    };
    let intel = number("kvm_intel", "ple_gap").zip(number("kvm_intel", "ple_window"));
    let amd = number("kvm_amd", "pause_filter_count");
    match (intel, amd) {
        (Some((gap, window)), _) => PauseDetection::Ple {
            enabled: true,
            gap: Amount::from_cycles(gap),
            window: Amount::from_cycles(window),
        },
        (None, Some(count)) => PauseDetection::Filter {
            enabled: true,
            count,
            threshold: Amount::from_cycles(number("kvm_amd", "pause_filter_thresh").unwrap_or(0)),
        },
        (None, None) if files.exists("/sys/module/kvm_amd") => PauseDetection::amd(false),
        (None, None) => PauseDetection::intel(false),
    }
}

/// Returns the handling of pause exits and of kicks in kernel `version`: that of the latest known version which is not
/// newer.
pub fn handling(version: Option<(u32, u32)>) -> PauseHandling {
    let since = |name: &str| kernel_version(name.strip_prefix("linux-")?);
    let known = PauseHandling::PRESETS.iter().rev();
    let known = known.filter_map(|(name, handling)| Some((since(name)?, *handling)));
    let mut known = known.filter(|(since, _)| version.is_none_or(|version| *since <= version));
    known.next().map_or(PauseHandling::NONE, |(_, handling)| handling)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn host(files: &[(&str, &str)]) -> PauseDetection {
        let root = crate::scratch();
        for (path, text) in files {
            let path = root.path().join("sys/module").join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
            fs::write(path, text).expect("writable");
        }
        of(&Files::new(root.path()))
    }

    #[test]
    fn detection_is_as_the_modules_set_it_and_off_without_settings() {
        let intel = [
            ("kvm_intel/parameters/ple_gap", "128\n"),
            ("kvm_intel/parameters/ple_window", "4096\n"),
        ];
        assert_eq!(host(&intel), PauseDetection::intel(true));
        let amd = [
            ("kvm_amd/parameters/pause_filter_count", "3000\n"),
            ("kvm_amd/parameters/pause_filter_thresh", "128\n"),
        ];
        assert_eq!(host(&amd), PauseDetection::amd(true));
        assert!(!host(&[("kvm_amd/parameters/pause_filter_count", "0\n")]).enabled());
        assert!(!host(&[("kvm_intel/parameters/ple_gap", "0\n"), intel[1]]).enabled());
        assert!(!host(&[]).enabled());
    }

    #[test]
    fn kicks_yield_since_5_4_and_not_before() {
        for (version, kick_yields) in [
            ((2, 6), false),
            ((4, 19), false),
            ((5, 3), false),
            ((5, 4), true),
            ((6, 1), true),
            ((7, 2), true),
        ] {
            assert_eq!(handling(Some(version)).kick_yields, kick_yields, "{version:?}");
        }
    }
}
