//! Transitions of the pace, with literal times.
