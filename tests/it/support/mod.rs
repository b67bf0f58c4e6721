//! The tools of the integration tests: an origin that can misbehave, a client that sends exact bytes, and curtsy
//! between them.
//!
//! Sockets are blocking, on loopback, with ports that the system chooses. Nothing here sleeps to wait for an event:
//! every wait ends as soon as the event happens, and fails after [`deadline::PATIENCE`].

pub(crate) mod client;
pub(crate) mod curtsy;
pub(crate) mod deadline;
pub(crate) mod gaps;
pub(crate) mod head_times;
pub(crate) mod hole;
pub(crate) mod http2_origin;
pub(crate) mod message;
pub(crate) mod origin;
pub(crate) mod program;
pub(crate) mod proxy_tls;
pub(crate) mod redis;
pub(crate) mod redis_sets;
pub(crate) mod relay;
pub(crate) mod schema;
pub(crate) mod socket;
pub(crate) mod tls_client;
pub(crate) mod tls_origin;
pub(crate) mod wire;

pub(crate) use self::client::Client;
pub(crate) use self::curtsy::{Curtsy, NAME};
pub(crate) use self::deadline::{PATIENCE, Stopwatch, ms, pause, soon};
pub(crate) use self::gaps::{ROOM, expect_gaps, expect_gaps_on_shared, expect_gaps_since_start, gaps};
pub(crate) use self::hole::Hole;
pub(crate) use self::http2_origin::Http2Origin;
pub(crate) use self::message::Message;
pub(crate) use self::origin::{HELLO, Origin, Visitor};
pub(crate) use self::program::Program;
pub(crate) use self::tls_origin::Authority;
pub(crate) use self::wire::End;
