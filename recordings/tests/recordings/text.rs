//! Text of `perf script`, of `trace-cmd report` and of tracefs.

use std::io::Cursor;

use holdfast_recordings::event::{Event, Left, What};
use holdfast_recordings::read::{Fault, ReadError, Recording, read};
use proptest::prelude::{ProptestConfig, any, prop, proptest};

fn recording(text: &str) -> Recording {
    read(Cursor::new(text.to_owned().into_bytes())).expect("a recording")
}

fn events(text: &str) -> Vec<Event> {
    recording(text).map(|event| event.expect("an event")).collect()
}

fn errors(text: &str) -> Vec<ReadError> {
    recording(text).filter_map(Result::err).collect()
}

/// The same two events as perf, trace-cmd and tracefs print them.
pub const PERF: &str = "
       CPU 0/KVM  1201/1234  [003]  12.000001500: sched:sched_switch: prev_comm=CPU 0/KVM prev_pid=1234 prev_prio=120 \
    prev_state=R+ ==> next_comm=vhost [1] next_pid=77 next_prio=100
     vhost [1]    77/77    [003]  12.000002000:   kvm:kvm_entry: vcpu 1, rip 0x10
";
pub const TRACE_CMD: &str = "cpus=4
       CPU 0/KVM-1234  [003]    12.000001500: sched_switch:         CPU 0/KVM:1234 [120] R+ ==> vhost [1]:77 [100]
       vhost [1]-77    [003]    12.000002000: kvm_entry:            vcpu 1, rip 0x10
";
pub const TRACEFS: &str = "# tracer: nop
       CPU 0/KVM-1234    (   1201) [003] d..2.    12.000001500: sched_switch: prev_comm=CPU 0/KVM prev_pid=1234 \
    prev_prio=120 prev_state=R+ ==> next_comm=vhost [1] next_pid=77 next_prio=100
       vhost [1]-77      (-------) [003] d..1.    12.000002000: kvm_entry: vcpu 1, rip 0x10
";

#[test]
fn all_tools_print_the_same_events() {
    let switch = Event {
        at: 12_000_001_500,
        cpu: 3,
        thread: 1234,
        what: What::Switch {
            prev: 1234,
            prev_name: "CPU 0/KVM".into(),
            left: Left::Ready,
            next: 77,
            next_name: "vhost [1]".into(),
            next_prio: 100,
        },
    };
    let entry = Event {
        at: 12_000_002_000,
        thread: 77,
        what: What::Entry { vcpu: 1 },
        ..switch
    };
    for text in [PERF, TRACE_CMD, TRACEFS] {
        let mut found = events(text);
        if text.contains("/1234") || text.contains("(   1201)") {
            let named = found.remove(0).what;
            let (process, name) = (Some(1201), "CPU 0/KVM".into());
            assert_eq!(
                named,
                What::Named {
                    named: 1234,
                    process,
                    name
                }
            );
        }
        assert_eq!(found, [switch, entry], "{text}");
    }
    assert_eq!(recording(TRACE_CMD).header().cpus, Some(4));
}

/// What perf-prof prints: flags are before the CPU, and a date may be before all.
#[test]
fn flags_may_be_before_the_cpu() {
    let text = "2021-12-12 16:11:10.214139            <...> 206966 .N.. [017] 15504452.408994: \
        kvm:kvm_exit: reason HLT\n\
        \u{20}2023-06-08 14:53:11.5   <idle>      0 d... [024] 15504453.0: \
        sched:sched_switch: swapper/24:0 [120] R ==> a:9 [120]\n";
    let found: Vec<_> = events(text).iter().map(|event| (event.thread, event.cpu)).collect();
    assert_eq!(found, [(206_966, 17), (0, 24)]);
    // Such words are names, too, and the number is then the thread.
    assert_eq!(events(" 12 dd.. 77 [003] 1.0: kvm:kvm_entry: vcpu 1\n")[0].thread, 77);
}

#[test]
fn a_comment_is_no_event() {
    let event = "swapper     0 [002]  1.0: sched:sched_migrate_task: comm=a pid=1 prio=120 orig_cpu=1 dest_cpu=0\n";
    assert_eq!(events(&format!("# {event} {event}")).len(), 1);
}

fn only(event: &str) -> What {
    events(&format!(" a 1 [000] 1.0: {event}\n"))[0].what
}

#[test]
fn what_kvm_prints_is_read() {
    let exit = |vcpu, reason, isa| What::Exit { vcpu, reason, isa };
    assert_eq!(
        only("kvm:kvm_exit: vcpu 2 reason PAUSE_INSTRUCTION rip 0x1 info1 0x0"),
        exit(Some(2), 40, 1)
    );
    assert_eq!(only("kvm_exit: reason PF excp rip 0x1 info 0 0"), exit(None, 0x4e, 2));
    assert_eq!(
        only("kvm_exit: vcpu 0 reason TASK_SWITCH FAILED_VMENTRY rip 0x1"),
        exit(Some(0), 9, 1)
    );
    assert_eq!(only("kvm_exit: vcpu 0 reason 0x99 rip 0x1"), exit(Some(0), 0x99, 0));
    assert_eq!(
        only("kvm_exit: vcpu 0 reason EXTERNAL_INTERRUPT intr_info 0x800000ec"),
        exit(Some(0), 1, 1)
    );
    assert_eq!(
        only("kvm_exit: vcpu 0 reason DR_ACCESS info1 0x0000000000000216"),
        exit(Some(0), 29, 1)
    );
    let halt = |ns, slept, valid| What::HaltEnd { ns, slept, valid };
    assert_eq!(
        only("kvm_vcpu_wakeup: wait time 4000 ns, polling valid"),
        halt(4000, true, true)
    );
    assert_eq!(
        only("kvm_vcpu_wakeup: poll time 1 ns, polling invalid"),
        halt(1, false, false)
    );
    let kick = What::Hypercall { nr: 5, args: [0, 3] };
    assert_eq!(only("kvm_hypercall: nr 0x5 a0 0x0 a1 0x3 a2 0x0 a3 0x0"), kick);
    let ipi = What::Ipi {
        icr_low: 0xfd | 1 << 11 | 1 << 14 | 3 << 18,
        destination: 0x1f,
    };
    assert_eq!(
        only("kvm_apic_ipi: dst 1f vec 253 (Fixed|logical|assert|edge|all-but-self)"),
        ipi
    );
    let taken = What::Interrupt { apic: 0xa, vector: 236 };
    assert_eq!(only("kvm_apic_accept_irq: apicid a vec 236 (Fixed|edge)"), taken);
    assert_eq!(only("kvm_inj_virq: IRQ 0xec"), What::Injected { vector: 236 });
    assert_eq!(only("kvm_inj_virq: irq 236"), What::Injected { vector: 236 });
    let msr = What::Msr {
        number: 0x830,
        value: 0x1_0000_00fd,
        write: true,
    };
    assert_eq!(only("kvm_msr: msr_write 830 = 0x1000000fd"), msr);
    assert_eq!(
        only("kvm_userspace_exit: reason KVM_EXIT_IO (2)"),
        What::UserExit { reason: Some(2) }
    );
    assert_eq!(
        only("kvm_userspace_exit: reason restart (4)"),
        What::UserExit { reason: None }
    );
    let poll = What::PollTime {
        vcpu: 1,
        ns: 20_000,
        before: 10_000,
    };
    assert_eq!(only("kvm_halt_poll_ns: vcpu 1: halt_poll_ns 20000 (grow 10000)"), poll);
    let window = What::PauseWindow {
        vcpu: 0,
        cycles: 8192,
        before: 4096,
    };
    assert_eq!(only("kvm_ple_window_update: vcpu 0 old 4096 new 8192 (growed)"), window);
    let inhibit = What::ApicInhibit {
        reason: 4,
        holds: true,
        all: 0x10,
    };
    assert_eq!(
        only("kvm_apicv_inhibit_changed: set reason=4, inhibits=0x10 IRQWIN"),
        inhibit
    );
}

#[test]
fn what_the_scheduler_prints_is_read() {
    let waking = |queued| What::Waking {
        woken: 9,
        name: "b c".into(),
        target: 2,
        queued,
    };
    assert_eq!(
        only("sched:sched_waking: comm=b c pid=9 prio=120 target_cpu=002"),
        waking(false)
    );
    assert_eq!(only("sched_wakeup: b c:9 [120]<CPU:002"), waking(true));
    assert_eq!(only("sched_wakeup: b c:9 [120] success=1 CPU:002"), waking(true));
    let migrate = What::Migrate {
        moved: 9,
        from: 1,
        to: 0,
    };
    assert_eq!(
        only("sched_migrate_task: comm=b pid=9 prio=-1 orig_cpu=1 dest_cpu=0"),
        migrate
    );
    let forked = What::Forked {
        parent: 1,
        child: 9,
        name: "b c".into(),
    };
    assert_eq!(
        only("sched_process_fork: comm=a pid=1 child_comm=b c child_pid=9"),
        forked
    );
    assert_eq!(
        only("sched_process_exit: comm=b pid=9 prio=120 group_dead=true"),
        What::Ended { ended: 9 }
    );
    for (state, expected) in [
        ("R", Left::Ready),
        ("D|K", Left::Asleep),
        ("Z", Left::Dead),
        ("I", Left::Asleep),
    ] {
        let line = format!(
            "sched_switch: prev_comm=a prev_pid=1 prev_prio=0 prev_state={state} ==> next_comm=b \
            next_pid=2 next_prio=-1"
        );
        let What::Switch { left, next_prio, .. } = only(&line) else {
            panic!("{line}")
        };
        assert_eq!((left, next_prio), (expected, -1));
    }
}

#[test]
fn lost_events_are_marked_where_the_next_one_is() {
    let text = "cpus=2\nCPU:1 [LOST 12 EVENTS]\n a-1 [001] 5.0: kvm_entry: vcpu 0\n\
        CPU:0 [EVENTS DROPPED]\nb-2 [000] 6.0: kvm_entry: vcpu 1\n";
    let found = events(text);
    let at = |index: usize| (found[index].at, found[index].cpu, found[index].what);
    assert_eq!(at(0), (5_000_000_000, 1, What::Lost { events: Some(12) }));
    assert_eq!(at(2), (6_000_000_000, 0, What::Lost { events: None }));
    let perf = only("PERF_RECORD_LOST lost 5");
    assert_eq!(perf, What::Lost { events: Some(5) });
}

#[test]
fn time_that_goes_back_is_marked_once_and_waits() {
    let line = |at: u64| format!("a-1 [000] {at}.0: kvm_entry: vcpu 0\n");
    let text: String = [5, 3, 4, 6].map(line).concat();
    let found: Vec<_> = recording(&text).collect();
    let times: Vec<u64> = found.iter().flatten().map(|event| event.at / 1_000_000_000).collect();
    assert_eq!(times, [5, 5, 5, 6]);
    let backwards = found[1].as_ref().expect_err("before the first late event");
    assert_eq!(backwards.offset, line(5).len() as u64);
    assert!(matches!(
        backwards.fault,
        Fault::Backwards {
            from: 5_000_000_000,
            to: 3_000_000_000
        }
    ));
    assert_eq!(found.len(), 5);
}

#[test]
fn a_damaged_line_is_named_with_its_place_and_the_rest_is_read() {
    let text =
        " a-1 [000] 1.0: kvm_entry: vcpu 0\n a-1 [000] 2.0: kvm_entry: nothing\n a-1 [000] 3.0: kvm_entry: vcpu 0\n";
    assert_eq!(recording(text).flatten().count(), 2);
    assert_eq!(
        errors(text)[0].to_string(),
        "at byte 34: damaged: `kvm_entry:` without vcpu"
    );
    let cut = errors(" a-1 [000] 1.0: kvm_entry: vcpu 0\n a-1 [000] 2.0: kvm_en: vcpu\n a-1 [000] 2.0: kvm_entry: v");
    assert_eq!(cut[0].to_string(), "at byte 63: the file ends within a line");
    let long = format!(" a-1 [000] 1.0: kvm_entry: vcpu 0\n{}", "x".repeat(1 << 17));
    assert_eq!(
        errors(&long)[0].to_string(),
        "at byte 34: damaged: a line longer than 65536 bytes"
    );
}

#[test]
fn what_is_no_recording_is_refused_by_its_kind() {
    let refused = |bytes: &[u8]| read(Cursor::new(bytes.to_vec())).expect_err("no recording").to_string();
    assert!(refused(b"").ends_with("an empty file"));
    assert!(refused(&[0; 5000]).ends_with("binary data of an unknown format"));
    assert!(refused(b"\x1f\x8b\x08").ends_with("decompress it first"));
    assert!(refused(b"Dear operator,\n\nall is well.\n").ends_with("text without an event"));
    assert!(refused(b"\x7fELF\x02").ends_with("a program"));
    let of_boot = refused(b"cpus=2\n sleep-193 [001]5784435940962: sched_switch: a:1 [120] R ==> b:2 [120]\n");
    assert!(
        of_boot.starts_with("at byte 7: text with times that have no unit"),
        "{of_boot}"
    );
    for bare in [
        "1.000000123: sched:sched_switch: prev_comm=a prev_pid=10 prev_prio=120 prev_state=R ==> next_comm=b\n",
        "# tracer: wakeup\n bash-1994    0d..2    1us : sched_switch: prev_comm=bash prev_pid=1994\n",
        "kvm_entry: vcpu 0, rip 0x8000\n",
    ] {
        let of_bare = refused(bare.as_bytes());
        assert!(of_bare.contains("text whose events have not both a CPU"), "{of_bare}");
    }
    let zeros = std::fs::File::open("/dev/zero").expect("Linux has it");
    assert!(read(zeros).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn mutated_text_never_panics(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20)) {
        let mut bytes = [PERF, TRACE_CMD, TRACEFS].concat().into_bytes();
        for (place, byte) in edits {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let Ok(recording) = read(Cursor::new(bytes)) else { return Ok(()) };
        let mut now = 0;
        for event in recording.flatten() {
            assert!(event.at >= now);
            now = event.at;
        }
    }
}

#[test]
fn events_of_another_architecture_name_it() {
    let text = " a-1 [000] 1.0: kvm_exit: TRAP: HSR_EC: 0x0001 (WFx), PC: 0xffff800008c9d1a4\n \
                 a-1 [000] 2.0: sched_process_exit: comm=a pid=1 prio=120\n";
    assert_eq!(
        errors(text)[0].to_string(),
        "at byte 0: `kvm_exit` of arm64 (of KVM only the events of x86) cannot be read"
    );
    assert_eq!(recording(text).flatten().count(), 1);
}
