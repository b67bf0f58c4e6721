//! `/api/v1/fleet`: the curtsys that share every host's budget, and the call that forgets one. Fields are a public
//! interface: add, never rename.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::Admin;
use super::hosts::fresh;
use super::problem::ApiProblem;
use crate::ledger::link::LedgerError;
use crate::ledger::view::NodeRow;
use crate::ledger::{FleetLedger, Ledger};
use crate::politeness::fleet::standing::StandingState;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetJson {
    /// Where this answer comes from: `redis`, `this node alone`, or `no fleet`.
    pub from: String,
    /// `fleet.name`; none without a fleet.
    pub name: Option<String>,
    /// The id of this node.
    pub node: Option<String>,
    /// starting, joined, alone or returning: the least favourable, if there are several Redis servers.
    pub state: Option<String>,
    /// How long it has been in this state.
    pub since_s: Option<f64>,
    /// Why this node is alone.
    pub trouble: Option<String>,
    /// Oldest first.
    pub nodes: Vec<FleetNode>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetNode {
    pub id: String,
    /// The deployment's name, as in Via.
    pub name: Option<String>,
    pub version: Option<String>,
    /// As above, or `missing` if it was silent for 1.6 s.
    pub state: String,
    /// Whether it is the node that answers.
    pub this: bool,
    pub joined_s: Option<f64>,
    /// How long ago it was last heard of.
    pub heard_ms: Option<u64>,
    /// How long Redis takes to answer it, at most, nine times out of ten.
    pub lag_ms: Option<f64>,
    pub starts_per_s: Option<f64>,
    /// Its part of all starts of the fleet, from 0 to 1; none if nothing starts.
    pub share: Option<f64>,
    /// Requests that wait for a turn.
    pub waiting: Option<u64>,
    /// A digest of its politeness settings. Nodes should have the same.
    pub settings: Option<String>,
}

/// `GET /api/v1/fleet`
pub(super) async fn show(State(admin): State<Arc<Admin>>) -> Response {
    fresh(FleetJson::of(&admin).await)
}

/// `DELETE /api/v1/fleet/{node}`
pub(super) async fn forget(State(admin): State<Arc<Admin>>, Path(node): Path<String>) -> Result<Response, ApiProblem> {
    let Ledger::Fleet(ledger) = admin.gate.ledger() else { return Err(unknown("this curtsy belongs to no fleet")) };
    let known = ledger.nodes().await.map_err(|error| away(&error))?;
    let named = |row: &&NodeRow| row.id == node || row.card.as_ref().is_some_and(|card| card.name == node);
    let ids: Vec<&str> = known.iter().filter(named).map(|row| row.id.as_str()).collect();
    match ids[..] {
        [] => return Err(unknown(format!("the fleet has no node {node:?}"))),
        [id] => ledger.forget_node(id).await.map_err(|error| away(&error))?,
        _ => return Err(ApiProblem::bad_request(format!("several nodes are called {node:?}: name one by its id"))),
    };
    tracing::info!(event = "fleet.forgotten", node, "an operator removed a node from the fleet");
    Ok(fresh(FleetJson::of(&admin).await))
}

impl FleetJson {
    pub(super) async fn of(admin: &Admin) -> Self {
        let Ledger::Fleet(ledger) = admin.gate.ledger() else {
            let from = "no fleet".to_owned();
            let (name, node, state, since_s, trouble) = (None, None, None, None, None);
            return FleetJson { from, name, node, state, since_s, trouble, nodes: Vec::new() };
        };
        let (state, since, trouble) = ledger.standing();
        let listed = if state == StandingState::Alone { None } else { ledger.nodes().await.ok() };
        let (from, nodes) = match listed {
            Some(rows) => ("redis", nodes(&rows, ledger.id())),
            None => ("this node alone", alone(ledger).into_iter().collect()),
        };
        FleetJson {
            from: from.to_owned(),
            name: Some(ledger.fleet().to_owned()),
            node: Some(ledger.id().to_owned()),
            state: Some(state.word().to_owned()),
            since_s: Some(since.as_secs_f64()),
            trouble,
            nodes,
        }
    }
}

fn nodes(rows: &[NodeRow], this: &str) -> Vec<FleetNode> {
    let rate = |row: &NodeRow| row.card.as_ref().map_or(0.0, |card| card.starts_per_second);
    let all: f64 = rows.iter().map(rate).sum();
    let node = |row: &NodeRow| {
        let card = row.card.as_ref();
        let told = card.map_or("joined", |card| card.state.as_str());
        FleetNode {
            id: row.id.clone(),
            name: card.map(|card| card.name.clone()),
            version: card.map(|card| card.version.clone()),
            state: if row.is_missing() { "missing" } else { told }.to_owned(),
            this: row.id == this,
            joined_s: Some(row.joined.as_secs_f64()),
            heard_ms: u64::try_from(row.heard.as_millis()).ok(),
            lag_ms: card.map(|card| card.round_trip.as_secs_f64() * 1e3),
            starts_per_s: card.map(|card| card.starts_per_second),
            share: (all > 0.0).then(|| rate(row) / all),
            waiting: card.map(|card| card.waiting),
            settings: card.map(|card| card.settings.clone()),
        }
    };
    rows.iter().map(node).collect()
}

/// Returns what this node knows about itself.
fn alone(ledger: &FleetLedger) -> Option<FleetNode> {
    let card = ledger.card(None)?;
    Some(FleetNode {
        id: ledger.id().to_owned(),
        name: Some(card.name),
        version: Some(card.version),
        state: card.state,
        this: true,
        joined_s: None,
        heard_ms: None,
        lag_ms: None,
        starts_per_s: None,
        share: None,
        waiting: Some(card.waiting),
        settings: Some(card.settings),
    })
}

fn unknown(detail: impl Into<String>) -> ApiProblem {
    ApiProblem { status: StatusCode::NOT_FOUND, title: "Unknown", detail: detail.into() }
}

fn away(error: &LedgerError) -> ApiProblem {
    ApiProblem { status: StatusCode::SERVICE_UNAVAILABLE, title: "Redis trouble", detail: error.to_string() }
}
