//! How an idle CPU waits: by HLT, by MWAIT, in a loop, or in a loop for a while and then by HLT.

use holdfast_guest::{Config, Fork, Idle, Start};
use holdfast_host::VmConfig;

use crate::machine::{Setup, counter, run};

/// A millisecond in nanoseconds.
const MS: u64 = 1_000_000;

/// Every way to wait, by name.
pub fn ways() -> [(&'static str, Setup); 4] {
    let way = |idle, cpu_pm, poll_control| Setup {
        kernel: Config {
            idle,
            ..Config::default()
        },
        host: VmConfig {
            cpu_pm,
            poll_control,
            ..VmConfig::default()
        },
        ..Setup::default()
    };
    [
        ("hlt", way(Idle::Halt, false, false)),
        ("mwait", way(Idle::Halt, true, false)),
        ("poll", way(Idle::Poll, false, false)),
        ("haltpoll", way(Idle::HaltPoll, false, true)),
    ]
}

#[test]
fn only_a_cpu_that_polls_for_good_never_halts_and_keeps_its_tick() {
    for (way, setup) in ways() {
        let setup = Setup {
            pcpus: 2,
            vcpus: 2,
            ..setup
        };
        let counters = |sleeps: u64| {
            let outcome = run(&setup, move |os, _| {
                os.wait_for_cpus();
                os.begin();
                (0..sleeps).for_each(|_| os.sleep(100 * MS));
                os.done(None);
            });
            ["guest.ticks", "guest.idle_halts", "halt_exits"].map(|name| counter(&outcome, name))
        };
        // What ten sleeps of 100 ms add.
        let (few, many) = (counters(2), counters(12));
        let [ticks, halts, exits] = [0, 1, 2].map(|index| many[index] - few[index]);
        assert_eq!((1_990..2_010).contains(&ticks), way == "poll", "{way}: {ticks} ticks");
        assert_eq!(ticks < 20, way != "poll", "{way}: {ticks} ticks");
        assert_eq!(halts == 0, way == "poll", "{way}");
        assert!(halts < 40, "{way}: {halts} halts");
        assert_eq!(exits == 0, ["poll", "mwait"].contains(&way), "{way}: {exits} exits");
    }
}

#[test]
fn a_cpu_that_watches_its_word_is_woken_without_an_interrupt() {
    // Each second wakeup is for a task on another CPU, which is idle.
    const ROUNDS: u64 = 100;
    for (way, setup) in ways() {
        let outcome = run(&setup, |os, start| match start.role {
            0 => {
                os.wait_for_cpus();
                os.begin();
                os.fork(Fork::Share, Start::new(1, 0));
                for _ in 0..ROUNDS {
                    os.user(30_000);
                    os.semaphore_up(0, 0);
                    os.semaphore_down(0, 1);
                }
                os.wait();
                os.done(None);
            }
            _ => {
                for _ in 0..ROUNDS {
                    os.semaphore_down(0, 0);
                    os.user(30_000);
                    os.semaphore_up(0, 1);
                }
            }
        });
        let ipis = counter(&outcome, "guest.reschedule_ipis");
        let is_watched = way != "hlt";
        assert_eq!(
            ipis < ROUNDS,
            is_watched,
            "{way}: {ipis} interrupts for {} wakeups",
            2 * ROUNDS
        );
        let elapsed = outcome.vms[0].elapsed_ns.expect("measured");
        assert!(elapsed < ROUNDS * 100_000, "{way}: {elapsed} ns");
    }
}

#[test]
fn a_host_that_polls_itself_is_not_asked_to_stop() {
    let halts = |poll_control| {
        let [.., (_, mut setup)] = ways();
        setup.host.poll_control = poll_control;
        let outcome = run(&setup, |os, _| {
            os.wait_for_cpus();
            os.begin();
            (0..50).for_each(|_| os.sleep(30_000));
            os.done(None);
        });
        counter(&outcome, "guest.idle_halts")
    };
    // Without the offer each sleep is a halt. With it, most end while the CPU polls.
    let (without, with) = (halts(false), halts(true));
    assert!(without >= 50, "{without} halts");
    assert!(with + 30 < without, "{with} halts, {without} without polling");
}

#[test]
fn a_cpu_that_is_about_to_halt_is_woken_without_an_interrupt() {
    const ROUNDS: u64 = 40;
    // Two tasks on two CPUs meet every 40 µs. The first comes `late` nanoseconds later than the other, which has then
    // gone to sleep, and whose CPU is on its way to HLT or halts.
    let counters = |late: u64| {
        let setup = Setup {
            pcpus: 2,
            vcpus: 2,
            ..Setup::default()
        };
        let outcome = run(&setup, move |os, start| {
            let meet = |round: u64| {
                let at = 10 * MS + round * 40_000 + if start.role == 0 { late } else { 0 };
                while os.now() < at {
                    os.user((at - os.now()).min(1_000));
                }
            };
            match start.role {
                0 => {
                    os.wait_for_cpus();
                    os.begin();
                    os.fork(Fork::Share, Start::new(1, 0));
                    for round in 0..ROUNDS {
                        meet(round);
                        os.semaphore_up(0, 0);
                    }
                    os.wait();
                    os.done(None);
                }
                _ => {
                    for round in 0..ROUNDS {
                        meet(round);
                        os.semaphore_down(0, 0);
                    }
                }
            }
        });
        ["guest.wakeups", "guest.idle_halts", "guest.reschedule_ipis"].map(|name| counter(&outcome, name))
    };
    let [wakeups, halts, ipis] = counters(1_500);
    assert!(
        wakeups >= ROUNDS && halts < 10 && ipis < 10,
        "{wakeups} wakeups, {halts} halts, {ipis} interrupts"
    );
    let [wakeups, halts, ipis] = counters(4_000);
    assert!(
        wakeups >= ROUNDS && halts >= ROUNDS && ipis >= ROUNDS,
        "{wakeups}, {halts} halts, {ipis} interrupts"
    );
}
