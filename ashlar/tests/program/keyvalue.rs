//! The key-value engine as a program: a server, and a client that only knows bytes.

use std::io::{BufRead as _, BufReader, Read as _, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::process::Running;

/// A peer that never answers must not hold up the tests; nothing is measured by this.
const PATIENCE: Duration = Duration::from_secs(60);

/// `ashlar kv` on a free port.
pub(crate) struct KvServer {
    pub(crate) process: Running,
    pub(crate) address: String,
}

impl KvServer {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut all = vec!["kv", "--port", "0", "--workers", "2"];
        all.extend(arguments);
        let process = Running::start(&all, &[]);
        let line = Running::line(&process.out, "Ready to accept connections tcp on ");
        let address = line.rsplit(' ').next().expect("the line ends with the address").to_owned();
        Self { process, address }
    }

    pub(crate) fn client(&self) -> Client<TcpStream> {
        let stream = TcpStream::connect(&self.address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        Client::new(stream)
    }
}

/// One connection, of whatever kind.
pub(crate) struct Client<S: std::io::Read + Write>(BufReader<S>);

impl<S: std::io::Read + Write> Client<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self(BufReader::new(stream))
    }

    /// Says `words` and returns the reply: scalars as they stand, arrays as their elements between blanks.
    pub(crate) fn ask(&mut self, words: &[&str]) -> String {
        let mut request = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| request.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        self.0.get_mut().write_all(request.as_bytes()).expect("the server reads");
        self.0.get_mut().flush().expect("the server reads");
        self.reply()
    }

    pub(crate) fn reply(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the server answers");
        let (kind, text) = line.trim_end().split_at_checked(1).expect("a reply has a head");
        let count = || text.parse::<usize>().ok();
        match kind {
            "$" | "=" => {
                let Some(bytes) = count() else { return "nil".into() };
                let mut body = vec![0; bytes + 2];
                self.0.read_exact(&mut body).expect("the server sends what it announced");
                String::from_utf8_lossy(&body[..bytes]).into_owned()
            }
            "*" | "~" | ">" => (0..count().unwrap_or(0)).map(|_| self.reply()).collect::<Vec<_>>().join(" "),
            "%" => (0..2 * count().unwrap_or(0)).map(|_| self.reply()).collect::<Vec<_>>().join(" "),
            "_" => "nil".into(),
            "-" => line.trim_end().to_owned(),
            _ => text.to_owned(),
        }
    }
}
