//! The state of a vCPU: its registers, and a backtrace with function names.

use std::fmt;

/// The state of one vCPU.
#[derive(Clone, Debug, Default)]
pub struct GuestState {
    /// Name of the VM.
    pub vm: String,
    /// Number of the vCPU.
    pub vcpu: u32,
    /// Names and values of its registers.
    pub registers: Vec<(&'static str, u64)>,
    /// The backtrace, innermost function first.
    pub frames: Vec<Frame>,
    /// Whether the frames are the return addresses left on the vCPU's boot stack. Some may be of functions that have
    /// returned. KVM resets the registers after a triple fault on AMD (`shutdown_interception`), so there is no better
    /// source.
    pub left_on_stack: bool,
    /// Whether the guest had not yet begun its workload on all its vCPUs.
    pub booting: bool,
    /// KVM's statistics of the vCPU that are not 0.
    pub stats: Vec<(String, u64)>,
    /// The last lines that a stock Linux guest's kernel has printed.
    pub console: Vec<String>,
}

/// One frame of a backtrace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Address of the interrupted instruction, or the return address of a call.
    pub address: u64,
    /// Name of its function and the offset in it, or `None` if the address is in no function.
    pub function: Option<(String, u64)>,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.function {
            Some((name, offset)) => write!(f, "{:#x} {name}+{offset:#x}", self.address),
            None => write!(f, "{:#x} ?", self.address),
        }
    }
}

impl fmt::Display for GuestState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} vcpu {}:", self.vm, self.vcpu)?;
        for line in self.registers.chunks(4) {
            let line: Vec<String> = line
                .iter()
                .map(|(name, value)| format!("{name:>6} {value:016x}"))
                .collect();
            writeln!(f, "  {}", line.join(" "))?;
        }
        if self.left_on_stack && !self.frames.is_empty() {
            writeln!(
                f,
                "  the registers were reset; return addresses left on the boot stack:"
            )?;
        }
        for (number, frame) in self.frames.iter().enumerate() {
            writeln!(f, "  #{number} {frame}")?;
        }
        let stats: Vec<String> = self
            .stats
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        if !stats.is_empty() {
            writeln!(f, "  {}", stats.join(", "))?;
        }
        self.console.iter().try_for_each(|line| writeln!(f, "  | {line}"))
    }
}
