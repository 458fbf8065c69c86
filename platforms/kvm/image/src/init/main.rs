//! The only process of a stock Linux guest. Its threads call one path of the kernel as often as they can, and it
//! reports the number of calls.
//!
//! It is freestanding: it needs no C library on the machine that builds it, and no file in the guest but itself and its
//! orders. It reports through an I/O port of the VMM and leaves the serial port to the kernel's log.
#![no_std]
#![no_main]
#![expect(
    unsafe_code,
    reason = "system calls, threads, an allocator, memory functions that the compiler calls"
)]

extern crate alloc;

mod bump;
#[path = "../memory_functions.rs"]
mod memory_functions;
#[path = "../panics.rs"]
mod panics;
mod report;
mod system;
mod threads;

use alloc::format;
use alloc::string::String;

use holdfast_protocol::{Hammer, Message, decode};

use report::{at_start_line, panicked, report};
use system::{Errno, cpus, kernel_log, kernel_release, now_ns, read_file, sleep, use_ports};

/// The entry point of the process. The kernel aligns RSP to 16.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "sysv64" fn _start() -> ! {
    core::arch::naked_asm!("xor ebp, ebp", "call {main}", "ud2", main = sym main)
}

/// Interval in nanoseconds at which the start line and the workers are checked.
const CHECK_INTERVAL_NS: u64 = 2_000_000;

extern "sysv64" fn main() -> ! {
    match run() {
        Ok(()) => {}
        Err(message) => panicked(format_args!("{message}")),
    }
    // The workers continue, since other guests of the run may still be measured.
    loop {
        sleep(u64::MAX / 2);
    }
}

fn run() -> Result<(), String> {
    let failed = |what: &'static str| move |error: Errno| format!("{what}: {error:?}");
    use_ports().map_err(failed("ioperm"))?;
    let (file, orders) = read_file(c"/orders").map_err(failed("read /orders"))?;
    let orders: Hammer = decode(&orders).ok_or("cannot decode /orders: vmm and image have different versions")?;
    report(&Message::Log(format!(
        "linux {}",
        kernel_release().map_err(failed("uname"))?
    )));
    let log = kernel_log().map_err(failed("read the kernel log"))?;
    for line in String::from_utf8_lossy(&log)
        .lines()
        .filter(|line| line.contains("spinlocks"))
    {
        report(&Message::Log(line.into()));
    }
    let up = cpus().map_err(failed("sched_getaffinity"))?;
    if up != orders.cpus {
        return Err(format!("{up} cpus came up, expected {}", orders.cpus));
    }
    threads::start(&orders, file).map_err(failed("start a thread"))?;
    while threads::arrived() < orders.threads {
        sleep(CHECK_INTERVAL_NS);
    }
    let now_ns = now_ns();
    (0..orders.cpus).for_each(|cpu| report(&Message::Started { cpu, now_ns }));
    while !at_start_line() {
        sleep(CHECK_INTERVAL_NS);
    }
    measure(&orders);
    Ok(())
}

fn measure(orders: &Hammer) {
    let begun = now_ns();
    report(&Message::Begin { now_ns: begun });
    threads::go();
    loop {
        sleep(CHECK_INTERVAL_NS);
        let (calls, now_ns) = (threads::calls().sum::<u64>(), now_ns());
        if calls >= orders.calls || now_ns.saturating_sub(begun) >= orders.duration_ns {
            let calls = || threads::calls().take(orders.threads as usize);
            let extremes = [("fewest", calls().min()), ("most", calls().max())];
            for (name, value) in extremes {
                report(&Message::Counter(
                    format!("linux.calls_of_a_thread_{name}"),
                    value.unwrap_or(0),
                ));
            }
            let operations = Some(calls().sum());
            report(&Message::Done { now_ns, operations });
            return;
        }
    }
}
