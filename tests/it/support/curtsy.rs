//! curtsy in the test's own process, on a port that the system chose, allowed to visit loopback and without stored
//! state.
//!
//! The only file of the tests that knows how curtsy is built and started.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use curtsy::app::{Apply, Listeners, Running};
use curtsy::config::{Config, Destination, Listen, Mode, RobotsMode, StateDir};
use curtsy::politeness::pace::Learner;

use super::client::Client;
use super::deadline::ms;
use super::gaps::expect_gaps;
use super::message::Message;

/// What Via and Proxy-Status call the proxy under test.
pub(crate) const NAME: &str = "front-desk";

pub(crate) struct Curtsy {
    running: Option<Running>,
    address: SocketAddr,
    admin: SocketAddr,
}

impl Curtsy {
    pub(crate) fn start() -> Self {
        Self::with(|_| ())
    }

    /// Starts with the settings of [`config`], changed by `change`.
    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::on("127.0.0.1:0", change)
    }

    /// Starts on a listener of the test's choice.
    pub(crate) fn on(listen: &str, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = config();
        config.listen = vec![Listen::Tcp(listen.parse().expect("an address literal"))];
        change(&mut config);
        let listeners = Listeners::bind(&config).expect("loopback has free ports");
        Self::running(Running::start(config, listeners).expect("these settings are sound"))
    }

    /// Starts with this function as the DNS resolver.
    pub(crate) fn resolving(
        lookup: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let mut config = config();
        config.listen = vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))];
        change(&mut config);
        let listeners = Listeners::bind(&config).expect("loopback has free ports");
        let running = Running::start_resolving(config, listeners, Arc::new(lookup));
        Self::running(running.expect("these settings are sound"))
    }

    fn running(running: Running) -> Self {
        let (address, admin) = (running.proxy_address(), running.admin_address().expect("it has an admin listener"));
        Curtsy { running: Some(running), address, admin }
    }

    /// Returns why curtsy does not start with these settings.
    pub(crate) fn start_error(change: impl FnOnce(&mut Config)) -> String {
        let mut config = config();
        config.listen = vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))];
        change(&mut config);
        let listeners = Listeners::bind(&config).expect("loopback has free ports");
        Running::start(config, listeners).expect_err("these settings are not sound").to_string()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The listener where clients speak TLS to the proxy.
    pub(crate) fn tls_address(&self) -> SocketAddr {
        self.running.as_ref().expect("running until dropped").tls_addresses()[0]
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(SocketAddr::from(([127, 0, 0, 1], self.address.port())))
    }

    /// A client at another address of this machine.
    pub(crate) fn client_from(&self, source: [u8; 4]) -> Client {
        Client::connect_from(source.into(), SocketAddr::from(([127, 0, 0, 1], self.address.port())))
    }

    /// Sends one request, given as the lines of its head, on a new connection.
    pub(crate) fn ask(&self, lines: &[&str]) -> Message {
        self.client().ask(lines)
    }

    /// Sends a plain GET for an absolute URL.
    pub(crate) fn get(&self, url: &str) -> Message {
        self.ask(&[&format!("GET {url} HTTP/1.1"), "Host: ignored.test"])
    }

    /// Sends one request to the admin listener.
    pub(crate) fn ask_admin(&self, lines: &[&str]) -> Message {
        Client::connect(self.admin).ask(lines)
    }

    /// The current value of one metric, given with its labels.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        let page = self.ask_admin(&["GET /metrics HTTP/1.1", "Host: localhost", "Connection: close"]).text();
        let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {series} in\n{page}"))
    }

    /// Asserts that requests were this far apart, by the times that the origin noted and by curtsy's own audit.
    #[track_caller]
    pub(crate) fn expect_gaps(&self, times: &[Duration], least: Duration) {
        expect_gaps(times, least);
        assert_eq!(self.metric("curtsy_spacing_violations_total"), 0);
    }

    /// Changes the settings while it runs.
    pub(crate) fn reload(&self, change: impl FnOnce(&mut Config)) {
        self.try_reload(change).expect("these settings are sound");
    }

    /// The same, but returns the error if the settings cannot be applied.
    pub(crate) fn try_reload(&self, change: impl FnOnce(&mut Config)) -> Result<(), String> {
        let mut config = config();
        change(&mut config);
        let running = self.running.as_ref().expect("running until dropped");
        running.apply(config, Apply::All).map_err(|error| error.to_string())
    }

    /// Stops and waits until everything in flight is done or the grace is over.
    pub(crate) fn stop(mut self) {
        self.running.take().expect("running until dropped").stop();
    }
}

impl Drop for Curtsy {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop();
        }
    }
}

/// The settings that tests start from: the defaults, except that loopback origins and any port are allowed and the
/// shutdown is quick.
///
/// One worker, because connections are pooled by worker and many tests count them.
pub(crate) fn config() -> Config {
    let mut config = Config {
        admin: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        state_dir: StateDir::Memory,
        name: Some(NAME.to_owned()),
        workers: 1,
        shutdown_grace: ms(50),
        ..Config::default()
    };
    // Tests that are not about pacing do not wait.
    config.politeness.mode = Mode::Off;
    config.politeness.robots = RobotsMode::Off;
    // Tests pace by delays of some milliseconds. `auto` would begin at half a second.
    config.politeness.learner = Learner::Steps;
    // Most tests count requests, and send the same one again and again.
    config.cache.collapse = false;
    config.access.allow_destinations = loopback();
    config.access.connect_ports = None;
    config
}

fn loopback() -> Vec<Destination> {
    ["127.0.0.0/8", "::1/128"].map(|net| Destination::Net(net.parse().expect("a literal network"))).to_vec()
}
