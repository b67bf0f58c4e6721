//! Decides what a shared cache may store and reuse (RFC 9111).
//!
//! Promises: an answer that is meant for one client is never given to another; nothing is served beyond its lifetime
//! unless a rule here says so; whatever an origin or a client sends, reading it ends and no arithmetic overflows. Time
//! is an argument. Header fields are pairs of a lower-case name and a value, because this module must not know the HTTP
//! library.
//!
//! In reading order: [`directives`] reads Cache-Control; [`request`] and [`response`] are what matters of either side;
//! [`policy`] is what is kept about a stored answer; [`storing`] decides whether to store, [`selecting`] for which
//! requests, [`reusing`] whether to use it now, [`conditions`] how much of it; [`updating`] what later answers change.

pub mod conditions;
pub mod directives;
mod harmless;
pub mod policy;
pub mod request;
pub mod response;
pub mod reusing;
pub mod selecting;
pub mod storing;
pub mod updating;

#[cfg(test)]
mod rules_tests;
#[cfg(test)]
mod sim;

/// One header field: its lower-case name and its value.
pub type Field<'a> = (&'a str, &'a [u8]);
