//! The window of pause loops: what the part is told, and when.

use holdfast_host::{
    Command, Exit, Host, HostConfig, PauseControls, PauseHandling, Planted, SpinFaults, TaskConfig, VmConfig, VmId,
    WindowRule,
};

use crate::world::{Guest, MS, Op, World, places};

const US: u64 = 1_000;
/// Pause exits of the vCPU that spins.
const EXITS: usize = 5_000;

/// Returns the windows that the host sets for a vCPU that spins for 50 ms and then computes, next to a hog on the same
/// pCPU.
fn windows(pause: PauseHandling, controls: PauseControls, faults: SpinFaults) -> (Vec<PauseControls>, World) {
    let config = HostConfig {
        pause,
        pause_controls: controls,
        planted: Planted {
            pause: faults,
            ..Planted::default()
        },
        ..HostConfig::default()
    };
    let mut world = World::new(&config, &places(1, 1, 1));
    let ops = (0..EXITS).flat_map(|_| [Op::Compute(10 * US), Op::Exit(Exit::Pause)]);
    world.add_vm(&VmConfig::default(), &[], vec![Guest::script(ops.collect())]);
    world.add_task(&TaskConfig::default(), u64::MAX, 0);
    world.trace = Some(Vec::new());
    world.start();
    world.run_until(300 * MS);
    let trace = world.trace.take().expect("a trace");
    let windows = trace.into_iter().filter_map(|(_, command)| match command {
        Command::PauseControls { controls, .. } => Some(controls),
        _ => None,
    });
    (windows.collect(), world)
}

fn dynamic() -> PauseHandling {
    PauseHandling {
        window: WindowRule::DYNAMIC,
        filter_threshold: true,
        ..PauseHandling::DIRECTED_YIELD_2011
    }
}

#[test]
fn windows_grow_while_it_spins_and_are_back_once_it_was_scheduled_out() {
    let intel = PauseControls::Ple { gap: 128, window: 8192 };
    let amd = PauseControls::Filter {
        count: 6000,
        threshold: 128,
    };
    for (base, grown) in [(PauseControls::INTEL, intel), (PauseControls::AMD, amd)] {
        let (told, world) = windows(dynamic(), base, SpinFaults::default());
        assert_eq!(told[..2], [base, grown]);
        assert_eq!(
            world.guests[0].controls, base,
            "it was scheduled out since it last spun"
        );
        let counter = |name| world.counter(VmId(0), name);
        assert!(counter("pause_window_grown") > counter("pause_window_shrunk"));
        assert!(counter("pause_window_shrunk") > 0);
        assert!(counter("pause_window_max") > 8 * 3000);
        let faults = SpinFaults {
            window_stays: true,
            ..SpinFaults::default()
        };
        let (_, stuck) = windows(dynamic(), base, faults);
        assert_ne!(stuck.guests[0].controls, base, "a window that never shrinks is seen");
    }
}

/// Returns the window of pause loops.
fn window_of(controls: PauseControls) -> u64 {
    match controls {
        PauseControls::Off => 0,
        PauseControls::Ple { window, .. } => window.into(),
        PauseControls::Filter { count, .. } => count.into(),
    }
}

#[test]
fn counters_of_windows_say_what_the_part_was_told() {
    for (base, max) in [
        (PauseControls::INTEL, Some(16_384)),
        (PauseControls::AMD, Some(20_000)),
        (PauseControls::INTEL, None),
    ] {
        let mut pause = dynamic();
        pause.window.max = max;
        let (told, world) = windows(pause, base, SpinFaults::default());
        let sizes: Vec<u64> = told.into_iter().map(window_of).collect();
        let counter = |name| world.counter(VmId(0), name);
        let grown = sizes.windows(2).filter(|pair| pair[1] > pair[0]).count() as u64;
        let shrunk = sizes.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64;
        assert_eq!(counter("pause_window_grown"), grown);
        assert_eq!(counter("pause_window_shrunk"), shrunk);
        let largest = sizes.iter().copied().max();
        assert_eq!(Some(counter("pause_window_max")), largest);
        // Each exit adds the window that was spent.
        let mean = counter("pause_window_sum") / EXITS as u64;
        assert!(window_of(base) < mean && Some(mean) < largest, "{mean}");
    }
}

#[test]
fn windows_stay_where_the_kernel_or_the_part_does_not_move_them() {
    let (told, _) = windows(
        PauseHandling::DIRECTED_YIELD_2011,
        PauseControls::INTEL,
        SpinFaults::default(),
    );
    assert_eq!(told, [PauseControls::INTEL]);
    // AMD's threshold was not used before 4.17: plain counting, and no growth.
    let unused = PauseHandling {
        filter_threshold: false,
        ..dynamic()
    };
    let plain = PauseControls::Filter {
        count: 3000,
        threshold: 0,
    };
    assert_eq!(windows(unused, PauseControls::AMD, SpinFaults::default()).0, [plain]);
    assert_eq!(
        windows(PauseHandling::NONE, PauseControls::INTEL, SpinFaults::default()).0,
        [PauseControls::Off]
    );
}

#[test]
fn bad_windows_are_refused() {
    let built = |pause, pause_controls| {
        let config = HostConfig {
            pause,
            pause_controls,
            ..HostConfig::default()
        };
        let host = Host::new(&config, &places(1, 1, 1));
        host.map(|_| ()).map_err(|error| error.to_string())
    };
    let ple = |gap, window| PauseControls::Ple { gap, window };
    let filter = |count, threshold| PauseControls::Filter { count, threshold };
    for (controls, message) in [
        (ple(0, 4096), "pause gap: found 0, expected 1 to 4294967294"),
        (ple(4096, 4096), "pause window: found 4096, expected 4097 to 4294967295"),
        (ple(128, 0), "pause window: found 0, expected 129 to 4294967295"),
        (filter(0, 128), "pause filter count: found 0, expected 1 to 65535"),
        (
            filter(70_000, 128),
            "pause filter count: found 70000, expected 1 to 65535",
        ),
        (
            filter(3000, 70_000),
            "pause filter threshold: found 70000, expected 0 to 65535",
        ),
    ] {
        assert_eq!(built(dynamic(), controls), Err(message.to_owned()));
    }
    let rule = |grow, max| PauseHandling {
        window: WindowRule { grow, shrink: 0, max },
        ..dynamic()
    };
    assert_eq!(
        built(rule(1, None), PauseControls::INTEL),
        Err("growth of the pause window: found 1, expected 0 (back to the base) or 2 and more".to_owned())
    );
    assert_eq!(
        built(rule(2, Some(4000)), PauseControls::INTEL),
        Err("largest pause window: found 4000, expected 4096 to 4294967295".to_owned())
    );
}
