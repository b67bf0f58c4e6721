//! The only module that knows every part: builds the parts from a [`Config`], runs them, replaces what a reload may
//! replace, and stops them.

mod book;
mod ca;
mod cache;
mod fleet;
mod offline;
mod server_cert;
mod standalone;
mod start_error;
mod state;
mod steering;
mod tally;

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::sync::mpsc;

use crate::admin::{self, Admin};
use crate::clock;
use crate::config::{Config, Listen};
use crate::gate::{Gate, HostPersistence};
use crate::ledger::FleetThread;
use crate::metrics::Metrics;
use crate::politeness::time::Timestamp;
use crate::proxy::{AccessLog, DryRun, Identity, Settings, Shared, SharedParts, StoppedClients, Users, Worker};
use crate::robots::Robots;
use crate::shutdown::{self, Stop, Stopper};
use crate::store::{self, Store};
use crate::telemetry;
use crate::timer;
use crate::tls::{self, Files};
use crate::upstream::{Guard, Lookup, Resolver, Trust};

use self::ca::CaLocation;
use self::state::Remembered;
use self::steering::LiveSettings;

pub use self::book::book as policy_book;
pub use self::ca::files as ca_files;
pub use self::cache::cache_directory;
pub use self::offline::{Offline, OfflineError};
pub use self::standalone::ask_about_robots;
pub use self::start_error::StartError;
pub use self::steering::Reload;
pub use self::tally::{CountedHost, TallyJson, WaitingHost};
pub use crate::gate::Apply;
pub use crate::metrics::tally::{TallyRejection, TallyRow, TallyRule, TallyWaits};

/// Bound sockets. Tests bind port 0 and pass the sockets in.
#[derive(Debug)]
pub struct Listeners {
    pub proxy: Vec<TcpListener>,
    /// Where clients speak TLS to the proxy.
    pub tls: Vec<TcpListener>,
    pub admin: Option<TcpListener>,
}

/// A curtsy instance that accepts requests. Dropping it stops it without waiting.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    helm: Arc<LiveSettings>,
    store: Arc<Store>,
    stopper: Stopper,
    /// Closes the admin listener, which outlives the requests: it says that curtsy is stopping.
    closing: (Stopper, Stop),
    threads: Vec<JoinHandle<()>>,
    fleet: Option<FleetThread>,
    admin_thread: Option<JoinHandle<()>>,
    proxy: Vec<SocketAddr>,
    tls: Vec<SocketAddr>,
    admin: Option<SocketAddr>,
}

impl Listeners {
    pub fn bind(config: &Config) -> Result<Self, StartError> {
        let proxy = config.listen.iter().map(|Listen::Tcp(address)| listen(*address)).collect::<Result<_, _>>()?;
        let tls = config.tls.listen.iter().map(|Listen::Tcp(address)| listen(*address)).collect::<Result<_, _>>()?;
        let admin = config.admin.map(listen).transpose()?;
        Ok(Listeners { proxy, tls, admin })
    }

    fn addresses(listeners: &[TcpListener]) -> Vec<SocketAddr> {
        listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }
}

impl Running {
    /// Starts all threads. Clients can connect as soon as this returns.
    pub fn start(config: Config, listeners: Listeners) -> Result<Running, StartError> {
        Self::start_with(config, listeners, CaLocation::Configured, Resolver::default())
    }

    /// Starts a proxy for a single command. If it intercepts and no CA is given, its CA exists only in memory and ends
    /// with it. Counts the results of requests for every host.
    pub fn start_private(config: Config, listeners: Listeners, ca: Option<Files>) -> Result<Running, StartError> {
        let keeping = ca.map_or(CaLocation::ThisRun, CaLocation::These);
        let running = Self::start_with(config, listeners, keeping, Resolver::default())?;
        running.shared.serve_one_command();
        Ok(running)
    }

    /// Starts a proxy that resolves names with this function instead of the system, and caches no result.
    #[allow(dead_code, reason = "integration tests use it")]
    pub fn start_resolving(config: Config, listeners: Listeners, lookup: Arc<Lookup>) -> Result<Running, StartError> {
        Self::start_with(config, listeners, CaLocation::Configured, Resolver::new(lookup, Duration::ZERO))
    }

    fn start_with(
        config: Config,
        listeners: Listeners,
        keeping: CaLocation,
        resolver: Resolver,
    ) -> Result<Running, StartError> {
        let (proxy, tls) = (Listeners::addresses(&listeners.proxy), Listeners::addresses(&listeners.tls));
        let admin = listeners.admin.as_ref().and_then(|listener| listener.local_addr().ok());
        let (stopper, stop) = shutdown::channel();
        let metrics = metrics(&config);
        let Remembered { store, jobs, unknown_before } = state::open(&config)?;
        let access_log = AccessLog::open(&config.log.access, telemetry::is_json(config.log.format));
        let memories = HostPersistence::new(store.clone(), unknown_before);
        let (book, bounds) = (book::book(&config), book::bounds(&config));
        let (ledger, fleet) = fleet::start(&config, &metrics)?;
        let gate = Gate::new(book, bounds, config.pacing.max_queue_total, memories, metrics.clone());
        let gate = Arc::new(gate.with_ledger(ledger));
        let cache = cache::open(&config.cache, &gate).map_err(StartError::Thread)?;
        let robots = Arc::new(Robots::new(config.robots.cache_size, store.clone()).with_ledger(gate.ledger().clone()));
        let stops = StoppedClients::new(store.clone(), &jobs, Timestamp::from_micros(clock::micros()));
        let stops = fleet::listening(stops, &gate);
        let (workers, token) = (config.workers, config.metrics.token.clone());
        let own: Vec<SocketAddr> = proxy.iter().chain(&tls).copied().chain(admin).collect();
        let shared = Arc::new(Shared::new(SharedParts {
            identity: Identity::new(&name(&config)),
            settings: settings(config, &own, keeping)?,
            metrics: metrics.clone(),
            access_log: access_log.map_err(StartError::AccessLog)?,
            gate: gate.clone(),
            robots: robots.clone(),
            cache,
            stops,
            stop: stop.clone(),
        }));
        fleet::introduce(&shared);
        let helm = Arc::new(LiveSettings::new(shared.clone(), own));
        let mut running = Running {
            shared,
            store: store.clone(),
            helm: helm.clone(),
            stopper,
            closing: shutdown::channel(),
            threads: Vec::new(),
            fleet,
            admin_thread: None,
            proxy,
            tls,
            admin,
        };
        let resolver = Arc::new(resolver);
        running.start_workers(workers, &listeners, &resolver)?;
        if let Some((listener, address)) = listeners.admin.zip(admin) {
            let desk = DryRun::new(running.shared.clone(), resolver);
            let (proxy, own) = (running.proxy.clone(), admin::AdminState::new(running.closing.1.clone()));
            let admin = Admin { metrics, gate, robots, store, desk, steering: helm, stop, token, address, proxy, own };
            running.start_admin(admin, listener)?;
        }
        running.start_sweeper()?;
        Ok(running)
    }

    /// Starts the worker threads; 0 = one worker per core.
    fn start_workers(
        &mut self,
        workers: usize,
        listeners: &Listeners,
        resolver: &Arc<Resolver>,
    ) -> Result<(), StartError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = if workers == 0 { cores } else { workers };
        for number in 0..workers {
            let (plain, tls) = (cloned(&listeners.proxy)?, cloned(&listeners.tls)?);
            let (shared, resolver) = (self.shared.clone(), resolver.clone());
            // The sockets, if there are any, listen already, so curtsy is ready before the thread has begun to accept.
            let listening = (plain.len() + tls.len() > 0).then(|| shared.listening.begin());
            self.spawn(format!("worker-{number}"), async move || {
                if let Err(error) = timer::install_bell() {
                    tracing::warn!(event = "timer.error", %error, "gaps will be a millisecond longer than needed");
                }
                let worker = Arc::new(Worker::new(shared, resolver));
                if let Err(error) = worker.run(plain, tls, listening).await {
                    tracing::error!(event = "worker.error", %error, "a worker cannot take connections");
                }
            })?;
        }
        Ok(())
    }

    /// Starts the thread that removes idle lanes every `hosts.sweep`.
    fn start_sweeper(&mut self) -> Result<(), StartError> {
        let shared = self.shared.clone();
        self.spawn("sweeper".to_owned(), async move || {
            let mut stop = shared.stop.clone();
            loop {
                let pause = shared.settings.load().config.hosts.sweep;
                tokio::select! {
                    () = tokio::time::sleep(pause) => {
                        shared.gate.sweep();
                        shared.settings.load().sweep();
                    }
                    () = stop.requested() => return,
                }
            }
        })
    }

    fn start_admin(&mut self, admin: Admin, listener: TcpListener) -> Result<(), StartError> {
        self.spawn("admin".to_owned(), async move || {
            let served = match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => admin::serve(admin, listener).await,
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                tracing::error!(event = "admin.error", %error, "the admin listener failed");
            }
        })?;
        self.admin_thread = self.threads.pop();
        Ok(())
    }

    /// Starts a thread with its own single-threaded runtime. Tasks do not move between cores, so no core waits for
    /// another.
    fn spawn<F>(&mut self, name: String, work: F) -> Result<(), StartError>
    where
        F: AsyncFnOnce() + Send + 'static,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || runtime.block_on(work()))
            .map_err(StartError::Thread)?;
        self.threads.push(thread);
        Ok(())
    }

    pub fn proxy_address(&self) -> SocketAddr {
        self.proxy[0]
    }

    pub fn proxy_addresses(&self) -> &[SocketAddr] {
        &self.proxy
    }

    pub fn tls_addresses(&self) -> &[SocketAddr] {
        &self.tls
    }

    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin
    }

    pub fn name(&self) -> &str {
        self.shared.identity.name()
    }

    /// Replaces the settings for all requests from now on. If the new settings cannot be used, nothing changes.
    /// Settings that need a restart keep their old value.
    pub fn apply(&self, config: Config, apply: Apply) -> Result<(), StartError> {
        self.helm.replace(config, apply).inspect_err(|_| self.reload_failed())?;
        self.shared.metrics.reloaded(true);
        Ok(())
    }

    /// Returns the channel of reload requests from the API. The caller must answer each of them.
    pub fn reloads(&self) -> mpsc::Receiver<Reload> {
        self.helm.reloads()
    }

    /// Returns the configuration in effect.
    pub fn config(&self) -> Config {
        self.shared.settings.load().config.clone()
    }

    /// Records that a new configuration could not be read: sets the metric and publishes an event.
    pub fn reload_failed(&self) {
        self.shared.metrics.reloaded(false);
        self.helm.tell_of_failure();
    }

    /// Returns the CA certificates that clients must trust if tunnels are intercepted, in PEM.
    pub fn ca_pem(&self) -> Option<String> {
        let settings = self.shared.settings.load();
        settings.leaves.as_ref().map(|leaves| leaves.trusted().iter().map(tls::pem).collect())
    }

    /// Returns the results of requests by host. The tally stays valid after this proxy stops. It is empty unless the
    /// proxy was started with [`Running::start_private`].
    pub fn tally(&self) -> TallyJson {
        TallyJson::new(self.shared.clone())
    }

    /// Reopens the access log after its file was renamed.
    pub fn reopen_logs(&self) {
        self.shared.access_log.reopen();
    }

    /// Stops accepting connections, and refuses every request whose turn does not come within `shutdown_grace`.
    pub fn begin_stop(&self) {
        // This comes first, so that all later responses announce that their connection closes.
        self.stopper.stop();
        self.shared.gate.drain(self.shared.settings.load().config.shutdown_grace);
    }

    /// Stops accepting requests, lets those in flight finish within `shutdown_grace`, and returns when every thread has
    /// ended and the state is saved.
    pub fn stop(self) {
        self.begin_stop();
        for thread in self.threads {
            let _ = thread.join();
        }
        self.closing.0.stop();
        if let Some(thread) = self.admin_thread {
            let _ = thread.join();
        }
        // Leaves the fleet, so that the other nodes need not wait for this one.
        drop(self.fleet);
        self.shared.gate.keep_all();
        state::close(&self.store);
        cache::close(&self.shared.cache);
    }
}

fn settings(config: Config, own: &[SocketAddr], keeping: CaLocation) -> Result<Settings, StartError> {
    let users = match &config.access.users_file {
        None => None,
        Some(path) => {
            let text =
                std::fs::read_to_string(path).map_err(|error| StartError::UsersFile { path: path.clone(), error })?;
            let users = Users::parse(&text).map_err(|error| StartError::BadUsers { path: path.clone(), error })?;
            warn_of_weak(&users, path);
            Some(users)
        }
    };
    let guard = Guard::new(config.access.allow_destinations.clone(), own.to_vec());
    let trust = Trust::load(&config.tls).map_err(StartError::Roots)?;
    let leaves = ca::leaves(&config, keeping).map_err(StartError::Ca)?;
    let own = server_cert::certificate(&config.tls).map_err(StartError::Certificate)?;
    let mut settings = Settings::new(config, guard, trust);
    settings.leaves = leaves.map(Arc::new);
    settings.own = own;
    settings.users = users.map(Arc::new);
    Ok(settings)
}

fn warn_of_weak(users: &Users, path: &Path) {
    let weak = users.weak();
    if weak > 0 {
        tracing::warn!(
            event = "users.weak", path = %path.display(), weak,
            "hashes in access.users_file are quick to guess; make new ones with: htpasswd -B -C 12 FILE NAME"
        );
    }
}

fn metrics(config: &Config) -> Arc<Metrics> {
    let metrics = Metrics::new();
    metrics.reloaded(true);
    metrics.hosts.limit(config.metrics.hosts);
    Arc::new(metrics)
}

/// Clones the listeners: each worker accepts on its own handle.
fn cloned(listeners: &[TcpListener]) -> Result<Vec<TcpListener>, StartError> {
    listeners.iter().map(TcpListener::try_clone).collect::<Result<_, _>>().map_err(StartError::Thread)
}

/// Returns the configured name, or the one stored in the state directory. If the directory cannot be written, curtsy
/// still starts, with a new name that lasts for this run.
fn name(config: &Config) -> String {
    if let Some(name) = &config.name {
        return name.clone();
    }
    let Some(directory) = store::directory(&config.state_dir) else { return store::new_name() };
    store::deployment_name(&directory).unwrap_or_else(|error| {
        let directory = directory.display();
        tracing::warn!(
            event = "state.unwritable", %directory, %error,
            "cannot keep this deployment's name; set `name` or a writable `state_dir`"
        );
        store::new_name()
    })
}

/// How many connections may wait to be accepted; the kernel caps the number at its own limit.
const BACKLOG: i32 = 1024;

fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    let open = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(TcpListener::from(socket))
    };
    open().map_err(|error| StartError::Bind { address, error })
}
