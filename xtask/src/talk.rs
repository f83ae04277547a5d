//! A connection to a server, and replies as trees of what came.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

/// A server that is silent for so long hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A reply, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reply {
    /// One value with its head and its end.
    One(Vec<u8>),
    /// A head and the values behind it.
    Many(Vec<u8>, Vec<Reply>),
}

impl Reply {
    /// For people.
    pub(crate) fn shown(&self) -> String {
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
pub(crate) struct Talk(BufReader<TcpStream>);

impl Talk {
    /// A connection to `HOST:PORT`. What takes longer than `patience` fails.
    pub(crate) fn new(address: &str, patience: Duration) -> io::Result<Self> {
        let address = address.to_socket_addrs()?.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    pub(crate) fn send(&mut self, commands: &[Vec<Vec<u8>>]) -> io::Result<()> {
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

    pub(crate) fn ask(&mut self, words: &[&str]) -> io::Result<Reply> {
        self.send(&[words.iter().map(|word| word.as_bytes().to_vec()).collect()])?;
        self.read()
    }

    pub(crate) fn read(&mut self) -> io::Result<Reply> {
        let mut head = Vec::new();
        self.0.read_until(b'\n', &mut head)?;
        if head.last() != Some(&b'\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let number = || {
            let text = std::str::from_utf8(head.get(1..)?).ok()?;
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
            _ => Ok(Reply::One(head)),
        }
    }

    fn many(&mut self, head: Vec<u8>, count: usize) -> io::Result<Reply> {
        let values = (0..count).map(|_| self.read()).collect::<io::Result<_>>()?;
        Ok(Reply::Many(head, values))
    }
}
