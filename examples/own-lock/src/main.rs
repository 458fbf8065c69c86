//! The command `holdfast`, in which `vm.*.lock` can be `"marked"` or `"informed"`.

use std::process::ExitCode;

use own_lock::{Informed, Marked};

fn main() -> ExitCode {
    holdfast_cli::command()
        .lock::<Marked>("marked")
        .lock::<Informed>("informed")
        .run()
}
