//! Decides what a shared cache may store and reuse (RFC 9111).
//!
//! Promises: an answer that is meant for one client is never given to another; nothing is served beyond its lifetime
//! unless a rule here says so; whatever an origin or a client sends, reading it ends and no arithmetic overflows. Time
//! is an argument. Header fields are pairs of a lower-case name and a value, because this module must not know the HTTP
//! library.
//!
//! In reading order: [`policy`] is what is kept about a stored answer, and its age; [`selecting`] which requests it
//! answers.

pub mod policy;
pub mod selecting;

/// One header field: its lower-case name and its value.
pub type Field<'a> = (&'a str, &'a [u8]);
