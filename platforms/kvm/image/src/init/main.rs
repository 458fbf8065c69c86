//! The first process of a stock Linux guest. Its threads call one path of the kernel as often as they can, or processes
//! that it starts exchange messages. It reports what they did.
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
mod messages;
#[path = "../panics.rs"]
mod panics;
mod report;
mod system;
mod threads;

use alloc::format;
use alloc::string::String;

use holdfast_protocol::{Hammer, Message, Process, Program, decode};

use messages::Exchange;
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
    let orders: Process = decode(&orders).ok_or("cannot decode /orders: vmm and image have different versions")?;
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
    match &orders.program {
        Program::Hammer(hammer) => {
            threads::start(hammer, file).map_err(failed("start a thread"))?;
            line_up(orders.cpus, || threads::arrived() >= hammer.threads);
            measure(hammer);
        }
        Program::Messages(messages) => {
            let exchange = Exchange::start(messages).map_err(failed("start a process"))?;
            line_up(orders.cpus, || exchange.has_arrived());
            report(&Message::Begin { now_ns: now_ns() });
            let (messages, now_ns) = exchange.exchange();
            report(&Message::Counter("hackbench.messages".into(), messages));
            report(&Message::Done {
                now_ns,
                operations: None,
            });
        }
    }
    Ok(())
}

/// Waits until `is_ready`, reports that all `cpus` execute the workload, and waits for the common start.
fn line_up(cpus: u32, is_ready: impl Fn() -> bool) {
    while !is_ready() {
        sleep(CHECK_INTERVAL_NS);
    }
    let now_ns = now_ns();
    (0..cpus).for_each(|cpu| report(&Message::Started { cpu, now_ns }));
    while !at_start_line() {
        sleep(CHECK_INTERVAL_NS);
    }
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
