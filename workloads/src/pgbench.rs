//! pgbench: PostgreSQL's TPC-B-like benchmark, clients and server in one guest.

/// Parameters of pgbench.
#[derive(Clone, Debug, PartialEq)]
pub struct Pgbench {
    /// Clients, each with a backend of its own.
    pub clients: u32,
    /// Which script the clients run.
    pub script: Script,
    /// Scaling factor: rows in the branches table; tellers 10, accounts 100 000 times as many. Default 100 (estimate:
    /// the published run does not state it; its `shared_buffers` of 2 GB hold up to about 130).
    pub scale_factor: u32,
    /// Transactions to complete over all clients. Default 50 000.
    pub transactions: u64,
    /// Client: user time per statement, nanoseconds. Calibrated.
    pub client_ns: u64,
    /// Backend: user time per statement, nanoseconds (mean). Calibrated.
    pub backend_ns: u64,
}

/// pgbench's built-in scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
            script: Script::TpcB,
            scale_factor: 100,
            transactions: 50_000,
            client_ns: 2_000,
            backend_ns: 10_000,
        }
    }
}
