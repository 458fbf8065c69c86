//! Tests of discovery and tables.

use holdfast_abi::cpuid;

use super::*;

#[test]
fn avic_is_off_unless_asked_for_and_there() {
    let part = |features, family| SvmPart {
        features,
        family,
        extended_tables: false,
    };
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
    let first = |enable| AvicConfig {
        enable,
        x2avic: true,
        part: part(all, 0x19),
        driver: AvicDriver::Linux4_7,
        ..AvicConfig::default()
    };
    assert!(!first(AvicEnable::Auto).is_used(), "a choice of later kernels");
    assert!(first(AvicEnable::On).is_used() && !first(AvicEnable::On).uses_x2avic());
}

#[test]
fn tables_are_as_large_as_the_mode_and_the_cpu_allow() {
    let max = |x2avic, extended_tables| {
        let part = SvmPart {
            features: cpuid::SVM_AVIC | cpuid::SVM_NESTED_PAGING | cpuid::SVM_X2AVIC,
            extended_tables,
            ..SvmPart::default()
        };
        let config = AvicConfig {
            enable: AvicEnable::On,
            x2avic,
            part,
            ..AvicConfig::default()
        };
        config.max_id()
    };
    assert_eq!([max(false, true), max(true, false), max(true, true)], [254, 511, 4095]);
}

#[test]
fn the_workaround_is_for_the_families_with_the_erratum() {
    let ipiv = |driver, family| {
        let part = SvmPart {
            family,
            ..SvmPart::default()
        };
        AvicConfig {
            part,
            driver,
            ..AvicConfig::default()
        }
        .ipiv()
    };
    let families = [0x15, 0x17, 0x18, 0x19];
    let now = families.map(|family| ipiv(AvicDriver::Now, family));
    assert_eq!(now, [true, false, false, true]);
    let first = families.map(|family| ipiv(AvicDriver::Linux4_7, family));
    assert_eq!(first, [true; 4], "the driver of 4.7 does not know the erratum");
}
