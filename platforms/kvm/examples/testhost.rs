//! Helpers for the test host. `testhost hold` keeps a virtual machine open, whose existence keeps the host's jump
//! labels from changing. `testhost noise SECONDS` measures how much of each CPU other work takes.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use kvm_ioctls::Kvm;

/// Shortest gap between two readings of the clock that counts as lost time.
const GAP: Duration = Duration::from_micros(200);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["hold"] => hold(),
        ["noise", seconds] => match seconds.parse() {
            Ok(seconds) => {
                noise(seconds);
                Ok(())
            }
            Err(_) => Err(format!("noise: {seconds}, expected a number of seconds")),
        },
        _ => Err("usage: testhost hold | testhost noise SECONDS".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Keeps a VM with an interrupt controller and two vCPUs, which never run, until this process is ended.
fn hold() -> Result<(), String> {
    let refused = |error: kvm_ioctls::Error| format!("cannot create a vm: {error}");
    let vm = Kvm::new().and_then(|kvm| kvm.create_vm()).map_err(refused)?;
    vm.set_tss_address(0xfffb_d000).map_err(refused)?;
    vm.create_irq_chip().map_err(refused)?;
    let _vcpus = [vm.create_vcpu(0).map_err(refused)?, vm.create_vcpu(1).map_err(refused)?];
    println!("holding");
    loop {
        thread::park();
    }
}

/// Reads the clock without a pause on each CPU. Gaps longer than 200 µs were taken by other work.
fn noise(seconds: u64) {
    let cpus = thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let spin = move |cpu: u32| {
        let _ = holdfast_kvm::pin_to(&[cpu]);
        let start = Instant::now();
        let (mut last, mut gaps, mut lost) = (start, 0u32, Duration::ZERO);
        while start.elapsed() < Duration::from_secs(seconds) {
            let now = Instant::now();
            let gap = now - last;
            if gap > GAP {
                gaps += 1;
                lost += gap;
            }
            last = now;
        }
        (gaps, lost)
    };
    let spinners: Vec<_> = (0..cpus).map(|cpu| thread::spawn(move || spin(cpu))).collect();
    for (cpu, spinner) in spinners.into_iter().enumerate() {
        if let Ok((gaps, lost)) = spinner.join() {
            let share = lost.as_secs_f64() / seconds.max(1) as f64;
            println!("{{\"noise\":{{\"cpu\":{cpu},\"gaps\":{gaps},\"lost_per_second\":{share:.4}}}}}");
        }
    }
}
