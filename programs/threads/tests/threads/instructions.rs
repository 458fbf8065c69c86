//! Counts the instructions of an uncontended lock and unlock, of one that overtakes a sleeping queue, and of a read:
//! one locked instruction, for a read two, and a few others.
//!
//! A child process executes them one instruction at a time, by `ptrace(2)`. A restartable sequence would never end that
//! way, because each stop restarts it. So it is executed up to its end in one run.

#![expect(unsafe_code, reason = "fork, ptrace")]

use std::ptr;
use std::time::Duration;

use holdfast_threads::*;
use libc::{c_long, c_void, pid_t, user_regs_struct};
use lock_api::RawMutex;
use lock_api_04::RawRwLock;

/// A child process that is stopped before its next instruction.
struct Stepped(pid_t);

/// The numbers of executed instructions.
#[derive(Debug, Default, PartialEq, Eq)]
struct Executed {
    instructions: u32,
    locked: u32,
    calls: u32,
}

const BREAKPOINT: u8 = 0xcc;

impl Stepped {
    /// Starts a child that runs `prepare`, and `work` between two breakpoints. Returns it stopped after the first one.
    /// Returns `None` if the system does not allow tracing.
    fn before(prepare: fn(), work: fn()) -> Option<Stepped> {
        // SAFETY: the child calls only these two, which use only memory of its own, and system calls.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "cannot fork");
        if child == 0 {
            // SAFETY: no memory is passed. Status 2 reports a refusal.
            if unsafe { libc::ptrace(libc::PTRACE_TRACEME) } != 0 {
                // SAFETY: ends the child without running exit handlers of the parent.
                unsafe { libc::_exit(2) };
            }
            prepare();
            // SAFETY: stops the child for the parent, which traces it.
            unsafe { core::arch::asm!("int3") };
            work();
            // SAFETY: as above.
            unsafe { core::arch::asm!("int3") };
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
        let child = Stepped(child);
        if child.stops() {
            return Some(child);
        }
        // The child has ended: there is nothing to kill.
        core::mem::forget(child);
        None
    }

    /// Waits for the child's next stop. Returns `false` if the child has ended.
    fn stops(&self) -> bool {
        let mut status = 0;
        // SAFETY: `status` is a local variable.
        let waited = unsafe { libc::waitpid(self.0, &mut status, 0) };
        assert_eq!(waited, self.0, "the child is lost");
        libc::WIFSTOPPED(status)
    }

    fn ptrace(&self, request: libc::c_uint, address: u64, data: *mut c_void) -> c_long {
        // SAFETY: `data` has the type that `request` needs.
        unsafe { libc::ptrace(request, self.0, address as *mut c_void, data) }
    }

    fn registers(&self) -> user_regs_struct {
        // SAFETY: all registers may be zero.
        let mut registers: user_regs_struct = unsafe { core::mem::zeroed() };
        let error = self.ptrace(libc::PTRACE_GETREGS, 0, (&raw mut registers).cast());
        assert_eq!(error, 0, "cannot read registers");
        registers
    }

    fn set_registers(&self, mut registers: user_regs_struct) {
        let error = self.ptrace(libc::PTRACE_SETREGS, 0, (&raw mut registers).cast());
        assert_eq!(error, 0, "cannot write registers");
    }

    fn word(&self, address: u64) -> u64 {
        self.ptrace(libc::PTRACE_PEEKDATA, address, ptr::null_mut()) as u64
    }

    fn bytes(&self, address: u64, count: u64) -> Vec<u8> {
        (0..count).map(|offset| self.word(address + offset) as u8).collect()
    }

    /// Executes until `address`, which is not the next instruction.
    fn run_to(&self, address: u64) {
        let word = self.word(address);
        let broken = word & !0xff | u64::from(BREAKPOINT);
        self.ptrace(libc::PTRACE_POKEDATA, address, broken as *mut c_void);
        self.ptrace(libc::PTRACE_CONT, 0, ptr::null_mut());
        assert!(self.stops(), "the child has ended early");
        self.ptrace(libc::PTRACE_POKEDATA, address, word as *mut c_void);
        let mut registers = self.registers();
        assert_eq!(registers.rip, address + 1, "stopped somewhere else");
        registers.rip = address;
        self.set_registers(registers);
    }

    /// Returns the end of a restartable sequence if the instruction at `rip` loads the address of its descriptor.
    fn sequence(&self, rip: u64, code: &[u8]) -> Option<u64> {
        // lea r64, [rip + displacement]
        let is_lea = code[0] & 0xf8 == 0x48 && code[1] == 0x8d && code[2] & 0xc7 == 0x05;
        let next = rip + 7;
        let displacement = is_lea.then(|| i32::from_le_bytes([code[3], code[4], code[5], code[6]]))?;
        let descriptor = next.wrapping_add_signed(displacement.into());
        let is_descriptor = self.word(descriptor) == 0 && self.word(descriptor + 8) == next;
        is_descriptor.then(|| next + self.word(descriptor + 16))
    }

    /// Executes up to the second breakpoint.
    fn count(self) -> Executed {
        let mut executed = Executed::default();
        loop {
            let rip = self.registers().rip;
            let code = self.bytes(rip, 8);
            if code[0] == BREAKPOINT {
                break;
            }
            executed.instructions += 1;
            executed.locked += u32::from(is_locked(&code));
            executed.calls += u32::from(is_call(&code));
            if let Some(end) = self.sequence(rip, &code) {
                // See `word/rseq.rs`: compare, branch, compare, branch, store.
                executed.instructions += 5;
                self.run_to(end);
            } else {
                self.ptrace(libc::PTRACE_SINGLESTEP, 0, ptr::null_mut());
                assert!(self.stops(), "the child has ended early");
            }
        }
        executed
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        // SAFETY: this process has not waited for the end of the child, so the id is still the child's.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        // SAFETY: as above; its status is of no interest.
        unsafe { libc::waitpid(self.0, ptr::null_mut(), 0) };
    }
}

/// Returns whether an instruction is locked: by its prefix, or because it exchanges a register with memory.
fn is_locked(code: &[u8]) -> bool {
    let prefixes = code
        .iter()
        .take_while(|byte| matches!(byte, 0xf0 | 0x66 | 0x64 | 0x40..=0x4f));
    let opcode = &code[prefixes.clone().count()..];
    let is_exchange = matches!(opcode, [0x86 | 0x87, modrm, ..] if modrm >> 6 != 3);
    prefixes.clone().any(|&byte| byte == 0xf0) || is_exchange
}

/// Returns whether an instruction is a call, direct or through a pointer.
fn is_call(code: &[u8]) -> bool {
    matches!(code, [0xe8, ..]) || matches!(code, [0xff, modrm, ..] if modrm >> 3 & 7 == 2)
}

#[inline(never)]
fn lock_and_unlock<R: RawMutex>(lock: &R) {
    let guard = lock.lock();
    // SAFETY: just locked.
    unsafe { lock.unlock(guard) };
}

/// Lock and unlock of one kind.
fn pair<R: RawMutex + 'static>() {
    lock_and_unlock(&R::INIT);
}

/// A lock whose queue has one waiter, which sleeps between two kicks.
static QUEUED: RawHybrid = RawHybrid::INIT;

/// Gives [`QUEUED`] its queue, and overtakes it until the record of the thread needs no clock for a while.
fn queue() {
    /// The tail that names the first node of CPU 0. Lock and unlock only see that there is one.
    const TAIL: u32 = 1 << 18;
    set_turn(Duration::MAX);
    let word = ptr::from_ref(&QUEUED).cast::<u32>().cast_mut();
    // SAFETY: the lock is one atomic word of this size, and no other thread of this process knows it.
    unsafe { word.write_volatile(TAIL) };
    for _ in 0..100 {
        OVERTAKE.iter().for_each(|overtake| overtake());
    }
}

/// Several places that lock, as in a program: what the compiler inlines into a single one may be a call in each.
static OVERTAKE: [fn(); 4] = [overtake::<0>, overtake::<1>, overtake::<2>, overtake::<3>];

#[inline(never)]
fn overtake<const PLACE: u8>() {
    let guard = QUEUED.lock();
    // SAFETY: just locked.
    unsafe { QUEUED.unlock(guard) };
    core::hint::black_box(PLACE);
}

/// A lock that does nothing, to count the instructions around lock and unlock.
struct Nothing(#[expect(dead_code, reason = "takes as much room as a lock")] ThreadWord);

// SAFETY: the lock protects no data.
unsafe impl RawMutex for Nothing {
    const INIT: Self = Nothing(ThreadWord::ZERO);
    type Guard = lock_api::GuardNoSend;

    fn lock(&self) -> Self::Guard {
        // Keeps the compiler from removing the call.
        core::hint::black_box(self);
        lock_api::GuardNoSend::new()
    }
    fn try_lock(&self) -> Option<Self::Guard> {
        Some(self.lock())
    }
    unsafe fn unlock(&self, _guard: Self::Guard) {}
    fn is_locked(&self) -> bool {
        false
    }
}

/// Returns the instructions of lock and unlock, or `None` if the system does not allow tracing.
fn executed_by<R: RawMutex + 'static>() -> Option<Executed> {
    let around = Stepped::before(|| (), pair::<Nothing>)?.count();
    let mut executed = Stepped::before(|| (), pair::<R>)?.count();
    assert_eq!(around.locked, 0);
    executed.instructions -= around.instructions;
    executed.calls -= around.calls;
    Some(executed)
}

type ExtendedHybrid = Extended<RawHybrid>;

#[test]
fn an_uncontended_lock_and_unlock_have_one_locked_instruction() {
    // Looked up in this process, so that the child need not look it up.
    let announced = if has_restartable_sequences() { 1 } else { 2 };
    // With the time slice extension the thread's own memory is written, too.
    let asking = if has_slice_extension() { 80 } else { 40 };
    // The last column leaves room for another compiler's registers.
    macro_rules! check {
        ($($raw:ident: $locked:expr, $instructions_max:expr;)+) => {$(
            let Some(executed) = executed_by::<$raw>() else {
                println!("SKIPPED: the system does not let one process trace another");
                return;
            };
            println!("{}: {executed:?}", stringify!($raw));
            assert_eq!((executed.locked, executed.calls), ($locked, 0), "{}: {executed:?}", stringify!($raw));
            assert!(executed.instructions <= $instructions_max, "{}: {executed:?}", stringify!($raw));
        )+};
    }
    check! {
        RawTas: 1, 8;
        RawTtas: 1, 14;
        RawTicket: 1, 16;
        RawQspin: 1, 14;
        RawUnfairQspin: 1, 14;
        RawPvTicket: announced, 38;
        RawPvQspin: announced, 26;
        RawUnfairPvQspin: announced, 26;
        RawHybrid: announced, 26;
        ExtendedHybrid: announced, asking;
    }
}

#[test]
fn overtaking_a_sleeping_queue_takes_one_locked_instruction_and_no_call() {
    let announced = if has_restartable_sequences() { 1 } else { 2 };
    let around = Stepped::before(|| (), || ());
    let (Some(around), Some(stepped)) = (around, Stepped::before(queue, OVERTAKE[0])) else {
        println!("SKIPPED: the system does not let one process trace another");
        return;
    };
    let (around, mut executed) = (around.count(), stepped.count());
    executed.calls -= around.calls;
    println!("{executed:?}");
    assert_eq!((executed.locked, executed.calls), (announced, 0), "{executed:?}");
    assert!(executed.instructions <= 44, "{executed:?}");
}

/// Locks with a bias for readers, and without.
static BIASED: RawBiasedRwLock = RawBiasedRwLock::INIT;
static PLAIN: RawBiasedRwLock = RawBiasedRwLock::INIT;

/// Biases [`BIASED`], which takes this thread 1024 reads, and not [`PLAIN`].
fn bias() {
    for _ in 0..1024 / READ_BIASED.len() {
        READ_BIASED.iter().for_each(|read| read());
    }
    READ_PLAIN.iter().for_each(|read| read());
}

/// Several places that read, as above.
static READ_BIASED: [fn(); 4] = [read_biased::<0>, read_biased::<1>, read_biased::<2>, read_biased::<3>];
static READ_PLAIN: [fn(); 4] = [read_plain::<0>, read_plain::<1>, read_plain::<2>, read_plain::<3>];

#[inline(never)]
fn read_biased<const PLACE: u8>() {
    BIASED.lock_shared();
    // SAFETY: just locked.
    unsafe { BIASED.unlock_shared() };
    core::hint::black_box(PLACE);
}

#[inline(never)]
fn read_plain<const PLACE: u8>() {
    PLAIN.lock_shared();
    // SAFETY: just locked.
    unsafe { PLAIN.unlock_shared() };
    core::hint::black_box(PLACE);
}

#[test]
fn a_read_of_a_lock_that_may_have_a_bias_takes_two_locked_instructions_and_few_others() {
    for read in [READ_BIASED[0], READ_PLAIN[0]] {
        // A child that goes on on another CPU takes another path: the shortest of three counts.
        let counts = (0..3).map(|_| {
            Some((
                Stepped::before(|| (), || ())?.count(),
                Stepped::before(bias, read)?.count(),
            ))
        });
        let Some(counts) = counts.collect::<Option<Vec<_>>>() else {
            println!("SKIPPED: the system does not let one process trace another");
            return;
        };
        let shortest = counts.into_iter().min_by_key(|(_, executed)| executed.instructions);
        let (around, mut executed) = shortest.expect("three counts");
        executed.calls -= around.calls;
        println!("{executed:?}");
        assert_eq!(executed.locked, 2, "{executed:?}");
        // Without optimization across crates the begin of the read is a call.
        assert!(executed.calls <= 1 && executed.instructions <= 64, "{executed:?}");
    }
}
