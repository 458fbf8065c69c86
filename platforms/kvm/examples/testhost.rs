//! Helpers for the test host. `testhost hold` keeps a virtual machine open, whose existence keeps the host's jump
//! labels from changing. `testhost noise SECONDS` measures how much of each CPU other work takes. `testhost refuse
//! IOCTL COMMAND...` runs a command for which KVM lacks an `ioctl`: a filter of system calls refuses it.
#![expect(unsafe_code, reason = "installs a filter of system calls")]

use std::mem::offset_of;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
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
        ["refuse", ioctl, program, ref arguments @ ..] => refuse(ioctl, program, arguments),
        _ => Err("usage: testhost hold | testhost noise SECONDS | testhost refuse IOCTL COMMAND...".to_owned()),
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

/// `ioctl`s that a migration needs, with their numbers (Linux `include/uapi/linux/kvm.h`).
const REFUSED: [(&str, u32); 4] = [
    ("KVM_GET_MP_STATE", 0x8004_ae98),
    ("KVM_GET_LAPIC", 0x8400_ae8e),
    ("KVM_SET_CLOCK", 0x4030_ae7b),
    ("KVM_SIGNAL_MSI", 0x4020_aea5),
];

/// Executes `program`, whose `ioctl`s named `ioctl` fail with ENOTTY from now on.
fn refuse(ioctl: &str, program: &str, arguments: &[&str]) -> Result<(), String> {
    let known = REFUSED.iter().find(|(name, _)| *name == ioctl);
    let &(_, request) = known.ok_or_else(|| format!("refuse: {ioctl}, expected one of {REFUSED:?}"))?;
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let unequal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let end = (libc::BPF_RET | libc::BPF_K) as u16;
    let statement = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let unless = |k, jf| libc::sock_filter {
        code: unequal,
        jt: 0,
        jf,
        k,
    };
    // The request is the second argument. Its lower half comes first on x86-64, and the kernel looks at no more.
    let argument = offset_of!(libc::seccomp_data, args) + size_of::<u64>();
    let mut filter = [
        statement(load, offset_of!(libc::seccomp_data, nr) as u32),
        unless(libc::SYS_ioctl as u32, 3),
        statement(load, argument as u32),
        unless(request, 1),
        statement(end, libc::SECCOMP_RET_ERRNO | libc::ENOTTY as u32),
        statement(end, libc::SECCOMP_RET_ALLOW),
    ];
    let program_of_filter = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the call reads only its arguments.
    let without_privileges = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0;
    let with = &raw const program_of_filter;
    // SAFETY: the call reads the program, which is valid and has the given length.
    let installed =
        without_privileges && unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, with) } == 0;
    if !installed {
        let error = std::io::Error::last_os_error();
        return Err(format!("refuse: cannot filter system calls: {error}"));
    }
    let error = Command::new(program).args(arguments).exec();
    Err(format!("refuse: cannot execute {program}: {error}"))
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
