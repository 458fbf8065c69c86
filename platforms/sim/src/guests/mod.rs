//! What guest code sees: its CPU, its machine, and the threads of a program.

pub mod cpu;
pub mod kernel_cpu;
pub mod lock;
pub mod machine;
pub mod process;
pub mod thread;
