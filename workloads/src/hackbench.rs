//! hackbench: groups of senders and receivers, each sender writing small messages to every receiver of its group.
//!
//! Its structure is the program's own: per group as many receivers as senders, each receiver with one pipe or socket that all
//! senders of the group write to; a sender writes to one receiver after the other and begins again; nobody computes. All say
//! that they are ready and wait until the first task lets them go. What it measures is the scheduler: nearly every message
//! finds somebody asleep or puts somebody to sleep.
//!
//! **Conserved**: each receiver gets what the senders of its group have sent to it, no more and no less; it asserts that.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use holdfast_guest::{Fork, Limits, Machine, Os, Program, Start};
use serde::{Deserialize, Serialize};

use crate::stream::Stream;
use crate::workload::{Load, share_of};

/// What messages go through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Channel {
    /// Pipes (`hackbench -p`).
    #[default]
    Pipes,
    /// Pairs of local stream sockets.
    Sockets,
}

/// Parameters of hackbench.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hackbench {
    /// What messages go through. Default pipes.
    pub channel: Channel,
    /// Groups. Default 10.
    pub groups: u32,
    /// Senders of a group, and receivers. Default 20: 40 file descriptors, and 400 tasks with 10 groups.
    pub pairs: u32,
    /// Messages from each sender to each receiver of its group. Default 100 000 (`-l 100000`).
    pub loops: u32,
    /// Bytes of a message. Default 100.
    pub bytes: u32,
    /// Threads of one process instead of processes. Default false.
    pub threads: bool,
    /// User time around each system call, nanoseconds: the program's loop and the C library's; each is drawn from half to one
    /// and a half of it. **The** calibration parameter. Default: such that avic-hackbench's vanilla rows (2 vCPUs 273.76 s, 4
    /// vCPUs 190.21 s) are met with the same relative error, one below and one above, at that experiment's scale and seeds.
    pub user_ns: u64,
}

impl Default for Hackbench {
    fn default() -> Self {
        Hackbench {
            channel: Channel::Pipes,
            groups: 10,
            pairs: 20,
            loops: 100_000,
            bytes: 100,
            threads: false,
            user_ns: 170,
        }
    }
}

/// Mappings of the program: its own segments, the C library, stack, heap. [E]
const VMAS: u32 = 16;
/// The pipe in which all say that they are ready.
const READY: u32 = 0;
/// Where the first pipe for messages is.
const PIPES: u32 = 1;
/// All wait until there is something at this socket.
const START: u32 = 0;
/// Where the first socket for messages is.
const SOCKETS: u32 = 2;

mod role {
    pub(super) const FIRST: u32 = 0;
    pub(super) const SENDER: u32 = 1;
    pub(super) const RECEIVER: u32 = 2;
}

/// The tasks.
pub(crate) struct Messaging {
    parameters: Hackbench,
    /// Receivers that have not got everything yet. Plain memory: the benchmark's own book-keeping, once per task.
    receiving: AtomicU32,
    sent: AtomicU64,
    received: AtomicU64,
}

impl Messaging {
    pub(crate) fn new(parameters: &Hackbench) -> Self {
        let mut parameters = parameters.clone();
        parameters.groups = parameters.groups.max(1);
        parameters.pairs = parameters.pairs.max(1);
        parameters.bytes = parameters.bytes.clamp(1, 4096);
        Messaging {
            receiving: AtomicU32::new(parameters.receivers()),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            parameters,
        }
    }

    fn first<M: Machine>(&self, os: &Os<M>) {
        os.wait_for_cpus();
        let Hackbench { groups, pairs, .. } = self.parameters;
        os.open_pipe(READY, 2 * groups * pairs);
        let how = if self.parameters.threads {
            Fork::Share
        } else {
            Fork::Copy { vmas: VMAS }
        };
        for group in 0..groups {
            for member in 0..pairs {
                let number = group * pairs + member;
                self.open(os, number);
                os.fork(how, Start::new(role::RECEIVER, number));
            }
            for member in 0..pairs {
                os.fork(how, Start::new(role::SENDER, group * pairs + member));
            }
        }
        let mut ready = 0;
        while ready < 2 * groups * pairs {
            ready += os.read_pipe(READY, 1).unwrap_or(0);
        }
        os.begin();
        os.send(START ^ 1, 0);
        while os.wait().is_some() {}
        let messages = u64::from(groups) * u64::from(pairs) * u64::from(pairs) * u64::from(self.parameters.loops);
        assert_eq!(self.sent.load(Relaxed), messages, "messages were not sent");
        assert_eq!(self.received.load(Relaxed), messages, "messages were lost");
    }

    fn open<M: Machine>(&self, os: &Os<M>, receiver: u32) {
        if self.parameters.channel == Channel::Pipes {
            os.open_pipe(PIPES + receiver, self.parameters.pairs);
        }
    }

    /// Says that this task is ready, and waits until it may go.
    fn ready<M: Machine>(&self, os: &Os<M>) {
        os.write_pipe(READY, 1);
        os.poll(START);
    }

    fn sender<M: Machine>(&self, os: &Os<M>, number: u32) {
        let Hackbench {
            channel,
            pairs,
            loops,
            bytes,
            user_ns,
            ..
        } = self.parameters;
        let first = number / pairs * pairs;
        let mut times = Stream::new(os.seed("hackbench.sender"), number);
        self.ready(os);
        for _ in 0..loops {
            for receiver in first..first + pairs {
                match channel {
                    Channel::Pipes => os.write_pipe(PIPES + receiver, bytes),
                    Channel::Sockets => os.send(SOCKETS + 2 * receiver + 1, number),
                }
                os.user(around(&mut times, user_ns));
            }
        }
        self.sent.fetch_add(u64::from(pairs) * u64::from(loops), Relaxed);
        if channel == Channel::Pipes {
            for receiver in first..first + pairs {
                os.close_pipe_writer(PIPES + receiver);
            }
        }
    }

    fn receiver<M: Machine>(&self, os: &Os<M>, number: u32) {
        let Hackbench {
            pairs, loops, user_ns, ..
        } = self.parameters;
        let expected = u64::from(pairs) * u64::from(loops);
        let mut times = Stream::new(os.seed("hackbench.receiver"), number);
        self.ready(os);
        for _ in 0..expected {
            self.receive(os, number);
            os.user(around(&mut times, user_ns));
        }
        self.received.fetch_add(expected, Relaxed);
        if self.receiving.fetch_sub(1, Relaxed) == 1 {
            // The program's clock stops when all its tasks are gone as well; that takes a moment, however many messages there
            // were, and would weigh too much in a run that is scaled down.
            os.report("hackbench.messages", u64::from(self.parameters.receivers()) * expected);
            os.done(None);
        }
    }

    /// Reads one message, in parts if need be.
    fn receive<M: Machine>(&self, os: &Os<M>, number: u32) {
        match self.parameters.channel {
            Channel::Pipes => {
                let mut left = self.parameters.bytes;
                while left > 0 {
                    let got = os.read_pipe(PIPES + number, left);
                    assert_ne!(got, Some(0), "a pipe ends before its last message");
                    left -= got.unwrap_or(0);
                }
            }
            Channel::Sockets => {
                let sender = os.receive(SOCKETS + 2 * number);
                let pairs = self.parameters.pairs;
                assert_eq!(sender / pairs, number / pairs, "a message of another group");
            }
        }
    }
}

/// A time of mean `mean_ns`, within half of it: no two calls find the same in their caches. Without it all seeds would give one
/// history, and one history of a system that amplifies every difference is an anecdote.
fn around(times: &mut Stream, mean_ns: u64) -> u64 {
    mean_ns / 2 + u64::from(times.below(mean_ns as u32 + 1))
}

impl Hackbench {
    fn receivers(&self) -> u32 {
        self.groups * self.pairs
    }
}

impl Load for Hackbench {
    fn scale_work(&mut self, share: f64) {
        self.loops = share_of(u64::from(self.loops), share, 1) as u32;
    }

    fn program<M: Machine>(&self, _: u32) -> Box<dyn Program<M>> {
        Box::new(Messaging::new(self))
    }
}

impl<M: Machine> Program<M> for Messaging {
    fn limits(&self) -> Limits {
        let receivers = self.parameters.receivers();
        let (pipes, sockets) = match self.parameters.channel {
            Channel::Pipes => (receivers, 0),
            Channel::Sockets => (0, 2 * receivers),
        };
        Limits {
            tasks: 1 + 2 * receivers,
            pipes: PIPES + pipes,
            sockets: SOCKETS + sockets,
            ..Limits::default()
        }
    }

    fn run(&self, os: &Os<M>, start: Start) {
        match start.role {
            role::FIRST => self.first(os),
            role::SENDER => self.sender(os, start.argument),
            role::RECEIVER => self.receiver(os, start.argument),
            other => unreachable!("nothing of hackbench has role {other}"),
        }
    }
}
