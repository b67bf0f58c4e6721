//! What can be wrong with an origin's certificate and with a handshake, in words for people.
//!
//! Nothing that the origin itself wrote is repeated: names in a certificate can say anything.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use rustls::{AlertDescription, CertificateError};

/// Why a certificate does not prove the origin's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateFault {
    /// The day it expired, if known.
    Expired(Option<String>),
    NotYetValid,
    WrongName,
    UnknownIssuer,
    /// Not signed by the issuer that it names.
    Forged,
    Revoked,
    /// Issued for another purpose than serving.
    Purpose,
    /// An issuer's own certificate, used as if it were a server's: many recipes for a self-signed certificate produce
    /// this.
    Issuers,
    /// The text is from the TLS library.
    Other(String),
}

/// Why the TLS handshake failed, other than because of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeFault {
    /// The first bytes were not TLS.
    NotTls,
    /// The origin refused, with one of the standard alerts.
    Alert(String),
    NothingInCommon,
    Closed,
    /// The host's name cannot be in a certificate.
    Name,
    /// The text is from the TLS library.
    Other(String),
}

/// Returns what is wrong with a certificate.
pub(super) fn of_certificate(fault: &CertificateError) -> CertificateFault {
    match fault {
        CertificateError::Expired => CertificateFault::Expired(None),
        CertificateError::ExpiredContext { not_after, .. } => CertificateFault::Expired(day(not_after.as_secs())),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => CertificateFault::NotYetValid,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            CertificateFault::WrongName
        }
        CertificateError::UnknownIssuer => CertificateFault::UnknownIssuer,
        CertificateError::BadSignature => CertificateFault::Forged,
        CertificateError::Revoked => CertificateFault::Revoked,
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => CertificateFault::Purpose,
        // The verifier's own text: its error type is not part of rustls.
        CertificateError::Other(error) if error.to_string() == "CaUsedAsEndEntity" => CertificateFault::Issuers,
        other => CertificateFault::Other(format!("{other:?}")),
    }
}

/// Formats a day, as `2026-05-04`.
fn day(seconds: u64) -> Option<String> {
    let moment = UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?;
    humantime::format_rfc3339_seconds(moment).to_string().split('T').next().map(str::to_owned)
}

/// Returns what an alert of the origin means.
pub(super) fn alert_words(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::UnrecognisedName => "it does not know this name".to_owned(),
        AlertDescription::ProtocolVersion => "it speaks another version of TLS".to_owned(),
        AlertDescription::CertificateRequired => "it wants a certificate of the client, and curtsy has none".to_owned(),
        AlertDescription::NoApplicationProtocol => "it does not speak HTTP/1.1".to_owned(),
        alert => format!("alert {} ({})", u8::from(alert), alert.as_str().unwrap_or("unknown")),
    }
}

impl CertificateFault {
    /// Returns what the operator can do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            CertificateFault::UnknownIssuer => {
                "if you trust its issuer: [tls] extra_roots = [\"the issuer's certificate.pem\"]"
            }
            CertificateFault::Issuers => "the server needs a certificate of its own, without CA:TRUE",
            CertificateFault::NotYetValid => "check the clock of this machine",
            CertificateFault::Expired(_)
            | CertificateFault::WrongName
            | CertificateFault::Forged
            | CertificateFault::Revoked
            | CertificateFault::Purpose
            | CertificateFault::Other(_) => "",
        }
    }
}

impl fmt::Display for CertificateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the origin's certificate ")?;
        match self {
            CertificateFault::Expired(Some(day)) => write!(f, "expired on {day}"),
            CertificateFault::Expired(None) => f.write_str("has expired"),
            CertificateFault::NotYetValid => f.write_str("is not valid yet"),
            CertificateFault::WrongName => f.write_str("is for another name"),
            CertificateFault::UnknownIssuer => f.write_str("was issued by an authority that curtsy does not trust"),
            CertificateFault::Forged => f.write_str("was not signed by the issuer that it names"),
            CertificateFault::Revoked => f.write_str("was revoked"),
            CertificateFault::Purpose => f.write_str("was made for something other than serving"),
            CertificateFault::Issuers => f.write_str("is an issuer's, not a server's"),
            CertificateFault::Other(text) => write!(f, "cannot be accepted: {text}"),
        }
    }
}

impl fmt::Display for HandshakeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeFault::NotTls => f.write_str("the origin does not speak TLS on this port"),
            HandshakeFault::Alert(text) => write!(f, "the origin refused the TLS handshake: {text}"),
            HandshakeFault::NothingInCommon => {
                f.write_str("the origin and curtsy have no TLS version or cipher in common")
            }
            HandshakeFault::Closed => f.write_str("the origin closed during the TLS handshake"),
            HandshakeFault::Name => f.write_str("no certificate can be for a host of this name"),
            HandshakeFault::Other(text) => write!(f, "the TLS handshake failed: {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expired_certificate_tells_its_last_day() {
        assert_eq!(
            CertificateFault::Expired(day(1_700_000_000)).to_string(),
            "the origin's certificate expired on 2023-11-14"
        );
        assert_eq!(day(u64::MAX), None);
    }

    #[test]
    fn alerts_are_told_in_words_or_by_number() {
        assert_eq!(alert_words(AlertDescription::ProtocolVersion), "it speaks another version of TLS");
        assert_eq!(alert_words(AlertDescription::HandshakeFailure), "alert 40 (HandshakeFailure)");
        assert_eq!(alert_words(AlertDescription::Unknown(200)), "alert 200 (unknown)");
    }
}
