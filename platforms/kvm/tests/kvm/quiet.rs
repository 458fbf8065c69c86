//! How quiet this machine is. Where somebody else takes the CPUs, lock holders are preempted whatever the lock does, and what is
//! said of speed proves nothing: such statements are SKIPPED then, and counted by that word.

use std::thread;
use std::time::{Duration, Instant};

/// What counts as a gap in reading the clock.
const GAP: Duration = Duration::from_micros(200);
/// The share of a CPU that may be lost (a quiet machine loses 0.02).
const LOST_MAX: f64 = 0.04;

/// The largest share of a CPU that others took just now.
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

/// Whether it is quiet enough to speak of speed; says so if not.
pub fn is_quiet(what: &str) -> bool {
    let lost = lost();
    if lost > LOST_MAX {
        println!("SKIPPED: {what}: others take {:.0} % of a CPU", lost * 100.0);
    }
    lost <= LOST_MAX
}
