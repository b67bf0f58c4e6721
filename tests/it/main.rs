//! The integration tests: each tells one story on loopback between a raw client and a scripted origin.
//!
//! Doc comments cite statements about HTTP (S) and security (X) from docs/statements.md, and promises from
//! docs/promises.md. Those pages say which module checks which; `coverage` keeps them true. Where to look:
//!
//! | topic | module |
//! |---|---|
//! | request targets and hosts | `target`, `names` |
//! | fields, Via and loops | `hop_by_hop`, `via_and_loops` |
//! | framing of requests and responses | `framing`, `responses`, `differential` |
//! | streaming, backpressure and clients that disconnect | `bodies`, `orphans` |
//! | `Expect`, interim responses and WebSockets | `expect`, `upgrade` |
//! | CONNECT | `connect` |
//! | requests inside tunnels | `tunnels`, `tunnel_openings`, `tunnel_ends`, `tunnel_closes` |
//! | intercepted tunnels, with HTTP/2 and with real clients | `intercept`, `intercept_http2`, `intercept_clients` |
//! | reuse, retry, timeouts and parent proxies | `upstream` |
//! | `https://` in absolute form, TLS to origins | `https` |
//! | HTTP/2 to origins, and origins that misbehave in it | `http2`, `http2_faults` |
//! | TLS to the proxy itself, and HTTP/2 in it | `proxy_tls`, `proxy_tls_http2` |
//! | destinations that are refused | `guard` |
//! | the shape of refusals | `refusals` |
//! | proxy users and quotas | `users`, `quotas` |
//! | limits and places between clients | `limits`, `places`, `poison` |
//! | pacing, and events between a decision and the send | `pacing`, `meanwhile` |
//! | hard cases of the promises | `promises` |
//! | learning from origins | `learning` |
//! | robots.txt | `robots`, `robots_fetches`, `robots_evasion`, `robots_learning`, `robots_command` |
//! | signals, drain and reload | `running`, `stopping` |
//! | the page at the proxy's own address | `landing` |
//! | logs | `logs` |
//! | access to the admin listener, health and metrics | `door`, `admin`, `metrics` |
//! | the API: its document, events, hosts and clients, configuration | `api`, `events`, `hosts`, `steering` |
//! | commands that watch and explain | `watching`, `why`, `doctor`, `hints` |
//! | `curtsy exec` and `curtsy env` | `exec`, `env` |
//! | `curtsy judge` | `judge` |
//! | what people see of a fleet | `fleet_view` |
//! | the link to Redis, and `curtsy doctor --redis` | `redis_link`, `redis_doctor` |
//! | what survives a restart, and the state directory | `restart`, `state` |
//! | stored answers on disk, and `curtsy cache` | `cache_disk` |

mod admin;
mod api;
mod bodies;
mod cache;
mod cache_disk;
mod cache_validation;
mod clients;
mod collapsing;
mod connect;
mod coverage;
mod differential;
mod doctor;
mod door;
mod env;
mod events;
mod exec;
mod expect;
mod fleet;
mod fleet_view;
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
mod judge;
mod landing;
mod learning;
mod limits;
mod logs;
mod meanwhile;
mod metrics;
mod names;
mod orphans;
mod pacing;
mod pages;
mod places;
mod poison;
mod promises;
mod proxy_tls;
mod proxy_tls_http2;
mod quotas;
mod redis_doctor;
mod redis_link;
mod refusals;
mod responses;
mod restart;
mod robots;
mod robots_command;
mod robots_evasion;
mod robots_fetches;
mod robots_learning;
mod running;
mod setup;
mod state;
mod steering;
mod stopping;
mod support;
mod target;
mod tunnel_closes;
mod tunnel_ends;
mod tunnel_openings;
mod tunnels;
mod upgrade;
mod upstream;
mod users;
mod via_and_loops;
mod watching;
mod why;
