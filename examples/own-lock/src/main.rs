//! The command `holdfast`, in which `vm.*.lock` can be `"marked"`.

use std::process::ExitCode;

use own_lock::Marked;

fn main() -> ExitCode {
    holdfast_cli::command().lock::<Marked>("marked").run()
}
