//! pgbench: PostgreSQL's benchmark, clients and server in one guest, connected by local sockets.
//!
//! The server is PostgreSQL 9.1's shape: a process per client, lightweight locks in shared memory over spinlocks and SysV
//! semaphores, one insertion lock for the log, a group flush at commit, row locks that last until the end of a transaction.

mod backend;
mod client;
mod lwlock;
mod mix;
mod row;

use alloc::boxed::Box;
use core::sync::atomic::AtomicU64;

use holdfast_guest::{Fork, Limits, Machine, Os, Program, Start, UserLock};

use lwlock::LwLock;
use row::RowLock;
use serde::{Deserialize, Serialize};

use crate::workload::{Load, share_of};

/// Parameters of pgbench.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pgbench {
    /// Clients, each with a backend of its own. Default 8.
    pub clients: u32,
    /// Which script the clients run. Default [`Script::SelectOnly`]: the published run does not name it, but 53 000
    /// transactions a second on 8 cores are 150 µs of CPU each, far less than seven statements take in PostgreSQL 9.1, and
    /// what one look-up takes. Uncertain.
    pub script: Script,
    /// Scaling factor: rows in the branches table; tellers 10, accounts 100 000 times as many. Default 100 (estimate: the
    /// published `shared_buffers` of 2 GB hold up to about 130).
    pub scale_factor: u32,
    /// Transactions to complete over all clients. Default 20 000.
    pub transactions: u64,
    /// Client: user time per statement, nanoseconds. Default 12 µs, an estimate.
    pub client_ns: u64,
    /// Backend: mean user time per statement, nanoseconds, without lightweight locks. Calibration parameter; with the
    /// default of 109 µs one client of [`Script::SelectOnly`] gets 7 600 transactions a second on the x5570 profile. For
    /// [`Script::TpcB`] set it anew.
    pub backend_ns: u64,
    /// How long a flush of the log takes, nanoseconds; 0: commits do not wait for it (`synchronous_commit = off`, or `fsync
    /// = off`). Default 0. Only [`Script::TpcB`] commits anything.
    pub flush_ns: u64,
}

/// pgbench's built-in scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Script {
    /// The default script: seven statements a transaction.
    TpcB,
    /// `-S`: one SELECT a transaction.
    SelectOnly,
}

impl Default for Pgbench {
    fn default() -> Self {
        Pgbench {
            clients: 8,
            script: Script::SelectOnly,
            scale_factor: 100,
            transactions: 20_000,
            client_ns: 12_000,
            backend_ns: 109_000,
            flush_ns: 0,
        }
    }
}

/// What a task is.
mod role {
    pub(super) const FIRST: u32 = 0;
    pub(super) const CLIENT: u32 = 1;
    pub(super) const BACKEND: u32 = 2;
}

/// Semaphores per SysV array (PostgreSQL: `SEMAS_PER_SET`).
const SEMAPHORES_PER_ARRAY: u32 = 16;

/// The server's shared memory, and the clients' progress.
pub(crate) struct Database<M: Machine> {
    parameters: Pgbench,
    locks: Box<[LwLock<M>]>,
    /// One per row of the branches table: the rows that transactions meet at.
    branches: Box<[RowLock<M>]>,
    /// How far the log is written, and flushed, in records.
    log: UserLock<Log, M>,
    /// Transactions that no client has begun. Plain memory: pgbench's own, of which each client has its share.
    left: AtomicU64,
}

/// The log's ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Log {
    inserted: u64,
    flushed: u64,
}

impl<M: Machine> Database<M> {
    pub(crate) fn new(parameters: &Pgbench) -> Self {
        Database {
            parameters: parameters.clone(),
            locks: (0..mix::lock::COUNT).map(|_| LwLock::new()).collect(),
            branches: (0..parameters.scale_factor.max(1)).map(|_| RowLock::new()).collect(),
            log: UserLock::new(Log::default()),
            left: AtomicU64::new(parameters.transactions),
        }
    }

    /// Sleeps until another backend calls [`Database::wake`] for this one.
    fn sleep(&self, os: &Os<M>, backend: u32) {
        os.semaphore_down(backend / SEMAPHORES_PER_ARRAY, backend % SEMAPHORES_PER_ARRAY);
    }

    fn wake(&self, os: &Os<M>, backend: u32) {
        os.semaphore_up(backend / SEMAPHORES_PER_ARRAY, backend % SEMAPHORES_PER_ARRAY);
    }

    /// The array whose first semaphore starts the clients.
    fn start_line(&self) -> u32 {
        self.parameters.clients.div_ceil(SEMAPHORES_PER_ARRAY)
    }

    fn first(&self, os: &Os<M>) {
        os.wait_for_cpus();
        let clients = self.parameters.clients;
        for argument in 0..clients {
            os.fork(Fork::Copy { vmas: 60 }, Start::new(role::BACKEND, argument));
            os.fork(Fork::Copy { vmas: 30 }, Start::new(role::CLIENT, argument));
        }
        // Everybody waits at the start line by then.
        os.sleep(20_000_000);
        os.begin();
        for _ in 0..clients {
            os.semaphore_up(self.start_line(), 0);
        }
        let mut clients_left = clients;
        while clients_left > 0 {
            let Some(exited) = os.wait() else { break };
            clients_left -= u32::from(exited.start.role == role::CLIENT);
        }
        os.done(Some(self.parameters.transactions));
        while os.wait().is_some() {}
    }
}

impl Load for Pgbench {
    const COUNTS_OPERATIONS: bool = true;

    fn scale_work(&mut self, share: f64) {
        self.transactions = share_of(self.transactions, share, self.clients);
    }

    fn program<M: Machine>(&self, _: u32) -> Box<dyn Program<M>> {
        Box::new(Database::new(self))
    }
}

impl<M: Machine> Program<M> for Database<M> {
    fn limits(&self) -> Limits {
        let clients = self.parameters.clients;
        Limits {
            tasks: 1 + 2 * clients,
            files: 1,
            sockets: 2 * clients,
            semaphore_arrays: self.start_line() + 1,
            semaphores: SEMAPHORES_PER_ARRAY,
            ..Limits::default()
        }
    }

    fn run(&self, os: &Os<M>, start: Start) {
        match start.role {
            role::FIRST => self.first(os),
            role::CLIENT => self.client(os, start.argument),
            role::BACKEND => self.backend(os, start.argument),
            other => unreachable!("no process of pgbench has role {other}"),
        }
    }
}
