//! A client: sends a statement, waits for its answer, sends the next.

use holdfast_guest::{Machine, Os};

use super::Database;
use super::mix::statement;

/// The client's socket of connection `number`.
pub(super) fn client_end(number: u32) -> u32 {
    2 * number
}

/// The backend's socket of connection `number`.
pub(super) fn backend_end(number: u32) -> u32 {
    2 * number + 1
}

/// User time of the client for each statement. [E]
const CLIENT_NS: u64 = 12_000;

impl<M: Machine> Database<M> {
    /// Runs client `number`.
    pub(super) fn client(&self, os: &Os<M>, number: u32) {
        let socket = client_end(number);
        self.start_line().wait(os);
        while self.transactions.take() {
            let begun = os.clock();
            os.user(CLIENT_NS / 2);
            os.send(socket, statement::SELECT);
            os.poll(socket);
            os.receive(socket);
            // The client's library looks for more (pgbench 15).
            let more = os.receive_now(socket);
            assert!(more.is_none(), "a statement has one answer");
            os.user(CLIENT_NS / 2);
            os.completed(begun);
        }
        os.send(socket, statement::TERMINATE);
    }
}
