//! A run of virtual machines: their vCPU threads, the wait for their end, and their failures.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

use holdfast_protocol::Crash;
use kvm_ioctls::VcpuFd;

use crate::changes::{Change, Changes};
use crate::crash::capture;
use crate::error::Error;
use crate::guest::{Guest, Left};
use crate::image::Image;
use crate::linux::Ports;
use crate::report::Report;
use crate::state::GuestState;
use crate::system::Host;
use crate::vcpu::{Exit, interrupt, pin_to, prepare_signal, set_nice};
use crate::vm::Vm;

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// Time after which guests that are not done count as hung. Default: 60 s.
    pub limit: Duration,
    /// Flag by which the caller calls the run off, checked every 20 ms.
    pub call_off: Option<&'a AtomicBool>,
    /// Time since the start of the run at which KVM's statistics are zeroed, and the counters of guests that run the
    /// kernel. Other tasks keep their counts. A guest zeroes its own once it takes interrupts, and KVM's statistics of
    /// it are zeroed then. Default: never.
    pub zero_at: Option<Duration>,
    /// Migrations of all guests. Default: none.
    pub migration: Option<Migration>,
}

/// Migrations of all guests of a run, again and again, each to new VMs of this host with the same memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Time for which the guests run before it, at least. If it is shorter than a time slice of the host, the same
    /// vCPUs may come first in its queues again and again, and others starve.
    pub every: Duration,
    /// Time for which the guests are stopped, at least.
    pub downtime: Duration,
    /// Of a latched kick only what MP_STATE can say arrives: of one taken before the halt, nothing.
    pub mp_state_only: bool,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            limit: Duration::from_secs(60),
            call_off: None,
            zero_at: None,
            migration: None,
        }
    }
}

/// The text by which Linux logs a panic.
const PANIC: &str = "Kernel panic";
/// Interval at which [`Options::call_off`] is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Interval at which threads are signaled to end. A thread that was about to enter the guest misses the first signal.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(2);

/// Runs `vms` together until all measured ones are done. A VM may come later ([`Vm::from`]), and a background VM may be
/// destroyed before ([`Vm::until`]). Stock Linux guests begin together with those that are there.
///
/// # Errors
/// Returns an error if a VM cannot be created, fails or does not end in time. Nothing of the run is left then.
pub fn run(vms: &[Vm], options: &Options<'_>) -> Result<Report, Error> {
    let host = Host::open()?;
    if options.migration.is_some()
        && let Some(vm) = vms.iter().find(|vm| !vm.from.is_zero() || vm.until.is_some())
    {
        return Err(Error::Invalid {
            vm: vm.name.clone(),
            what: "it comes or goes, and so cannot migrate".to_owned(),
        });
    }
    prepare_signal();
    let start = Instant::now();
    let (mut guests, mut vcpus) = (Vec::new(), Vec::new());
    for (number, vm) in (0..).zip(vms) {
        let (guest, fds) = Guest::create(&host, vm, number)?;
        guests.push(guest);
        vcpus.push(fds);
    }
    let session = Arc::new(Session {
        guests,
        state: Mutex::new(State::default()),
        changed: Condvar::new(),
        stop: AtomicBool::new(false),
        capture_all: AtomicBool::new(false),
    });
    // Dropping these ends the threads, on every return.
    let mut threads = Threads {
        session: Arc::clone(&session),
        handles: Vec::new(),
    };
    let mut changes = Changes::of(vms, vcpus);
    let ended = session.wait(&host, &mut threads, &mut changes, start, options);
    let elapsed = start.elapsed();
    session
        .capture_all
        .store(matches!(ended, Err(Error::Hang { .. })), Ordering::Relaxed);
    threads.end();
    drop(threads);
    let session = Arc::into_inner(session).expect("all threads, which shared the session, have ended");
    let state = session.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = state.error {
        return Err(error);
    }
    match ended {
        Ok(()) => {}
        Err(Error::Hang { limit, .. }) => {
            let mut states = state.states;
            states.sort_by(|one, other| (&one.vm, one.vcpu).cmp(&(&other.vm, other.vcpu)));
            return Err(Error::Hang { limit, states });
        }
        Err(other) => return Err(other),
    }
    Ok(Report {
        vms: session.guests.into_iter().map(Guest::report).collect(),
        elapsed,
    })
}

/// The state that the threads of a run share.
struct Session {
    guests: Vec<Guest>,
    state: Mutex<State>,
    changed: Condvar,
    /// Set when all threads must end.
    stop: AtomicBool,
    /// Set before `stop` if ending threads must record the states of their vCPUs.
    capture_all: AtomicBool,
}

#[derive(Default)]
struct State {
    /// The first error.
    error: Option<Error>,
    states: Vec<GuestState>,
}

impl Session {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_done(&self) -> bool {
        self.guests.iter().all(|guest| guest.done.load(Ordering::Acquire))
    }

    /// Starts the guests, and waits until they are done or a thread has recorded an error. Removes guests, zeroes
    /// counts and migrates guests meanwhile.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be started, the time limit passes, the caller calls the run off, or KVM
    /// refuses a migration.
    fn wait(
        &self,
        host: &Host,
        threads: &mut Threads,
        changes: &mut Changes,
        start: Instant,
        options: &Options<'_>,
    ) -> Result<(), Error> {
        let mut migrate_at = options.migration.map(|migration| migration.every);
        while !self.is_over() {
            if is_called_off(options) {
                return Err(Error::CalledOff);
            }
            let now = start.elapsed();
            let left = options.limit.saturating_sub(now);
            if left.is_zero() {
                return Err(Error::Hang {
                    limit: options.limit,
                    states: Vec::new(),
                });
            }
            while let Some(change) = changes.due(now) {
                threads.carry_out(change)?;
            }
            let mut pause = left.min(CHECK_INTERVAL).min(changes.pause(now));
            match options.zero_at {
                Some(at) if at > now => pause = pause.min(at - now),
                Some(_) => self.guests.iter().try_for_each(Guest::zero_counts)?,
                None => {}
            }
            match (options.migration, migrate_at) {
                (Some(_), Some(at)) if at > now => pause = pause.min(at - now),
                (Some(migration), Some(_)) => {
                    self.migrate(host, threads, migration, options)?;
                    migrate_at = Some(start.elapsed().saturating_add(migration.every));
                    continue;
                }
                _ => {}
            }
            let state = self.lock();
            // The threads change both under the lock, and notify.
            if state.error.is_none() && !self.is_done() {
                drop(self.changed.wait_timeout(state, pause));
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.lock().error.is_some() || self.is_done()
    }

    /// Stops all guests at one instant, moves each to a new VM, and lets them continue.
    fn migrate(
        &self,
        host: &Host,
        threads: &Threads,
        migration: Migration,
        options: &Options<'_>,
    ) -> Result<(), Error> {
        let begin = Instant::now();
        let left = |limit: Duration| limit.saturating_sub(begin.elapsed());
        self.guests.iter().for_each(|guest| guest.gate.close());
        let mut stopped = false;
        while !stopped && !self.is_over() && !left(options.limit).is_zero() {
            threads.interrupt();
            stopped = self.guests.iter().all(|guest| guest.gate.wait(SIGNAL_INTERVAL));
        }
        let moved: Result<Vec<Left>, Error> = match stopped {
            true => self
                .guests
                .iter()
                .map(|guest| guest.migrate(host, migration.mp_state_only))
                .collect(),
            false => Ok(Vec::new()),
        };
        while stopped && moved.is_ok() && !left(migration.downtime).is_zero() && !is_called_off(options) {
            thread::sleep(left(migration.downtime).min(CHECK_INTERVAL));
        }
        self.guests.iter().for_each(|guest| guest.gate.open());
        moved.map(drop)
    }

    fn fail(&self, error: Error) {
        self.lock().error.get_or_insert(error);
        self.changed.notify_all();
    }

    /// Runs vCPU `number` of `guest` until the run ends.
    fn run_vcpu(&self, guest: usize, number: u32, mut fd: VcpuFd) {
        let guest = &self.guests[guest];
        let pins = guest.vm.pins.get(number as usize).filter(|pins| !pins.is_empty());
        if let Some(pins) = pins
            && let Err(error) = pin_to(pins)
        {
            return self.fail(Error::host(
                format!("{}: pin vcpu {number} to {pins:?}", guest.vm.name),
                error,
            ));
        }
        if guest.vm.nice != 0
            && let Err(error) = set_nice(guest.vm.nice)
        {
            let tried = format!("{}: set nice {} of vcpu {number}", guest.vm.name, guest.vm.nice);
            return self.fail(Error::host(tried, error));
        }
        guest.lock().report.vcpus[number as usize].thread = thread_id().unwrap_or(0);
        while !self.stop.load(Ordering::Acquire) && !guest.leaves.load(Ordering::Acquire) {
            let must_stop = guest.gate.is_closed();
            // KVM then completes what it emulates, and returns without an entry. The state is whole then.
            fd.set_kvm_immediate_exit(must_stop.into());
            let exit = crate::vcpu::run(&mut fd, guest.ports.as_ref());
            if must_stop && exit == Exit::Signal {
                match guest.gate.pass(number, fd) {
                    Some(vcpu) => fd = vcpu,
                    None => return,
                }
                continue;
            }
            if let Err(error) = self.handle(guest, number, &fd, exit) {
                self.fail(error);
                break;
            }
        }
        if self.capture_all.load(Ordering::Relaxed) && !guest.done.load(Ordering::Acquire) {
            let mut state = self.state_of(guest, number, &fd, None);
            state.stats = guest.statistics(number);
            self.lock().states.push(state);
        }
        if let Some((run_ns, wait_ns)) = schedstat() {
            let vcpu = &mut guest.lock().report.vcpus[number as usize];
            (vcpu.run_ns, vcpu.wait_ns) = (run_ns, wait_ns);
        }
    }

    fn state_of(&self, guest: &Guest, number: u32, fd: &VcpuFd, crash: Option<&Crash>) -> GuestState {
        let image = guest.ports.is_none().then(Image::embedded);
        let mut state = capture(&guest.vm.name, number, fd, &guest.memory, image, crash);
        state.booting = guest.lock().report.boot.is_none();
        // The console is recorded once if all vCPUs are.
        if let Some(ports) = guest
            .ports
            .as_ref()
            .filter(|_| number == 0 || !self.capture_all.load(Ordering::Relaxed))
        {
            state.console = ports.console();
        }
        state
    }

    /// Lets the Linux guests begin once all guests that are there have started.
    fn start_together(&self) {
        let here = || self.guests.iter().filter(|guest| guest.is_here());
        if here().all(|guest| guest.started.load(Ordering::Acquire)) {
            here().filter_map(|guest| guest.ports.as_ref()).for_each(Ports::start);
        }
    }

    fn handle(&self, guest: &Guest, number: u32, fd: &VcpuFd, exit: Exit) -> Result<(), Error> {
        let vm = guest.vm.name.clone();
        let state = || Box::new(self.state_of(guest, number, fd, None));
        match exit {
            Exit::Signal | Exit::Answered => Ok(()),
            Exit::Report => match guest.read_reports()? {
                None => {
                    self.start_together();
                    if guest.done.load(Ordering::Acquire) {
                        // The lock orders this with `wait`, which then either sees `done` or is notified.
                        drop(self.lock());
                        self.changed.notify_all();
                    }
                    Ok(())
                }
                Some(panic) => Err(Error::GuestPanic {
                    vm,
                    message: panic.message,
                    state: Box::new(self.state_of(guest, number, fd, panic.crash.as_ref())),
                }),
            },
            Exit::TripleFault => {
                let state = state();
                // A Linux kernel with `reboot=t` resets by a triple fault when it panics.
                Err(match state.console.iter().rev().find(|line| line.contains(PANIC)) {
                    Some(line) => Error::GuestPanic {
                        vm,
                        message: line.clone(),
                        state,
                    },
                    None => Error::TripleFault { vm, state },
                })
            }
            Exit::Refused(why) => Err(Error::Refused {
                vm,
                why,
                state: state(),
            }),
            Exit::Unexpected(exit) => Err(Error::UnexpectedExit {
                vm,
                exit,
                state: state(),
            }),
        }
    }
}

/// The vCPU threads of a run, each with the number of its guest. Dropping this ends them all.
struct Threads {
    session: Arc<Session>,
    handles: Vec<(usize, JoinHandle<()>)>,
}

impl Threads {
    /// Starts the thread of vCPU `number` of `guest`. Its name is the one that QEMU uses, for `perf` and `top`.
    fn start(&mut self, guest: usize, number: u32, fd: VcpuFd) -> Result<(), Error> {
        let session = Arc::clone(&self.session);
        let body = move || session.run_vcpu(guest, number, fd);
        let started = Builder::new().name(format!("CPU {number}/KVM")).spawn(body);
        let handle = started.map_err(|error| Error::host(format!("start the thread of vcpu {number}"), error))?;
        self.handles.push((guest, handle));
        Ok(())
    }

    fn carry_out(&mut self, change: Change) -> Result<(), Error> {
        match change {
            Change::Start { guest, vcpus } => {
                self.session.guests[guest].come();
                (0..)
                    .zip(vcpus)
                    .try_for_each(|(number, fd)| self.start(guest, number, fd))
            }
            Change::Remove { guest } => {
                self.session.guests[guest].leaves.store(true, Ordering::Release);
                self.end_of(|of| of == guest);
                self.session.guests[guest].destroy();
                // The guests that remain may all have started.
                self.session.start_together();
                Ok(())
            }
        }
    }

    /// Makes all threads leave their guests.
    fn interrupt(&self) {
        self.handles.iter().for_each(|(_, thread)| signal(thread));
    }

    /// Ends all threads, and waits until they have ended.
    fn end(&mut self) {
        self.session.stop.store(true, Ordering::Release);
        self.end_of(|_| true);
    }

    /// Waits until the threads of the guests that `ends` selects have ended, which must have been told to end.
    fn end_of(&mut self, ends: impl Fn(usize) -> bool) {
        let ending: Vec<_> = self.handles.extract_if(.., |(guest, _)| ends(*guest)).collect();
        while ending.iter().any(|(_, thread)| !thread.is_finished()) {
            ending.iter().for_each(|(_, thread)| signal(thread));
            thread::sleep(SIGNAL_INTERVAL);
        }
        for (_, handle) in ending {
            // After a panic of this VMM in a vCPU's thread the run's results are unreliable.
            let joined = handle.join();
            if let Err(panic) = joined
                && !thread::panicking()
            {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.end();
    }
}

/// Makes `thread` leave its guest, if it has not ended.
fn signal(thread: &JoinHandle<()>) {
    if !thread.is_finished() {
        interrupt(thread);
    }
}

fn is_called_off(options: &Options<'_>) -> bool {
    options.call_off.is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Returns the calling thread's ID on the host.
fn thread_id() -> Option<u32> {
    let link = fs::read_link("/proc/thread-self").ok()?;
    link.file_name()?.to_str()?.parse().ok()
}

/// Returns the nanoseconds for which the calling thread was on a CPU, and for which it was ready but on no CPU.
fn schedstat() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut fields = text.split_whitespace().map_while(|field| field.parse().ok());
    Some((fields.next()?, fields.next()?))
}
