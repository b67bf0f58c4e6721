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
//! | X27 | `differential` |
//! | S24, S25, S27–S30, S34–S37, S40, S41, S76 | `responses` |
//! | S39, X37, streaming and backpressure | `bodies` |
//! | S44–S46 | `expect` |
//! | S47, S48 | `upgrade` |
//! | S10, S11, S49–S53, X13, X25, X26 | `connect` |
//! | requests inside tunnels, X24 as far as tunnels go | `tunnels` |
//! | promises 2, 3, 5, 6, 8 and 9 in their hard cases | `promises` |
//! | reuse, retry, time limits, parent proxies | `upstream` |
//! | `https://` in absolute form, TLS towards origins | `https` |
//! | TLS to the proxy itself, and HTTP/2 in it | `proxy_tls`, `proxy_tls_http2` |
//! | HTTP/2 towards origins, and origins that misbehave in it | `http2`, `http2_faults` |
//! | tunnels that are looked into, X22–X24, X42–X46, X48, X50, X52 | `intercept` |
//! | the same over HTTP/2, S54–S57, S59 | `intercept_http2` |
//! | the same with real clients | `intercept_clients` |
//! | X1, X3–X13, X16, X19, X21 | `guard` |
//! | S73–S79, X30, X31 | `refusals` |
//! | S80, X20 | `users` |
//! | X33–X35 | `limits` |
//! | X34, X65, X70: places between clients | `places` |
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
//! | why it is slow, asked in four ways | `why` |
//! | what counts, and other numbers while it runs | `steering` |
//! | why a client does not get through | `doctor` |
//! | clients that leave the line, clients with names | `hints` |
//! | one command and its proxy, and the variables for a shell | `exec`, `env` |
//! | what survives a restart | `restart` |
//! | what is kept, in people's hands | `state` |

mod admin;
mod api;
mod bodies;
mod connect;
mod coverage;
mod differential;
mod doctor;
mod door;
mod env;
mod events;
mod exec;
mod expect;
mod framing;
mod guard;
mod hints;
mod hop_by_hop;
mod hosts;
mod http2;
mod http2_faults;
mod https;
mod intercept;
mod intercept_clients;
mod intercept_http2;
mod landing;
mod learning;
mod limits;
mod logs;
mod meanwhile;
mod metrics;
mod names;
mod orphans;
mod pacing;
mod places;
mod poison;
mod promises;
mod proxy_tls;
mod proxy_tls_http2;
mod quotas;
mod refusals;
mod responses;
mod restart;
mod robots;
mod robots_command;
mod robots_evasion;
mod robots_fetches;
mod robots_learning;
mod running;
mod state;
mod steering;
mod stopping;
mod support;
mod target;
mod tunnel_ends;
mod tunnel_openings;
mod tunnels;
mod upgrade;
mod upstream;
mod users;
mod via_and_loops;
mod watching;
mod why;
