//! Running virtual machines together.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use holdfast_protocol::Crash;
use kvm_ioctls::VcpuFd;

use crate::crash::{GuestState, capture};
use crate::error::Error;
use crate::guest::{Guest, Heard};
use crate::image::Image;
use crate::linux::Ports;
use crate::report::Report;
use crate::system::Host;
use crate::vcpu::{Exit, interrupt, pin_to, prepare_signal};
use crate::vm::Vm;

/// How to run.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// The time after which guests that are not done count as hung. Default 60 s.
    pub limit: Duration,
    /// Ends the run early when it becomes true.
    pub call_off: Option<&'a AtomicBool>,
    /// The image to boot; default: [`Image::embedded`].
    pub image: Option<&'a Image>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            limit: Duration::from_secs(60),
            call_off: None,
            image: None,
        }
    }
}

/// What Linux prints when it panics.
const PANIC: &str = "Kernel panic";
/// How often the caller's wish to end the run is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often threads that are to end are told so: one that was about to enter the guest has missed the last time.
const TELL_EVERY: Duration = Duration::from_millis(2);

/// Runs `vms` together until all measured ones are done.
///
/// # Errors
/// [`Error`]; by then nothing of the run is left.
pub fn run(vms: &[Vm], options: &Options<'_>) -> Result<Report, Error> {
    let host = Host::open()?;
    let image = match options.image {
        Some(image) => image,
        None => Image::embedded(),
    };
    prepare_signal();
    let start = Instant::now();
    let (mut guests, mut vcpus) = (Vec::new(), Vec::new());
    for (number, vm) in (0..).zip(vms) {
        let (guest, fds) = Guest::create(&host, vm, number, image)?;
        guests.push(guest);
        vcpus.push(fds);
    }
    let session = Arc::new(Session {
        guests,
        image: image.clone(),
        state: Mutex::new(State::default()),
        changed: Condvar::new(),
        stop: AtomicBool::new(false),
        show: AtomicBool::new(false),
        running: AtomicU32::new(0),
    });
    // Ends the threads on each way out.
    let mut threads = Threads {
        session: Arc::clone(&session),
        handles: Vec::new(),
    };
    for (guest, fds) in vcpus.into_iter().enumerate() {
        for (number, fd) in (0..).zip(fds) {
            threads.start(guest, number, fd)?;
        }
    }
    let ended = session.wait(start, options);
    let elapsed = start.elapsed();
    session
        .show
        .store(matches!(ended, Err(Error::Hang { .. })), Ordering::Relaxed);
    threads.end();
    drop(threads);
    let session = Arc::into_inner(session).expect("all threads have ended, and with them their shares");
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

/// What the threads of a run share.
struct Session {
    guests: Vec<Guest>,
    image: Image,
    state: Mutex<State>,
    changed: Condvar,
    /// Threads shall end.
    stop: AtomicBool,
    /// And say where their guests are.
    show: AtomicBool,
    running: AtomicU32,
}

#[derive(Default)]
struct State {
    /// The first thing that went wrong.
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

    /// Returns when the run is to end.
    fn wait(&self, start: Instant, options: &Options<'_>) -> Result<(), Error> {
        let mut state = self.lock();
        loop {
            if state.error.is_some() || self.is_done() {
                return Ok(());
            }
            if options.call_off.is_some_and(|wish| wish.load(Ordering::Relaxed)) {
                return Err(Error::CalledOff);
            }
            let left = options.limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(Error::Hang {
                    limit: options.limit,
                    states: Vec::new(),
                });
            }
            let waited = self.changed.wait_timeout(state, left.min(LOOK_EVERY));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn fail(&self, error: Error) {
        self.lock().error.get_or_insert(error);
        self.changed.notify_all();
    }

    /// A vCPU's life.
    fn live(&self, guest: usize, number: u32, mut fd: VcpuFd) {
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
        guest.lock().vcpus[number as usize].thread = own_number().unwrap_or(0);
        while !self.stop.load(Ordering::Acquire) {
            let exit = crate::vcpu::run(&mut fd, guest.ports.as_ref());
            if let Err(error) = self.handle(guest, number, &fd, exit) {
                self.fail(error);
                break;
            }
        }
        if self.show.load(Ordering::Relaxed) && !guest.done.load(Ordering::Acquire) {
            let mut state = self.where_is(guest, number, &fd);
            state.stats = guest.statistics(number);
            self.lock().states.push(state);
        }
        if let Some((run_ns, wait_ns)) = scheduled() {
            let vcpu = &mut guest.lock().vcpus[number as usize];
            (vcpu.run_ns, vcpu.wait_ns) = (run_ns, wait_ns);
        }
    }

    fn where_is(&self, guest: &Guest, number: u32, fd: &VcpuFd) -> GuestState {
        self.captured(guest, number, fd, None)
    }

    fn captured(&self, guest: &Guest, number: u32, fd: &VcpuFd, crash: Option<&Crash>) -> GuestState {
        let image = guest.ports.is_none().then_some(&self.image);
        let mut state = capture(&guest.vm.name, number, fd, &guest.memory, image, crash);
        // Once is enough where all vCPUs are shown.
        if let Some(ports) = guest
            .ports
            .as_ref()
            .filter(|_| number == 0 || !self.show.load(Ordering::Relaxed))
        {
            state.console = ports.console();
        }
        state
    }

    /// Linux guests measure side by side: none begins before all are there.
    fn start_together(&self) {
        if self.guests.iter().all(|guest| guest.started.load(Ordering::Acquire)) {
            self.guests
                .iter()
                .filter_map(|guest| guest.ports.as_ref())
                .for_each(Ports::start);
        }
    }

    fn handle(&self, guest: &Guest, number: u32, fd: &VcpuFd, exit: Exit) -> Result<(), Error> {
        let vm = guest.vm.name.clone();
        match exit {
            Exit::Signal | Exit::Answered => Ok(()),
            Exit::Report => match guest.listen()? {
                Heard::Nothing => {
                    self.start_together();
                    if guest.done.load(Ordering::Acquire) {
                        // Under the lock, so that who waits either sees it or is woken.
                        drop(self.lock());
                        self.changed.notify_all();
                    }
                    Ok(())
                }
                Heard::Panic { message, crash } => Err(Error::GuestPanic {
                    vm,
                    message,
                    state: Box::new(self.captured(guest, number, fd, crash.as_ref())),
                }),
            },
            Exit::TripleFault => {
                let state = Box::new(self.where_is(guest, number, fd));
                // A Linux kernel that panics ends so, as it was told to.
                Err(match state.console.iter().rev().find(|line| line.contains(PANIC)) {
                    Some(line) => Error::GuestPanic {
                        vm,
                        message: line.clone(),
                        state,
                    },
                    None => Error::TripleFault { vm, state },
                })
            }
            Exit::Unexpected(exit) => Err(Error::UnexpectedExit {
                vm,
                exit,
                state: Box::new(self.where_is(guest, number, fd)),
            }),
        }
    }
}

/// The vCPU threads of a run. None is left when this is dropped.
struct Threads {
    session: Arc<Session>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts vCPU `number` of `guest`, in a thread named as QEMU names its own: what people look for in `perf` and `top`.
    fn start(&mut self, guest: usize, number: u32, fd: VcpuFd) -> Result<(), Error> {
        let session = Arc::clone(&self.session);
        session.running.fetch_add(1, Ordering::AcqRel);
        let life = move || {
            session.live(guest, number, fd);
            session.running.fetch_sub(1, Ordering::AcqRel);
        };
        let started = Builder::new().name(format!("CPU {number}/KVM")).spawn(life);
        let handle = started.map_err(|error| {
            self.session.running.fetch_sub(1, Ordering::AcqRel);
            Error::host(format!("start the thread of vcpu {number}"), error)
        })?;
        self.handles.push(handle);
        Ok(())
    }

    /// Ends all; returns when they have.
    fn end(&mut self) {
        self.session.stop.store(true, Ordering::Release);
        while self.handles.iter().any(|thread| !thread.is_finished()) {
            self.handles
                .iter()
                .filter(|thread| !thread.is_finished())
                .for_each(interrupt);
            std::thread::sleep(TELL_EVERY);
        }
        for handle in self.handles.drain(..) {
            // A panic of ours in a vCPU's thread: the run cannot be trusted.
            let joined = handle.join();
            if let Err(panic) = joined
                && !std::thread::panicking()
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

/// The host's number of the calling thread.
fn own_number() -> Option<u32> {
    let link = fs::read_link("/proc/thread-self").ok()?;
    link.file_name()?.to_str()?.parse().ok()
}

/// How long the calling thread was on a CPU, and ready and on none, in nanoseconds.
fn scheduled() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut fields = text.split_whitespace().map_while(|field| field.parse().ok());
    Some((fields.next()?, fields.next()?))
}
