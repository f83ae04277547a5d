//! Whom a command asks: the flags that all commands of the admin API share, and the questions themselves.

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::os::http::{self, Answer, Target};
use crate::os::{files, tls};

/// Digits of an id that people see: enough to tell servers of one cluster apart.
const SHORT_ID_LEN: usize = 8;

/// The server to ask, and as whom.
#[derive(Debug, clap::Args)]
pub struct Asked {
    /// Server to ask
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7800")]
    addr: String,
    /// Certificate of a server on another machine (tls.cert of its data directory); the connection is encrypted then
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// File with the admin token of a server on another machine [environment: ASHLAR_ADMIN_TOKEN, the token itself]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl Asked {
    /// Where to ask.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn target(&self) -> Result<Target, Failure> {
        let tls = match &self.cert {
            None => None,
            Some(path) => Some(tls::pinned(&text_of(path)?)?),
        };
        let token = match &self.token_file {
            None => std::env::var("ASHLAR_ADMIN_TOKEN").ok(),
            Some(path) => Some(text_of(path)?.trim().to_owned()),
        };
        Ok(Target { address: self.addr.clone(), tls, token })
    }
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let remedy = "give a file that can be read";
    match files::read_text(path) {
        Ok(Some(text)) => Ok(text),
        Ok(None) => Err(Failure::usage(format!("there is no file {}", path.display()), remedy)),
        Err(error) => Err(Failure::usage(format!("cannot read {}: {error}", path.display()), remedy)),
    }
}

/// Asks a server of the admin API for `path`.
///
/// # Errors
/// Nobody answers there, or not to us. Retry safe.
pub(super) async fn ask(target: &Target, path: &str) -> Result<Vec<u8>, Failure> {
    body_of(target, http::get(target, path).await)
}

/// Asks a server of the admin API to remove what is at `path`.
///
/// # Errors
/// As [`ask`].
pub(super) async fn remove(target: &Target, path: &str) -> Result<Vec<u8>, Failure> {
    body_of(target, http::delete(target, path).await)
}

/// Asks a server of the admin API to do what `path` names.
///
/// # Errors
/// As [`ask`].
pub(super) async fn demand(target: &Target, path: &str) -> Result<Vec<u8>, Failure> {
    body_of(target, http::put(target, path).await)
}

fn body_of(target: &Target, answer: Result<Answer, impl core::fmt::Display>) -> Result<Vec<u8>, Failure> {
    let answer = answer.map_err(|error| {
        let remedy = "check that a server runs there (`ashlar up` starts some) and name it with --addr HOST:PORT";
        Failure::world(format!("{error}"), remedy)
    })?;
    if answer.status == 200 {
        return Ok(answer.body);
    }
    let text = String::from_utf8_lossy(&answer.body);
    let message = serde_json::from_str::<serde_json::Value>(&text).ok();
    let message = message.as_ref().and_then(|value| value["message"].as_str()).unwrap_or(text.trim());
    let remedy = match answer.status {
        401 | 403 => "a server on another machine needs --cert and --token-file",
        _ => "ask `ashlar status` how the cluster is",
    };
    Err(Failure::world(format!("{} answered {}: {message}", target.address, answer.status), remedy))
}

/// The failure of a command that got an answer of another kind than it asked for.
pub(super) fn no_server(target: &Target, error: &serde_json::Error) -> Failure {
    Failure::world(
        format!("what answers at {} is no ashlar server of this version: {error}", target.address),
        "name another server with --addr HOST:PORT",
    )
}

/// The part of an id that people see.
#[must_use]
pub(super) fn short(id: Option<&str>) -> String {
    id.map_or_else(|| "?".into(), |id| id.chars().take(SHORT_ID_LEN).collect())
}
