//! Requests for the same URL at the same time share one answer, where the rules of the cache allow it.
//!
//! Who leads and who follows is decided in [`flight`](crate::politeness::flight), and what may be shared in
//! [`reuse`](crate::politeness::reuse). [`flights`] finds the flight of a request, [`flying`] is what is under way,
//! [`answer`] is what its members share, [`body`] is a body that several clients read while it arrives, and [`landing`]
//! connects them.

pub(super) mod answer;
pub(super) mod body;
pub(super) mod flights;
mod flying;
pub(super) mod landing;
mod unshareable;
