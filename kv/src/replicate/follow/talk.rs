//! What is said between this server and its primary until the primary's stream begins: who we are, what we have, and the dump.
//!
//! A value: bytes come in, bytes go out, and [`Talk::next`] tells what was heard. It knows neither the engine nor the time.

use std::collections::VecDeque;

use super::Fault;
use crate::cluster::map::Name;
use crate::persist::journal::encode_request;
use crate::replicate::quorum::{Members, Term};

/// The longest line that is read.
const LINE_BYTES_MAX: usize = 4 << 10;
/// Letters of a history's name, and of the mark at the end of a dump.
const NAME_LETTERS: usize = 40;
/// The version that we say we are, as far as a primary cares: that whose contract this engine follows.
const VERSION: &[u8] = b"9.1.0";

/// What we say.
#[derive(Debug, Clone, Default)]
pub(super) struct Opening {
    /// Nothing where no password is needed.
    pub(super) password: Vec<u8>,
    /// The default one if it is empty.
    pub(super) user: Vec<u8>,
    /// Where we listen.
    pub(super) port: u16,
    pub(super) address: String,
    /// The history and the position that we have.
    pub(super) has: Option<(String, u64)>,
    /// Another name of that history up to that position: a primary that has its data from a time of that name knows no other.
    pub(super) has_also: Option<String>,
    /// The point that the data here are at, if this node is one of a cluster: the primary is asked whether it contains them.
    pub(super) proves: Option<(String, u64)>,
    /// The other is to become a primary.
    pub(super) hands_over: bool,
    /// Which node of a cluster we are, if we are one.
    pub(super) membership: Option<Membership>,
}

/// Who we are in our shard.
#[derive(Debug, Clone, Copy)]
pub(super) struct Membership {
    pub(super) shard: Name,
    pub(super) own: Name,
    /// The other has promised us this term, and we take over what it has.
    pub(super) copying: Option<Term>,
}

/// What a member of a shard says of its term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mandate {
    pub(super) term: Term,
    pub(super) holder: Name,
    /// Where its stream ends.
    pub(super) end: u64,
    pub(super) members: Members,
}

/// What was heard.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It serves a term.
    Mandate(Mandate),
    /// It serves none, as it said with this line.
    NoMandate(Vec<u8>),
    /// It contains our data.
    Contains,
    /// The stream goes on where we are; with a name, its history is called so.
    Continue(Option<String>),
    /// A dump follows, which is the data at a position of a history, if the primary knows such.
    Full(Option<(String, u64)>),
    /// So many bytes of dump follow, if it was said.
    Size(Option<u64>),
    /// A piece of the dump.
    Dump(Vec<u8>),
    /// The dump was whole. The stream follows.
    DumpEnd,
    /// A piece of the stream.
    Stream(Vec<u8>),
}

/// Whose turn it is to say what.
#[derive(Debug)]
enum Phase {
    /// It is to answer our PING.
    Greeting,
    /// It is to answer what we said of ourselves, in this order.
    Introducing(VecDeque<About>),
    /// It is to say what it does for PSYNC.
    Asking,
    /// It is to say how long the dump is.
    Head,
    /// The dump comes.
    Dump(Transfer),
    Stream,
}

/// What an answer is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    /// Who must not be refused.
    Password,
    /// What it need not understand.
    Us,
    /// Which term it serves.
    Mandate,
    /// Whether it contains our data.
    Contents,
    /// Whether it contains them under the other name of their history.
    ContentsAlso,
}

impl About {
    const fn is_of_contents(self) -> bool {
        matches!(self, Self::Contents | Self::ContentsAlso)
    }
}

impl Opening {
    /// The primary knows what we have by its other name, unless it has said before that it knows it by the first.
    fn go_by_other_name(&mut self) {
        if let Some(((name, _), also)) = self.has.as_mut().zip(self.has_also.take()) {
            *name = also;
        }
    }
}

/// How the end of a dump is found.
#[derive(Debug)]
enum Transfer {
    /// So many bytes are left.
    Length(u64),
    /// These bytes follow it.
    Mark([u8; NAME_LETTERS]),
}

/// The conversation.
#[derive(Debug)]
pub(super) struct Talk {
    opening: Opening,
    phase: Phase,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Talk {
    /// A connection has just been made.
    pub(super) fn new(opening: Opening) -> Self {
        let mut talk = Self { opening, phase: Phase::Greeting, input: Vec::new(), output: Vec::new() };
        talk.say(&[b"PING"]);
        talk
    }

    /// What is to be sent.
    pub(super) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Something more is to be sent.
    pub(super) fn say(&mut self, words: &[&[u8]]) {
        encode_request(words.iter().copied(), &mut self.output);
    }

    /// We are there; it means nothing else.
    pub(super) fn say_alive(&mut self) {
        self.output.push(b'\n');
    }

    /// Whether the stream has begun.
    pub(super) fn is_streaming(&self) -> bool {
        matches!(self.phase, Phase::Stream)
    }

    /// Takes what came. All of it is to be looked at by [`Talk::next`] before more comes.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// What was heard next, if anything more was.
    ///
    /// # Errors
    /// The conversation has come to an end.
    pub(super) fn next(&mut self) -> Result<Option<Heard>, Fault> {
        loop {
            let heard = match &mut self.phase {
                Phase::Stream if self.input.is_empty() => return Ok(None),
                Phase::Stream => Some(Heard::Stream(std::mem::take(&mut self.input))),
                Phase::Dump(transfer) => {
                    let (heard, is_over) = transfer.take(&mut self.input);
                    if is_over {
                        self.phase = Phase::Stream;
                    }
                    return Ok(heard);
                }
                Phase::Greeting | Phase::Introducing(_) | Phase::Asking | Phase::Head => {
                    let Some(line) = self.line()? else { return Ok(None) };
                    self.handle_line(&line)?
                }
            };
            if heard.is_some() {
                return Ok(heard);
            }
        }
    }

    /// A whole line, without its end.
    fn line(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        let Some(end) = self.input.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n') else {
            return if self.input.len() < LINE_BYTES_MAX {
                Ok(None)
            } else {
                Err(Fault::new("it sent a line too long"))
            };
        };
        let mut line: Vec<u8> = self.input.drain(..=end).collect();
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(Some(line))
    }

    fn handle_line(&mut self, line: &[u8]) -> Result<Option<Heard>, Fault> {
        match &mut self.phase {
            Phase::Greeting => self.handle_greeting(line).map(|()| None),
            Phase::Introducing(left) => {
                let about = left.pop_front();
                if about == Some(About::Password) && line.starts_with(b"-") {
                    return Err(Fault::of_line("it refused our password", line));
                }
                if about == Some(About::Mandate) {
                    let mandate = read_mandate(line)?;
                    return Ok(Some(mandate.map_or_else(|| Heard::NoMandate(line.to_vec()), Heard::Mandate)));
                }
                let contained = about.filter(|about| line == b"+YES" && about.is_of_contents());
                match contained {
                    Some(About::Contents) => self.opening.has_also = None,
                    Some(_) => self.opening.go_by_other_name(),
                    None => {}
                }
                if matches!(&self.phase, Phase::Introducing(left) if left.is_empty()) {
                    self.ask();
                }
                Ok(contained.map(|_| Heard::Contains))
            }
            Phase::Asking => self.handle_answer(line),
            Phase::Head => self.handle_head(line),
            Phase::Dump(_) | Phase::Stream => unreachable!("these have no lines"),
        }
    }

    fn handle_greeting(&mut self, line: &[u8]) -> Result<(), Fault> {
        let may_go_on = [&b"+"[..], b"-NOAUTH", b"-NOPERM", b"-ERR operation not permitted"];
        if !may_go_on.iter().any(|begin| line.starts_with(begin)) {
            return Err(Fault::of_line("it does not answer PING", line));
        }
        let Opening { password, user, port, address, .. } = self.opening.clone();
        let mut left = VecDeque::new();
        if !password.is_empty() {
            match user.is_empty() {
                true => self.say(&[b"AUTH", &password]),
                false => self.say(&[b"AUTH", &user, &password]),
            }
            left.push_back(About::Password);
        }
        let port = port.to_string();
        self.say(&[b"REPLCONF", b"listening-port", port.as_bytes()]);
        left.push_back(About::Us);
        if !address.is_empty() {
            self.say(&[b"REPLCONF", b"ip-address", address.as_bytes()]);
            left.push_back(About::Us);
        }
        if let Some(Membership { shard, own, copying }) = self.opening.membership {
            let (shard, own) = (shard.to_string(), own.to_string());
            let term = copying.map_or_else(|| "-".to_owned(), |term| term.to_string());
            let words = [&b"REPLCONF"[..], b"ASHLAR-MEMBER", own.as_bytes(), b"OF", shard.as_bytes()];
            self.say(&[&words[..], &[b"COPIES", term.as_bytes()]].concat());
            left.push_back(About::Mandate);
        }
        if let Some((history, position)) = &self.opening.proves {
            let (history, position) = (history.clone(), position.to_string());
            self.say(&[b"REPLCONF", b"ASHLAR-HAS", history.as_bytes(), b"POSITION", position.as_bytes()]);
            left.push_back(About::Contents);
            if let Some(also) = self.opening.has_also.clone() {
                self.say(&[b"REPLCONF", b"ASHLAR-HAS", also.as_bytes(), b"POSITION", position.as_bytes()]);
                left.push_back(About::ContentsAlso);
            }
        }
        self.say(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"]);
        self.say(&[b"REPLCONF", b"version", VERSION]);
        left.extend([About::Us; 2]);
        self.phase = Phase::Introducing(left);
        Ok(())
    }

    fn ask(&mut self) {
        let (history, position) = match &self.opening.has {
            // It is told the first byte that we want, counted from 1.
            Some((history, position)) => (history.clone(), position.saturating_add(1).to_string()),
            None => ("?".to_owned(), "-1".to_owned()),
        };
        let (history, position) = (history.as_bytes(), position.as_bytes());
        match self.opening.hands_over {
            true => self.say(&[b"PSYNC", history, position, b"FAILOVER"]),
            false => self.say(&[b"PSYNC", history, position]),
        }
        self.phase = Phase::Asking;
    }

    fn handle_answer(&mut self, line: &[u8]) -> Result<Option<Heard>, Fault> {
        if line.is_empty() {
            // It is there, and needs time.
            return Ok(None);
        }
        if let Some(rest) = line.strip_prefix(b"+FULLRESYNC") {
            let point = read_point(rest).ok_or_else(|| Fault::of_line("it says no position", line))?;
            self.phase = Phase::Head;
            return Ok(Some(Heard::Full(Some(point))));
        }
        if let Some(rest) = line.strip_prefix(b"+CONTINUE") {
            if self.opening.has.is_none() {
                return Err(Fault::new("it would go on where we have nothing"));
            }
            self.phase = Phase::Stream;
            return Ok(Some(Heard::Continue(read_name(rest.trim_ascii()))));
        }
        let is_passing = [&b"-NOMASTERLINK"[..], b"-LOADING"].iter().any(|begin| line.starts_with(begin));
        if is_passing || self.opening.hands_over {
            let is_refusal = self.opening.hands_over;
            return Err(Fault { is_refusal, ..Fault::of_line("it cannot serve us now", line) });
        }
        if !line.starts_with(b"-") {
            return Err(Fault::of_line("it answered PSYNC with", line));
        }
        // It knows no PSYNC, or is in trouble that SYNC tells as well.
        self.say(&[b"SYNC"]);
        self.phase = Phase::Head;
        Ok(Some(Heard::Full(None)))
    }

    fn handle_head(&mut self, line: &[u8]) -> Result<Option<Heard>, Fault> {
        if line.is_empty() {
            return Ok(None);
        }
        let wrong = || Fault::of_line("it sent no dump, but", line);
        let size = line.strip_prefix(b"$").ok_or_else(wrong)?;
        let (transfer, size) = match size.strip_prefix(b"EOF:") {
            Some(mark) => (Transfer::Mark(*mark.first_chunk().ok_or_else(wrong)?), None),
            None => {
                let size = str::from_utf8(size).ok().and_then(|size| size.parse().ok()).ok_or_else(wrong)?;
                (Transfer::Length(size), Some(size))
            }
        };
        self.phase = Phase::Dump(transfer);
        Ok(Some(Heard::Size(size)))
    }
}

impl Transfer {
    /// What of the dump has come, and whether that was the end of it.
    fn take(&mut self, input: &mut Vec<u8>) -> (Option<Heard>, bool) {
        let ready = match self {
            Self::Length(0) => return (Some(Heard::DumpEnd), true),
            Self::Length(left) => {
                let ready = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left -= ready as u64;
                ready
            }
            Self::Mark(mark) => match input.windows(NAME_LETTERS).position(|part| part == mark) {
                Some(0) => {
                    input.drain(..NAME_LETTERS);
                    return (Some(Heard::DumpEnd), true);
                }
                Some(at) => at,
                // The mark may have come in part.
                None => input.len().saturating_sub(NAME_LETTERS - 1),
            },
        };
        let piece: Vec<u8> = input.drain(..ready).collect();
        (if piece.is_empty() { None } else { Some(Heard::Dump(piece)) }, false)
    }
}

/// `+TERM TERM HOLDER END MEMBERS`; anything else that is no passing trouble is a primary without terms.
fn read_mandate(line: &[u8]) -> Result<Option<Mandate>, Fault> {
    if line.starts_with(b"-NOMASTERLINK") || line.starts_with(b"-STALETERM") {
        return Err(Fault::of_line("it does not serve our shard now", line));
    }
    let Some(rest) = line.strip_prefix(b"+TERM ") else { return Ok(None) };
    let mandate = str::from_utf8(rest).ok().and_then(|text| {
        let words: Vec<&str> = text.trim_end().split(' ').collect();
        let [term, holder, end, members] = words[..] else { return None };
        Some(Mandate {
            term: Term::read(term)?,
            holder: holder.parse().ok()?,
            end: end.parse().ok()?,
            members: Members::read(members)?,
        })
    });
    mandate.map(Some).ok_or_else(|| Fault::of_line("it says a term that makes no sense", line))
}

/// ` HISTORY POSITION`.
fn read_point(text: &[u8]) -> Option<(String, u64)> {
    let text = str::from_utf8(text).ok()?.trim();
    let (name, position) = text.split_once(' ')?;
    Some((read_name(name.as_bytes())?, position.parse().ok()?))
}

/// A history's name.
fn read_name(word: &[u8]) -> Option<String> {
    let is_one = word.len() == NAME_LETTERS && word.iter().all(u8::is_ascii_alphanumeric);
    is_one.then(|| String::from_utf8_lossy(word).into_owned())
}
