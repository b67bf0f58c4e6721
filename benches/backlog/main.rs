//! Measures how much of the allowed rate a backlog uses, through the built program and as an origin sees it.
//!
//! `cargo bench --bench backlog` prints one row per case. Every host always has a waiting request, so each start that
//! comes later than the delay allows is lost by curtsy, or by the machine. Origin and clients are lean and share one
//! thread, because they share the cores with curtsy: if both cores are busy, the measurement shows nothing. Their cost
//! is printed beside curtsy's. Processor time is read from Linux' `/proc`. There are no thresholds: the reader compares
//! the figures with the targets.

mod audit;
mod clients;
mod cost;
mod figures;
mod options;
mod origin;
mod proxy;
mod wire;

use std::cell::RefCell;
use std::io;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use audit::Audit;
use clients::Clients;
use figures::{Figures, Moment, Work};
use options::{Case, Options};
use proxy::Proxy;

/// Time to fetch robots.txt of every host and to open connections, whatever the delay.
const WARM_UP: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    match run(&Options::read()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("backlog: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> io::Result<()> {
    if !options.json {
        println!("{}", Figures::HEADING);
    }
    for case in options.cases() {
        // The tasks end with the runtime, so the next case does not see the load of this one.
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
        let figures = runtime.block_on(async {
            tokio::select! {
                figures = measure(options, &case) => figures,
                () = stopped() => Err(io::Error::other("stopped")),
            }
        })?;
        println!("{}", if options.json { figures.json() } else { figures.row() });
    }
    Ok(())
}

async fn measure(options: &Options, case: &Case) -> io::Result<Figures> {
    raise_file_limit(case)?;
    let listener = origin::listen()?;
    let port = listener.local_addr()?.port();
    let proxy = Proxy::start(&options.curtsy, &options.settings(case))?;
    let audit = Rc::new(RefCell::new(Audit::new(case.hosts, case.delay)));
    tokio::task::spawn_local(origin::serve(listener, audit.clone()));
    let mut clients = Clients::open(proxy.address(), port, case).await?;
    tokio::select! {
        watched = watch(&proxy, &audit, case) => {
            let (work, violations) = watched?;
            let figures = Figures::new(case, &audit.borrow(), &work, violations);
            figures.ok_or_else(|| io::Error::other("no host was visited again; measure for longer"))
        }
        problem = clients.failed() => Err(problem),
    }
}

/// Measures the steady state, and reads the spacing violations that curtsy itself found.
async fn watch(proxy: &Proxy, audit: &RefCell<Audit>, case: &Case) -> io::Result<(Work, u64)> {
    sleep(WARM_UP.max(case.delay * 2)).await;
    audit.borrow_mut().begin();
    let begun = Moment::now(proxy.id())?;
    sleep(case.measured).await;
    let work = Moment::now(proxy.id())?.since(&begun);
    audit.borrow_mut().end();
    Ok((work, proxy.spacing_violations().await?))
}

fn raise_file_limit(case: &Case) -> io::Result<()> {
    // One file for a client's connection, one at the origin for the connection that curtsy opens, and some to spare.
    let wanted = (case.connections() * 2 + 256) as u64;
    let got = rlimit::increase_nofile_limit(wanted)?;
    if got < wanted {
        return Err(io::Error::other(format!("only {got} files may be open, {wanted} are needed (ulimit -n)")));
    }
    Ok(())
}

/// Resolves on SIGTERM or Ctrl-C, so that curtsy is ended, too.
async fn stopped() {
    let mut terminated = signal(SignalKind::terminate()).expect("a signal that may be caught");
    tokio::select! {
        _ = terminated.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
