//! A machine that offers no more than the interface demands: what is left out does nothing.

#![expect(unsafe_code, reason = "the machine's traits are unsafe to implement")]

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{self, Relaxed};

use holdfast_abi::StealTime;
use holdfast_guest::{Caches, Cpu, GuestImage, LockClass, Machine, Mode, Pcid, Report, TakenPage};
use holdfast_locks::{Budget, CpuId, Interrupts, NodeTable, Nodes, Numa, Paravirt, Platform, WaitTable, Word};

/// The one CPU. Only its words and its steal-time record work.
#[derive(Default)]
struct BareCpu {
    steal_time: StealTime,
}

/// A word of this machine. No lock is in one.
struct BareWord(AtomicU32);

impl Word<u32> for BareWord {
    fn new(value: u32) -> Self {
        BareWord(AtomicU32::new(value))
    }
}

struct NoAddress;

impl Word<usize> for NoAddress {
    fn new(_: usize) -> Self {
        NoAddress
    }
}

/// Defines operations that only locks need.
macro_rules! unused {
    ($($name:ident($($argument:ty),*) -> $result:ty;)+) => {
        $(fn $name(&self, $(_: $argument),*) -> $result {
            unreachable!("no lock is taken")
        })+
    };
}

// SAFETY: words are only loaded, and there is one CPU.
unsafe impl Platform for BareCpu {
    type Word = BareWord;
    type Address = NoAddress;

    fn cpu(&self) -> CpuId {
        CpuId(0)
    }
    fn load(&self, word: &BareWord, order: Ordering) -> u32 {
        word.0.load(order)
    }
    fn relax(&self) {}
    unused! {
        key(&BareWord) -> usize;
        store(&BareWord, u32, Ordering) -> ();
        store_low8(&BareWord, u8, Ordering) -> ();
        store_low16(&BareWord, u16, Ordering) -> ();
        swap(&BareWord, u32, Ordering) -> u32;
        compare_exchange(&BareWord, u32, u32, Ordering, Ordering) -> Result<u32, u32>;
        fetch_add(&BareWord, u32, Ordering) -> u32;
        fetch_or(&BareWord, u32, Ordering) -> u32;
        fetch_and(&BareWord, u32, Ordering) -> u32;
        load_address(&NoAddress, Ordering) -> usize;
        store_address(&NoAddress, usize, Ordering) -> ();
        compare_exchange_address(&NoAddress, usize, usize, Ordering, Ordering) -> Result<usize, usize>;
        fence(Ordering) -> ();
    }
}

// SAFETY: there are no interrupts.
unsafe impl Interrupts for BareCpu {
    fn irq_save(&self) -> bool {
        false
    }
    fn irq_restore(&self, _: bool) {}
    fn in_nmi(&self) -> bool {
        false
    }
}

// SAFETY: no lock queues here.
unsafe impl Nodes for BareCpu {
    fn nodes(&self) -> &NodeTable<BareWord> {
        unreachable!("no lock queues")
    }
}

impl Numa for BareCpu {
    fn numa_node(&self, _: CpuId) -> u32 {
        0
    }
    fn monotonic_ns(&self) -> u64 {
        0
    }
}

// SAFETY: nothing halts here.
unsafe impl Paravirt for BareCpu {
    type Recorder = ();
    fn halt_masked(&self) {}
    fn halt_unmasked(&self) {}
    fn kick(&self, _: CpuId) {}
    fn is_preempted(&self, _: CpuId) -> bool {
        false
    }
    fn waiting(&self) -> &WaitTable<BareWord, NoAddress> {
        unreachable!("no lock halts")
    }
    fn spin_threshold(&self) -> Budget {
        Budget(0)
    }
    fn now_ns(&self) -> u64 {
        0
    }
    fn recorder(&self) -> &() {
        &()
    }
}

// SAFETY: there are no interrupts.
unsafe impl Cpu for BareCpu {
    fn compute(&self, _: u64) {}
    fn caches(&self) -> Caches {
        Caches(0)
    }
    fn fetch_lines(&self, _: Caches, _: u32, _: bool) {}
    fn irq_enable(&self) {}
    fn irq_disable(&self) {}
    fn irqs_enabled(&self) -> bool {
        false
    }
    fn cpuid(&self, _: u32) -> [u32; 4] {
        [0; 4]
    }
    fn wrmsr(&self, _: u32, _: u64) {}
    fn rdmsr(&self, _: u32) -> u64 {
        0
    }
    fn apic_write(&self, _: u32, _: u32) {}
    fn apic_read(&self, _: u32) -> u32 {
        0
    }
    fn hypercall(&self, _: u32, _: [u64; 4]) -> i64 {
        0
    }
    fn steal_time(&self, _: CpuId) -> &StealTime {
        &self.steal_time
    }
    fn steal_time_address(&self, _: CpuId) -> u64 {
        0
    }
    fn join_node(&self, _: u32) {}
    fn lock_acquired(&self, _: &BareWord) {}
    fn lock_released(&self, _: &BareWord) {}
    fn ipi_wait_begin(&self, _: CpuId) {}
    fn ipi_wait_end(&self, _: CpuId) {}
    fn executing(&self, _: Mode) {}
}

struct BareMachine;

// SAFETY: nothing runs on it.
unsafe impl Machine for BareMachine {
    type Cpu = BareCpu;
    type Context = ();
    fn cpus(&self) -> u32 {
        1
    }
    fn cpu(&self) -> BareCpu {
        BareCpu::default()
    }
    fn new_context(&self, _: Box<dyn FnOnce()>) {}
    fn empty_context(&self) {}
    fn switch(&self, (): &(), (): &()) {}
    fn seed(&self, _: &str) -> u64 {
        0
    }
    fn report(&self, _: Report) {}
}

struct BareImage;

impl GuestImage for BareImage {
    fn boot(&self, _: CpuId) -> ! {
        unreachable!("nothing boots")
    }
    fn interrupt(&self, _: u8) {}
}

#[test]
fn a_cpu_has_no_record_clock_or_count_that_it_does_not_offer() {
    let cpu = BareCpu::default();
    assert_eq!((cpu.pv_eoi_address(), cpu.take_pv_eoi()), (None, false));
    assert_eq!((cpu.contentions(), cpu.lock_clock_ns()), (0, 0));
    assert_eq!(cpu.tables_changed(7), 0);
    // What is only an announcement leaves the CPU as it was.
    cpu.port_write(0x80, 1);
    cpu.touch_page(TakenPage {
        space: 1,
        of_space: 1,
        in_use: 1,
        is_first_touch: true,
    });
    cpu.pages_freed(1, 0);
    cpu.load_tables(1, Pcid::NONE);
    cpu.flush_tlb();
    cpu.tables_flushed(7, 0);
    cpu.lock_class(&BareWord::new(0), LockClass::Other);
    assert_eq!(cpu.preempted_state(CpuId(0)), 0);
}

#[test]
fn a_flush_is_asked_for_in_the_record_while_that_is_as_it_was_read() {
    let cpu = BareCpu::default();
    let record = &cpu.steal_time.preempted;
    for state in [0, StealTime::PREEMPTED, 0x80 | StealTime::PREEMPTED] {
        record.store(state, Relaxed);
        assert_eq!(cpu.preempted_state(CpuId(0)), state);
        assert!(!cpu.ask_for_flush(CpuId(0), !state), "the vCPU may run again");
        assert_eq!(record.load(Relaxed), state);
        assert!(cpu.ask_for_flush(CpuId(0), state));
        assert_eq!(record.load(Relaxed), state | StealTime::FLUSH_TLB);
    }
}

#[test]
fn a_cpu_without_mwait_waits_in_a_loop_until_the_word_changes() {
    let (cpu, word) = (BareCpu::default(), BareWord::new(2));
    cpu.monitor_wait(&word, 1);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            std::thread::yield_now();
            word.0.store(3, Relaxed);
        });
        cpu.monitor_wait(&word, 2);
        assert_eq!(word.0.load(Relaxed), 3);
        writer.join().expect("the writer ends");
    });
}

#[test]
fn a_machine_without_firmware_tables_and_devices_says_so() {
    let machine = BareMachine;
    assert_eq!(machine.proximity_domain(0), None);
    assert_eq!(machine.startup_page(), None);
    assert!(machine.network().is_none());
    assert!(machine.threads().is_none());
}

#[test]
#[should_panic(expected = "schedules its tasks itself")]
fn a_kernel_with_its_own_scheduler_is_not_preempted_by_the_host() {
    BareImage.nmi();
    BareImage.zero_statistics();
    BareImage.preempt();
}
