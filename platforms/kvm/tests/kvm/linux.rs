//! Stock Linux guests, and other programs in a `bzImage`.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use holdfast_kvm::{BzImage, Error, Feature, Host, KernelPath, Linux, Options, Report, Task, Vm, run};

use holdfast_workloads::{Channel, Hackbench};

use crate::faults::left;
use crate::lost::run_again_if_lost;
use crate::quiet::is_quiet;

/// Returns this host's kernel, or `None` with a SKIPPED line if it cannot be read.
fn own_kernel(test: &str) -> Option<Arc<BzImage>> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let path = format!("/boot/vmlinuz-{}", release.trim());
    match fs::read(&path) {
        Ok(file) => Some(Arc::new(
            BzImage::parse(file).unwrap_or_else(|error| panic!("{path}: {error}")),
        )),
        Err(error) => {
            println!("SKIPPED: {test}: {path}: {error}");
            None
        }
    }
}

/// Returns a `bzImage` whose program is `code`.
fn kernel(code: &[u8]) -> Arc<BzImage> {
    let (setup, program) = (0x400, 0x200);
    let mut file = vec![0; setup + program];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x1f1, &[1]);
    put(0x1fe, &[0x55, 0xaa, 0xeb, 0x6a]);
    put(0x202, b"HdrS\x0f\x02");
    put(0x211, &[1]);
    put(0x236, &[1]);
    put(0x238, &2047u32.to_le_bytes());
    put(0x258, &0x100_0000u64.to_le_bytes());
    put(0x260, &0x10_0000u32.to_le_bytes());
    // The 64-bit entry.
    file.extend(code);
    file.resize(file.len().next_multiple_of(16), 0);
    let paragraphs = (file.len() - setup) as u32 / 16;
    file[0x1f4..0x1f8].copy_from_slice(&paragraphs.to_le_bytes());
    Arc::new(BzImage::parse(file).unwrap_or_else(|error| panic!("{error}")))
}

fn limit(seconds: u64) -> Options<'static> {
    Options {
        limit: Duration::from_secs(seconds),
        ..Options::default()
    }
}

fn run_for(vm: Vm, seconds: u64) -> Result<Report, Error> {
    let ended = run(&[vm], &limit(seconds));
    assert_eq!(left(), (0, 0), "threads and vms are left");
    ended
}

/// Runs guests whose kernels boot.
fn run_booting(vms: &[Vm]) -> Result<Report, Error> {
    let ended = run_again_if_lost(vms, &limit(120));
    assert_eq!(left(), (0, 0), "threads and vms are left");
    ended
}

fn fails(code: &[u8]) -> Error {
    let error = run_for(Vm::linux("vm1", 2, Linux::new(kernel(code))), 2).expect_err("no kernel");
    println!("{error}");
    error
}

/// `mov edx, PORT`, `mov ecx, COUNT`, `lea rsi, [rip + 4]`, `rep outsb`, `ud2`, the bytes.
fn prints(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut code = vec![0xba];
    code.extend(u32::from(port).to_le_bytes());
    code.push(0xb9);
    code.extend((bytes.len() as u32).to_le_bytes());
    code.extend([0x48, 0x8d, 0x35, 4, 0, 0, 0, 0xf3, 0x6e, 0x0f, 0x0b]);
    code.extend(bytes);
    code
}

#[test]
#[ignore = "needs a real KVM"]
fn programs_that_are_no_kernels_are_named_by_what_they_do() {
    // ud2 without an interrupt table.
    assert!(matches!(fails(&[0x0f, 0x0b]), Error::TripleFault { .. }));
    // hlt with interrupts masked.
    match fails(&[0xf4]) {
        Error::Hang { states, .. } => assert_eq!(states.len(), 2),
        other => panic!("{other}"),
    }
    match fails(&prints(0x5f4, &[0xff; 64])) {
        Error::Corrupt { vm, .. } => assert_eq!(vm, "vm1"),
        other => panic!("{other}"),
    }
    match fails(&prints(
        0x3f8,
        b"all is well\r\nKernel panic - not syncing: planted\r\n",
    )) {
        Error::GuestPanic { message, state, .. } => {
            assert_eq!(message, "Kernel panic - not syncing: planted");
            assert_eq!(state.console, ["all is well", message.as_str()]);
        }
        other => panic!("{other}"),
    }
}

#[test]
#[ignore = "needs a real KVM"]
fn a_linux_guest_without_room_is_refused() {
    let Some(kernel) = own_kernel("a linux guest without room is refused") else {
        return;
    };
    let small = Vm::linux("small", 1, Linux::new(Arc::clone(&kernel))).memory(32 << 20);
    assert!(matches!(run_for(small, 2), Err(Error::Invalid { .. })));
    let threads = Linux {
        threads: Some(100_000),
        ..Linux::new(kernel)
    };
    assert!(matches!(
        run_for(Vm::linux("many", 1, threads), 2),
        Err(Error::Invalid { .. })
    ));
}

#[test]
#[ignore = "needs a real KVM"]
fn a_stock_linux_that_panics_hangs_or_is_called_off_leaves_nothing() {
    let Some(kernel) = own_kernel("a stock linux that panics, hangs or is called off") else {
        return;
    };
    let lost = Linux {
        append: "rdinit=/none".to_owned(),
        ..Linux::new(Arc::clone(&kernel))
    };
    match run_booting(&[Vm::linux("lost", 1, lost)]) {
        Err(Error::GuestPanic { message, state, .. }) => {
            assert!(message.contains("Kernel panic"), "{message}");
            assert!(
                state.console.iter().any(|line| line.contains("root fs")),
                "{:#?}",
                state.console
            );
        }
        other => panic!("{other:?}"),
    }
    // The guest cannot boot within this limit.
    match run_for(Vm::linux("slow", 2, Linux::new(Arc::clone(&kernel))), 1) {
        Err(Error::Hang { states, .. }) => assert_eq!(states.len(), 2),
        other => panic!("{other:?}"),
    }
    static WISH: AtomicBool = AtomicBool::new(false);
    let watcher = thread::spawn(|| {
        while left().0 < 2 {
            thread::sleep(Duration::from_millis(5));
        }
        WISH.store(true, Ordering::Relaxed);
    });
    let options = Options {
        call_off: Some(&WISH),
        ..Options::default()
    };
    let ended = run(&[Vm::linux("unwanted", 2, Linux::new(kernel))], &options);
    watcher.join().expect("it only looks");
    assert!(matches!(ended, Err(Error::CalledOff)), "{ended:?}");
    assert_eq!(left(), (0, 0));
}

#[test]
#[ignore = "needs a real KVM"]
fn processes_of_a_stock_linux_exchange_all_messages() {
    let Some(kernel) = own_kernel("processes of a stock linux exchange all messages") else {
        return;
    };
    for channel in [Channel::Pipes, Channel::Sockets] {
        let messages = Hackbench {
            channel,
            groups: 2,
            pairs: 3,
            loops: 40,
            threads: false,
        };
        let linux = |messages| Linux {
            messages: Some(messages),
            ..Linux::new(Arc::clone(&kernel))
        };
        let report = run_booting(&[Vm::linux("linux", 2, linux(messages.clone()))]);
        let report = report.unwrap_or_else(|error| panic!("{channel:?}: {error}"));
        let vm = &report.vms[0];
        println!("{channel:?}: {:?} ns", vm.elapsed_ns);
        assert_eq!(vm.counters.get("hackbench.messages"), Some(&(2 * 3 * 3 * 40)), "{vm:?}");
        assert!(vm.elapsed_ns.is_some_and(|ns| ns > 0));
        for refused in [
            Hackbench {
                threads: true,
                ..messages.clone()
            },
            Hackbench {
                groups: 1000,
                ..messages.clone()
            },
            Hackbench { pairs: 0, ..messages },
        ] {
            let ended = run_for(Vm::linux("linux", 2, linux(refused)), 120);
            assert!(matches!(ended, Err(Error::Invalid { .. })), "{ended:?}");
        }
    }
}

#[test]
#[ignore = "needs a real KVM"]
fn stock_linux_collapses_without_its_paravirtual_spinlocks() {
    const NAME: &str = "stock linux collapses without its paravirtual spinlocks";
    let Some(kernel) = own_kernel(NAME) else { return };
    let quiet = is_quiet(NAME);
    let rate = |variant: &str, lock: &str| {
        let linux = Linux {
            nopvspin: variant == "nopvspin",
            path: KernelPath::Dup,
            ..Linux::new(Arc::clone(&kernel))
        };
        let mut guest = Vm::linux("linux", 4, linux);
        if variant == "test-and-set" {
            guest = guest.without(Feature::PvUnhalt);
        }
        let guest = guest.pinned(vec![vec![0, 1]; 4]);
        let hog = Vm::new("hog", 1, Task::Hog)
            .background()
            .memory(32 << 20)
            .pinned(vec![vec![0, 1]]);
        let report = run_booting(&[guest, hog]).unwrap_or_else(|error| panic!("{variant}: {error}"));
        let vm = &report.vms[0];
        let rate = vm.per_second().unwrap_or(0.0);
        println!(
            "{variant}: {rate:.0} calls/s, up in {:?}; {} halts, {} hypercalls, {} of {} directed yields",
            vm.boot.unwrap_or_default(),
            vm.stat("halt_exits"),
            vm.stat("hypercalls"),
            vm.stat("directed_yield_successful"),
            vm.stat("directed_yield_attempted"),
        );
        // On a busy host the next in the queue of a fair lock may wait for the whole two seconds.
        let calls = vm.operations.expect("calls are counted");
        assert!(calls > 0 || !(quiet && is_quiet(NAME)), "{variant}: {vm:?}");
        let named = format!("guest.lock.{lock}");
        assert!(vm.counters.contains_key(&named), "{variant}: {:?}", vm.log);
        rate
    };
    let native = rate("nopvspin", "qspin");
    let test_and_set = rate("test-and-set", "ttas");
    if !Host::open().is_ok_and(|host| host.offers(Feature::PvUnhalt)) {
        return;
    }
    let paravirtual = rate("pvspin", "hybrid-pv-qspin");
    if quiet && is_quiet(NAME) {
        // The differences are factors of 20 to 100, so a factor of a few proves them.
        assert!(native * 3.0 < paravirtual && native * 3.0 < test_and_set);
    }
}
