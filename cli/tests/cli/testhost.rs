//! `platforms/kvm/testhost` on machines that lack what it needs: messages, exit status and files left behind.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::command::{Ran, Running, scratch, with_default_signals};

/// Programs of the system that the scripts use.
const TOOLS: [&str; 22] = [
    "sh", "awk", "basename", "cat", "chmod", "cp", "dirname", "env", "find", "grep", "head", "ldd", "mkdir", "mktemp",
    "rm", "sed", "sleep", "sort", "tail", "timeout", "tr", "uname",
];

/// A machine with the programs of [`TOOLS`] and with added programs and files only.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Machine {
        let machine = Machine(scratch());
        for folder in ["bin", "tmp"] {
            fs::create_dir(machine.path().join(folder)).expect("writable");
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        for tool in TOOLS {
            let found = std::env::split_paths(&path)
                .map(|folder| folder.join(tool))
                .find(|file| file.exists());
            let found = found.unwrap_or_else(|| panic!("{tool} is not there"));
            std::os::unix::fs::symlink(found, machine.path().join("bin").join(tool)).expect("writable");
        }
        machine.with("uname", "echo x86_64")
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Adds the program `name`, a script.
    fn with(self, name: &str, script: &str) -> Machine {
        let file = self.path().join("bin").join(name);
        let _ = fs::remove_file(&file);
        self.script(&file, script);
        self
    }

    fn script(&self, file: &Path, script: &str) {
        fs::create_dir_all(file.parent().expect("a folder above")).expect("writable");
        fs::write(file, format!("#!/bin/sh\n{script}\n")).expect("writable");
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).expect("ours");
    }

    /// Adds a complete cache, and an emulator on the path.
    fn with_cache(self) -> Machine {
        let cache = self.path().join("cache");
        for module in ["irqbypass", "kvm", "kvm-amd"] {
            self.script(&cache.join(format!("host/{module}.ko")), "");
        }
        self.script(&cache.join("host/bin/busybox"), "");
        self.script(&cache.join("host/bin/cpio"), "cat >/dev/null");
        self.script(&cache.join("host/boot/vmlinuz-6"), "");
        fs::write(cache.join("emulator"), "system\n").expect("writable");
        fs::write(cache.join("ready"), "").expect("writable");
        self
    }

    /// Runs `testhost/run` on the machine with two lines of commands.
    fn command(&self) -> Command {
        let run = concat!(env!("CARGO_MANIFEST_DIR"), "/../platforms/kvm/testhost/run");
        let mut command = with_default_signals("/bin/sh");
        command
            .args([run, "--timeout", "60", "echo hello\necho world"])
            .env_clear()
            .env("PATH", self.path().join("bin"))
            .env("TMPDIR", self.path().join("tmp"))
            .env("HOLDFAST_TESTHOST", self.path().join("cache"));
        command
    }

    fn run(&self) -> Ran {
        Ran::of(self.command().output().expect("sh is there"))
    }

    fn skips(self, why: &str) {
        let ran = self.run();
        assert_eq!((ran.status, ran.out.as_str()), (77, ""), "{}", ran.err);
        assert!(ran.err.contains(&format!("SKIPPED: {why}")), "{why}: {}", ran.err);
        let counted = "SKIPPED: 2 commands, for which there is no test host";
        assert!(ran.err.contains(counted), "{}", ran.err);
        assert_eq!(fs::read_dir(self.path().join("tmp")).expect("a folder").count(), 0);
    }
}

#[test]
fn a_machine_that_can_have_no_packages_skips() {
    Machine::new()
        .with("uname", "echo riscv64")
        .skips("the test host is an x86-64 machine");
    Machine::new().skips("no apt: its packages cannot be had");
    let unpacks = "case $1 in -x) exit 0 ;; esac";
    let apt = |script: &str| {
        let targets = "case $* in *indextargets*) echo http://mirror.invalid/debian trixie; exit ;; esac";
        Machine::new()
            .with("dpkg-deb", unpacks)
            .with("apt-get", &format!("{targets}\n{script}"))
            .with("apt-cache", "echo 'Depends: linux-image-6'")
    };
    // There is no network.
    apt("echo 'E: no network' >&2; exit 100").skips("no QEMU: E: no network");
    // The lists exist and are empty.
    apt("case $* in *install*) echo 'E: Unable to locate package'; exit 100 ;; esac")
        .skips("no QEMU: E: Unable to locate package");
    let own = "case $* in *newer*) exit 100 ;; esac";
    let emulated = |script: &str| apt(&format!("{own}\n{script}")).with("qemu-system-x86_64", "echo QEMU 9");
    emulated("echo 'E: no list'; exit 100").skips("apt-get update: E: no list");
    emulated("")
        .with("apt-cache", "exit 0")
        .skips("no stock cloud kernel among the packages");
    emulated("case $* in *download*) echo 'E: gone'; exit 100 ;; esac").skips("apt-get download: E: gone");
    emulated("")
        .with("dpkg-deb", "echo 'no space'; exit 2")
        .skips("cannot unpack ");
}

#[test]
fn a_cache_without_a_kernel_is_no_reason_to_skip() {
    let machine = Machine::new().with_cache();
    fs::remove_file(machine.path().join("cache/host/boot/vmlinuz-6")).expect("there");
    let ran = machine.run();
    assert_eq!(ran.status, 1, "{}", ran.err);
    assert!(ran.err.contains("run: no kernel in "), "{}", ran.err);
}

#[test]
fn what_the_host_says_is_passed_on_with_its_status() {
    let says = "echo noise; echo @@begin 2 cpus; echo hello; echo @@done 1 3; printf world; echo @@done 2 0";
    let machine = Machine::new().with_cache().with("qemu-system-x86_64", says);
    let ran = machine.run();
    assert_eq!((ran.status, ran.out.as_str()), (3, "hello\nworld\n"), "{}", ran.err);
    assert!(ran.err.contains("test host: 2 cpus"), "{}", ran.err);
}

#[test]
fn a_lost_host_goes_on_with_the_line_that_was_not_finished() {
    // The host is lost in line 1 twice, and in line 2 twice.
    let says = r#"
        tries=$(cat "$HOLDFAST_TESTHOST/tries" 2>/dev/null)
        echo "$tries." >"$HOLDFAST_TESTHOST/tries"
        echo @@begin 2 cpus
        case "$* $tries" in
        *first=1\ . | *first=1\ ) echo lost in 1 ;;
        *first=1\ ..) echo hello; echo @@done 1 3; echo lost in 2 ;;
        *first=2\ ...) echo lost in 2 ;;
        *first=2\ ....) echo world; echo @@done 2 0 ;;
        esac"#;
    let ran = Machine::new().with_cache().with("qemu-system-x86_64", says).run();
    assert_eq!((ran.status, ran.out.as_str()), (3, "hello\nworld\n"), "{}", ran.err);
    assert!(ran.err.contains("try 2 of 'echo hello' did not finish"), "{}", ran.err);
    assert!(ran.err.contains("test host: 4 retries"), "{}", ran.err);
}

#[test]
fn a_line_that_loses_the_host_four_times_is_named() {
    let says = "echo @@begin 2 cpus; case $* in *first=1*) echo hello; echo @@done 1 0 ;; esac; echo panic";
    let ran = Machine::new().with_cache().with("qemu-system-x86_64", says).run();
    assert_eq!((ran.status, ran.out.as_str()), (124, "hello\n"), "{}", ran.err);
    assert!(ran.err.contains("try 4 of 'echo world' did not finish"), "{}", ran.err);
    assert!(ran.err.contains("\npanic\n"), "{}", ran.err);
}

#[test]
fn an_interruption_ends_the_emulator_at_once_and_leaves_nothing() {
    let machine = Machine::new().with_cache();
    let (begun, ended) = (machine.path().join("begun"), machine.path().join("ended"));
    let (begun_at, ended_at) = (begun.display(), ended.display());
    let emulator =
        format!("trap 'echo >\"{ended_at}\"; exit' TERM\necho >\"{begun_at}\"\nwhile :; do sleep 0.05; done");
    let machine = machine.with("qemu-system-x86_64", &emulator);
    let running = Running::new(&mut machine.command());
    running.until("starting the emulator", || begun.exists());
    running.interrupt();
    let (ran, took) = running.end();
    assert_eq!(ran.status, 130, "{}", ran.err);
    assert!(took < Duration::from_secs(10), "{took:?}");
    let begun = Instant::now();
    while !ended.exists() {
        assert!(begun.elapsed() < Duration::from_secs(10), "the emulator is left behind");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(fs::read_dir(machine.path().join("tmp")).expect("a folder").count(), 0);
}
