//! The texts of the files that are part of the program.

/// A file that is part of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    /// Name, without `.toml`.
    pub name: &'static str,
    /// Name in messages.
    pub file: &'static str,
    /// Content of the file.
    pub text: &'static str,
}

macro_rules! shipped {
    ($folder:literal: $($name:literal),*) => {
        &[$(Shipped {
            name: $name,
            file: concat!($folder, "/", $name, ".toml"),
            text: include_str!(concat!("../../../", $folder, "/", $name, ".toml")),
        }),*]
    };
}

/// All shipped experiments.
pub static EXPERIMENTS: &[Shipped] = shipped!(
    "experiments": "kernbench-overcommit", "pgbench-overhead", "aim7-qspinlock", "amqp-directed-yield", "boot-64",
    "cgroup-imbalance", "lock-crossover", "directed-yield-grid", "kernel-build-contention", "avic-hackbench", "avic-tar",
    "avic-netperf", "ipi-bench", "ebizzy-tlb", "ebizzy-wait-early", "linux-pvspin", "linux-hackbench",
    "live-migration", "dbench-overcommit", "nested-kernbench", "who-should-wait"
);

/// All shipped machine profiles.
pub static MACHINES: &[Shipped] = shipped!("machines": "xeon-x5570", "nehalem-ex", "westmere-ex-8", "broadwell-2x14", "carrizo-4", "epyc-rome", "generic-x86", "xeon-2x16");

/// All shipped profiles of measured kernels.
pub static KERNELS: &[Shipped] = shipped!("kernels": "linux-6.1", "linux-6.12", "linux-6.18", "linux-7.3");

/// Returns the shipped file called `name`.
pub fn find(files: &'static [Shipped], name: &str) -> Option<&'static Shipped> {
    files.iter().find(|file| file.name == name)
}
