//! The steps of the CPUs of an execution, which are printed if it fails.

use std::cell::RefCell;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::Ordering;

use holdfast_locks::CpuId;

use crate::checker::Rmw;

/// A step of a CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Load(u32, u32),
    Wait(u32, u32),
    Store(u32, u32),
    Rmw(u32, Rmw, Result<u32, u32>),
    Fence(Ordering),
    Halt,
    Wake,
    Kick(CpuId),
    Post(CpuId),
    Handler,
    HandlerEnd,
}

#[derive(Clone, Copy)]
struct Entry {
    cpu: CpuId,
    action: Action,
    at: &'static Location<'static>,
}

thread_local! {
    static STEPS: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// Forgets the steps of the previous execution.
pub(crate) fn clear() {
    STEPS.with_borrow_mut(Vec::clear);
}

pub(crate) fn note(cpu: CpuId, action: Action, at: &'static Location<'static>) {
    STEPS.with_borrow_mut(|steps| steps.push(Entry { cpu, action, at }));
}

/// Returns the steps of the execution that has just ended, one on each line. A load may show an old value.
pub(crate) fn render() -> String {
    STEPS.with_borrow(|steps| steps.iter().map(|step| format!("{step}\n")).collect())
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:width$}CPU {} ", "", self.cpu.0, width = 4 * self.cpu.0 as usize)?;
        match self.action {
            Action::Load(word, value) => write!(f, "loads {value:#x} from word {word}"),
            Action::Wait(word, value) => write!(f, "waits, sees {value:#x} in word {word}"),
            Action::Store(word, value) => write!(f, "stores {value:#x} to word {word}"),
            Action::Rmw(word, change, Ok(before)) => write!(f, "changes word {word} from {before:#x}: {change:x?}"),
            Action::Rmw(word, change, Err(found)) => write!(f, "finds {found:#x} in word {word}: {change:x?}"),
            Action::Fence(order) => write!(f, "fence {order:?}"),
            Action::Halt => write!(f, "halts"),
            Action::Wake => write!(f, "continues after its halt"),
            Action::Kick(target) => write!(f, "kicks CPU {}", target.0),
            Action::Post(target) => write!(f, "interrupts CPU {}", target.0),
            Action::Handler => write!(f, "takes an interrupt"),
            Action::HandlerEnd => write!(f, "returns from its interrupt"),
        }?;
        write!(f, "  ({}:{})", self.at.file(), self.at.line())
    }
}
