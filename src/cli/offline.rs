//! Runs a command on the state directory if no curtsy runs.

use std::io;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::admin::{self, AdminAnswer, AdminTrouble, AskArgs, Call, NOBODY, RunningCurtsy, value};
use super::config::Streams;
use crate::app::{Offline, OfflineError};
use crate::config::{self, Sources};
use crate::store::StoreError;

/// Does the same as [`admin::tell`]. If no curtsy runs, sends the second call to the state directory instead.
pub(super) fn tell_or_do<T: DeserializeOwned>(
    args: &AskArgs,
    sources: &Sources,
    streams: &mut Streams<'_>,
    (call, otherwise): (&Call<'_>, &Call<'_>),
    page: impl FnOnce(&T) -> (String, u8),
) -> io::Result<u8> {
    let answer = match RunningCurtsy::find(args, sources) {
        Ok(running) => running.call(call),
        Err(absent) if absent.code == NOBODY && !args.names_one() => self::call(sources, streams, otherwise, &absent),
        Err(trouble) => Err(trouble),
    };
    admin::print(args, streams, answer, page)
}

/// Sends the call to the API of the state directory. `absent` is the reason why no running curtsy can be asked.
fn call(
    sources: &Sources,
    streams: &mut Streams<'_>,
    call: &Call<'_>,
    absent: &AdminTrouble,
) -> Result<Value, AdminTrouble> {
    let changes = call.method != "GET";
    // Forgetting needs an existing directory, so it must not create one.
    let offline = open(sources, changes && call.method != "DELETE").map_err(|error| trouble(error, absent))?;
    let answered = offline.call(call.method, &call.path, call.body.as_ref().map(Value::to_string));
    let (status, body) = answered.map_err(|error| AdminTrouble::failure(error.to_string()))?;
    // The directory is closed whatever the answer is.
    close(offline, streams)?;
    value(&AdminAnswer { status, body }, "the state directory")
}

pub(super) fn open(sources: &Sources, changes: bool) -> Result<Offline, Unopened> {
    let loaded = config::load(sources).map_err(|problems| Unopened::Config(problems.to_string()))?;
    Offline::open(loaded.config, changes).map_err(Unopened::State)
}

/// Prints that no running curtsy was involved, and waits for the disk.
pub(super) fn close(offline: Offline, streams: &mut Streams<'_>) -> Result<(), AdminTrouble> {
    let directory = offline.directory().display().to_string();
    let said = writeln!(streams.err, "offline: no curtsy runs, so this uses the state directory {directory}");
    offline.close().map_err(|unsaved| AdminTrouble::failure(unsaved.to_string()))?;
    said.map_err(|error: io::Error| AdminTrouble::failure(error.to_string()))
}

pub(super) enum Unopened {
    Config(String),
    State(OfflineError),
}

impl Unopened {
    pub(super) fn is_held(&self) -> bool {
        matches!(self, Unopened::State(OfflineError::State(StoreError::Held { .. })))
    }
}

/// Returns why neither a running curtsy nor the state directory can answer.
pub(super) fn trouble(error: Unopened, absent: &AdminTrouble) -> AdminTrouble {
    let absent = &absent.text;
    match error {
        Unopened::Config(problems) => AdminTrouble::failure(problems),
        Unopened::State(OfflineError::State(StoreError::Held { directory, pid })) => {
            let directory = directory.display();
            let holder = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
            AdminTrouble::failure(format!(
                "the state directory {directory} is in use by {holder}, but {absent}. It is stopping, or its admin \
                 listener is off or elsewhere: name it with --admin, or stop that curtsy first"
            ))
        }
        Unopened::State(error @ (OfflineError::Memory | OfflineError::Empty(_))) => {
            AdminTrouble { code: NOBODY, text: format!("{absent}; and without one, {error}") }
        }
        Unopened::State(error) => AdminTrouble::failure(error.to_string()),
    }
}
