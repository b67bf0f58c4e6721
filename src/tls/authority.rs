//! The local CA: a certificate that clients may choose to trust, and the key that signs certificates for hosts.
//!
//! The certificates that it issues use another key, made for this process and stored nowhere: a key that takes part in
//! a million handshakes must not be the key that is trusted for years.

use std::fmt;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType, SerialNumber,
};
use rustls::crypto::SecureRandom;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use time::OffsetDateTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::provider;
use crate::clock;
use crate::politeness::HostKey;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Long enough to be set up once per project, short enough that a forgotten CA expires.
const LIFE: Duration = Duration::from_secs(2 * 365 * 24 * 3600);
/// Validity of a host's certificate, from its first to its last moment.
const LEAF_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Certificates begin in the past, for clients whose clock is behind.
const SKEW: Duration = DAY;
/// The longest CommonName (RFC 5280, appendix A.1).
const LONGEST_NAME: usize = 64;

/// A CA's certificate and key, fresh or from a file.
pub struct Ca {
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

/// A CA that can sign.
pub struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    leaf_key: KeyPair,
    signing_key: std::sync::Arc<dyn rustls::sign::SigningKey>,
    random: &'static dyn SecureRandom,
    ends: SystemTime,
}

/// Why a certificate and a key are not usable as a CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotACa {
    Certificate,
    Key,
    NotForSigning,
    Mismatch,
    Expired,
}

impl Ca {
    /// Creates a new CA, valid from now.
    pub fn make() -> Self {
        let now = clock::wall();
        let mut params = CertificateParams::default();
        let serial = serial(provider().secure_random);
        let name: String = serial.to_bytes().iter().take(3).map(|byte| format!("{byte:02x}")).collect();
        params.distinguished_name = named(&format!("curtsy CA {name}"));
        params.serial_number = Some(serial);
        params.not_before = date(now - SKEW);
        params.not_after = date(now + LIFE);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = new_key();
        let certificate = params.self_signed(&key).expect("sound parameters and a key that signs");
        Ca { certificate: certificate.der().clone(), key }
    }

    /// Reads both from PEM. Ignores further certificates after the first.
    pub fn read(certificate: &str, key: &str) -> Result<Self, NotACa> {
        let certificate =
            CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|_| NotACa::Certificate)?.into_owned();
        let key = KeyPair::from_pem(key).map_err(|_| NotACa::Key)?;
        let parsed = parse(&certificate).ok_or(NotACa::Certificate)?;
        if !parsed.is_ca() || parsed.key_usage().is_ok_and(|usage| usage.is_some_and(|u| !u.value.key_cert_sign())) {
            return Err(NotACa::NotForSigning);
        }
        if parsed.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
            return Err(NotACa::Mismatch);
        }
        if parsed.validity().not_after.to_datetime() <= date(clock::wall()) {
            return Err(NotACa::Expired);
        }
        Ok(Ca { certificate, key })
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub(super) fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }
}

impl Authority {
    pub fn new(ca: Ca) -> Result<Self, NotACa> {
        let Ca { certificate, key } = ca;
        let ends = parse(&certificate).ok_or(NotACa::Certificate)?.validity().not_after.to_datetime();
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(|_| NotACa::Certificate)?;
        let (provider, leaf_key) = (provider(), new_key());
        let der = PrivateKeyDer::Pkcs8(leaf_key.serialize_der().into());
        let signing_key =
            provider.key_provider.load_private_key(der).expect("rustls reads the key of its own provider");
        let (random, ends) = (provider.secure_random, ends.into());
        Ok(Authority { certificate, issuer, leaf_key, signing_key, random, ends })
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Signs a new certificate for a host. Also returns until when it may be used.
    pub(super) fn sign(&self, host: &HostKey) -> (CertifiedKey, SystemTime) {
        let now = clock::wall();
        let until = (now + (LEAF_LIFE - SKEW)).min(self.ends);
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if host.as_str().len() <= LONGEST_NAME {
            params.distinguished_name = named(host.as_str());
        }
        params.subject_alt_names = vec![match host.ip() {
            Some(ip) => SanType::IpAddress(ip),
            None => SanType::DnsName(host.as_str().try_into().expect("a host key is ASCII")),
        }];
        params.serial_number = Some(serial(self.random));
        params.not_before = date(now - SKEW);
        params.not_after = date(until);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let leaf = params.signed_by(&self.leaf_key, &self.issuer).expect("sound parameters and a key that signs");
        // The chain includes the CA, so that a client without it can at least say which CA it does not trust.
        let chain = vec![leaf.der().clone(), self.certificate.clone()];
        (CertifiedKey::new(chain, self.signing_key.clone()), until)
    }
}

fn new_key() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("the system has randomness")
}

fn named(name: &str) -> rcgen::DistinguishedName {
    let mut names = rcgen::DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// 127 random bits: positive, and in practice never repeated (RFC 5280, section 4.1.2.2).
fn serial(random: &dyn SecureRandom) -> SerialNumber {
    let mut bytes = [0; 16];
    random.fill(&mut bytes).expect("the system has randomness");
    bytes[0] = bytes[0] & 0x7f | 0x40;
    SerialNumber::from_slice(&bytes)
}

pub(super) fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    X509Certificate::from_der(certificate).ok().map(|(_, parsed)| parsed)
}

/// Rounds down: times in certificates are whole seconds.
fn date(at: SystemTime) -> OffsetDateTime {
    OffsetDateTime::from(at).replace_nanosecond(0).expect("zero is a nanosecond")
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ca").finish_non_exhaustive()
    }
}

impl fmt::Display for NotACa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotACa::Certificate => "the certificate cannot be read; it must be PEM",
            NotACa::Key => "the key cannot be read; it must be PEM, PKCS #8, of an ECDSA, Ed25519 or RSA key",
            NotACa::NotForSigning => "the certificate is not one of a CA",
            NotACa::Mismatch => "certificate and key do not belong together",
            NotACa::Expired => "the certificate has expired; make a new one with: curtsy ca rotate --now",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use x509_parser::extensions::GeneralName;

    use super::*;

    fn authority() -> Authority {
        Authority::new(Ca::make()).unwrap()
    }

    fn days(span: Duration) -> u64 {
        span.as_secs() / DAY.as_secs()
    }

    /// X44, X45
    #[test]
    fn a_leaf_is_short_lived_for_one_name_and_for_servers_only() {
        let authority = authority();
        let (leaf, until) = authority.sign(&HostKey::parse("a.test").unwrap());
        let parsed = parse(&leaf.cert[0]).unwrap();
        let life = parsed.validity().not_after.timestamp() - parsed.validity().not_before.timestamp();
        assert!(life <= 7 * 24 * 3600, "{life}");
        assert_eq!(days(until.duration_since(clock::wall()).unwrap() + Duration::from_secs(60)), 6);
        let names = &parsed.subject_alternative_name().unwrap().unwrap().value.general_names;
        assert_eq!(names, &[GeneralName::DNSName("a.test")]);
        let usage = parsed.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.server_auth && !usage.client_auth && !usage.any);
        assert!(!parsed.is_ca());
        let ca = parse(&authority.certificate).unwrap();
        assert_eq!(parsed.issuer(), ca.subject());
        assert_ne!(parsed.public_key().raw, ca.public_key().raw, "the CA's key takes part in no handshake");
        assert!(parsed.verify_signature(Some(ca.public_key())).is_ok());
    }

    /// X45
    #[test]
    fn an_address_is_named_as_one() {
        for (host, ip) in [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1")] {
            let (leaf, _) = authority().sign(&HostKey::parse(host).unwrap());
            let parsed = parse(&leaf.cert[0]).unwrap();
            let names = &parsed.subject_alternative_name().unwrap().unwrap().value.general_names;
            let bytes: Vec<u8> = match ip.parse().unwrap() {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            };
            assert_eq!(names, &[GeneralName::IPAddress(&bytes)]);
        }
    }

    #[test]
    fn a_name_too_long_for_a_subject_is_an_alternative_one_only() {
        let long = format!("{}.{}.test", "a".repeat(60), "b".repeat(60));
        let (leaf, _) = authority().sign(&HostKey::parse(&long).unwrap());
        let parsed = parse(&leaf.cert[0]).unwrap();
        assert_eq!(parsed.subject().iter_common_name().count(), 0);
        assert!(parsed.subject_alternative_name().unwrap().unwrap().critical, "RFC 5280, section 4.2.1.6");
    }

    /// X45
    #[test]
    fn no_serial_comes_twice() {
        let authority = authority();
        let host = HostKey::parse("a.test").unwrap();
        let serials: std::collections::BTreeSet<String> =
            (0..100).map(|_| parse(&authority.sign(&host).0.cert[0]).unwrap().raw_serial_as_string()).collect();
        assert_eq!(serials.len(), 100);
    }

    /// X47
    #[test]
    fn a_ca_signs_servers_alone_and_dies_in_time() {
        let ca = Ca::make();
        let parsed = parse(&ca.certificate).unwrap();
        let constraints = parsed.basic_constraints().unwrap().unwrap().value;
        assert_eq!((constraints.ca, constraints.path_len_constraint), (true, Some(0)));
        let years = (parsed.validity().not_after.timestamp() - clock_seconds()) / (365 * 24 * 3600);
        assert!((1..=2).contains(&years), "{years}");
    }

    fn clock_seconds() -> i64 {
        date(clock::wall()).unix_timestamp()
    }

    #[test]
    fn what_is_no_ca_is_told() {
        let (ca, other) = (Ca::make(), Ca::make());
        let pem = |ca: &Ca| super::super::files::pem(&ca.certificate);
        assert!(Ca::read(&pem(&ca), &ca.key_pem()).is_ok());
        assert_eq!(Ca::read(&pem(&ca), &other.key_pem()).unwrap_err(), NotACa::Mismatch);
        assert_eq!(Ca::read("", &ca.key_pem()).unwrap_err(), NotACa::Certificate);
        assert_eq!(Ca::read(&pem(&ca), "").unwrap_err(), NotACa::Key);
        let leaf = CertificateParams::new(["a.test".to_owned()]).unwrap().self_signed(&ca.key).unwrap();
        assert_eq!(Ca::read(&leaf.pem(), &ca.key_pem()).unwrap_err(), NotACa::NotForSigning);
    }

    #[test]
    fn a_key_is_not_shown() {
        let ca = Ca::make();
        let shown = format!("{ca:?} {:?}", authority());
        assert!(!shown.contains("PRIVATE") && !shown.contains('['), "{shown}");
    }
}
