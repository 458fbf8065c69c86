//! Arguments of `holdfast import`.

use std::path::PathBuf;

use clap::Args;

use super::Format;

/// Arguments of `holdfast import`.
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// A recording: a file of `perf record`, `trace-cmd record` or `perf script`, or a folder of `holdfast record`; and
    /// what explains it: folders with copies of /proc and /sys, XML of libvirt, JSON of lscpu
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Format of the account
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Write the account as an HTML page to FILE, or to NAME.html in a folder
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write all figures for Prometheus to FILE, as its collector of text files reads them
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// Write a timeline for ui.perfetto.dev to FILE, or to NAME.pftrace in a folder
    #[arg(long, value_name = "FILE")]
    pub timeline: Option<PathBuf>,
    /// Start of the timeline since the begin of the recording, as in --from "1.5 s" [default: half of its length before
    /// the longest wait]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, requires = "timeline")]
    pub from: Option<String>,
    /// Length of the timeline [default: 1 s]
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true, requires = "timeline")]
    pub span: Option<String>,
    /// Show everything: each vCPU, all figures, exits, what woke vCPUs, the pCPUs
    #[arg(long)]
    pub all: bool,
}
