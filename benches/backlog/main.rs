//! How much of what is allowed a backlog uses, through the built program and as an origin sees it.
//!
//! `cargo bench --bench backlog` prints one row per case. Every host always has somebody waiting, so that each start
//! that comes later than the delay allows is curtsy's loss, or the machine's. Origin and clients are lean and share
//! one thread, because they share the cores with curtsy: where both cores are taken, nothing is left to be seen. What
//! they cost is shown beside what curtsy costs. Processor time is read from Linux' `/proc`. No thresholds: the figures
//! to reach are compared by whoever runs it.

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

/// For robots.txt of every host and connections to it, whatever the delay.
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
        // Its tasks end with it: the next case finds no load of the last.
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

/// What the steady state takes, and what curtsy itself found wrong with its spacing.
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
    // A client's connection and, at the origin, the one that curtsy opens for it; and some to spare.
    let wanted = (case.connections() * 2 + 256) as u64;
    let got = rlimit::increase_nofile_limit(wanted)?;
    if got < wanted {
        return Err(io::Error::other(format!("only {got} files may be open, {wanted} are needed (ulimit -n)")));
    }
    Ok(())
}

/// Somebody wants an end: then curtsy has to be ended, too.
async fn stopped() {
    let mut terminated = signal(SignalKind::terminate()).expect("a signal that may be caught");
    tokio::select! {
        _ = terminated.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
