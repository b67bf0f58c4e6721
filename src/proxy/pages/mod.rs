//! Pages that curtsy answers itself, without visiting any host.

pub(crate) mod help;
pub(crate) mod landing;
pub(crate) mod probe;
