//! Paces one tunnel: its turns, its place at the host, and how old it may get.
//!
//! Obeys [`Bursts`]: a request inside waits for a turn of its own, in the queue of its host, like any visit.
//!
//! - The turn that CONNECT claimed is for the first request, and is charged when that request passes: the gap to the
//!   next start counts from there. If the client sends no request soon, the turn is charged all the same, and its first
//!   request claims another.
//! - The tunnel has a place while a request is under way in it. Before a request joins the queue again, the tunnel
//!   gives its place up, so that it does not wait for itself. A tunnel that has been quiet for a moment gives it up,
//!   too, so that it holds up no other request. A tunnel that is not paced keeps its place for as long as it lasts.
//! - A request does not wait inside for longer than origins keep idle connections (`early_close.rs`). If the next one
//!   would have to, curtsy closes the tunnel together with the last bytes of the answer: the client opens another one,
//!   and waits in CONNECT, where no connection can time out. A request that is inside already goes before the other
//!   requests of its client.
//! - A request that is refused cannot be answered inside the tunnel: curtsy closes the tunnel before any of the request
//!   has gone. The client's next CONNECT gets the reason.
//! - A tunnel that is too old ends when it is next quiet. It is not cut off in mid-transfer, unless requests inside are
//!   not paced and it is twice as old.

mod early_close;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::bursts::{BurstVerdict, Bursts, Unpaced};
use super::tail::Tail;
use crate::clock;
use crate::config::Http2Tunnels;
use crate::gate::{Label, Permit, Preparation, now};
use crate::politeness::HostKey;
use crate::politeness::lane::LEAD;
use crate::politeness::policy::Mode;
use crate::politeness::visit::{Purpose, Visit, VisitOutcome};
use crate::programs;
use crate::proxy::accept::client::Client;
use crate::proxy::accept::first_bytes::{self, FirstBytes};
use crate::proxy::answer::failure::{Failure, Refusal};
use crate::proxy::request::client_request::InFlight;
use crate::proxy::visit::job::Job;
use crate::proxy::{Settings, Shared};
use crate::telemetry::{LogLimiter, REPEAT};
use crate::timeout_stream::Deadline;
use early_close::LONGEST_WAIT_INSIDE;

/// What the requests of a tunnel need to claim their turns.
pub(crate) struct PacedTunnel {
    /// The host that the tunnel goes to.
    pub(crate) host: HostKey,
    /// The host whose turns are taken.
    pub(crate) budget: HostKey,
    /// The visit of the CONNECT.
    pub(crate) visit: Visit,
    pub(crate) job: Option<Job>,
    /// How people see its requests while they wait.
    pub(crate) label: Arc<Label>,
    /// The client, in case there is plain HTTP inside.
    pub(crate) client: Arc<Client>,
}

/// A tunnel is quiet if nothing has moved for this long, which is longer than most pauses within an answer.
const QUIET: Duration = Duration::from_secs(1);

/// The urgency of a request that goes before the others of its client (RFC 9218, section 4.1).
const FIRST: u8 = 0;

pub(crate) struct Pacer {
    shared: Arc<Shared>,
    passage: PacedTunnel,
    in_flight: Box<InFlight>,
    limit: Arc<Deadline>,
    idle: Duration,
    bursts: Bursts,
    /// The turn of CONNECT is not charged yet.
    unsent: bool,
    /// The origin has not answered the request under way.
    unheard: bool,
    /// Neither side has sent enough to tell what this is.
    undecided: bool,
    /// The client speaks plain HTTP.
    found_http: bool,
    /// It has been noted that the tunnel is not paced.
    noted: bool,
    /// A tunnel with HTTP/2 inside is closed.
    refuses_http2: bool,
    /// The name in the client's hello has been checked.
    named: bool,
    /// The claim of the request that waits.
    claim: Option<Claim>,
    /// Set when the request stops waiting although its client is still connected.
    withdrawn: Arc<AtomicBool>,
    watch: TunnelWatch,
    /// When the origin last sent something.
    heard_at: Instant,
    tail: Tail,
    /// The client is known to use tunnels that are closed.
    reuses_closed: bool,
    /// The tunnel ends as soon as the client has what the origin has sent.
    closing: bool,
}

type Claim = Pin<Box<dyn Future<Output = Result<Permit, Failure>> + Send>>;

/// When to check on the tunnel.
struct TunnelWatch {
    alarm: Pin<Box<Sleep>>,
    opened: Instant,
    max_lifetime: Duration,
    /// Bytes that had moved at the last check.
    moved: u64,
}

impl Pacer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        settings: &Settings,
        passage: PacedTunnel,
        in_flight: Box<InFlight>,
        limit: Arc<Deadline>,
    ) -> Self {
        let (tunnel, opened) = (&settings.config.tls.tunnel, clock::now());
        let reuses_closed = programs::reuses_closed(&passage.label.agent);
        let watched = tunnel.pace_requests && shared.gate.policy(&passage.budget).mode != Mode::Off;
        Pacer {
            shared,
            passage,
            in_flight,
            limit,
            idle: settings.config.upstream.idle_timeout,
            bursts: if watched { Bursts::new() } else { Bursts::unwatched() },
            unsent: true,
            unheard: true,
            undecided: true,
            found_http: false,
            noted: false,
            refuses_http2: tunnel.http2 == Http2Tunnels::Refuse,
            named: false,
            claim: None,
            withdrawn: Arc::default(),
            watch: TunnelWatch {
                alarm: Box::pin(tokio::time::sleep_until(opened + LEAD)),
                opened,
                max_lifetime: tunnel.max_lifetime,
                moved: 0,
            },
            heard_at: opened,
            reuses_closed,
            tail: Tail::default(),
            closing: false,
        }
    }

    /// Returns how many of the client's bytes may pass; pending while a request waits for its turn.
    pub(crate) fn poll_pass(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.undecided {
            match first_bytes::read(bytes) {
                FirstBytes::More => return Poll::Ready(Ok(0)),
                FirstBytes::Request => {
                    self.found_http = true;
                    return Poll::Pending;
                }
                FirstBytes::Http2 => self.bursts.is_http2(),
                FirstBytes::Tls | FirstBytes::Other => {}
            }
            self.undecided = false;
        }
        loop {
            self.check_http2()?;
            if self.claim.is_some() {
                ready!(self.poll_claim(cx))?;
            }
            if self.lacks_place() {
                self.stand_in_line()?;
                continue;
            }
            match self.bursts.client_sends(bytes) {
                BurstVerdict::Pass(count) => {
                    self.note();
                    self.check_http2()?;
                    return Poll::Ready(Ok(count));
                }
                BurstVerdict::More => return Poll::Ready(Ok(0)),
                BurstVerdict::Turn if self.unsent && self.may_use_turn() => self.begin(),
                BurstVerdict::Turn => self.stand_in_line()?,
            }
        }
    }

    /// Whether the turn of the CONNECT can still be used: not if the host has been put on hold since then, or, in a
    /// fleet, if the handshake has taken longer than the turn is valid.
    fn may_use_turn(&self) -> bool {
        !self.shared.gate.is_held(&self.passage.budget) && !self.in_flight.permit().is_some_and(Permit::is_overdue)
    }

    /// Whether the client speaks plain HTTP. If so, its requests have to be answered one by one.
    pub(crate) fn has_found_http(&self) -> bool {
        self.found_http
    }

    /// Returns the client as the requests inside know it. The turn of the CONNECT is spent: the origin has seen a
    /// connection.
    pub(crate) fn into_http(mut self) -> Arc<Client> {
        if self.unsent {
            self.charge(Permit::spent);
        }
        self.in_flight.replaced();
        self.passage.client
    }

    /// The visit of a request inside. A client whose own limit is shorter than the host's disconnects, which gives its
    /// place in the queue back.
    fn inner_visit(&self) -> Visit {
        Visit { max_wait: None, purpose: Purpose::Page, ..self.passage.visit }
    }

    fn origin_sends(&mut self, bytes: &[u8]) {
        self.undecided = false;
        self.heard_at = clock::now();
        self.bursts.origin_sends(bytes);
        self.note();
        if self.unheard && !self.unsent && !self.bursts.owes_answer() {
            self.hear();
        }
    }

    /// Checks on the tunnel; ready when it has to end. `moved` bytes have passed so far.
    pub(crate) fn poll_look(&mut self, cx: &mut Context<'_>, moved: u64) -> Poll<()> {
        loop {
            ready!(self.watch.alarm.as_mut().poll(cx));
            let Some(next) = self.look(moved, clock::now()) else { return Poll::Ready(()) };
            if self.should_close_idle() {
                self.closing = true;
                cx.waker().wake_by_ref();
            }
            self.watch.alarm.as_mut().reset(next);
        }
    }

    /// Settles a tunnel that is over; the client was sent this many bytes.
    pub(crate) fn ended(mut self, to_client: u64) {
        // The origin has seen a connection, even if it was unused: a client must not open one after another for free.
        if self.unsent {
            self.charge(Permit::spent);
        }
        if self.bursts.unpaced().is_none() {
            self.shared.metrics.tunnels.pacing("paced");
        }
        self.in_flight.moved(to_client);
        self.in_flight.completed();
    }

    /// Whether the origin has announced that it closes. Some clients then close first.
    pub(crate) fn is_origin_closing(&self) -> bool {
        self.bursts.is_origin_closing()
    }

    /// Notes that the origin has closed the tunnel while a request in it waits. The request cannot be sent, and its
    /// client is not to blame.
    pub(crate) fn origin_closed(&mut self) {
        if self.claim.is_none() || self.withdrawn.swap(true, Relaxed) {
            return;
        }
        self.shared.metrics.tunnels.closed_by_origin.inc();
        static SAID: LogLimiter = LogLimiter::new();
        if let Some(more) = SAID.may_speak(REPEAT) {
            tracing::info!(
                event = "tunnel.origin_closed", host = %self.passage.host, more,
                "an origin closed its connection while a request in the tunnel waited: the wait is longer than the origin \
                 keeps idle connections; use interception, absolute form, or a connection for each request"
            );
        }
    }

    /// Whether the tunnel has no place but needs one, because it is not paced.
    fn lacks_place(&self) -> bool {
        !self.unsent && self.bursts.unpaced().is_some() && self.in_flight.permit().is_none()
    }

    fn stand_in_line(&mut self) -> io::Result<()> {
        let may_go_on = self.passage.job.as_ref().map_or(Ok(()), |job| job.may_go_on(&self.shared));
        may_go_on.map_err(|refusal| self.turned_away(&refusal.into()))?;
        self.unsent = false;
        self.in_flight.release();
        self.limit.clear();
        self.watch.alarm.as_mut().reset(clock::now() + QUIET);
        let visit = self.inner_visit();
        let urgency = if self.would_wait_too_long() { FIRST } else { visit.urgency };
        let visit = Visit { urgency, ..visit };
        let (gate, budget) = (self.shared.gate.clone(), self.passage.budget.clone());
        let mut request = InnerRequest { label: self.passage.label.clone(), withdrawn: self.withdrawn.clone() };
        self.claim = Some(Box::pin(async move {
            let ((), permit) = gate.visit(&budget, visit, now(), &mut request).await?;
            Ok(permit)
        }));
        Ok(())
    }

    fn poll_claim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(claim) = &mut self.claim else { return Poll::Ready(Ok(())) };
        let permit = ready!(claim.as_mut().poll(cx));
        self.claim = None;
        match permit {
            Ok(permit) => {
                self.in_flight.keep(permit);
                self.limit.each_within(self.idle);
                self.watch.alarm.as_mut().reset(clock::now() + QUIET);
                self.begin();
                Poll::Ready(Ok(()))
            }
            Err(failure) => Poll::Ready(Err(self.turned_away(&failure))),
        }
    }

    /// Lets a request pass.
    fn begin(&mut self) {
        self.shared.metrics.tunnels.requests.inc();
        self.charge(|permit| _ = permit.sent());
        self.bursts.granted();
    }

    /// Spends the turn.
    fn charge(&mut self, spend: fn(&mut Permit)) {
        self.unsent = false;
        self.unheard = true;
        if let Some(permit) = self.in_flight.permit_mut() {
            spend(permit);
        }
        if self.bursts.unpaced().is_some() {
            self.hear();
        }
    }

    /// Reports that the origin answers.
    fn hear(&mut self) {
        self.unheard = false;
        if let Some(permit) = self.in_flight.permit_mut() {
            permit.report(VisitOutcome::Opened, now());
        }
    }

    fn turned_away(&self, failure: &Failure) -> io::Error {
        let words = failure.words();
        self.shared.metrics.rejection(words.code);
        tracing::info!(
            event = "tunnel.closed", host = %self.passage.host, code = words.code, detail = words.detail,
            "a request inside a tunnel was refused, so the tunnel is closed"
        );
        io::Error::other(words.code)
    }

    /// Closes the tunnel if HTTP/2 is inside and refused. The client's next CONNECT gets the reason.
    pub(crate) fn check_http2(&self) -> io::Result<()> {
        if !self.refuses_http2 || self.bursts.unpaced() != Some(Unpaced::Http2) {
            return Ok(());
        }
        self.shared.http2_refusals.note(self.passage.visit.peer, &self.passage.host);
        Err(self.turned_away(&Refusal::Http2Tunnel.into()))
    }

    /// Notes once that the tunnel is not paced, and once that the client's hello names another host than the tunnel
    /// goes to. The latter may be right (an address as the target, an encrypted hello), and changes neither where the
    /// tunnel goes nor whose turns it takes.
    fn note(&mut self) {
        if let Some(name) = self.bursts.name().filter(|_| !self.named) {
            self.named = true;
            if name != self.passage.host.as_str() {
                tracing::debug!(event = "tunnel.name", host = %self.passage.host, name, "a hello asks for another name");
            }
        }
        let Some(why) = self.bursts.unpaced().filter(|_| !self.noted) else { return };
        self.noted = true;
        if why == Unpaced::Http2 && self.refuses_http2 {
            return;
        }
        self.shared.metrics.tunnels.pacing(why.label());
        self.shared.metrics.tally.count(self.passage.budget.as_str(), |row| row.blind += 1);
        if why != Unpaced::Off {
            self.shared.unpaced.note(&self.passage.budget, why);
        }
    }

    /// Returns when to check again; `None` if the tunnel has to end.
    fn look(&mut self, moved: u64, now: Instant) -> Option<Instant> {
        if self.unsent {
            self.charge(Permit::spent);
        }
        let still = std::mem::replace(&mut self.watch.moved, moved) == moved;
        let paced = self.bursts.unpaced().is_none();
        let busy = self.claim.is_some() || (paced && self.bursts.owes_answer());
        let age = now - self.watch.opened;
        let old = age >= self.watch.max_lifetime;
        if old && ((still && !busy) || (!paced && age >= 2 * self.watch.max_lifetime)) {
            return None;
        }
        if still && !busy && paced {
            self.in_flight.release();
        }
        let at_rest = !paced || self.in_flight.permit().is_none();
        Some(if at_rest && !old && self.claim.is_none() {
            let idle = self.heard_at + LONGEST_WAIT_INSIDE;
            if paced && now < idle { idle } else { self.watch.opened + self.watch.max_lifetime }
        } else {
            now + QUIET
        })
    }
}

/// A request that waits inside the tunnel. Its connection is the tunnel, which is open.
struct InnerRequest {
    label: Arc<Label>,
    withdrawn: Arc<AtomicBool>,
}

impl Preparation for InnerRequest {
    type Ready = ();
    type Error = Failure;

    async fn get_ready(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn label(&self) -> Option<Label> {
        Some(Label::clone(&self.label))
    }

    fn withdrawn(&self) -> Option<Arc<AtomicBool>> {
        Some(self.withdrawn.clone())
    }
}
