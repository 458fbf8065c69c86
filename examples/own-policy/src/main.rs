//! The command `holdfast`, in which `host.policy` and `vm.*.guest_policy` can name these policies.

use std::process::ExitCode;

use holdfast_guest::StealGovernor;
use own_policy::Balance;
use own_policy::guest::OffPreempted;
use own_policy::ideas::{Boost, CoScheduling, Grace, IpiYield, LagCredit, MicroPool, Opportunistic};

fn main() -> ExitCode {
    holdfast_cli::command()
        .policy::<Balance>("balance")
        .policy::<Boost>("boost")
        .policy::<CoScheduling>("co-scheduling")
        .policy::<Grace<100>>("grace-100us")
        .policy::<Grace<500>>("grace-500us")
        .policy::<IpiYield>("ipi-yield")
        .policy::<LagCredit>("lag-credit")
        .policy::<MicroPool>("micro-pool")
        .policy::<Opportunistic>("opportunistic")
        .guest_policy::<OffPreempted>("off-preempted")
        .guest_policy::<StealGovernor<50>>("steal-governor-50ms")
        .run()
}
