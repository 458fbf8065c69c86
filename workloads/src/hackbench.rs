//! hackbench: groups of senders and receivers. Each sender writes small messages to every receiver of its group.
//!
//! The structure is that of the program. A group has as many receivers as senders, and each receiver has one pipe or
//! socket to which all senders of the group write. A sender writes to one receiver after the other, again and again. No
//! task computes. Each task reports that it is ready, and waits until the first task starts all of them. The benchmark
//! measures the scheduler: nearly every message wakes a task or makes one sleep.
//!
//! **Conserved**: each receiver gets exactly the messages that the senders of its group have sent to it. It asserts
//! that.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use holdfast_guest::{Fork, Limits, Machine, Os, Program, Start};
use serde::{Deserialize, Serialize};

use crate::stream::Stream;
use crate::workload::{Load, share_of};

/// How messages are sent.
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
    /// What messages go through.
    ///
    /// Default pipes.
    pub channel: Channel,
    /// Groups of senders and receivers (`hackbench -g`).
    ///
    /// Default 10.
    pub groups: u32,
    /// Senders of a group, and as many receivers: half its file descriptors (`hackbench -f`).
    ///
    /// Default 20: 40 file descriptors, and 400 tasks with 10 groups.
    pub pairs: u32,
    /// Messages from each sender to each receiver of its group, at scale 1 (`hackbench -l`).
    ///
    /// Default 100 000 (`-l 100000`).
    pub loops: u32,
    /// Whether the tasks are threads of one process instead of processes (`hackbench -T`).
    ///
    /// Default false.
    pub threads: bool,
}

impl Default for Hackbench {
    fn default() -> Self {
        Hackbench {
            channel: Channel::Pipes,
            groups: 10,
            pairs: 20,
            loops: 100_000,
            threads: false,
        }
    }
}

/// Mean user time around each system call, in the program's loop and the C library. Each time is drawn from half to one
/// and a half of it. Calibrated on the vanilla rows of avic-hackbench (2 vCPUs 273.76 s, 4 vCPUs 190.21 s), at that
/// experiment's scale and seeds. No value meets both: its description says what others give.
const USER_NS: u64 = 170;
/// Mappings of the program: its own segments, the C library, stack, heap. [E]
const VMAS: u32 = 16;
/// The pipe in which tasks report that they are ready.
const READY: u32 = 0;
/// The first pipe for messages.
const PIPES: u32 = 1;
/// The socket whose first message starts all tasks.
const START: u32 = 0;
/// The first socket for messages.
const SOCKETS: u32 = 2;

mod role {
    pub(super) const FIRST: u32 = 0;
    pub(super) const SENDER: u32 = 1;
    pub(super) const RECEIVER: u32 = 2;
}

/// The senders and receivers.
pub(crate) struct Messaging {
    parameters: Hackbench,
    /// Receivers that still expect messages. Plain memory: the benchmark's own bookkeeping, once per task.
    receiving: AtomicU32,
    sent: AtomicU64,
    received: AtomicU64,
}

impl Messaging {
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
        assert_eq!(self.sent.load(Relaxed), messages, "messages sent and messages expected");
        assert_eq!(
            self.received.load(Relaxed),
            messages,
            "messages received and messages expected"
        );
    }

    fn open<M: Machine>(&self, os: &Os<M>, receiver: u32) {
        if self.parameters.channel == Channel::Pipes {
            os.open_pipe(PIPES + receiver, self.parameters.pairs);
        }
    }

    /// Reports that this task is ready, and waits for the start.
    fn ready<M: Machine>(&self, os: &Os<M>) {
        os.write_pipe(READY, 1);
        os.poll(START);
    }

    fn sender<M: Machine>(&self, os: &Os<M>, number: u32) {
        let Hackbench {
            channel, pairs, loops, ..
        } = self.parameters;
        let first = number / pairs * pairs;
        let mut times = Stream::new(os.seed("hackbench.sender"), number);
        self.ready(os);
        for _ in 0..loops {
            for receiver in first..first + pairs {
                match channel {
                    Channel::Pipes => os.write_pipe(PIPES + receiver, Hackbench::MESSAGE_BYTES),
                    Channel::Sockets => os.send(SOCKETS + 2 * receiver + 1, number),
                }
                os.user(around(&mut times, USER_NS));
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
        let Hackbench { pairs, loops, .. } = self.parameters;
        let expected = u64::from(pairs) * u64::from(loops);
        let mut times = Stream::new(os.seed("hackbench.receiver"), number);
        self.ready(os);
        for _ in 0..expected {
            self.receive(os, number);
            os.user(around(&mut times, USER_NS));
        }
        self.received.fetch_add(expected, Relaxed);
        if self.receiving.fetch_sub(1, Relaxed) == 1 {
            // The program's clock stops when all its tasks are gone. That takes the same time with any number of
            // messages, and would weigh too much in a run that is scaled down.
            os.report("hackbench.messages", u64::from(self.parameters.receivers()) * expected);
            os.done(None);
        }
    }

    /// Reads one message, in parts if necessary.
    fn receive<M: Machine>(&self, os: &Os<M>, number: u32) {
        match self.parameters.channel {
            Channel::Pipes => {
                let mut left = Hackbench::MESSAGE_BYTES;
                while left > 0 {
                    let got = os.read_pipe(PIPES + number, left);
                    assert_ne!(got, Some(0), "a pipe ends before its last message");
                    left -= got.unwrap_or(0);
                }
            }
            Channel::Sockets => {
                let sender = os.receive(SOCKETS + 2 * number);
                let pairs = self.parameters.pairs;
                assert_eq!(
                    sender / pairs,
                    number / pairs,
                    "a receiver got a message of another group"
                );
            }
        }
    }
}

/// Draws a time of mean `mean_ns`, within half of it, for the different cache contents that calls find. Without it all
/// seeds would give the same history, which is not representative in a system that amplifies every difference.
fn around(times: &mut Stream, mean_ns: u64) -> u64 {
    mean_ns / 2 + u64::from(times.below(mean_ns as u32 + 1))
}

impl Hackbench {
    /// Size of a message in bytes (`hackbench -s`, by default).
    pub const MESSAGE_BYTES: u32 = 100;

    fn receivers(&self) -> u32 {
        self.groups * self.pairs
    }
}

impl Load for Hackbench {
    fn scale_work(&mut self, share: f64) {
        self.loops = share_of(u64::from(self.loops), share, 1) as u32;
    }

    fn program<M: Machine>(&self, _: u32) -> Box<dyn Program<M>> {
        let mut parameters = self.clone();
        parameters.groups = parameters.groups.max(1);
        parameters.pairs = parameters.pairs.max(1);
        Box::new(Messaging {
            receiving: AtomicU32::new(parameters.receivers()),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            parameters,
        })
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
