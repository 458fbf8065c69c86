//! pgbench: PostgreSQL's benchmark, clients and server in one guest, connected by local sockets.
//!
//! The server has the structure of PostgreSQL 9.1: a process per client, and lightweight locks in shared memory on top
//! of spinlocks and SysV semaphores.
//!
//! The script is `-S`, one SELECT a transaction. The published run does not name it, but 53 000 transactions a second
//! on 8 cores are 150 µs of CPU time each. That is far less than the seven statements of the default script take in
//! PostgreSQL 9.1, and about the time of one lookup. Uncertain.

mod backend;
mod client;
mod lwlock;
mod mix;

use alloc::boxed::Box;

use holdfast_guest::{Fork, Limits, Machine, Os, Program, Start};

use lwlock::LwLock;
use serde::{Deserialize, Serialize};

use crate::start::{Remaining, StartLine};
use crate::workload::{Load, share_of};

/// Parameters of pgbench.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pgbench {
    /// Number of clients (`pgbench -c`). Each has a backend of its own.
    ///
    /// Default 8.
    pub clients: u32,
    /// Transactions over all clients, at scale 1.
    ///
    /// Default 20 000.
    pub transactions: u64,
}

impl Default for Pgbench {
    fn default() -> Self {
        Pgbench {
            clients: 8,
            transactions: 20_000,
        }
    }
}

/// The roles of tasks.
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
    transactions: Remaining,
}

impl<M: Machine> Database<M> {
    /// Sleeps until another backend calls [`Database::wake`] for this one.
    fn sleep(&self, os: &Os<M>, backend: u32) {
        os.semaphore_down(backend / SEMAPHORES_PER_ARRAY, backend % SEMAPHORES_PER_ARRAY);
    }

    fn wake(&self, os: &Os<M>, backend: u32) {
        os.semaphore_up(backend / SEMAPHORES_PER_ARRAY, backend % SEMAPHORES_PER_ARRAY);
    }

    /// The start line of the clients, after the semaphores of the backends.
    fn start_line(&self) -> StartLine {
        StartLine {
            array: self.parameters.clients.div_ceil(SEMAPHORES_PER_ARRAY),
        }
    }

    fn first(&self, os: &Os<M>) {
        os.wait_for_cpus();
        let clients = self.parameters.clients;
        for argument in 0..clients {
            os.fork(Fork::Copy { vmas: 60 }, Start::new(role::BACKEND, argument));
            os.fork(Fork::Copy { vmas: 30 }, Start::new(role::CLIENT, argument));
        }
        self.start_line().start(os, clients);
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
    const THROUGHPUT: Option<&'static str> = Some("transactions/s");

    fn scale_work(&mut self, share: f64) {
        self.transactions = share_of(self.transactions, share, self.clients);
    }

    fn program<M: Machine>(&self, _: u32) -> Box<dyn Program<M>> {
        Box::new(Database {
            parameters: self.clone(),
            locks: (0..mix::lock::COUNT).map(|_| LwLock::new()).collect(),
            transactions: Remaining::new(self.transactions),
        })
    }
}

impl<M: Machine> Program<M> for Database<M> {
    fn limits(&self) -> Limits {
        let clients = self.parameters.clients;
        Limits {
            tasks: 1 + 2 * clients,
            sockets: 2 * clients,
            semaphore_arrays: self.start_line().array + 1,
            semaphores: SEMAPHORES_PER_ARRAY,
            ..Limits::default()
        }
    }

    fn run(&self, os: &Os<M>, start: Start) {
        match start.role {
            role::FIRST => self.first(os),
            role::CLIENT => self.client(os, start.argument),
            role::BACKEND => self.backend(os, start.argument),
            other => unreachable!("a task of pgbench has the unknown role {other}"),
        }
    }
}
