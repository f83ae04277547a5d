//! The key-value engine as a program: a server, and a client that only knows bytes.

use std::io::{BufRead as _, BufReader, Read as _, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::process::{Running, Scratch};

/// A peer that never answers must not hold up the tests; nothing is measured by this.
const PATIENCE: Duration = Duration::from_secs(60);

/// `ashlar kv` on a free port, with a directory of its own.
pub(crate) struct KvServer {
    pub(crate) process: Running,
    pub(crate) address: String,
    _scratch: Scratch,
}

impl KvServer {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_as("tcp", &[&["--port", "0"], arguments].concat())
    }

    /// Waits for the door of that kind, which gives the address.
    pub(crate) fn start_as(kind: &str, arguments: &[&str]) -> Self {
        let scratch = Scratch::new();
        let mut all = vec!["kv", "--workers", "2"];
        all.extend(arguments);
        let directory = scratch.path("");
        all.extend(["--dir", &directory, "--save", ""]);
        let process = Running::start(&all, &[]);
        let line = Running::line(&process.out, &format!("Ready to accept connections {kind} on "));
        let address = line.rsplit(' ').next().expect("the line ends with the address").to_owned();
        Self { process, address, _scratch: scratch }
    }

    pub(crate) fn client(&self) -> Client<TcpStream> {
        connect(&self.address)
    }
}

pub(crate) fn connect(address: &str) -> Client<TcpStream> {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
    Client::new(stream)
}

/// One connection, of whatever kind.
pub(crate) struct Client<S: std::io::Read + Write>(BufReader<S>);

impl<S: std::io::Read + Write> Client<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self(BufReader::new(stream))
    }

    /// Says `words`, without waiting for the reply.
    pub(crate) fn send(&mut self, words: &[&str]) {
        let mut request = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| request.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        self.0.get_mut().write_all(request.as_bytes()).expect("the server reads");
        self.0.get_mut().flush().expect("the server reads");
    }

    /// Says these bytes.
    pub(crate) fn send_raw(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).expect("the server reads");
    }

    /// Whether the server has closed the connection.
    pub(crate) fn is_over(&mut self) -> bool {
        // A reset is an end too: not all that was sent was read.
        self.0.fill_buf().map_or(true, <[u8]>::is_empty)
    }

    /// Says `words` and returns the reply: scalars as they stand, arrays as their elements between blanks.
    pub(crate) fn ask(&mut self, words: &[&str]) -> String {
        self.send(words);
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
