//! A check that the machine is quiet. If other work takes the CPUs, lock holders are preempted whatever the lock does,
//! and measured speed proves nothing. Assertions about speed are then SKIPPED, which the printed lines count.

use std::thread;
use std::time::{Duration, Instant};

/// Shortest gap between two readings of the clock that counts as lost time.
const GAP: Duration = Duration::from_micros(200);
/// Largest accepted share of a CPU that is lost. A quiet machine loses 0.02.
const LOST_MAX: f64 = 0.04;

/// Returns the largest share of a CPU that other work takes now.
fn lost() -> f64 {
    let time = Duration::from_millis(400);
    let cpus = thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let spin = move |cpu| {
        let _ = holdfast_kvm::pin_to(&[cpu]);
        let start = Instant::now();
        let (mut last, mut lost) = (start, Duration::ZERO);
        while start.elapsed() < time {
            let now = Instant::now();
            if now - last > GAP {
                lost += now - last;
            }
            last = now;
        }
        lost.as_secs_f64() / time.as_secs_f64()
    };
    let spinners: Vec<_> = (0..cpus).map(|cpu| thread::spawn(move || spin(cpu))).collect();
    spinners
        .into_iter()
        .filter_map(|spinner| spinner.join().ok())
        .fold(0.0, f64::max)
}

/// Returns whether the machine is quiet enough to assert speed. Prints a SKIPPED line if not.
pub fn is_quiet(what: &str) -> bool {
    let lost = lost();
    if lost > LOST_MAX {
        println!("SKIPPED: {what}: other work takes {:.0} % of a CPU", lost * 100.0);
    }
    lost <= LOST_MAX
}
