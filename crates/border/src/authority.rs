//! The authority of one sandbox, and the certificates it gives to the border for bound hosts.
//!
//! Its key never leaves the outside; inside, only its certificate is trusted. So nobody but the
//! gateway of that very sandbox can speak for a host there.

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

/// Certificates that are remembered. More hosts than that are made again.
const REMEMBERED: usize = 64;
const NAME: &str = "motu: the border of this sandbox";

/// Something that is no authority, or cannot certify.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the authority of the sandbox: {0}")]
pub struct Failed(String);

impl Failed {
    pub(crate) fn of(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// An authority as it is kept and handed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authority {
    /// Base64 of DER.
    pub certificate: String,
    /// Base64 of PKCS #8.
    pub key: Value,
}

impl Authority {
    /// A new one.
    pub fn make() -> Result<Self, Failed> {
        let key = KeyPair::generate().map_err(Failed::of)?;
        let certificate = params().self_signed(&key).map_err(Failed::of)?;
        Ok(Self {
            certificate: STANDARD.encode(certificate.der()),
            key: Value::new(STANDARD.encode(key.serialize_der())),
        })
    }

    /// Its certificate, as files have it.
    pub fn pem(&self) -> String {
        pem(&self.certificate)
    }
}

/// The bytes of base64; nothing for what is none.
pub fn der(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// A certificate as files have it, from base64 of DER.
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
    // Clocks inside may be wrong by years; what ends its power is the end of the sandbox.
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2049, 12, 31);
    params
}

/// Makes certificates of hosts.
pub(crate) struct Mint {
    issuer: Issuer<'static, KeyPair>,
    /// One key for all hosts: it is never outside of this process.
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
        // A common name holds 64 characters; the name that counts is the alternative one.
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
