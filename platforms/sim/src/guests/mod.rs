//! What guest code sees: its CPU, its machine, its network device; kernels and threads on the machine itself.

pub mod bare_metal;
pub mod cpu;
pub mod kernel_cpu;
pub mod lock;
pub mod machine;
pub mod migration;
pub mod native;
pub mod net;
pub mod noise;
pub mod precopy;
pub mod process;
pub mod tasks;
pub mod thread;
pub mod vm;
pub mod vmm;
