//! Several curtsys that share one budget for each host: what a node decides, and what the ledger between them decides.
//!
//! A *node* is one curtsy process, the *fleet* are the nodes with the same ledger. Every start is claimed from the
//! ledger at the last moment. A granted start is a *window* `[S, S+W]`: the head must be written within it, and the
//! ledger counts it as sent at its end. So two starts keep their distance wherever in their windows they were sent,
//! whatever wires and clocks did meanwhile. A node that must wait draws a number in the host's line, its *appointment*,
//! and is told when the number comes up. While the ledger is away, each node starts only at its own *slots*, moments of
//! the ledger's clock that no other node uses.
//!
//! [`calls`] is what nodes and ledger exchange. [`shared`] is the ledger as a pure value; the scripts in
//! `src/ledger/scripts` do the same in Redis, and a test compares the two. [`offset`] knows how far the ledger's clock
//! is from this node's. [`slots`] are the moments of a node that is alone. [`standing`] says how a node stands to the
//! ledger. [`node`] combines them: it turns a wish of a lane into a claim, and an answer into a window. [`appointment`]
//! is what a node keeps for a host between two claims.
//!
//! Times are microseconds: of the ledger's clock if not said otherwise.

pub mod appointment;
pub mod calls;
pub mod node;
pub mod offset;
pub mod shared;
pub mod slots;
pub mod standing;
pub mod trips;

/// A window ends at most this long after its grant. So a ledger that may have forgotten grants counts every host as
/// visited this long after that moment.
pub const FORGOTTEN_GRANTS: u64 = 100_000;

/// Returns how long a granted start may be sent: 2 % of the delay, 1 to 5 ms. All nodes use the same length, because
/// the line of a host counts in `delay + window`.
pub fn window(delay: u64) -> u64 {
    (delay / 50).clamp(1_000, 5_000)
}
