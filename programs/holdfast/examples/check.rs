//! Shows the reports of the feature `check`: two threads take two locks in opposite order, one after the other, so that
//! neither waits. `cargo run -p holdfast --features check --example check`

use std::thread;
use std::time::Duration;

use holdfast::{Mutex, check};

static ACCOUNTS: Mutex<u64> = Mutex::new(100);
static JOURNAL: Mutex<Vec<u64>> = Mutex::new(Vec::new());

#[inline(never)]
fn deposit(sum: u64) {
    let mut accounts = ACCOUNTS.lock();
    *accounts += sum;
    JOURNAL.lock().push(sum);
}

#[inline(never)]
fn audit() -> bool {
    let journal = JOURNAL.lock();
    // The wrong way round.
    journal.iter().sum::<u64>() + 100 == *ACCOUNTS.lock()
}

fn main() {
    check::name(&ACCOUNTS, "accounts");
    check::name(&JOURNAL, "journal");
    check::measure_preemption(true);

    thread::spawn(|| deposit(7)).join().expect("nothing is taken twice");
    let kept = thread::spawn(audit).join().expect("nothing is taken twice");
    assert!(kept);
    println!("violations: {}", check::violations());

    let _held = ACCOUNTS.lock();
    thread::sleep(Duration::from_millis(2));
    print!("{}{}", check::look(&ACCOUNTS), check::look(&JOURNAL));
}
