//! The beginning of a connection: who the client is, which protocol and which database.

use std::time::Duration;

use super::replies::{Counts, Scanner};
use super::request::plain;
use crate::failure::Failure;
use crate::os::poll::{Stream, Target};

/// How long a server may take to be reached and to answer the first words.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is said first on every connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// Who; `default` where only a password is given.
    pub user: Option<String>,
    /// With which password.
    pub password: Option<String>,
    /// Which database.
    pub database: u32,
    /// RESP 2 or 3.
    pub protocol: u8,
}

impl Login {
    /// The requests, one reply each; the last one finds out whether the server wants a password.
    fn requests(&self) -> Vec<Vec<u8>> {
        let mut requests = Vec::new();
        let user = self.user.as_deref().unwrap_or("default");
        let password = self.password.as_deref();
        if self.protocol == 3 {
            let who = password.map(|password| ["AUTH", user, password]);
            let words: Vec<&str> = ["HELLO", "3"].into_iter().chain(who.into_iter().flatten()).collect();
            requests.push(words);
        } else if let Some(password) = password {
            // Servers without users know the short form only.
            requests.push(if self.user.is_some() { vec!["AUTH", user, password] } else { vec!["AUTH", password] });
        }
        let database = self.database.to_string();
        if self.database > 0 {
            requests.push(vec!["SELECT", &database]);
        }
        requests.push(vec!["PING"]);
        requests.iter().map(|words| plain(words)).collect()
    }

    /// Connects and says all of it.
    ///
    /// # Errors
    /// Nobody is there, or who is there refuses. Retry safe.
    pub fn open(&self, target: &Target) -> Result<Stream, Failure> {
        let mut stream = Stream::connect(target, PATIENCE).map_err(|error| {
            Failure::world(
                format!("cannot connect to {target}: {error}"),
                "check the address and that a server runs there; without --addr, one is started",
            )
        })?;
        let mut scanner = Scanner::default();
        for request in self.requests() {
            say(&mut stream, target, &request, &mut scanner)?;
        }
        Ok(stream)
    }
}

/// Says one request and waits for its reply.
pub(super) fn say(stream: &mut Stream, target: &Target, request: &[u8], scanner: &mut Scanner) -> Result<(), Failure> {
    let silent = |error: &dyn core::fmt::Display| {
        let what = format!("{target} gives no answer: {error}");
        Failure::world(what, "check that a Redis or Valkey server without TLS runs there")
    };
    let mut sent = 0;
    while sent < request.len() {
        sent += stream.write(&request[sent..]).map_err(|error| silent(&error))?;
    }
    let (mut counts, mut bytes) = (Counts::default(), vec![0; 4 << 10]);
    while counts.replies == 0 {
        let count = stream.read(&mut bytes).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => silent(&format!("nothing within {} s", PATIENCE.as_secs())),
            _ => silent(&error),
        })?;
        if count == 0 {
            return Err(silent(&"it closed the connection"));
        }
        scanner.scan(&bytes[..count], &mut counts).map_err(|_| no_resp())?;
    }
    match scanner.first_error() {
        None => Ok(()),
        Some(error) => Err(Failure::world(
            format!("{target} refuses: {error}"),
            "give --user, and the password with --password-file or ASHLAR_KV_PASSWORD; check --db and --protocol",
        )),
    }
}

/// Whoever answers is no such server.
pub(super) fn no_resp() -> Failure {
    Failure::world("what came is no reply of a Redis or Valkey server", "check the address; TLS is not spoken here")
}
