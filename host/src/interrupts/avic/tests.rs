//! Tests of discovery and tables.

use holdfast_abi::cpuid;

use super::*;

#[test]
fn avic_is_off_unless_asked_for_and_there() {
    let part = |features, family| SvmPart { features, family };
    let all = cpuid::SVM_AVIC | cpuid::SVM_NESTED_PAGING | cpuid::SVM_X2AVIC;
    let used = |enable, part| {
        let config = AvicConfig {
            enable,
            part,
            ..AvicConfig::default()
        };
        (config.is_used(), config.uses_x2avic())
    };
    assert_eq!(used(AvicEnable::Off, part(all, 0x19)), (false, false));
    assert_eq!(used(AvicEnable::On, part(all, 0x15)), (true, false));
    assert_eq!(used(AvicEnable::On, part(cpuid::SVM_AVIC, 0x15)), (false, false));
    assert_eq!(used(AvicEnable::On, part(0, 0x15)), (false, false));
    assert_eq!(used(AvicEnable::Auto, part(all, 0x17)), (false, false));
    assert_eq!(used(AvicEnable::Auto, part(all, 0x19)), (true, true));
}

#[test]
fn the_workaround_is_for_the_families_with_the_erratum() {
    let ipiv = |family| {
        let part = SvmPart { features: 0, family };
        AvicConfig {
            part,
            ..AvicConfig::default()
        }
        .ipiv()
    };
    assert_eq!([0x15, 0x17, 0x18, 0x19].map(ipiv), [true, false, false, true]);
}
