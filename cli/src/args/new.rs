//! Arguments of `holdfast new`.

use clap::Args;
use holdfast_lab::linux::Linux;
use holdfast_lab::template::{Answers, NewGuest, Question};

/// Arguments of `holdfast new`.
#[derive(Args, Debug)]
pub struct NewArgs {
    /// The file, which ends in .toml
    #[arg(default_value = "mine.toml")]
    pub file: String,
    /// Linux of the host and its guests, as in linux-6.12
    #[arg(long, value_name = "VERSION", value_parser = NewArgs::version)]
    pub kernel: Option<Linux>,
    /// File with the output of `lscpu -p` or `virsh capabilities` of the host, relative to the new file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sockets", "cores", "threads"])]
    pub topology: Option<String>,
    /// Sockets of the host
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub sockets: Option<u32>,
    /// Cores of each socket
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub cores: Option<u32>,
    /// Threads of each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: Option<u32>,
    /// A guest, as in db:pgbench:8 or builder:kernbench:8:3 for three; the first is what the question is about
    #[arg(long = "guest", value_name = "NAME:WORKLOAD:VCPUS[:COUNT]", value_parser = NewGuest::parse)]
    pub guests: Vec<NewGuest>,
    /// What is compared: pin, weight, quota, host
    #[arg(long, value_parser = question)]
    pub question: Option<Question>,
    /// Replace a file that is there
    #[arg(long)]
    pub force: bool,
}

impl NewArgs {
    /// Returns whether an option has said something about the experiment.
    pub fn is_answered(&self) -> bool {
        let host = self.topology.is_some() || self.sockets.or(self.cores).or(self.threads).is_some();
        host || self.kernel.is_some() || !self.guests.is_empty() || self.question.is_some()
    }

    /// Reads a version of Linux.
    ///
    /// # Errors
    /// The versions that there are.
    pub fn version(text: &str) -> Result<Linux, String> {
        let known = || Answers::kernels().collect::<Vec<_>>().join(", ");
        Linux::by_name(text).ok_or_else(|| format!("expected one of {}", known()))
    }
}

fn question(text: &str) -> Result<Question, String> {
    let found = Question::ALL.into_iter().find(|question| question.name() == text);
    found.ok_or_else(|| "expected pin, weight, quota or host".to_owned())
}
