//! Changes how one host is treated, and forgets what is known about it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Deserializer};

use super::shape::{ForgottenJson, HostJson};
use super::{budget, fresh, unknown};
use crate::admin::problem::ApiProblem;
use crate::admin::{Admin, body, time};
use crate::config::{AddressSpan, Rate};
use crate::gate::{Pause, WantedHost};
use crate::politeness::lane;
use crate::politeness::time::Timestamp;

/// The same limits as in the configuration file.
const LONGEST_DELAY: Duration = Duration::from_secs(86_400);
const SHORTEST_BY_RATE: Duration = Duration::from_millis(1);
const MOST: u32 = 1_000;

/// What may be changed. Null removes what was set before; an absent field leaves the value as it is.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HostPatch {
    #[serde(deserialize_with = "given")]
    delay: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    rate: Option<Option<PatchNumber>>,
    #[serde(deserialize_with = "given")]
    burst: Option<Option<u32>>,
    #[serde(deserialize_with = "given")]
    concurrency: Option<Option<u32>>,
    paused: Option<bool>,
    until: Option<String>,
}

/// "30/m", or requests a second.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum PatchNumber {
    Text(String),
    Number(f64),
}

/// Distinguishes null from an absent field.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// `PATCH /api/v1/hosts/{host}`
pub(in crate::admin) async fn steer(
    State(admin): State<Arc<Admin>>,
    Path(host): Path<String>,
    said: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiProblem> {
    let now = time::now();
    let wanted = body::read::<HostPatch>(said)?.wanted(now)?;
    let host = budget(&admin, &host).await?;
    let view = admin.gate.steer(&host, &wanted).map_err(|_| ApiProblem {
        status: StatusCode::SERVICE_UNAVAILABLE,
        title: "No room",
        detail: "hosts.max is reached and no known host may be forgotten now; this host has no queue of its own".into(),
    })?;
    Ok(fresh(HostJson { not_kept: admin.not_kept(), ..HostJson::new(&host, &view, now) }))
}

/// `DELETE /api/v1/hosts/{host}`
pub(in crate::admin) async fn forget(
    State(admin): State<Arc<Admin>>,
    Path(host): Path<String>,
) -> Result<Response, ApiProblem> {
    let host = budget(&admin, &host).await?;
    let (forgotten, view) = admin.gate.forget(&host).ok_or_else(|| unknown(&host))?;
    let shown = HostJson { not_kept: admin.not_kept(), ..HostJson::new(&host, &view, time::now()) };
    Ok(fresh(ForgottenJson::new(shown, &forgotten)))
}

impl HostPatch {
    fn wanted(self, now: Timestamp) -> Result<WantedHost, ApiProblem> {
        let number = |name: &str, number: Option<Option<u32>>| match number.flatten() {
            Some(number) if !(1..=MOST).contains(&number) => {
                Err(ApiProblem::bad_request(format!("{name} is from 1 to {MOST}")))
            }
            _ => Ok(()),
        };
        number("burst", self.burst)?;
        number("concurrency", self.concurrency)?;
        let wanted = WantedHost {
            delay: delay(self.delay, self.rate)?,
            burst: self.burst,
            concurrency: self.concurrency,
            pause: pause(self.paused, self.until.as_deref(), now)?,
        };
        if wanted == WantedHost::default() {
            return Err(ApiProblem::bad_request(
                "nothing to change; give one of delay, rate, burst, concurrency, paused",
            ));
        }
        Ok(wanted)
    }
}

type Given<T> = Option<Option<T>>;

/// Reads the delay from either of the two fields that can state it.
fn delay(delay: Given<String>, rate: Given<PatchNumber>) -> Result<Given<Duration>, ApiProblem> {
    let (delay, least) = match (delay, rate) {
        (None, None) => return Ok(None),
        (Some(None), None | Some(None)) | (None, Some(None)) => return Ok(Some(None)),
        (Some(Some(text)), None) => (body::value::<AddressSpan>("delay", &text)?.0, Duration::ZERO),
        (None, Some(Some(rate))) => {
            let text = match rate {
                PatchNumber::Text(text) => text,
                PatchNumber::Number(number) => number.to_string(),
            };
            (body::value::<Rate>("rate", &text)?.delay(), SHORTEST_BY_RATE)
        }
        _ => return Err(ApiProblem::bad_request("delay and rate say the same thing; give one of them")),
    };
    if !(least..=LONGEST_DELAY).contains(&delay) {
        return Err(ApiProblem::bad_request("the delay must be a day at most, and the rate 1000/s"));
    }
    Ok(Some(Some(delay)))
}

fn pause(paused: Option<bool>, until: Option<&str>, now: Timestamp) -> Result<Option<Pause>, ApiProblem> {
    match (paused, until) {
        (None, None) => Ok(None),
        (Some(true), None) => Ok(Some(Pause::UntilResumed)),
        (Some(true), Some(until)) => Ok(Some(Pause::Until(time::until(until, now)?))),
        (Some(false), None) => Ok(Some(Pause::Over)),
        (_, Some(_)) => Err(ApiProblem::bad_request("until says when a pause ends; give it with \"paused\": true")),
    }
}

impl ForgottenJson {
    fn new(host: HostJson, forgotten: &lane::Forgotten) -> ForgottenJson {
        let list = |items: &[(bool, &str)]| {
            items.iter().filter(|(is_so, _)| *is_so).map(|(_, text)| (*text).to_owned()).collect()
        };
        ForgottenJson {
            host,
            forgotten: list(&[(forgotten.learned, "learned"), (forgotten.overrides, "overrides")]),
            kept: list(&[
                (true, "the time of the last request, so that no request starts too early"),
                (forgotten.held_until.is_some(), "the hold, which the host asked for"),
                (forgotten.paused, "the pause; resume the host to end it"),
                (forgotten.robots_delay, "the delay that its robots.txt asks for"),
            ]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    fn wanted(text: &str) -> Result<WantedHost, ApiProblem> {
        body::read::<HostPatch>(Ok(Bytes::copy_from_slice(text.as_bytes())))?.wanted(NOW)
    }

    #[test]
    fn what_is_wanted_is_read() {
        let secs = Duration::from_secs;
        let delay = |delay| WantedHost { delay: Some(delay), ..WantedHost::default() };
        let pause = |pause| WantedHost { pause: Some(pause), ..WantedHost::default() };
        for (text, expected) in [
            (r#"{"delay": "2s"}"#, delay(Some(secs(2)))),
            (r#"{"rate": "30/m"}"#, delay(Some(secs(2)))),
            (r#"{"rate": 0.5}"#, delay(Some(secs(2)))),
            (r#"{"delay": null}"#, delay(None)),
            (
                r#"{"burst": 3, "concurrency": null}"#,
                WantedHost { burst: Some(Some(3)), concurrency: Some(None), ..WantedHost::default() },
            ),
            (r#"{"paused": true}"#, pause(Pause::UntilResumed)),
            (r#"{"paused": true, "until": "10m"}"#, pause(Pause::Until(NOW + secs(600)))),
            (r#"{"paused": false}"#, pause(Pause::Over)),
        ] {
            assert_eq!(wanted(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_changes_nothing() {
        for text in [
            "",
            "[]",
            " [null, null]",
            "{}",
            "{",
            r#"{"dealy": "2s"}"#,
            r#"{"delay": 2}"#,
            r#"{"delay": "2"}"#,
            r#"{"delay": "-2s"}"#,
            r#"{"delay": "2d"}"#,
            r#"{"delay": "2s", "rate": "2/s"}"#,
            r#"{"rate": 0}"#,
            r#"{"rate": "1000000/s"}"#,
            r#"{"burst": 0}"#,
            r#"{"burst": 1.5}"#,
            r#"{"concurrency": 1001}"#,
            r#"{"paused": "yes"}"#,
            r#"{"until": "10m"}"#,
            r#"{"paused": false, "until": "10m"}"#,
            r#"{"paused": true, "until": "2001-01-01T00:00:00Z"}"#,
            r#"{"delay": "2s", "delay": "3s"}"#,
        ] {
            assert_eq!(wanted(text).map_err(|problem| problem.status), Err(StatusCode::BAD_REQUEST), "{text}");
        }
    }
}
