//! Four threads count under one lock.

use std::thread;

static COUNT: lock_api::Mutex<holdfast_threads::RawHybrid, u64> = lock_api::Mutex::new(0);

fn main() {
    let count = || (0..1000).for_each(|_| *COUNT.lock() += 1);
    thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(count))));
    println!("{}", COUNT.lock());
}
