//! The client's end of a connection, after hyper has answered on it: for tunnels and WebSockets.

use http::request::Parts;
use hyper::upgrade::OnUpgrade;

use super::client_stream::ClientStream;
use super::request_line::HttpStream;

/// The client's end of a tunnel. hyper hands it over after it has written its answer.
#[derive(Debug)]
pub(crate) enum Upgrade {
    Coming(Option<OnUpgrade>),
    Here(ClientStream),
}

impl Upgrade {
    /// Takes the end of the connection that this request came on.
    pub(crate) fn after(parts: &mut Parts) -> Self {
        Upgrade::Coming(parts.extensions.remove())
    }

    /// `None` if the client disconnected before.
    pub(crate) async fn arrive(self) -> Option<ClientStream> {
        match self {
            Upgrade::Here(near) => Some(near),
            Upgrade::Coming(upgrade) => Some(match upgrade?.await.ok()?.downcast::<HttpStream>() {
                Ok(client) => client.io.into_inner().into_inner().into_inner().behind(client.read_buf),
                Err(stream) => stream.into(),
            }),
        }
    }
}
