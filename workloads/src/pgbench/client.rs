//! A client: sends a statement, waits for its answer, sends the next.

use core::sync::atomic::Ordering::Relaxed;

use holdfast_guest::{Machine, Os};

use super::Database;
use super::mix::{statement, statements};

/// The client's end of connection `number`; the backend's is the other of the pair.
pub(super) fn client_end(number: u32) -> u32 {
    2 * number
}

pub(super) fn backend_end(number: u32) -> u32 {
    2 * number + 1
}

impl<M: Machine> Database<M> {
    /// Client `number`'s life.
    pub(super) fn client(&self, os: &Os<M>, number: u32) {
        let socket = client_end(number);
        os.semaphore_down(self.start_line(), 0);
        while self.begin_transaction() {
            for &statement in statements(self.parameters.script) {
                os.user(self.parameters.client_ns / 2);
                os.send(socket, statement);
                os.poll(socket);
                os.receive(socket);
                os.user(self.parameters.client_ns / 2);
            }
        }
        os.send(socket, statement::TERMINATE);
    }

    fn begin_transaction(&self) -> bool {
        self.left
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
            .is_ok()
    }
}
