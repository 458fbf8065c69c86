//! What a packet costs on its way through the host's network.
//!
//! # Units
//! Nanoseconds of undisturbed time on a CPU of the guest's costs' class.
//!
//! # Sources
//! **[E]**: estimates. A request and its answer over the loopback of a 3.x or 4.x kernel take 15-25 µs with both ends
//! on one machine (netperf TCP_RR, from memory), two wakeups and four system calls included; that leaves 1.5-3 µs for
//! TCP and IP in each direction on either side.

/// vhost's worker: descriptors, copying a small packet, `tun_sendmsg`. [E]
const VHOST: u64 = 900;
/// The bridge: look-up of the port, netfilter's hooks. [E]
const BRIDGE: u64 = 600;
/// TCP and IP for a small packet, up or down. [E]
const TCP: u64 = 2_000;
/// A system call of the server with its socket's share. [E]
const SYSCALL: u64 = 600;
/// netserver's own user time for a transaction. [E]
const USER: u64 = 300;

/// A packet from the guest to the server's socket, all on the worker.
pub(super) const FROM_GUEST: u64 = VHOST + BRIDGE + TCP;
/// A packet from the tap's queue to the guest's buffer.
pub(super) const TO_GUEST: u64 = VHOST;
/// The driver of the host's own port, for a packet up or down. [E]
const DRIVER: u64 = 700;

/// A packet in a device that is hardware: fetching it from a queue over PCIe, switching it, storing it in another. [E]
pub(super) const HARDWARE: u64 = 1_500;
/// The server behind the host's own port of such a device: as [`SERVE`], with the packet's way up, which no worker has
/// done, and without a bridge.
pub(super) const SERVE_AT_PORT: u64 = 2 * SYSCALL + USER + 2 * (TCP + DRIVER);
/// The server's answer, from its `recv` to the tap's queue.
pub(super) const SERVE: u64 = 2 * SYSCALL + USER + TCP + BRIDGE;
