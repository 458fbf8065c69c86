//! IPIs under APICv in virtual time: each arrives once, senders do not exit where hardware sends, and planted faults
//! lose some.

use holdfast_host::apicv::posting::PostingFaults;
use holdfast_machine::{ApicvModel, Picos};
use holdfast_sim::Config;

use crate::avic::{Wait, counter, storm};
use crate::image::config;

pub fn part(ipiv: bool) -> ApicvModel {
    ApicvModel {
        ipiv,
        register: Picos::from_nanos(10),
        ipi: Picos::from_nanos(50),
        processing: Picos::from_nanos(100),
        exit: Picos::from_nanos(200),
    }
}

/// A machine whose host uses APICv, with or without IPI virtualization.
pub fn apicv_config(ipiv: bool, pcpus: u32, vcpus: u32, hogs: u32, seed: u64) -> Config {
    let mut config = config(pcpus, vcpus, hogs, seed);
    config.machine.apicv = Some(part(ipiv));
    config.host.apicv.enable = true;
    config.limit_ns = 2_000_000_000;
    config
}

#[test]
fn ipis_take_no_exit_whether_their_targets_run_or_sleep() {
    for wait in [Wait::Spin, Wait::Halt] {
        let outcome = storm(&apicv_config(true, 2, 2, 0, 1), 500, wait).expect("nothing is lost");
        assert_eq!(counter(&outcome, "apicv_ipis_without_exit"), 2000, "{wait:?}");
        assert_eq!(counter(&outcome, "apicv_interrupts"), 2000, "{wait:?}");
        assert_eq!(counter(&outcome, "apicv_write"), 2, "{wait:?}: SVR of each");
        assert_eq!(counter(&outcome, "irq_injections"), 0);
        assert_eq!(counter(&outcome, "insn_emulation"), 0);
        assert_eq!(counter(&outcome, "posted_wakeups") > 0, wait == Wait::Halt);
    }
}

#[test]
fn without_ipi_virtualization_senders_exit_and_receivers_do_not() {
    let outcome = storm(&apicv_config(false, 2, 2, 0, 1), 500, Wait::Spin).expect("nothing is lost");
    assert_eq!(counter(&outcome, "apicv_ipis_without_exit"), 0);
    assert_eq!(counter(&outcome, "apicv_write"), 2002, "ICR, and SVR of each");
    assert_eq!(counter(&outcome, "apicv_interrupts"), 2000);
    assert_eq!(counter(&outcome, "irq_injections"), 0);
    let notified = counter(&outcome, "apicv_notified_in_guest");
    assert!(notified > 1000, "{notified} came while the guest ran");
}

#[test]
fn no_ipi_is_lost_or_doubled_whoever_is_preempted_or_halts() {
    for seed in 0..16 {
        let config = apicv_config(seed % 2 == 0, 2 + seed as u32 % 3, 5, seed as u32 % 4, seed);
        let outcome = storm(&config, 60, Wait::Either).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        assert_eq!(counter(&outcome, "apicv_interrupts"), 600, "seed {seed}");
    }
}

#[test]
fn halts_that_poll_see_what_is_posted() {
    let mut config = apicv_config(true, 3, 3, 0, 7);
    config.host.halt_poll_ns = 200_000;
    let outcome = storm(&config, 100, Wait::Halt).expect("nothing is lost");
    assert!(counter(&outcome, "halt_successful_poll") > 50);
}

#[test]
fn histories_under_apicv_are_reproducible() {
    let config = apicv_config(true, 3, 5, 2, 42);
    let hash = || storm(&config, 50, Wait::Either).expect("nothing is lost").history_hash;
    assert_eq!(hash(), hash());
}

#[test]
fn planted_faults_lose_interrupts() {
    let lost = |what: &str, wait: Wait, faults: PostingFaults| {
        let found = (0..8).any(|seed| {
            let mut config = apicv_config(true, 3, 4, 2, seed);
            config.host.planted.posting = faults;
            storm(&config, 60, wait).is_err()
        });
        assert!(found, "{what}: not noticed");
    };
    let none = PostingFaults::default();
    lost(
        "a sleeper with the runner's vector",
        Wait::Halt,
        PostingFaults {
            block_keeps_vector: true,
            ..none
        },
    );
    lost(
        "a destination left behind",
        Wait::Either,
        PostingFaults {
            stale_destination: true,
            ..none
        },
    );
    lost(
        "a load that does not look",
        Wait::Either,
        PostingFaults {
            load_without_look: true,
            ..none
        },
    );
}
