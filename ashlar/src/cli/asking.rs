//! Whom a command asks: the flags that all commands of the admin API share, and the questions themselves.

use std::path::{Path, PathBuf};

use crate::config::keys;
use crate::failure::Failure;
use crate::os::datadir::ADMIN_TOKEN;
use crate::os::http::{self, Answer, Target};
use crate::os::{files, tls};

/// Digits of an id that people see: enough to tell servers of one cluster apart.
const SHORT_ID_LEN: usize = 8;

/// The server to ask, and as whom.
#[derive(Debug, clap::Args)]
pub struct Asked {
    /// Server to ask
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7800", value_parser = keys::place)]
    addr: String,
    /// Certificate of a server on another machine (tls.cert of its data directory); the connection is encrypted then
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// File with the admin token of the server [environment: ASHLAR_ADMIN_TOKEN, the token itself]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Data directory of the server, or of `ashlar up`, whose admin.token is used [default for a server of this machine: ./ashlar-data]
    #[arg(long, value_name = "DIR", conflicts_with = "token_file")]
    data: Option<PathBuf>,
    /// Send the token to another machine without encryption: everybody on the way can read it
    #[arg(long)]
    plain_token: bool,
}

/// Where `ashlar up` keeps its data unless told otherwise.
const DATA_DEFAULT: &str = "./ashlar-data";

impl Asked {
    /// Where to ask for something that only reads: this machine is answered without a token.
    ///
    /// # Errors
    /// A file cannot be read, or the token would be sent to another machine without encryption.
    pub(super) fn target(&self) -> Result<Target, Failure> {
        self.target_with(self.given_token()?)
    }

    /// Where to ask for something that changes something.
    ///
    /// # Errors
    /// As [`Asked::target`].
    pub(super) fn target_to_change(&self) -> Result<Target, Failure> {
        let token = match self.given_token()? {
            // Not for another machine: it has a token of its own.
            None if is_this_machine(&self.addr) => optional_token(&PathBuf::from(DATA_DEFAULT).join(ADMIN_TOKEN))?,
            given => given,
        };
        self.target_with(token)
    }

    fn given_token(&self) -> Result<Option<String>, Failure> {
        match (&self.token_file, &self.data) {
            (Some(path), _) => Ok(Some(text_of(path)?.trim().to_owned())),
            (None, Some(data)) => Ok(Some(text_of(&data.join(ADMIN_TOKEN))?.trim().to_owned())),
            (None, None) => Ok(token_in(std::env::var("ASHLAR_ADMIN_TOKEN").ok())),
        }
    }

    fn target_with(&self, token: Option<String>) -> Result<Target, Failure> {
        if token.is_some() && self.cert.is_none() && !self.plain_token && !is_this_machine(&self.addr) {
            let what = format!("the admin token would be sent to {} without encryption", self.addr);
            let remedy = "give the server's certificate with --cert (tls.cert of its data directory); where servers run with \
                          tls = off and nobody can listen on the way, --plain-token sends it all the same";
            return Err(Failure::usage(what, remedy));
        }
        let tls = match &self.cert {
            None => None,
            Some(path) => Some(tls::pinned(&text_of(path)?)?),
        };
        Ok(Target { address: self.addr.clone(), tls, token })
    }
}

/// Whether an address is of this machine by what it says: a name could be anybody's.
fn is_this_machine(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<core::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// The token in a text; none in an empty one.
fn token_in(text: Option<String>) -> Option<String> {
    text.map(|text| text.trim().to_owned()).filter(|token| !token.is_empty())
}

/// The token of a file that may not be there.
fn optional_token(path: &Path) -> Result<Option<String>, Failure> {
    let token = files::read_text(path).map_err(|error| {
        Failure::world(format!("cannot read {}: {error}", path.display()), "run this as the user who runs the server")
    })?;
    Ok(token_in(token))
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
    Err(Failure::world(format!("{} answered {}: {message}", target.address, answer.status), remedy(answer.status)))
}

/// What to do about an answer that is no success.
fn remedy(status: u16) -> &'static str {
    match status {
        401 => {
            "give the server's data directory with --data DIR (that of `ashlar up` is ./ashlar-data unless it was told another), \
             or the file with --token-file FILE; a server on another machine needs --cert FILE as well"
        }
        403 => "a server on another machine needs --cert and --token-file",
        // The message says what is wrong with the command, or what stands against it.
        400 | 404 | 409 => "nothing was changed: ask for something else, or see to what the answer names first",
        _ => "ask `ashlar status` how the cluster is, and try again",
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_was_refused_is_not_sent_to_look_at_the_cluster() {
        for status in [400, 404, 409] {
            assert!(!remedy(status).contains("status") && remedy(status).contains("nothing was changed"), "{status}");
        }
        assert!(remedy(503).contains("ashlar status") && remedy(401).contains("--data"));
    }

    fn asked(addr: &str, plain_token: bool, token_file: Option<PathBuf>) -> Asked {
        Asked { addr: addr.into(), cert: None, token_file, data: None, plain_token }
    }

    #[test]
    fn an_empty_text_is_no_token() {
        assert_eq!(token_in(Some(" ab\n".into())).as_deref(), Some("ab"));
        assert_eq!([None, Some(String::new()), Some("\n".into())].map(token_in), [None, None, None]);
    }

    #[test]
    fn a_token_leaves_this_machine_only_encrypted() {
        let scratch = files::tests::Scratch::new();
        let path = scratch.0.join("token");
        files::write_whole(&path, b"0123456789abcdef\n", files::Readers::Owner).unwrap();
        for own in ["127.0.0.1:7800", "localhost:7800", "[::1]:7800", "127.9.9.9:1"] {
            let target = asked(own, false, Some(path.clone())).target().expect("this machine");
            assert_eq!(target.token.as_deref(), Some("0123456789abcdef"), "{own}");
        }
        for other in ["10.0.0.1:7800", "host2:7800", "[fe80::1]:7800", "localhost.evil.example:7800", "0.0.0.0:7800"] {
            let failure = asked(other, false, Some(path.clone())).target().map(drop).expect_err("not encrypted");
            assert!(failure.exit_code() == 2 && failure.what.contains("without encryption"), "{failure}");
            assert!(asked(other, true, Some(path.clone())).target().is_ok(), "somebody insists");
        }
    }
}
