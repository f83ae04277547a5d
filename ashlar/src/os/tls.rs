//! TLS between servers: version 1.3, one provider, no authority.
//!
//! Certificates here prove nothing, and need not: right after the upgrade both servers prove that they hold the
//! cluster's secret, and that proof covers 32 bytes which only the two ends of this very TLS channel can compute
//! (RFC 9266). Somebody in between would have two channels with two different values, and the proof would fail. So the
//! dialer accepts any certificate, and no clock, name or authority can break a cluster.
//!
//! A client of the admin API holds no secret; it compares the certificate with the one it was given instead.

mod certificate;
pub mod clients;

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme};

use crate::failure::Failure;

/// The name in every server's certificate. Nobody checks it.
pub const SERVER_NAME: &str = "ashlar";

/// RFC 9266: what `tls-exporter` channel binding is derived under.
const BINDING_LABEL: &[u8] = b"EXPORTER-Channel-Binding";

/// Bytes of a channel binding.
pub const BINDING_LEN: usize = 32;

/// The first byte of a TLS connection: a handshake record. No HTTP method starts with it.
pub const FIRST_BYTE: u8 = 0x16;

/// How a server answers.
///
/// # Errors
/// Certificate or key are not what they should be.
pub fn server(certificate_pem: &str, key_pem: &str) -> Result<Arc<ServerConfig>, Failure> {
    let unusable = |error: &dyn core::fmt::Display| {
        let what = format!("the certificate in the data directory cannot be used: {error}");
        Failure::world(what, "remove tls.cert and tls.key there; the server makes new ones")
    };
    let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).map_err(|error| unusable(&error))?;
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|error| unusable(&error))?;
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
    let builder = builder.map_err(|error| unusable(&error))?.with_no_client_auth();
    let mut config = builder.with_single_cert(vec![certificate], key).map_err(|error| unusable(&error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Connections live for days: nothing is won by resuming sessions.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// How one server dials another: any certificate will do (see above).
#[must_use]
pub fn dialer() -> Arc<ClientConfig> {
    client(Trust::ProvedLater)
}

/// How a client of the admin API dials: this certificate (PEM) and no other.
///
/// # Errors
/// The text is no certificate.
pub fn pinned(certificate_pem: &str) -> Result<Arc<ClientConfig>, Failure> {
    let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).map_err(|error| {
        Failure::usage(
            format!("this is no certificate: {error}"),
            "give the file tls.cert of the server's data directory",
        )
    })?;
    Ok(client(Trust::Exactly(certificate)))
}

/// The 32 bytes that only the two ends of this channel know.
///
/// # Errors
/// The handshake is not over.
pub fn channel_binding(
    connection: &tokio_rustls::TlsStream<tokio::net::TcpStream>,
) -> Result<[u8; BINDING_LEN], Error> {
    let bytes = [0; BINDING_LEN];
    match connection {
        tokio_rustls::TlsStream::Client(stream) => {
            stream.get_ref().1.export_keying_material(bytes, BINDING_LABEL, None)
        }
        tokio_rustls::TlsStream::Server(stream) => {
            stream.get_ref().1.export_keying_material(bytes, BINDING_LABEL, None)
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn client(trust: Trust) -> Arc<ClientConfig> {
    let algorithms = ring::default_provider().signature_verification_algorithms;
    let verifier = Arc::new(Verifier { trust, algorithms });
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
    let builder = builder.expect("the provider has the cipher suites of TLS 1.3");
    let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Arc::new(config)
}

#[derive(Debug)]
enum Trust {
    /// The grid's hello proves who is there.
    ProvedLater,
    /// This certificate only.
    Exactly(CertificateDer<'static>),
}

#[derive(Debug)]
struct Verifier {
    trust: Trust,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.trust {
            Trust::Exactly(expected) if expected != end_entity => {
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
            Trust::ProvedLater | Trust::Exactly(_) => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
