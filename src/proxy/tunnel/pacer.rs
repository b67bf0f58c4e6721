//! The politeness of one tunnel: its turns, its place, how old it may get.
//!
//! Obeys [`Bursts`]: a request inside waits for a turn of its own, in the line of its host, like any visit.
//!
//! - The turn that CONNECT claimed is for the first request, and is charged when that passes: the gap to the next start
//!   counts from there. A client that sends none soon is charged all the same, and its first request claims another.
//! - The tunnel has a place while a request is under way in it. One that goes back in line gives its place up first, so
//!   that nobody waits for himself; one that has been quiet for a moment gives it up, too, and holds up nobody else.
//!   What is not paced keeps its place for as long as it lasts.
//! - A request that is refused cannot be told so: its tunnel is closed before any of it has gone. The client's next
//!   CONNECT hears the reason.
//! - A tunnel that is too old ends when it is next quiet. In mid-transfer it is not cut off, unless requests inside
//!   are not paced and it is twice as old.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::bursts::{Bursts, Unpaced, Verdict};
use super::opening::{self, Opening};
use crate::clock;
use crate::gate::{Gate, Label, Permit, now};
use crate::patience::Limit;
use crate::politeness::HostKey;
use crate::politeness::lane::LEAD;
use crate::politeness::policy::Mode;
use crate::politeness::visit::{Outcome, Purpose, Visit};
use crate::proxy::client::Client;
use crate::proxy::failure::Failure;
use crate::proxy::in_flight::InFlight;
use crate::proxy::job::Job;
use crate::proxy::{Settings, Shared};
use crate::telemetry::Seldom;

/// What a tunnel's requests are claimed by.
pub(in crate::proxy) struct Passage {
    /// Where it leads.
    pub(in crate::proxy) host: HostKey,
    /// Whose turns are taken.
    pub(in crate::proxy) budget: HostKey,
    /// What CONNECT asked for.
    pub(in crate::proxy) visit: Visit,
    pub(in crate::proxy) job: Job,
    /// What people know its requests by while they wait.
    pub(in crate::proxy) label: Arc<Label>,
    /// Who asks, should there be plain HTTP inside.
    pub(in crate::proxy) client: Arc<Client>,
}

/// A note that would repeat is logged once in this time.
const REPEAT: Duration = Duration::from_secs(60);

/// How long nothing must have moved for a tunnel to be quiet: longer than a pause within an answer usually is.
const QUIET: Duration = Duration::from_secs(1);

pub(super) struct Pacer {
    shared: Arc<Shared>,
    passage: Passage,
    in_flight: Box<InFlight>,
    limit: Arc<Limit>,
    idle: Duration,
    bursts: Bursts,
    /// The turn of CONNECT is not charged yet.
    unsent: bool,
    /// The origin has not answered the request under way.
    unheard: bool,
    /// Neither side has said enough to tell what this is.
    undecided: bool,
    /// The client speaks plain HTTP.
    found_http: bool,
    /// What is not paced has been noted.
    noted: bool,
    /// The name in the client's hello has been looked at.
    named: bool,
    /// The way of the request that waits.
    claim: Option<Claim>,
    /// Set when it waits no longer although its client is there.
    withdrawn: Arc<AtomicBool>,
    watch: Watch,
}

type Claim = Pin<Box<dyn Future<Output = Result<Permit, Failure>> + Send>>;

/// When to look after the tunnel.
struct Watch {
    alarm: Pin<Box<Sleep>>,
    opened: Instant,
    max_lifetime: Duration,
    /// Bytes that had moved at the last look.
    moved: u64,
}

impl Pacer {
    pub(super) fn new(
        shared: Arc<Shared>,
        settings: &Settings,
        passage: Passage,
        in_flight: Box<InFlight>,
        limit: Arc<Limit>,
    ) -> Self {
        let (tunnel, opened) = (&settings.config.tls.tunnel, clock::now());
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
            named: false,
            claim: None,
            withdrawn: Arc::default(),
            watch: Watch {
                alarm: Box::pin(tokio::time::sleep_until(opened + LEAD)),
                opened,
                max_lifetime: tunnel.max_lifetime,
                moved: 0,
            },
        }
    }

    /// How many of the client's bytes may pass; pending while a request waits for its turn.
    pub(super) fn poll_pass(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.undecided {
            match opening::read(bytes) {
                Opening::More => return Poll::Ready(Ok(0)),
                Opening::Request => {
                    self.found_http = true;
                    return Poll::Pending;
                }
                Opening::Http2 => self.bursts.is_http2(),
                Opening::Tls | Opening::Other => {}
            }
            self.undecided = false;
        }
        loop {
            if self.claim.is_some() {
                ready!(self.poll_claim(cx))?;
            }
            if self.lacks_place() {
                self.stand_in_line()?;
                continue;
            }
            match self.bursts.client_sends(bytes) {
                Verdict::Pass(count) => {
                    self.note();
                    return Poll::Ready(Ok(count));
                }
                Verdict::More => return Poll::Ready(Ok(0)),
                // A host that is held since then is not visited, whatever was paid.
                Verdict::Turn if self.unsent && !self.shared.gate.is_held(&self.passage.budget) => self.begin(),
                Verdict::Turn => self.stand_in_line()?,
            }
        }
    }

    /// Whether the client speaks plain HTTP: then its requests are to be answered one by one.
    pub(super) fn has_found_http(&self) -> bool {
        self.found_http
    }

    /// The client as the requests inside know it. The turn of the CONNECT is spent: the origin has seen a connection.
    pub(super) fn into_http(mut self) -> Arc<Client> {
        if self.unsent {
            self.charge();
        }
        self.in_flight.replaced();
        self.passage.client
    }

    pub(super) fn origin_sends(&mut self, bytes: &[u8]) {
        self.undecided = false;
        self.bursts.origin_sends(bytes);
        self.note();
        if self.unheard && !self.unsent && !self.bursts.owes_answer() {
            self.hear();
        }
    }

    /// Looks after the tunnel; ready when it has to end. `moved` bytes have passed so far.
    pub(super) fn poll_look(&mut self, cx: &mut Context<'_>, moved: u64) -> Poll<()> {
        loop {
            ready!(self.watch.alarm.as_mut().poll(cx));
            let Some(next) = self.look(moved, clock::now()) else { return Poll::Ready(()) };
            self.watch.alarm.as_mut().reset(next);
        }
    }

    /// The tunnel is over; the client was sent this many bytes.
    pub(super) fn ended(mut self, to_client: u64) {
        // The origin has seen a connection, be it for nothing: a client must not open one after the other.
        if self.unsent {
            self.charge();
        }
        if self.bursts.unpaced().is_none() {
            self.shared.metrics.tunnels.pacing("paced");
        }
        self.in_flight.moved(to_client);
        self.in_flight.completed();
    }

    /// The origin has closed the tunnel while a request in it waits: the request cannot be sent, and its client is not
    /// to blame.
    pub(super) fn origin_closed(&mut self) {
        if self.claim.is_none() || self.withdrawn.swap(true, Relaxed) {
            return;
        }
        self.shared.metrics.tunnels.closed_by_origin.inc();
        static SAID: Seldom = Seldom::new();
        if let Some(more) = SAID.may_speak(REPEAT) {
            tracing::info!(
                event = "tunnel.origin_closed", host = %self.passage.host, more,
                "an origin closed its connection while a request in the tunnel waited: the line is longer than the origin \
                 keeps idle connections; use interception, absolute form, or a connection for each request"
            );
        }
    }

    /// What is not paced must not be without a place.
    fn lacks_place(&self) -> bool {
        !self.unsent && self.bursts.unpaced().is_some() && self.in_flight.permit().is_none()
    }

    fn stand_in_line(&mut self) -> io::Result<()> {
        self.passage.job.may_go_on(&self.shared).map_err(|refusal| self.turned_away(&refusal.into()))?;
        self.unsent = false;
        self.in_flight.release();
        self.limit.clear();
        self.watch.alarm.as_mut().reset(clock::now() + QUIET);
        // Whoever wishes to wait less than the host's visits may leaves, and gives its place in line back by that.
        let visit = Visit { max_wait: None, purpose: Purpose::Page, ..self.passage.visit };
        let (gate, budget, label) = (self.shared.gate.clone(), self.passage.budget.clone(), self.passage.label.clone());
        self.claim = Some(Box::pin(claim(gate, budget, visit, label, self.withdrawn.clone())));
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

    /// A request passes.
    fn begin(&mut self) {
        self.shared.metrics.tunnels.requests.inc();
        self.charge();
        self.bursts.granted();
    }

    /// The turn is spent.
    fn charge(&mut self) {
        self.unsent = false;
        self.unheard = true;
        if let Some(permit) = self.in_flight.permit_mut() {
            permit.sent();
        }
        if self.bursts.unpaced().is_some() {
            self.hear();
        }
    }

    /// Somebody answers.
    fn hear(&mut self) {
        self.unheard = false;
        if let Some(permit) = self.in_flight.permit_mut() {
            permit.report(Outcome::Opened, now());
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

    /// Says once what is not paced, and that another name was asked for than the tunnel leads to. That may be right (an
    /// address as the target, an encrypted hello), and changes neither where it leads nor whose turns it takes.
    fn note(&mut self) {
        if let Some(name) = self.bursts.name().filter(|_| !self.named) {
            self.named = true;
            if name != self.passage.host.as_str() {
                tracing::debug!(event = "tunnel.name", host = %self.passage.host, name, "a hello asks for another name");
            }
        }
        let Some(why) = self.bursts.unpaced().filter(|_| !self.noted) else { return };
        self.noted = true;
        self.shared.metrics.tunnels.pacing(why.label());
        self.shared.metrics.tally.count(self.passage.budget.as_str(), |row| row.blind += 1);
        if why != Unpaced::Off {
            self.shared.unpaced.note(&self.passage.budget, why);
        }
    }

    /// When to look again; never, if the tunnel has to end.
    fn look(&mut self, moved: u64, now: Instant) -> Option<Instant> {
        if self.unsent {
            self.charge();
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
            self.watch.opened + self.watch.max_lifetime
        } else {
            now + QUIET
        })
    }
}

/// One request's way through the line. Its connection is ready.
async fn claim(
    gate: Arc<Gate>,
    budget: HostKey,
    visit: Visit,
    label: Arc<Label>,
    withdrawn: Arc<AtomicBool>,
) -> Result<Permit, Failure> {
    let mut place = gate.join(&budget, visit)?;
    place.withdrawn_by(withdrawn);
    place.known_as(|| Label::clone(&label));
    place.called().await?;
    Ok(place.turn_as(|| Label::clone(&label)).await?)
}
