//! Faults planted in locks and guests are found and reported; no run is endless.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use holdfast_guest::{Cpu, GuestImage, Machine, Mode};
use holdfast_locks::{
    BootLock, Budget, CpuId, Interrupts, LockKind, Paravirt, Platform, PvTicket, RawLock, Steps, Word,
};
use holdfast_sim::{CallOff, Failure, SimCpu, SimWord, run_images};

use crate::image::{Bare, Program, Random, config, run_program};

struct NoRecheck;
// SAFETY: the tests share no memory under the lock.
#[allow(unsafe_code)]
unsafe impl Steps for NoRecheck {
    const RECHECK: bool = false;
}

struct NoKick;
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Steps for NoKick {
    const KICK: bool = false;
}

/// Contention for one lock of type `L` between vCPUs that outnumber their pCPUs. Spins are short, so many vCPUs halt.
fn contend<L: RawLock<SimCpu> + 'static>(seed: u64, rounds: u32) -> Result<(), Failure> {
    let word = SimWord::new(0);
    let program: Program = Rc::new(move |cpu: &SimCpu| {
        let mut random = Random(seed ^ u64::from(cpu.cpu().0) << 32);
        for _ in 0..rounds {
            L::lock(cpu, &word);
            cpu.lock_acquired(&word);
            cpu.compute(random.next(4_000));
            cpu.lock_released(&word);
            L::unlock(cpu, &word);
            cpu.compute(random.next(3_000));
        }
    });
    let mut config = config(2, 4, 1, seed);
    config.vms[0].boot.spin_threshold = 20;
    run_program(&config, &program, &(Rc::new(|_: &SimCpu| {}) as Program), 0).map(|_| ())
}

#[test]
fn the_whole_lock_never_hangs() {
    for seed in 0..10 {
        assert_eq!(contend::<PvTicket>(seed, 300), Ok(()), "seed {seed}");
    }
}

#[test]
fn without_its_recheck_a_lost_kick_is_reported() {
    let lost = (0..40)
        .filter_map(|seed| contend::<PvTicket<NoRecheck>>(seed, 300).err())
        .next();
    assert!(matches!(lost, Some(Failure::LostKick(_))), "{lost:?}");
}

#[test]
fn without_its_kick_a_lost_kick_is_reported() {
    let lost = (0..10)
        .filter_map(|seed| contend::<PvTicket<NoKick>>(seed, 300).err())
        .next();
    assert!(matches!(lost, Some(Failure::LostKick(_))), "{lost:?}");
}

/// A halt that drops the kick that came before it, as on a host without the latch.
#[test]
fn a_kick_that_is_not_sticky_is_reported() {
    let word = Rc::new(SimWord::new(0));
    let program: Program = Rc::new(move |cpu: &SimCpu| {
        let lock = &*word;
        if cpu.cpu().0 == 0 {
            PvTicket::<holdfast_locks::AllSteps>::lock(cpu, lock);
            cpu.lock_acquired(lock);
            cpu.compute(50_000);
            cpu.lock_released(lock);
            PvTicket::<holdfast_locks::AllSteps>::unlock(cpu, lock);
        } else if cpu.cpu().0 == 1 {
            cpu.compute(20_000);
            cpu.irq_save();
            cpu.contention_begin(lock);
            // A kick that comes while the vCPU still runs is used up, and then the vCPU halts for a lock that is free.
            cpu.kick(cpu.cpu());
            cpu.halt_masked();
            cpu.compute(100_000);
            cpu.halt_masked();
        }
    });
    let result = run_program(&config(2, 2, 0, 1), &program, &(Rc::new(|_: &SimCpu| {}) as Program), 0);
    assert!(matches!(result, Err(Failure::LostKick(_))), "{:?}", result.map(|_| ()));
}

#[test]
fn a_deadlock_names_its_locks() {
    let locks: Rc<[BootLock<SimWord>; 2]> = Rc::new([BootLock::new(), BootLock::new()]);
    let program: Program = Rc::new(move |cpu: &SimCpu| {
        let mine = cpu.cpu().0 as usize;
        for lock in [&locks[mine], &locks[1 - mine]] {
            lock.lock(LockKind::Ticket, cpu);
            cpu.lock_acquired(lock.word());
            cpu.compute(10_000);
        }
    });
    let result = run_program(&config(2, 2, 0, 1), &program, &(Rc::new(|_: &SimCpu| {}) as Program), 0);
    let Err(Failure::Deadlock(what)) = result else {
        panic!("{:?}", result.map(|_| ()))
    };
    assert!(what.contains("awaits lock") && what.contains("held by vcpu"), "{what}");
}

#[test]
fn a_guest_that_gets_nowhere_is_reported() {
    let program: Program = Rc::new(|cpu: &SimCpu| {
        loop {
            cpu.relax();
            cpu.compute(1_000_000);
        }
    });
    let mut config = config(1, 1, 0, 1);
    config.limit_ns = 2_000_000_000;
    let result = run_program(&config, &program, &(Rc::new(|_: &SimCpu| {}) as Program), 0);
    assert!(
        matches!(result, Err(Failure::Limit(_) | Failure::Livelock(_))),
        "{:?}",
        result.map(|_| ())
    );
}

/// Guests enter user mode for moments. If no vCPU waits meanwhile, that time is accounted only after they are back in
/// the kernel.
#[test]
fn a_guest_that_is_in_user_mode_for_moments_gets_somewhere() {
    let program: Program = Rc::new(|cpu: &SimCpu| {
        for _ in 0..22_000 {
            cpu.executing(Mode::User);
            cpu.compute(68);
            cpu.executing(Mode::Kernel);
            cpu.compute(1_000_000);
        }
    });
    let result = run_program(&config(1, 1, 0, 1), &program, &(Rc::new(|_: &SimCpu| {}) as Program), 0);
    assert_eq!(result.map(|_| ()), Ok(()), "it is in user mode every millisecond");
}

/// The reverse: kernel work does not count as the program's, whatever mode the guest has changed to before the work is
/// accounted.
#[test]
fn entering_user_mode_and_spending_no_time_there_is_no_progress() {
    let program: Program = Rc::new(|cpu: &SimCpu| {
        for _ in 0..60_000 {
            cpu.compute(500_000);
            // Too short to be accounted at once; the exit from user mode comes after it.
            cpu.compute(500);
            cpu.executing(Mode::User);
            cpu.kick(cpu.cpu());
            cpu.executing(Mode::Kernel);
        }
    });
    let result = run_program(&config(1, 1, 0, 1), &program, &(Rc::new(|_: &SimCpu| {}) as Program), 0);
    let result = result.map(|_| ());
    assert!(matches!(result, Err(Failure::Livelock(_))), "{result:?}");
}

#[test]
fn a_guest_panic_ends_the_run_with_its_message() {
    let program: Program = Rc::new(|_: &SimCpu| panic!("out of cheese"));
    let result = run_program(&config(1, 1, 0, 1), &program, &(Rc::new(|_: &SimCpu| {}) as Program), 0);
    let Err(Failure::GuestPanic(what)) = result else {
        panic!("{:?}", result.map(|_| ()))
    };
    assert!(what.contains("out of cheese"), "{what}");
}

#[test]
fn a_stack_overflow_is_reported() {
    fn deeper(cpu: &SimCpu, depth: u64) -> u64 {
        let frame = [depth; 256];
        cpu.compute(2_000);
        if depth > 1_000_000 {
            0
        } else {
            deeper(cpu, depth + 1) + std::hint::black_box(frame)[3]
        }
    }
    let program: Program = Rc::new(|cpu: &SimCpu| {
        std::hint::black_box(deeper(cpu, 0));
    });
    let result = run_program(&config(2, 2, 0, 1), &program, &(Rc::new(|_: &SimCpu| {}) as Program), 0);
    assert!(
        matches!(result, Err(Failure::StackOverflow(_))),
        "{:?}",
        result.map(|_| ())
    );
}

/// A kernel that uses its machine to count, which the engine does not expect.
struct Counting(Bare);

impl GuestImage for Counting {
    fn boot(&self, number: CpuId) -> ! {
        self.0.boot(number)
    }

    fn interrupt(&self, vector: u8) {
        self.0.interrupt(vector);
    }

    fn zero_statistics(&self) {
        let _ = self.0.machine.cpu();
    }
}

#[test]
#[should_panic(expected = "the engine is used inside of another use of it")]
fn a_kernel_that_uses_its_machine_while_the_engine_is_in_use_is_stopped() {
    let mut config = config(1, 1, 0, 1);
    config.zero_at_ns = Some(1_000);
    let program: Program = Rc::new(|cpu: &SimCpu| cpu.compute(1_000_000));
    let on_timer: Program = Rc::new(|_: &SimCpu| {});
    let _ = run_images(&config, &CallOff::new(), |_, machine| {
        Box::new(Counting(Bare::new(machine, program.clone(), on_timer.clone(), 0)))
    });
}

/// Whether the loop looks at the word or another flow: the run ends.
#[test]
#[should_panic(expected = "the engine is used inside of another use of it")]
fn a_wait_that_uses_its_cpu_to_look_at_the_word_is_stopped() {
    let word = SimWord::new(0);
    let program: Program = Rc::new(move |cpu: &SimCpu| {
        if cpu.cpu().0 == 0 {
            cpu.compute(10_000);
            cpu.store(&word, 1, Ordering::Relaxed);
        } else {
            // The waiting flow is parked when the store comes: the engine looks at the word for it.
            let _ = cpu.wait_until(&word, Budget::UNBOUNDED, Ordering::Relaxed, |value| {
                cpu.now_ns() > 0 && value != 0
            });
        }
    });
    let result = run_program(&config(2, 2, 0, 1), &program, &(Rc::new(|_: &SimCpu| {}) as Program), 0);
    result.map(|_| ()).expect("the guest is stopped");
}
