//! `/healthz`: does curtsy work? For supervisors that restart it. `/readyz`: does it accept requests? For load
//! balancers.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::Admin;
use crate::ledger::Ledger;
use crate::politeness::fleet::standing::StandingState;

/// A lane says when it must move next, and the task that keeps its timer moves it then. If it is later than this, a
/// worker hangs: on a busy machine timers are late by milliseconds.
const OVERDUE: Duration = Duration::from_secs(10);

pub(super) async fn healthz(State(admin): State<Arc<Admin>>) -> Response {
    told(admin.gate.overdue())
}

/// Reports on a lane that should have moved this long ago.
fn told(overdue: Duration) -> Response {
    if overdue < OVERDUE {
        return "ok\n".into_response();
    }
    let text = format!("the turn of a waiting request came {} s ago; a worker hangs\n", overdue.as_secs());
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

pub(super) async fn readyz(State(admin): State<Arc<Admin>>) -> (StatusCode, String) {
    let state = admin.state();
    let status = if state == READY { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let fleet = admin.fleet().map_or_else(String::new, |told| format!("fleet: {told}\n"));
    (status, format!("{state}\n{fleet}"))
}

const READY: &str = "ready";

impl Admin {
    /// Says how this node stands in its fleet. A node that is alone still accepts requests, so it is ready.
    pub(super) fn fleet(&self) -> Option<String> {
        let Ledger::Fleet(fleet) = self.gate.ledger() else { return None };
        let health = fleet.health();
        let Some(worst) = health.iter().max_by_key(|shard| shard.state != StandingState::Joined) else {
            return Some("starting".to_owned());
        };
        let trouble = worst.trouble.as_ref().map(|told| format!(": {told}")).unwrap_or_default();
        let nodes = if worst.nodes == 1 { "1 node".to_owned() } else { format!("{} nodes", worst.nodes) };
        Some(format!("{}, {nodes}{trouble}", worst.state.word()))
    }

    pub(super) fn state(&self) -> &'static str {
        match self.stop.is_requested() {
            true => "stopping",
            false if self.desk.shared().listening.count() == 0 => "not listening",
            false => READY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// X58
    #[test]
    fn a_line_that_does_not_move_is_told() {
        assert_eq!(told(Duration::ZERO).status(), StatusCode::OK);
        assert_eq!(told(OVERDUE - Duration::from_millis(1)).status(), StatusCode::OK);
        assert_eq!(told(OVERDUE).status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
