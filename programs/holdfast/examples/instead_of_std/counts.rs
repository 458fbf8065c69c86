use std::thread;

use holdfast::poison::Mutex; // was: std::sync::Mutex

static COUNT: Mutex<u64> = Mutex::new(0);

fn main() {
    let count = || (0..1000).for_each(|_| *COUNT.lock().unwrap() += 1);
    thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(count))));
    println!("{}", COUNT.lock().unwrap());
}
