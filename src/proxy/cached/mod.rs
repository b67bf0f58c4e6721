//! Answers requests from stored answers, and stores what comes back. `politeness/reuse` decides; this obeys.
//!
//! In the order of a request: [`disk`] fetches what memory does not have; [`look`] looks for a stored answer before the
//! request takes a turn; [`plan`] is what the request remembers while it waits; [`heard`] decides what the origin's
//! answer means for what is stored; [`respond`] makes a response of a stored answer, and [`status`] tells the client;
//! [`share`] says what requests at the same time may share; [`refresh`] asks again for an answer that was given while
//! stale. [`forecast`] says beforehand what would happen.

mod disk;
mod forecast;
mod heard;
mod kept;
mod look;
mod plan;
mod refresh;
mod respond;
mod share;
mod status;
mod tap;

pub(crate) use self::disk::from_disk;
pub use self::forecast::CacheForecast;
pub(crate) use self::forecast::{ForecastRequest, forecast};
pub(crate) use self::heard::{Confirmation, Passing, instead_of, replaces_error};
pub(crate) use self::kept::list;
pub(crate) use self::look::{Looked, look, partition_of};
pub(crate) use self::plan::{CachePlan, CacheStep};
pub(crate) use self::refresh::Refreshes;
pub(crate) use self::tap::StoreTap;
