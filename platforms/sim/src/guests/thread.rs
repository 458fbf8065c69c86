//! A thread of a bare-metal program, as the CPU on which its locks run. It is in virtual time what `programs/threads`
//! is on a real system.
//!
//! How it waits, halts and shares is [`holdfast_locks::thread`], the same source as there. Below it are system calls.
//! A thread in a system call is in kernel mode, which costs entry and exit, and keeps its pCPU until it sleeps or
//! returns. In user mode it can be preempted between any two operations.

#![expect(unsafe_code, reason = "the platform's traits are unsafe to implement")]

use core::sync::atomic::Ordering;

use holdfast_guest::{Cpu, Machine, Mode, Report, Threads};
use holdfast_host::{HostInterrupt, PcpuId};
use holdfast_locks::thread::{NAP_DIVISOR, SHARING, Thread, wait_until};
use holdfast_locks::{Budget, CpuId, Interrupts, NodeTable, Nodes, Numa, Paravirt, Platform, Sharing, WaitTable};
use holdfast_machine::{Access, Costs, Picos};

use crate::guests::cpu::SimCpu;
use crate::guests::machine::SimMachine;
use crate::guests::process::Process;
use crate::memory::word::{SimAddress, SimWord};
use crate::tasks::native::Call;

/// Time by which a sleep is longer than requested: the kernel's default timer slack (`PR_SET_TIMERSLACK`).
const TIMER_SLACK_NS: u64 = 50_000;

/// A thread, for the code that runs on it.
#[derive(Clone, Copy, Debug)]
pub struct SimThread {
    machine: SimMachine,
    process: *const Process,
    index: u32,
}

impl SimThread {
    /// Thread `index` of `process`, which must not move and must outlive all flows of the run on `machine`. Only code
    /// that the engine runs may use it.
    pub(crate) fn new(machine: SimMachine, process: *const Process, index: u32) -> SimThread {
        SimThread {
            machine,
            process,
            index,
        }
    }

    /// The thread's number in its process, from 0.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The thread's process.
    #[inline]
    pub(crate) fn process(&self) -> &Process {
        // SAFETY: the image that owns the process is dropped after the run, and flows execute only during a run.
        // Everything that changes in it is in cells, and flows execute one at a time.
        unsafe { &*self.process }
    }

    /// The CPU that executes the caller.
    #[inline]
    fn here(&self) -> SimCpu {
        self.machine.cpu()
    }

    /// Computes for `ns` nanoseconds of undisturbed time.
    pub fn compute(&self, ns: u64) {
        self.here().compute(ns);
    }

    /// A system call that does nothing.
    pub fn call_kernel(&self) {
        self.system_call(|| ());
    }

    /// Sleeps for `ns` nanoseconds.
    pub fn sleep(&self, ns: u64) {
        self.system_call(|| {
            let program = self.cost(|costs| costs.timer_program);
            self.here().handle.work(program);
            let until = self.here().now_ns() + ns + TIMER_SLACK_NS;
            self.away(|| Threads::sleep(&self.machine, Some(until)));
        });
    }

    /// Begins the measured interval.
    pub fn begin(&self) {
        self.machine.report(Report::Begin);
    }

    /// Ends the measured interval, and the run. `operations` were completed, where throughput is measured.
    pub fn done(&self, operations: Option<u64>) {
        self.machine.report(Report::Done { operations });
    }

    fn cost(&self, cost: impl Fn(&Costs) -> Picos) -> Picos {
        self.machine.handle.with(|engine| cost(&engine.hardware.costs))
    }

    /// Executes `call` in kernel mode.
    fn system_call<T>(&self, call: impl FnOnce() -> T) -> T {
        self.here().executing(Mode::Kernel);
        let entry = self.cost(|costs| costs.syscall);
        self.here().handle.work(entry);
        let result = call();
        self.return_to_user();
        result
    }

    /// Returns to user mode, unless another thread is to run first.
    pub(crate) fn return_to_user(&self) {
        while self.machine.wants_to_reschedule() {
            self.away(|| self.machine.yield_cpu());
        }
        self.here().executing(Mode::User);
    }

    /// Executes `call`, in which the thread may lose its CPU.
    fn away(&self, call: impl FnOnce()) {
        let here = self.here();
        here.irq_disable();
        here.executing(Mode::Idle);
        call();
        self.arrive();
    }

    /// The thread has got a CPU, maybe another one than before. Interrupts are masked before, and enabled afterwards.
    pub(crate) fn arrive(&self) {
        let here = self.here();
        here.executing(Mode::Kernel);
        let last = &self.process().last[here.cpu().0 as usize];
        if last.replace(self.index) != self.index {
            let switch = self.cost(|costs| costs.context_switch);
            here.handle.work(switch);
        }
        here.irq_enable();
    }

    /// A restartable sequence on the bits `mask` of `word`: load, compare, plain store. It never overwrites a store
    /// that came in between.
    fn compare_store(&self, word: &SimWord, mask: u32, current: u32, new: u32, order: Ordering) -> Result<(), u32> {
        let found = self.load(word, order) & mask;
        if found != current {
            return Err(found);
        }
        self.here().handle.operate(word, Access::Store, |old| {
            if old & mask == current {
                (Some(old & !mask | new), Ok(()))
            } else {
                (None, Err(old & mask))
            }
        })
    }

    /// Returns whether an unlock is an exchange at present, and counts it if it is.
    fn exchanges(&self) -> bool {
        let process = self.process();
        let exchanges = process.exchanging.get();
        if exchanges && process.changeover.exchanges(&process.batches[self.index as usize]) {
            process.exchanging.set(false);
        }
        exchanges
    }

    fn look_up(&self) {
        let look_up = self.cost(|costs| costs.futex);
        self.here().handle.work(look_up);
    }
}

/// Operations of the CPU that executes the thread at present.
macro_rules! operations {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)+) => {$(
        #[inline]
        fn $name(&self, $($argument: $type),*) $(-> $result)? {
            self.here().$name($($argument),*)
        }
    )+};
}

// SAFETY: the operations are those of the CPU that executes the caller. A thread's number is its own.
unsafe impl Platform for SimThread {
    type Word = SimWord;
    type Address = SimAddress;

    fn cpu(&self) -> CpuId {
        CpuId(self.index)
    }

    operations! {
        key(word: &SimWord) -> usize;
        load(word: &SimWord, order: Ordering) -> u32;
        store(word: &SimWord, value: u32, order: Ordering);
        store_low8(word: &SimWord, value: u8, order: Ordering);
        store_low16(word: &SimWord, value: u16, order: Ordering);
        store_byte1(word: &SimWord, value: u8, order: Ordering);
        swap(word: &SimWord, value: u32, order: Ordering) -> u32;
        swap_low8(word: &SimWord, value: u8, order: Ordering) -> u8;
        swap_low16(word: &SimWord, value: u16, order: Ordering) -> u16;
        swap_high16(word: &SimWord, value: u16, order: Ordering) -> u16;
        compare_exchange(word: &SimWord, current: u32, new: u32, success: Ordering, failure: Ordering) -> Result<u32, u32>;
        compare_exchange_low8(word: &SimWord, current: u8, new: u8, success: Ordering, failure: Ordering) -> Result<u8, u8>;
        compare_exchange_low16(word: &SimWord, current: u16, new: u16, success: Ordering, failure: Ordering) -> Result<u16, u16>;
        fetch_add(word: &SimWord, value: u32, order: Ordering) -> u32;
        fetch_or(word: &SimWord, bits: u32, order: Ordering) -> u32;
        fetch_and(word: &SimWord, bits: u32, order: Ordering) -> u32;
        load_address(word: &SimAddress, order: Ordering) -> usize;
        store_address(word: &SimAddress, value: usize, order: Ordering);
        compare_exchange_address(
            word: &SimAddress, current: usize, new: usize, success: Ordering, failure: Ordering
        ) -> Result<usize, usize>;
        fence(order: Ordering);
        relax();
    }

    fn compare_store_low8(&self, word: &SimWord, current: u8, new: u8, order: Ordering) -> Result<(), u8> {
        if self.exchanges() {
            let exchanged = self.compare_exchange_low8(word, current, new, order, Ordering::Relaxed);
            return exchanged.map(drop);
        }
        self.compare_store(word, 0xff, current.into(), new.into(), order)
            .map_err(|found| found as u8)
    }

    fn compare_store_low16(&self, word: &SimWord, current: u16, new: u16, order: Ordering) -> Result<(), u16> {
        if self.exchanges() {
            let exchanged = self.compare_exchange_low16(word, current, new, order, Ordering::Relaxed);
            return exchanged.map(drop);
        }
        self.compare_store(word, 0xffff, current.into(), new.into(), order)
            .map_err(|found| found as u16)
    }

    fn settle(&self) -> bool {
        let process = self.process();
        if process.exchanging.get() {
            process.changeover.spares();
        } else {
            let leaves = process.changeover.settles();
            self.interrupt_others();
            if leaves {
                process.exchanging.set(true);
            }
        }
        true
    }

    fn wait_until(
        &self,
        word: &SimWord,
        budget: Budget,
        order: Ordering,
        until: impl Fn(u32) -> bool,
    ) -> Result<u32, u32> {
        wait_until(self, word, budget, order, until)
    }
}

impl Thread for SimThread {
    fn give_way(&self) {
        self.system_call(|| {
            let pick = self.cost(|costs| costs.sched_yield);
            self.here().handle.work(pick);
            self.away(|| self.machine.handle.call(Call::GiveWay));
        });
    }

    fn futex_wait(&self, word: &SimWord, value: u32) {
        self.system_call(|| {
            self.look_up();
            // Interrupts are masked from the load of the word to the sleep. A wakeup in between ends that sleep at
            // once.
            self.here().irq_disable();
            let key = self.key(word);
            self.process().queue(key, self.index);
            if self.load(word, Ordering::Relaxed) == value {
                self.away(|| Threads::sleep(&self.machine, None));
            } else {
                self.process().take(key);
                self.here().irq_enable();
            }
        });
    }

    fn futex_wake(&self, word: &SimWord) {
        self.system_call(|| {
            self.look_up();
            if let Some(sleeper) = self.process().take(self.key(word)) {
                let handle = self.here().handle;
                let time = handle.with(|engine| {
                    let pcpu = engine.current().pcpu.expect("a flow executes in its guest");
                    engine.wake_time(pcpu)
                });
                handle.work(time);
                Threads::wake(&self.machine, sleeper);
            }
        });
    }

    /// Interrupts the CPUs that run other threads. The cost of sending is part of the latency here: the waiting thread
    /// cannot distinguish the two.
    fn interrupt_others(&self) {
        self.system_call(|| {
            self.here().handle.order();
            let mine = self.here().cpu().0;
            let mut waits = Picos::ZERO;
            for other in (0..self.machine.cpus()).filter(|&other| other != mine) {
                let handle = self.machine.handle;
                if handle.with(|engine| engine.runs_native_thread(PcpuId(other))) {
                    handle.work(self.cost(|costs| costs.ipi_send));
                    handle.order();
                    waits = self.cost(|costs| costs.ipi_latency + costs.host_interrupt + costs.transfer_socket);
                    handle.with(|engine| engine.send_ipi(PcpuId(other), HostInterrupt::Call, Picos::ZERO));
                }
            }
            self.here().handle.work(waits);
        });
    }

    fn spin(&self, word: &SimWord, budget: Budget, order: Ordering, until: impl Fn(u32) -> bool) -> Result<u32, u32> {
        self.here().wait_until(word, budget, order, until)
    }
}

// SAFETY: a program has no interrupts of its own, and the handlers of its CPU's interrupts do not run its code.
unsafe impl Interrupts for SimThread {
    fn irq_save(&self) -> bool {
        true
    }
    fn irq_restore(&self, _enabled: bool) {}
    fn in_nmi(&self) -> bool {
        false
    }
}

// SAFETY: one table for the process, with a place for each of its threads.
unsafe impl Nodes for SimThread {
    fn nodes(&self) -> &NodeTable<SimWord> {
        &self.process().nodes
    }
}

impl Numa for SimThread {
    fn numa_node(&self, _: CpuId) -> u32 {
        0
    }
    fn monotonic_ns(&self) -> u64 {
        self.now_ns()
    }
}

// SAFETY: the parker keeps **Sticky kick**, and no sleep or wakeup is lost; one table for the process.
unsafe impl Paravirt for SimThread {
    type Recorder = ();

    fn halt_masked(&self) {
        self.process().turns[self.index as usize].end_streak();
        self.process().parkers[self.index as usize].halt(self);
    }
    fn halt_unmasked(&self) {
        self.halt_masked();
    }
    fn kick(&self, cpu: CpuId) {
        self.process().parkers[cpu.0 as usize].kick(self);
    }
    fn is_preempted(&self, _: CpuId) -> bool {
        false
    }
    fn waiting(&self) -> &WaitTable<SimWord, SimAddress> {
        &self.process().waiting
    }
    fn spin_threshold(&self) -> Budget {
        self.process().waits.spin_threshold
    }
    fn sharing(&self) -> Sharing {
        SHARING
    }
    fn overtook(&self) -> bool {
        let turns = &self.process().turns[self.index as usize];
        turns.overtook(|| (self.process().waits.turn_ns, self.now_ns()))
    }
    fn nap(&self) {
        self.process().turns[self.index as usize].end_streak();
        self.sleep(self.process().waits.turn_ns / NAP_DIVISOR);
    }
    fn now_ns(&self) -> u64 {
        self.here().now_ns()
    }
    fn recorder(&self) -> &() {
        &()
    }
}
