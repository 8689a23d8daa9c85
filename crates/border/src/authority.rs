//! The certificate authority of one sandbox, which issues the border's certificates for bound
//! hosts.
//!
//! Its key never leaves the gateway; the sandbox only trusts its certificate. So only the gateway
//! of that very sandbox can impersonate a host there.

use crate::secret::Value;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Number of cached certificates.
const REMEMBERED: usize = 64;
const NAME: &str = "motu: the border of this sandbox";

/// Not a valid authority, or one that cannot issue certificates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the authority of the sandbox: {0}")]
pub struct Failed(String);

impl Failed {
    pub(crate) fn of(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// An authority as it is stored and sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authority {
    /// The certificate, DER in base64.
    pub certificate: String,
    /// The private key, PKCS #8 in base64.
    pub key: Value,
}

impl Authority {
    /// Makes a new authority.
    pub fn make() -> Result<Self, Failed> {
        let key = KeyPair::generate().map_err(Failed::of)?;
        let certificate = params().self_signed(&key).map_err(Failed::of)?;
        Ok(Self {
            certificate: STANDARD.encode(certificate.der()),
            key: Value::new(STANDARD.encode(key.serialize_der())),
        })
    }

    /// The certificate as PEM.
    pub fn pem(&self) -> String {
        pem(&self.certificate)
    }
}

/// Decodes base64; `None` if it is invalid.
pub fn der(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Converts a certificate from base64 DER to PEM.
pub fn pem(certificate: &str) -> String {
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in certificate.as_bytes().chunks(64) {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

fn params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // A wide validity period: clocks inside may be years off, and the authority ends with its
    // sandbox.
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2049, 12, 31);
    params
}

/// Issues certificates for hosts.
pub(crate) struct Mint {
    issuer: Issuer<'static, KeyPair>,
    /// One key for all hosts: it never leaves this process.
    key: KeyPair,
    provider: Arc<CryptoProvider>,
    made: HashMap<String, Arc<CertifiedKey>>,
}

impl fmt::Debug for Mint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Mint(…)")
    }
}

impl Mint {
    pub(crate) fn new(
        authority: &Authority,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, Failed> {
        let key = STANDARD
            .decode(authority.key.as_str())
            .map_err(Failed::of)?;
        let key = PrivatePkcs8KeyDer::from(key);
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &rcgen::PKCS_ECDSA_P256_SHA256);
        Ok(Self {
            issuer: Issuer::new(params(), key.map_err(Failed::of)?),
            key: KeyPair::generate().map_err(Failed::of)?,
            provider,
            made: HashMap::new(),
        })
    }

    /// The certificate of a host.
    pub(crate) fn certify(&mut self, name: &str) -> Result<Arc<CertifiedKey>, Failed> {
        if let Some(made) = self.made.get(name) {
            return Ok(made.clone());
        }
        let mut params = CertificateParams::new([name.to_owned()]).map_err(Failed::of)?;
        params.distinguished_name = DistinguishedName::new();
        // A common name has at most 64 characters; clients use the subject alternative name.
        params
            .distinguished_name
            .push(DnType::CommonName, &name[..name.floor_char_boundary(64)]);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2049, 12, 31);
        let certificate = params
            .signed_by(&self.key, &self.issuer)
            .map_err(Failed::of)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let key = self.provider.key_provider.load_private_key(key);
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let made = Arc::new(CertifiedKey::new(chain, key.map_err(Failed::of)?));
        if self.made.len() >= REMEMBERED {
            self.made.clear();
        }
        self.made.insert(name.to_owned(), made.clone());
        Ok(made)
    }
}
