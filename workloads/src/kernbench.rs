//! kernbench: a parallel build of the Linux kernel.

/// Parameters of kernbench.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernbench {
    /// Job slots: `make -j`. Default 20 (`kernbench -o 20`).
    pub jobs: u32,
    /// Fraction of the full build's compile units, in (0, 1]. Default 1.
    pub scale: f64,
    /// CPU seconds of user work in a full build: **the** calibration parameter (x5570-class CPU, undisturbed). Default
    /// is an estimate: 8 CPUs for 38.1 s at 85 % user time.
    pub user_cpu_seconds: f64,
}

impl Default for Kernbench {
    fn default() -> Self {
        Kernbench {
            jobs: 20,
            scale: 1.0,
            user_cpu_seconds: 258.0,
        }
    }
}
