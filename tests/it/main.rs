//! The integration tests: one story each, told on loopback between a raw client and a scripted origin.
//!
//! S numbers are statements about HTTP proxies, X numbers about security; each test names in its doc comment the ones
//! it checks, and `coverage` fails when a required one is named nowhere. Where to look:
//!
//! | statements | module |
//! |---|---|
//! | S1–S9, S12 | `target` |
//! | S13–S15, S20–S24, X60 | `hop_by_hop` |
//! | S16–S19, X12 | `via_and_loops` |
//! | S26, S28–S38, S42, S43 | `framing` |
//! | S24, S25, S27–S30, S34–S37, S40, S41, S76 | `responses` |
//! | S39, X37, streaming and backpressure | `bodies` |
//! | S44–S46 | `expect` |
//! | S47, S48 | `upgrade` |
//! | S10, S11, S49–S53, X13, X25, X26 | `connect` |
//! | reuse, retry, time limits, parent proxies | `upstream` |
//! | `https://` in absolute form, TLS towards origins | `https` |
//! | X1, X3–X13, X16, X19, X21 | `guard` |
//! | S73–S79, X30, X31 | `refusals` |
//! | S80, X20 | `users` |
//! | X33–X35 | `limits` |
//! | how fast clients may ask | `quotas` |
//! | signals, drain, reload, X17, X40 | `running` |
//! | S3 | `landing` |
//! | X53, X54 | `logs` |
//! | X53, X57, as far as robots.txt is shown | `robots_command` |
//! | what happens between a decision and the send | `meanwhile` |
//! | hosts and clients, shown and steered | `hosts` |
//! | what was counted, health, X58 | `admin` |
//! | X55: what Prometheus is told | `metrics` |
//! | the API as a whole, its document | `api` |
//! | X56, X57: who may come in to the operator | `door` |
//! | what is told while it happens | `events` |
//! | looking on from the command line | `watching` |
//! | what counts, and other numbers while it runs | `steering` |
//! | what survives a restart | `restart` |

mod admin;
mod api;
mod bodies;
mod connect;
mod coverage;
mod door;
mod events;
mod expect;
mod framing;
mod guard;
mod hop_by_hop;
mod hosts;
mod https;
mod landing;
mod learning;
mod limits;
mod logs;
mod meanwhile;
mod metrics;
mod pacing;
mod quotas;
mod refusals;
mod responses;
mod restart;
mod robots;
mod robots_command;
mod robots_learning;
mod running;
mod steering;
mod support;
mod target;
mod upgrade;
mod upstream;
mod users;
mod via_and_loops;
mod watching;
