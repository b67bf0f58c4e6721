//! Writes a trust store for Java, in the JKS format. It has only certificates, so nothing in it is secret or encrypted.
//!
//! Every Java reads this format, including newer ones whose own format is PKCS#12. The store ends with a digest that is
//! keyed with its password, which protects against accidents, not against attackers.

use aws_lc_rs::digest;
use rustls::pki_types::CertificateDer;

/// The password of Java's own store, which all tools expect.
const PASSWORD: &str = "changeit";
const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
const TRUSTED_CERTIFICATE: u32 = 2;
/// Part of the format.
const SALT: &str = "Mighty Aphrodite";

pub(super) fn store(certificates: &[CertificateDer<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    number(&mut bytes, MAGIC);
    number(&mut bytes, VERSION);
    number(&mut bytes, length(certificates.len()));
    for (index, certificate) in certificates.iter().enumerate() {
        number(&mut bytes, TRUSTED_CERTIFICATE);
        text(&mut bytes, &format!("curtsy-{index}"));
        // The time when it was added, which no client reads.
        bytes.extend_from_slice(&0_u64.to_be_bytes());
        text(&mut bytes, "X.509");
        number(&mut bytes, length(certificate.len()));
        bytes.extend_from_slice(certificate);
    }
    let mut digest = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    for unit in PASSWORD.encode_utf16() {
        digest.update(&unit.to_be_bytes());
    }
    digest.update(SALT.as_bytes());
    digest.update(&bytes);
    bytes.extend_from_slice(digest.finish().as_ref());
    bytes
}

fn number(bytes: &mut Vec<u8>, number: u32) {
    bytes.extend_from_slice(&number.to_be_bytes());
}

/// Writes one of our own texts, which are short and ASCII.
fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

fn length(length: usize) -> u32 {
    u32::try_from(length).expect("certificates of this machine fit into 4 GiB")
}
