//! TLS on the SQL door: rustls with ring, certificates from PEM files.
//!
//! Invariants:
//! - A key file that others can read is refused.
//! - `binding` is the digest of the certificate that clients see (RFC 5929, tls-server-end-point); certificates whose
//!   signature hash is not SHA-256 get no channel binding rather than a wrong one.

use std::{os::unix::fs::PermissionsExt, path::Path, sync::Arc};

use model::{Code, Error, Result};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio_rustls::TlsAcceptor;

use super::scram::sha256;

/// The ALPN name of direct TLS (PostgreSQL 17's `sslnegotiation=direct`).
const ALPN: &[u8] = b"postgresql";

/// What the SQL door needs for TLS.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    binding: Option<Vec<u8>>,
}

impl Tls {
    /// Reads certificate chain and key.
    pub fn open(cert: &Path, key: &Path) -> Result<Self> {
        let mode = std::fs::metadata(key).map_err(|error| broken(key, &error))?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(Error::new(
                Code::ConfigFileError,
                format!("private key file {} can be read by others", key.display()),
            )
            .with_hint("Run chmod 600 on it."));
        }
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(cert)
            .and_then(Iterator::collect)
            .map_err(|error| broken(cert, &error))?;
        let binding = chain.first().and_then(|first| binding_of(first));
        let private = PrivateKeyDer::from_pem_file(key).map_err(|error| broken(key, &error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| broken(cert, &error))?
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(|error| broken(cert, &error))?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), binding })
    }

    /// Takes connections in.
    pub fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }

    /// What SCRAM-SHA-256-PLUS binds to.
    pub fn binding(&self) -> Option<Vec<u8>> {
        self.binding.clone()
    }

    /// Whether a direct TLS connection named the protocol, as it must.
    pub fn is_direct_protocol(alpn: Option<&[u8]>) -> bool {
        alpn == Some(ALPN)
    }
}

/// The digest of a certificate by its own signature's hash function; MD5 and SHA-1 count as SHA-256 (RFC 5929 §4.1).
fn binding_of(certificate: &[u8]) -> Option<Vec<u8>> {
    // DER of the signature algorithms' object identifiers whose hash is SHA-384 or SHA-512 (RFC 4055, RFC 5758), and of
    // Ed25519, which has none.
    const OTHERS: [&[u8]; 5] = [
        &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c],
        &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d],
        &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03],
        &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04],
        &[0x06, 0x03, 0x2b, 0x65, 0x70],
    ];
    let has = |identifier: &[u8]| certificate.windows(identifier.len()).any(|bytes| bytes == identifier);
    (!OTHERS.iter().any(|identifier| has(identifier))).then(|| sha256(certificate).to_vec())
}

fn broken(path: &Path, error: &(impl std::error::Error + ?Sized)) -> Error {
    Error::new(Code::ConfigFileError, format!("TLS file {}: {error}", path.display()))
}
