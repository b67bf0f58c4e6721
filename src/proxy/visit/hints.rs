//! Logs clients that disconnect while queued: which client, how long it waited, and which of its settings would let it
//! wait longer.
//!
//! Costs nothing before a client disconnects. Logs at most one line a minute for each kind of program, with the number
//! of those not logged: a crawler that gives up does so many times.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;

use crate::events::Events;
use crate::gate::{DisconnectedVisit, Label};
use crate::programs::{self, Program};
use crate::shutdown::Stop;
use crate::telemetry::{LogLimiter, REPEAT};

/// The shortest timeout in the table of programs is 5 s (httpx).
const SHORTEST: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct Hints {
    /// By the name of the program; there are as many as the table of programs has rows.
    said: Mutex<HashMap<&'static str, LogLimiter>>,
    events: Arc<Events>,
    stop: Stop,
}

impl Hints {
    pub(crate) fn new(events: Arc<Events>, stop: Stop) -> Self {
        Hints { said: Mutex::default(), events, stop }
    }

    pub(crate) fn tell(&self, leaving: &DisconnectedVisit<'_>) {
        // While curtsy stops, it is curtsy that disconnects the clients.
        if self.stop.is_requested() {
            return;
        }
        // No client has a timeout this short: a browser closed a spare connection, or a person pressed Ctrl-C.
        if leaving.after() < SHORTEST {
            return;
        }
        // A visit without a label was curtsy's own.
        let Some(label) = leaving.label().filter(|label| !label.method.is_empty()) else { return };
        let program = programs::of_user_agent(&label.agent);
        let name = program.map_or("", |program| program.name);
        let Some(more) = self.said.lock().entry(name).or_default().may_speak(REPEAT) else { return };
        let host = leaving.host().as_str();
        let (after, position) = (leaving.after(), leaving.position());
        let advice = advice(program, stage(&label), after, leaving.max_wait());
        let after_s = (after.as_secs_f64() * 10.0).round() / 10.0;
        let repeated = match more {
            0 => String::new(),
            more => format!(". {more} more like this since the last time"),
        };
        tracing::warn!(
            event = "client.left",
            client = label.client,
            host,
            agent = label.agent,
            after_s,
            position,
            more,
            "client left after {after_s:.1} s in the queue of {host} (position {position}). {advice}{repeated}"
        );
        self.events.tell(
            "client.left",
            Some(host),
            || json!({ "client": label.client, "after_s": after_s, "position": position, "why": advice }),
        );
    }
}

/// What the client waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitStage {
    Plain,
    Connect,
    Inside,
}

fn stage(label: &Label) -> WaitStage {
    match label.method.as_str() {
        "CONNECT" => WaitStage::Connect,
        _ if label.url.starts_with("https://") => WaitStage::Inside,
        _ => WaitStage::Plain,
    }
}

fn advice(program: Option<&Program>, stage: WaitStage, after: Duration, max_wait: Duration) -> String {
    let Some(program) = program else {
        let most = max_wait.as_secs();
        return format!(
            "Raise the timeout of this client above {most} s, the longest that a request may wait; or lower \
             politeness.max_wait: then curtsy refuses at once and says when to retry"
        );
    };
    let usual = match stage {
        WaitStage::Plain => program.gives_up.plain,
        WaitStage::Connect => program.gives_up.connect,
        WaitStage::Inside => program.gives_up.inside,
    };
    let (name, longer) = (program.name, program.longer_than(max_wait));
    match usual {
        Some(seconds) if is_about(after, seconds) => format!("{name} stops after {seconds} s by default; set {longer}"),
        _ => format!("{name} has a timeout that is too short for this queue; set {longer}"),
    }
}

/// Whether the client left because of this limit, judged by time. The match is loose: a request may arrive before it
/// joins the queue.
fn is_about(after: Duration, seconds: u32) -> bool {
    let limit = f64::from(seconds);
    (limit * 0.7..=limit * 1.2).contains(&after.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_WAIT: Duration = Duration::from_secs(150);

    fn told(agent: &str, stage: WaitStage, after: f64) -> String {
        advice(programs::of_user_agent(agent), stage, Duration::from_secs_f64(after), MAX_WAIT)
    }

    #[test]
    fn the_setting_is_named_and_the_default_where_it_was_the_reason() {
        let httpx = told("python-httpx/0.28.1", WaitStage::Plain, 5.01);
        assert_eq!(httpx, "httpx stops after 5 s by default; set httpx.Client(timeout=180)");
        let httpx = told("python-httpx/0.28.1", WaitStage::Plain, 20.0);
        assert_eq!(httpx, "httpx has a timeout that is too short for this queue; set httpx.Client(timeout=180)");
        assert!(told("Go-http-client/1.1", WaitStage::Connect, 59.9).starts_with("Go stops after 60 s by default"));
        assert!(told("Go-http-client/1.1", WaitStage::Inside, 59.9).starts_with("Go has a timeout"));
        assert!(told("curl/7.88.1", WaitStage::Plain, 3.0).contains("curl --max-time 180"));
    }

    #[test]
    fn a_stranger_is_told_what_holds_for_all() {
        let told = told("MyBot/1.0", WaitStage::Plain, 5.0);
        assert!(told.contains("above 150 s") && told.contains("politeness.max_wait"), "{told}");
    }

    #[test]
    fn what_it_waited_for_is_seen_in_its_label() {
        let label = |method: &str, url: &str| Label { method: method.into(), url: url.into(), ..Label::default() };
        assert_eq!(stage(&label("CONNECT", "a.test:443")), WaitStage::Connect);
        assert_eq!(stage(&label("GET", "https://a.test/")), WaitStage::Inside);
        assert_eq!(stage(&label("GET", "http://a.test/")), WaitStage::Plain);
    }
}
