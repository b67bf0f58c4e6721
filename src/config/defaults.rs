//! The defaults. `config.toml` documents them, and a test compares the two.

use std::net::SocketAddr;
use std::time::Duration;

use super::{
    Access, AccessLogTarget, Adaptive, Breaker, CacheStorage, Config, Fleet, Hosts, Http2Tunnels, Key, Limits, Listen,
    Log, LogFormat, Metrics, OnUnreachable, OnUntrusted, Pacing, Partition, QueryStrings, ResolverChoice,
    ResponseHeaders, Responses, Robots, State, StateDir, Tls, Tunnel, Upstream,
};
use crate::politeness::policy::Policy;
use crate::politeness::retries::RetryPolicy;

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 3128)))],
            admin: Some(SocketAddr::from(([127, 0, 0, 1], 3129))),
            state_dir: StateDir::Auto,
            name: None,
            workers: 0,
            watch: true,
            shutdown_grace: secs(30),
            politeness: Policy::default(),
            pacing: Pacing { key: Key::Host, profile: None, max_queue_total: 20_000 },
            hosts: Hosts { max: 100_000, idle: secs(3600), sweep: secs(300) },
            state: State { hosts: 1_000_000, robots: 64 * 1024 * 1024 },
            adaptive: Adaptive::default(),
            retry: RetryPolicy::default(),
            breaker: Breaker { failures: 10, cooldown: secs(30), throttled: 0, job_failures: 20 },
            robots: Robots::default(),
            cache: CacheStorage::default(),
            tls: Tls::default(),
            upstream: Upstream::default(),
            access: Access::default(),
            limits: Limits {
                head_size: 64 * 1024,
                head_timeout: secs(15),
                client_idle: secs(75),
                client_stall: secs(60),
            },
            responses: Responses { headers: ResponseHeaders::Full, reason_phrases: true, contact: String::new() },
            log: Log {
                level: "info".to_owned(),
                format: LogFormat::Auto,
                access: AccessLogTarget::Off,
                query_strings: QueryStrings::Redact,
            },
            metrics: Metrics { hosts: 100, token: None },
            fleet: Fleet {
                redis: Vec::new(),
                name: "curtsy".to_owned(),
                timeout: Duration::from_millis(500),
                nodes: 0,
            },
            host: Vec::new(),
        }
    }
}

impl Default for Adaptive {
    fn default() -> Self {
        Adaptive {
            step_up: secs(1),
            step_down: secs(1),
            successes: 20,
            max_delay: secs(60),
            statuses: vec![429, 503],
            suspects: vec![403],
            concurrency_step: secs(5),
            retry_after_max: secs(3600),
            ratelimit_fields: true,
            remember: secs(30 * 24 * 3600),
        }
    }
}

impl Default for Robots {
    fn default() -> Self {
        Robots {
            user_agent: Vec::new(),
            crawl_delay: true,
            cache_ttl: secs(24 * 3600),
            cache_size: 64 * 1024 * 1024,
            fetch_timeout: secs(10),
            on_unreachable: OnUnreachable::Deny,
            takes_turn: false,
            apply_to: vec!["GET".to_owned(), "HEAD".to_owned()],
            exempt_user_agents: Vec::new(),
        }
    }
}

impl Default for CacheStorage {
    fn default() -> Self {
        CacheStorage {
            memory: 64 * 1024 * 1024,
            disk: 0,
            dir: None,
            max_object: 256 * 1024 * 1024,
            collapse: true,
            heuristic: 0.1,
            partition: Partition::Shared,
            unkeyed: Vec::new(),
        }
    }
}

impl Default for Tls {
    fn default() -> Self {
        Tls {
            intercept: false,
            only: Vec::new(),
            bypass: Vec::new(),
            on_untrusted: OnUntrusted::Error,
            http2_clients: true,
            listen: Vec::new(),
            listen_cert: None,
            listen_key: None,
            extra_roots: Vec::new(),
            min_version: "1.2".to_owned(),
            ca_cert: None,
            ca_key: None,
            tunnel: Tunnel { pace_requests: true, http2: Http2Tunnels::Allow, max_lifetime: secs(600) },
        }
    }
}

impl Default for Upstream {
    fn default() -> Self {
        Upstream {
            connect_timeout: secs(10),
            dns_timeout: secs(5),
            response_timeout: secs(120),
            idle_timeout: secs(90),
            keep_alive: secs(4),
            pool_per_host: 0,
            http2: true,
            proxy: None,
            bind: None,
            resolver: ResolverChoice::System,
            via: true,
        }
    }
}

impl Default for Access {
    fn default() -> Self {
        Access {
            allow: ["127.0.0.0/8", "::1/128"].map(|net| net.parse().expect("a literal network")).to_vec(),
            users_file: None,
            allow_destinations: Vec::new(),
            connect_ports: Some(vec![443, 80, 8443]),
            max_client_connections: 4096,
            admin_hosts: Vec::new(),
            client_rate: None,
            total_rate: None,
        }
    }
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}
