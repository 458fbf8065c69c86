//! The command `holdfast`, as it is shipped.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    holdfast_cli::command().run()
}
