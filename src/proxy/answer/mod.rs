//! What a client gets back: the origin's answer with curtsy's fields, or a refusal that says why and what to do.

pub(crate) mod body;
pub(crate) mod failure;
pub(crate) mod fields;
pub(crate) mod response;
pub(crate) mod texts;
