//! The command `holdfast`, in which `vm.*.workload` can be a pipeline.

use std::process::ExitCode;

use own_workload::Pipeline;

fn main() -> ExitCode {
    holdfast_cli::command().workload::<Pipeline>("pipeline").run()
}
