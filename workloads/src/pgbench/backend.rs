//! A backend: executes one client's statements.

use holdfast_guest::{Machine, Os};

use super::Database;
use super::client::backend_end;
use super::lwlock::Hold;
use super::mix::{self, held, lock, statement};
use crate::stream::Stream;

/// The random streams of a backend.
struct Streams {
    times: Stream,
    pages: Stream,
}

impl<M: Machine> Database<M> {
    /// Runs backend `number`.
    pub(super) fn backend(&self, os: &Os<M>, number: u32) {
        let stream = |purpose| Stream::new(os.seed(purpose), number);
        let mut streams = Streams {
            times: stream("pgbench.user-time"),
            pages: stream("pgbench.pages"),
        };
        let socket = backend_end(number);
        loop {
            let statement = os.receive(socket);
            if statement == statement::TERMINATE {
                return;
            }
            self.execute(os, number, statement, &mut streams);
            os.send(socket, statement);
            // On its way to the next statement. The client may preempt it here, and send that one before it waits.
            os.user(mix::BETWEEN_NS);
        }
    }

    fn execute(&self, os: &Os<M>, backend: u32, statement: u32, streams: &mut Streams) {
        let time = streams.times.time(mix::BACKEND_NS, mix::TIME_SPREAD);
        // Parsing and planning take half of the time, execution the other half. [E]
        os.user(time / 2);
        self.with(os, backend, lock::INVALIDATION, Hold::Shared, 0);
        // The planner asks for the sizes of the table and of its index (`lseek`).
        for _ in 0..mix::RELATIONS {
            os.null_call();
        }
        self.access(os, backend, statement, &mut streams.pages);
        os.user(time - time / 2);
    }

    /// Looks up a row.
    fn access(&self, os: &Os<M>, backend: u32, statement: u32, pages: &mut Stream) {
        for _ in 0..mix::SNAPSHOTS {
            self.with(os, backend, lock::PROC_ARRAY, Hold::Shared, held::SNAPSHOT_NS);
        }
        self.lock_relations(os, backend, statement);
        for level in 0..mix::BUFFERS {
            self.read_buffer(os, backend, statement, level, pages);
        }
        // A lookup outside a transaction is a transaction of its own, which releases its locks here.
        self.lock_relations(os, backend, statement);
    }

    /// Changes the lock manager's entries of the table and its index. They are the same partitions and lines for every
    /// client.
    fn lock_relations(&self, os: &Os<M>, backend: u32, statement: u32) {
        for relation in 0..mix::RELATIONS {
            let partition = lock::MANAGER + ((statement * mix::RELATIONS + relation) % lock::PARTITIONS) as usize;
            self.take(os, backend, partition, Hold::Exclusive);
            for line in &self.locks[partition].lines {
                line.change(os);
            }
            os.user(held::MANAGER_NS);
            self.release(os, partition);
        }
    }

    /// Pins a page, reads it, and unpins it. The root of an index is the same page for all clients.
    fn read_buffer(&self, os: &Os<M>, backend: u32, statement: u32, level: u32, pages: &mut Stream) {
        let is_root = level == 0;
        let partition = if is_root {
            statement
        } else {
            pages.below(lock::PARTITIONS)
        } % lock::PARTITIONS;
        self.take(os, backend, lock::BUFFERS + partition as usize, Hold::Shared);
        let content = if is_root {
            lock::CONTENTS + statement as usize
        } else {
            self.content_lock(pages, level)
        };
        let header = &self.locks[content].lines[0];
        header.count(os);
        self.release(os, lock::BUFFERS + partition as usize);
        self.with(os, backend, content, Hold::Shared, held::PAGE_NS);
        header.count(os);
    }

    fn content_lock(&self, pages: &mut Stream, level: u32) -> usize {
        // There are few inner pages and many leaves, which share hashed locks.
        let spread = if level == 1 {
            16
        } else {
            lock::CONTENTS_COUNT as u32 - 32
        };
        lock::CONTENTS + 16 + pages.below(spread) as usize
    }
}
