//! `holdfast validate kvm`: the locks in guests on this machine's KVM, or those of stock Linux guests.

use holdfast_real_host::linux::{KernelPath, Linux};
use holdfast_real_host::validate::{Settings, Spinlock, guests, linux};

use super::comparison::{Comparison, locks};
use crate::Done;
use crate::args::{ValidateKvmArgs, given};
use crate::commands::real_host::kvm;
use crate::error::Result;
use crate::refused::Refused;

/// The command, as messages name it.
const COMMAND: &str = "validate kvm";

/// Runs the locks in guests and in the simulator.
pub fn validate(args: &ValidateKvmArgs) -> Result<Done> {
    Comparison::check(&args.contended, against(args))?;
    kvm::usable(COMMAND)?;
    let Some(file) = &args.linux else {
        return validate_ours(args);
    };
    validate_stock(args, kvm::kernel(file.as_deref(), KernelPath::Dup, COMMAND)?)
}

/// Returns what the guests are, as the file's name and the report have it.
fn against(args: &ValidateKvmArgs) -> &'static str {
    if args.linux.is_some() { "kvm-linux" } else { "kvm" }
}

/// Compares guests of this project's kernel.
fn validate_ours(args: &ValidateKvmArgs) -> Result<Done> {
    let mut settings = Settings::guests();
    given(&mut settings.locks, &locks(&args.contended.locks)?);
    given(&mut settings.sections_ns, &args.contended.sections);
    let comparison = Comparison {
        against: against(args),
        in_guests: true,
        guest: None,
        settings,
    };
    comparison.run(&args.contended, guests::compare)
}

/// Compares guests of a stock Linux, whose kernel has its own locks and sections.
fn validate_stock(args: &ValidateKvmArgs, stock: Linux) -> Result<Done> {
    let mut settings = Settings::stock();
    let spinlocks: Result<Vec<_>, _> = args.contended.locks.iter().map(|name| spinlock(name)).collect();
    given(&mut settings.spinlocks, &spinlocks?);
    let comparison = Comparison {
        against: against(args),
        in_guests: true,
        guest: Some(stock.kernel.release()),
        settings,
    };
    comparison.run(&args.contended, move |settings, session| {
        linux::compare(settings, &stock, session)
    })
}

fn spinlock(name: &str) -> Result<Spinlock, Refused> {
    let all = Spinlock::ALL.iter().map(|spinlock| spinlock.name());
    Spinlock::named(name).ok_or_else(|| Refused::among(name, all))
}
