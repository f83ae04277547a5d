//! A connection to a server, and replies as trees of what came.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// A server that is silent for so long hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// A reply, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reply {
    /// One value with its head and its end.
    One(Vec<u8>),
    /// A head and the values behind it.
    Many(Vec<u8>, Vec<Reply>),
}

impl Reply {
    /// For people.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::One(bytes) => bytes.escape_ascii().to_string(),
            Self::Many(head, values) => {
                let values: Vec<String> = values.iter().map(Self::shown).collect();
                format!("{}[{}]", head.escape_ascii(), values.join(" "))
            }
        }
    }
}

/// One connection.
pub(super) struct Talk(BufReader<TcpStream>);

impl Talk {
    pub(super) fn new(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    pub(super) fn send(&mut self, commands: &[Vec<Vec<u8>>]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for words in commands {
            bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
            for word in words {
                bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                bytes.extend_from_slice(word);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        self.0.get_mut().write_all(&bytes)
    }

    pub(super) fn ask(&mut self, words: &[&str]) -> io::Result<Reply> {
        self.send(&[words.iter().map(|word| word.as_bytes().to_vec()).collect()])?;
        self.read()
    }

    pub(super) fn read(&mut self) -> io::Result<Reply> {
        let mut head = Vec::new();
        self.0.read_until(b'\n', &mut head)?;
        let number = || {
            let text = std::str::from_utf8(&head[1..]).ok()?;
            text.trim_end().parse::<usize>().ok()
        };
        match (head.first(), number()) {
            (Some(b'$' | b'=' | b'!'), Some(bytes)) => {
                let from = head.len();
                head.resize(from + bytes + 2, 0);
                self.0.read_exact(&mut head[from..])?;
                Ok(Reply::One(head))
            }
            (Some(b'*' | b'~' | b'>'), Some(count)) => self.many(head, count),
            (Some(b'%'), Some(count)) => self.many(head, 2 * count),
            (None, _) => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(Reply::One(head)),
        }
    }

    fn many(&mut self, head: Vec<u8>, count: usize) -> io::Result<Reply> {
        let values = (0..count).map(|_| self.read()).collect::<io::Result<_>>()?;
        Ok(Reply::Many(head, values))
    }
}
