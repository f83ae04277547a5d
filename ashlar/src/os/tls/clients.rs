//! TLS towards clients of a service: certificate, key and authorities from files that its operator keeps.
//!
//! Unlike between servers, certificates prove something here: clients check ours, and ours may check theirs. Versions 1.2 and
//! 1.3, because clients are whatever people have.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ashlar_kv::Certificates;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};

use super::{certificate, provider};
use crate::failure::Failure;
use crate::os::files;

/// Whether clients have to show a certificate that an authority of ours has signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientProof {
    /// Who has none is not let in (`yes`).
    Required,
    /// Who has one must have a right one (`optional`).
    Optional,
    /// None is asked for (`no`).
    None,
}

/// The files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The certificate and those behind it, PEM.
    pub certificate: PathBuf,
    /// Its key, PEM, not encrypted.
    pub key: PathBuf,
    /// The authorities of clients' certificates, PEM.
    pub authorities: Option<PathBuf>,
    /// What clients have to show.
    pub clients: ClientProof,
    /// What the flags begin with that name these files.
    pub flags: &'static str,
}

/// How a service answers, by these files, and what is shown of the certificates in them.
///
/// # Errors
/// A file cannot be read, is not what it should be, or is missing where clients have to prove themselves.
pub fn config(files: &Files) -> Result<(Arc<ServerConfig>, Certificates), Failure> {
    let flag = |what: &str| format!("{}{what}", files.flags);
    let chain = certificates(&files.certificate, &flag("cert"))?;
    files::warn_if_open(&files.key);
    let mut shown = Certificates { server: chain.first().and_then(|der| certificate::read(der)), authority: None };
    let key = PrivateKeyDer::from_pem_slice(text(&files.key, &flag("key"))?.as_bytes())
        .map_err(|error| unusable(&files.key, &flag("key"), &error))?;
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13, &TLS12]);
    let builder = builder.expect("the provider has the cipher suites of TLS 1.2 and 1.3");
    let builder = match (files.clients, &files.authorities) {
        (ClientProof::None, _) => builder.with_no_client_auth(),
        (_, None) => {
            return Err(Failure::usage(
                "clients have to show certificates, and nothing says who may have signed them",
                format!(
                    "give the authorities with {} FILE, or ask for none with {} no",
                    flag("ca"),
                    flag("auth-clients")
                ),
            ));
        }
        (proof, Some(path)) => {
            let authorities = certificates(path, &flag("ca"))?;
            let read = authorities.iter().filter_map(|der| certificate::read(der));
            shown.authority = read.min_by_key(|certificate| certificate.expires_s);
            let roots = Arc::new(roots(authorities, path, &flag("ca"))?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
            let verifier =
                if proof == ClientProof::Optional { verifier.allow_unauthenticated() } else { verifier }.build();
            builder.with_client_cert_verifier(verifier.map_err(|error| unusable(path, "--tls-ca", &error))?)
        }
    };
    let config = builder.with_single_cert(chain, key);
    let config = config.map_err(|error| unusable(&files.certificate, &flag("cert"), &error))?;
    Ok((Arc::new(config), shown))
}

fn roots(authorities: Vec<CertificateDer<'static>>, path: &Path, flag: &str) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    for certificate in authorities {
        roots.add(certificate).map_err(|error| unusable(path, flag, &error))?;
    }
    Ok(roots)
}

fn certificates(path: &Path, flag: &str) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let text = text(path, flag)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let all = all.map_err(|error| unusable(path, flag, &error))?;
    if all.is_empty() { Err(unusable(path, flag, &"there is no certificate in it")) } else { Ok(all) }
}

fn text(path: &Path, flag: &str) -> Result<String, Failure> {
    match files::read_text(path) {
        Ok(Some(text)) => Ok(text),
        Ok(None) => Err(unusable(path, flag, &"there is no such file")),
        Err(error) => Err(unusable(path, flag, &error)),
    }
}

fn unusable(path: &Path, flag: &str, error: &dyn core::fmt::Display) -> Failure {
    Failure::usage(
        format!("cannot use {} for TLS: {error}", path.display()),
        format!("give a PEM file that this user can read with {flag}"),
    )
}
