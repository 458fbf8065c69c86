//! Faulty guests: the errors name the fault, and nothing of the run is left.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_kvm::{Error, Fault, GuestState, Options, Task, Vm, run};

/// Returns the numbers of vCPU threads and of VMs of this process.
pub(crate) fn left() -> (usize, usize) {
    let names = |path: &str| fs::read_dir(path).into_iter().flatten().flatten();
    let threads = names("/proc/self/task").filter(|task| {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        name.starts_with("CPU ") && name.trim_end().ends_with("/KVM")
    });
    let vms = names("/proc/self/fd").filter(|fd| {
        let target = fs::read_link(fd.path()).unwrap_or_default();
        target.to_string_lossy().contains("kvm-v")
    });
    (threads.count(), vms.count())
}

fn fails(fault: Fault) -> Error {
    let vm = Vm::new("vm1", 2, Task::Fault(fault)).memory(32 << 20);
    let options = Options {
        limit: Duration::from_secs(3),
        ..Options::default()
    };
    let error = run(&[vm], &options).expect_err("it commits a fault");
    println!("{fault:?}: {error}");
    assert_eq!(left(), (0, 0), "threads and vms are left after {fault:?}");
    error
}

fn is_in(state: &GuestState, function: &str) -> bool {
    let inside = |name: &str| name.contains(function);
    state
        .frames
        .iter()
        .filter_map(|frame| frame.function.as_ref())
        .any(|(name, _)| inside(name))
}

#[test]
#[ignore = "needs a real KVM"]
fn what_a_guest_does_wrong_is_named_with_its_place_and_nothing_is_left() {
    match fails(Fault::Panic) {
        Error::GuestPanic { message, state, .. } => {
            assert!(message.contains("ordered to"), "{message}");
            assert!(is_in(&state, "boot::main"), "{state}");
        }
        other => panic!("{other}"),
    }
    match fails(Fault::PageFault) {
        Error::GuestPanic { message, state, .. } => {
            assert!(message.contains("page fault"), "{message}");
            assert!(is_in(&state, "fault::touch"), "{state}");
            assert!(state.registers.contains(&("cr2", 1 << 40)), "{state}");
        }
        other => panic!("{other}"),
    }
    match fails(Fault::TripleFault) {
        Error::TripleFault { state, .. } => {
            assert!(!state.registers.is_empty());
            // On AMD KVM has reset the registers.
            let shown = state.to_string();
            assert!(!state.left_on_stack || shown.contains("boot::main"), "{shown}");
        }
        other => panic!("{other}"),
    }
    match fails(Fault::Port) {
        Error::UnexpectedExit { exit, .. } => assert!(exit.contains("port 0x70"), "{exit}"),
        other => panic!("{other}"),
    }
    assert!(matches!(fails(Fault::Ring), Error::Corrupt { .. }));
}

#[test]
#[ignore = "needs a real KVM"]
fn a_guest_that_hangs_is_ended_and_shown() {
    match fails(Fault::Hang) {
        Error::Hang { states, .. } => {
            assert_eq!(states.len(), 2);
            assert!(is_in(&states[0], "fault::hang"), "{}", states[0]);
        }
        other => panic!("{other}"),
    }
    assert!(matches!(fails(Fault::Halt), Error::Hang { .. }));
}

#[test]
#[ignore = "needs a real KVM"]
fn a_run_that_is_called_off_ends_at_once_and_its_threads_bear_names() {
    static WISH: AtomicBool = AtomicBool::new(false);
    let watcher = thread::spawn(|| {
        let mut seen = 0;
        let begin = Instant::now();
        while seen < 3 && begin.elapsed() < Duration::from_secs(10) {
            seen = seen.max(left().0);
            thread::sleep(Duration::from_millis(5));
        }
        WISH.store(true, Ordering::Relaxed);
        (seen, Instant::now())
    });
    let options = Options {
        call_off: Some(&WISH),
        ..Options::default()
    };
    let ended = run(&[Vm::new("vm1", 3, Task::Fault(Fault::Halt))], &options);
    let (seen, wished) = watcher.join().expect("it only looks");
    assert!(matches!(ended, Err(Error::CalledOff)), "{ended:?}");
    assert_eq!(seen, 3, "vcpu threads named CPU n/KVM");
    assert!(
        wished.elapsed() < Duration::from_secs(2),
        "ended {:?} after the wish",
        wished.elapsed()
    );
    assert_eq!(left(), (0, 0));
}
