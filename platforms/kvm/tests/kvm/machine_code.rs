//! The machine code of an uncontended lock and unlock in the image accesses memory as the natively compiled source
//! does.
//!
//! The test maps the image's code at its link address and executes both versions one instruction at a time, by the trap
//! flag.

#![expect(unsafe_code, reason = "executes mapped machine code, single-stepped by signals")]

use std::arch::asm;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use holdfast_image::{PROBES, Probe};
use holdfast_kvm::Image;
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Register};

const STEPS_MAX: usize = 400;
const PAGE: u64 = 4096;

/// Addresses of the instructions executed under the trap flag.
static STEPS: [AtomicU64; STEPS_MAX] = [const { AtomicU64::new(0) }; STEPS_MAX];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Serializes the tests, since the handler and its array belong to the process.
static TURN: Mutex<()> = Mutex::new(());

extern "C" fn on_trap(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the interrupted thread's context to a handler installed with SA_SIGINFO.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let rip = context.uc_mcontext.gregs[libc::REG_RIP as usize] as u64;
    if let Some(place) = STEPS.get(COUNT.fetch_add(1, Relaxed)) {
        place.store(rip, Relaxed);
    }
}

/// Executes `function` on an unlocked word. Returns the addresses of its instructions.
fn execute(function: usize) -> Vec<u64> {
    // SAFETY: a zeroed value is a valid action with an empty mask.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = on_trap as *const () as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the action is valid, and the handler uses atomics only.
    let installed = unsafe { libc::sigaction(libc::SIGTRAP, &raw const action, ptr::null_mut()) };
    assert_eq!(installed, 0, "the system has no SIGTRAP");
    // A CPU is a pointer to its block, which an uncontended lock and unlock do not read. Zeros are enough.
    let block = vec![0u64; 8192];
    let cpu = block.as_ptr();
    let word = 0u32;
    COUNT.store(0, Relaxed);
    // SAFETY: `function` is a probe, mapped or of this binary. It locks and unlocks an unlocked word that belongs to
    // this test. The trap flag is set for the call only, and the assembly moves past the red zone.
    unsafe {
        asm!(
            "sub rsp, 128",
            "pushfq",
            "or qword ptr [rsp], 0x100",
            "popfq",
            "call {function}",
            "pushfq",
            "and qword ptr [rsp], -257",
            "popfq",
            "add rsp, 128",
            function = in(reg) function,
            in("rdi") cpu,
            in("rsi") &raw const word,
            clobber_abi("sysv64"),
        );
    }
    let count = COUNT.load(Relaxed);
    assert!((4..STEPS_MAX).contains(&count), "{count} instructions");
    let steps = STEPS[..count].iter().map(|step| step.load(Relaxed));
    // From the function's first instruction to its RET. The rest is the test's own code.
    steps.skip_while(|&rip| rip != function as u64).collect()
}

/// An access to memory outside of the stack.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Access {
    code: Code,
    locked: bool,
}

/// Returns the memory accesses of `steps` up to the RET, and the number of instructions. `code` returns the bytes at an
/// address.
fn accesses(steps: &[u64], code: impl Fn(u64) -> [u8; 15]) -> (Vec<Access>, usize) {
    let mut infos = InstructionInfoFactory::new();
    let (mut found, mut depth) = (Vec::new(), 0);
    for (count, &rip) in steps.iter().enumerate() {
        let bytes = code(rip);
        let mut instruction = Instruction::default();
        Decoder::with_ip(64, &bytes, rip, DecoderOptions::NONE).decode_out(&mut instruction);
        match instruction.mnemonic() {
            iced_x86::Mnemonic::Call => depth += 1,
            iced_x86::Mnemonic::Ret if depth == 0 => return (found, count + 1),
            iced_x86::Mnemonic::Ret => depth -= 1,
            _ => {}
        }
        let on_stack = |register| matches!(register, Register::RSP | Register::RBP);
        let used = infos.info(&instruction).used_memory();
        if used.iter().any(|memory| !on_stack(memory.base())) {
            found.push(Access {
                code: instruction.code(),
                locked: instruction.has_lock_prefix() || instruction.mnemonic() == iced_x86::Mnemonic::Xchg,
            });
        }
    }
    panic!("a probe does not return");
}

/// Maps the image's function at its link address.
fn map(address: u64, code: &[u8]) {
    let (start, end) = (
        address / PAGE * PAGE,
        (address + code.len() as u64).next_multiple_of(PAGE),
    );
    let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: a position-independent process has nothing below 4 MiB, and the pages of earlier probes are no longer
    // needed.
    let mapped = unsafe { libc::mmap(start as *mut c_void, (end - start) as usize, protection, flags, -1, 0) };
    assert_eq!(mapped as u64, start, "cannot map {start:#x}");
    // SAFETY: the range has just been mapped with this length.
    unsafe { ptr::copy_nonoverlapping(code.as_ptr(), address as *mut u8, code.len()) };
}

/// Returns the bytes of code at an address.
fn here(address: u64) -> [u8; 15] {
    // SAFETY: an instruction was executed at the address, and enough code follows it.
    unsafe { (address as *const [u8; 15]).read_unaligned() }
}

#[test]
fn locks_of_the_image_access_memory_as_natively_compiled_ones_do() {
    let _turn = TURN.lock();
    for &(name, native) in PROBES {
        let image = Image::embedded();
        let functions = image.functions(name);
        let exact = functions
            .iter()
            .find(|(address, _)| image.symbol(*address) == Some((name, 0)));
        let &(address, code) = exact.unwrap_or_else(|| panic!("the image has no {name}"));
        map(address, code);
        let (in_image, length) = accesses(&execute(address as usize), here);
        let (natively, native_length) = accesses(&execute(native as Probe as *const () as usize), here);
        println!("{name}: {length} instructions, natively {native_length}: {in_image:?}");
        assert_eq!(in_image, natively, "{name}");
        let locked = in_image.iter().filter(|access| access.locked).count();
        let paravirtual = name.contains("_pv_");
        assert_eq!(locked, if paravirtual { 2 } else { 1 }, "{name}: {in_image:?}");
        // The image is compiled with frame pointers.
        assert!(
            length <= native_length + 8,
            "{name}: {length} instructions, natively {native_length}"
        );
    }
}
