//! A client of key-value engines, for commands that look after them: one connection, requests in a row, replies in RESP2.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::os::{clock, dial};

/// How long a connection may take to come about.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// How long replies may take: longer than an engine waits for its cluster.
const REPLY_MAX: Duration = Duration::from_secs(15);
/// Bytes that are read at a time.
const READ_BYTES: usize = 16 << 10;
/// Bytes of replies that have not been read whole.
const REPLIES_BYTES_MAX: usize = 64 << 20;
/// Lists within lists.
const DEPTH_MAX: usize = 8;

/// What an engine answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A status or a string.
    Text(Vec<u8>),
    /// A number.
    Number(i64),
    /// Null.
    Nothing,
    /// Several.
    List(Vec<Self>),
    /// An error, as the engine words it.
    Refused(String),
}

impl Reply {
    /// The text; what an error says otherwise.
    ///
    /// # Errors
    /// The engine refused, or answered something else.
    pub fn text(self) -> Result<String, String> {
        match self {
            Self::Text(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Self::Number(number) => Ok(number.to_string()),
            Self::Refused(why) => Err(why),
            other => Err(format!("{other:?} is not the answer that was expected")),
        }
    }
}

/// A connection to an engine.
#[derive(Debug)]
pub struct Caller {
    stream: TcpStream,
    /// What came and was not read yet.
    came: Vec<u8>,
}

impl Caller {
    /// Connects to `HOST:PORT`, with a password if there is one.
    ///
    /// # Errors
    /// Nobody answers there, or the password is wrong. Retry safe.
    pub async fn connect(place: &str, password: Option<&str>) -> Result<Self, String> {
        let stream = clock::within(CONNECT_MAX, dial::connect(place)).await;
        let stream = stream.ok_or_else(|| format!("{place} does not answer"))?.map_err(|error| error.to_string())?;
        // A refused option costs speed only.
        stream.set_nodelay(true).ok();
        let mut caller = Self { stream, came: Vec::new() };
        if let Some(password) = password {
            caller.ask(&[b"AUTH", password.as_bytes()]).await?.text()?;
        }
        Ok(caller)
    }

    /// Asks one thing.
    ///
    /// # Errors
    /// The connection is of no use any more; what was asked may have been done.
    pub async fn ask(&mut self, words: &[&[u8]]) -> Result<Reply, String> {
        let mut replies = self.ask_all(&[words]).await?;
        replies.pop().ok_or_else(|| "no reply came".to_owned())
    }

    /// Asks several things, each without waiting for the one before it. Replies come in the same order.
    ///
    /// # Errors
    /// As [`Caller::ask`].
    pub async fn ask_all(&mut self, requests: &[&[&[u8]]]) -> Result<Vec<Reply>, String> {
        let mut bytes = Vec::new();
        for words in requests {
            bytes.extend(format!("*{}\r\n", words.len()).into_bytes());
            for word in *words {
                bytes.extend(format!("${}\r\n", word.len()).into_bytes());
                bytes.extend_from_slice(word);
                bytes.extend(b"\r\n");
            }
        }
        let talk = self.exchange(&bytes, requests.len());
        clock::within(REPLY_MAX, talk).await.unwrap_or_else(|| Err("no reply came in time".to_owned()))
    }

    /// Sends while it reads: an engine that has much to say reads no more before somebody listens.
    async fn exchange(&mut self, bytes: &[u8], wanted: usize) -> Result<Vec<Reply>, String> {
        let (stream, came) = (&self.stream, &mut self.came);
        let send = write(stream, bytes);
        let receive = async {
            let mut replies = Vec::with_capacity(wanted);
            loop {
                let mut taken = 0;
                while let Some((reply, len)) = read(&came[taken..], 0)? {
                    replies.push(reply);
                    taken += len;
                }
                came.drain(..taken);
                if replies.len() >= wanted {
                    return Ok(replies);
                }
                if came.len() > REPLIES_BYTES_MAX {
                    return Err("a reply is too long".to_owned());
                }
                read_some(stream, came).await?;
            }
        };
        let (sent, received) = tokio::join!(send, receive);
        sent?;
        received
    }
}

async fn write(stream: &TcpStream, mut bytes: &[u8]) -> Result<(), String> {
    while !bytes.is_empty() {
        stream.writable().await.map_err(|error| error.to_string())?;
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// Adds what comes next.
async fn read_some(stream: &TcpStream, came: &mut Vec<u8>) -> Result<(), String> {
    let mut room = [0; READ_BYTES];
    loop {
        stream.readable().await.map_err(|error| error.to_string())?;
        match stream.try_read(&mut room) {
            Ok(0) => return Err("it has closed the connection".to_owned()),
            Ok(count) => {
                came.extend_from_slice(&room[..count]);
                return Ok(());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// The reply that these bytes begin with, and its length; nothing if it is not whole.
fn read(bytes: &[u8], depth: usize) -> Result<Option<(Reply, usize)>, String> {
    let wrong = || "what answers there does not speak RESP".to_owned();
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let (kind, line) = bytes[..end].split_first().ok_or_else(wrong)?;
    let text = String::from_utf8_lossy(line).into_owned();
    let begin = end + 2;
    let number = || text.parse::<i64>().map_err(|_| wrong());
    match kind {
        b'+' => Ok(Some((Reply::Text(line.to_vec()), begin))),
        b'-' => Ok(Some((Reply::Refused(text), begin))),
        b':' => Ok(Some((Reply::Number(number()?), begin))),
        b'$' | b'*' if number()? < 0 => Ok(Some((Reply::Nothing, begin))),
        b'$' => {
            let len = usize::try_from(number()?).ok().filter(|len| *len <= REPLIES_BYTES_MAX).ok_or_else(wrong)?;
            let whole = bytes.get(begin..begin + len + 2);
            Ok(whole.map(|body| (Reply::Text(body[..len].to_vec()), begin + len + 2)))
        }
        b'*' if depth < DEPTH_MAX => {
            let (mut items, mut at) = (Vec::new(), begin);
            for _ in 0..number()? {
                let Some((item, len)) = read(&bytes[at..], depth + 1)? else { return Ok(None) };
                items.push(item);
                at += len;
            }
            Ok(Some((Reply::List(items), at)))
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_once_they_are_whole() {
        let text = |text: &str| Reply::Text(text.as_bytes().to_vec());
        let cases = [
            ("+OK\r\n", text("OK")),
            ("-ERR no\r\n", Reply::Refused("ERR no".into())),
            (":-7\r\n", Reply::Number(-7)),
            ("$-1\r\n", Reply::Nothing),
            ("$4\r\na\r\nb\r\n", text("a\r\nb")),
            ("*3\r\n$1\r\na\r\n*1\r\n:1\r\n*0\r\n", {
                Reply::List(vec![text("a"), Reply::List(vec![Reply::Number(1)]), Reply::List(Vec::new())])
            }),
        ];
        for (bytes, reply) in cases {
            assert_eq!(read(bytes.as_bytes(), 0), Ok(Some((reply, bytes.len()))), "{bytes}");
            (0..bytes.len())
                .for_each(|end| assert_eq!(read(&bytes.as_bytes()[..end], 0), Ok(None), "{bytes} to {end}"));
        }
        let deep = "*1\r\n".repeat(DEPTH_MAX + 1);
        for wrong in ["HTTP/1.1 200\r\n", "\r\n", ":x\r\n", "$99999999999\r\n", deep.as_str()] {
            assert!(read(wrong.as_bytes(), 0).is_err(), "{wrong}");
        }
    }
}
