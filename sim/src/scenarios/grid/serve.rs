//! What every server answers.
//!
//! A request says how it wants to be answered, and carries bytes that follow from its id, so that both ends can tell
//! one request's bytes from any other's.

use core::time::Duration;
use std::sync::Arc;

use ashlar_grid::error::{Refusal, StreamError};
use ashlar_grid::handler::{CallContext, HandlerId, Handlers, Method, RegisteredTwice};
use ashlar_grid::seam::Runtime;
use ashlar_grid::stream::ServerStream;

use super::book::{Book, pattern};
use crate::world::SimRuntime;

/// A stream with a pattern that its reader checks.
pub(super) const PATTERN: HandlerId = HandlerId::new(8);

/// Refusals of these handlers: the request asked for it.
pub(super) const ASKED_FOR: u32 = 77;
/// The stream's handler saw its stream fail.
pub(super) const STREAM_FAILED: u32 = 79;

/// Routes on which delayed answers are served too.
pub(super) const ROUTES: [&str; 2] = ["drive-0", "drive-1"];

/// Index of the bytes of an answer in [`pattern`].
pub(super) const ANSWER: u64 = u64::MAX;
const BODY: u64 = u64::MAX - 1;

/// Answered at once with itself.
pub(super) struct Echo;

impl Method for Echo {
    const ID: HandlerId = HandlerId::new(1);
    const IDEMPOTENT: bool = true;
    type Request = Vec<u8>;
    type Reply = Vec<u8>;
}

/// Answered or refused after a delay; may run any number of times.
pub(super) struct Delayed;

impl Method for Delayed {
    const ID: HandlerId = HandlerId::new(6);
    const IDEMPOTENT: bool = true;
    type Request = Vec<u8>;
    type Reply = Vec<u8>;
}

/// Answered or refused after a delay; must run at most once.
pub(super) struct Counted;

impl Method for Counted {
    const ID: HandlerId = HandlerId::new(7);
    type Request = Vec<u8>;
    type Reply = Vec<u8>;
}

/// A request for an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask {
    pub(super) id: u64,
    pub(super) refuse: bool,
    pub(super) delay_us: u32,
    pub(super) answer_len: u32,
}

impl Ask {
    const LEN: usize = 17;

    /// Its written form with `body_len` bytes behind it.
    pub(super) fn encode(self, body_len: usize) -> Vec<u8> {
        let mut bytes = self.id.to_le_bytes().to_vec();
        bytes.push(u8::from(self.refuse));
        bytes.extend(self.delay_us.to_le_bytes());
        bytes.extend(self.answer_len.to_le_bytes());
        bytes.extend(pattern(self.id, BODY, body_len));
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, body) = bytes.split_at_checked(Self::LEN)?;
        let ask = Self {
            id: u64::from_le_bytes(head[0..8].try_into().ok()?),
            refuse: head[8] == 1,
            delay_us: u32::from_le_bytes(head[9..13].try_into().ok()?),
            answer_len: u32::from_le_bytes(head[13..17].try_into().ok()?),
        };
        (body == pattern(ask.id, BODY, body.len())).then_some(ask)
    }

    /// What the caller must get.
    pub(super) fn answer(self) -> Vec<u8> {
        pattern(self.id, ANSWER, self.answer_len as usize)
    }
}

/// Which way a stream's messages go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// From the handler.
    Down,
    /// To the handler; in the end it answers once, with the number of messages.
    Up,
    /// To the handler and back.
    Both,
}

/// The initial payload of a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamAsk {
    pub(super) id: u64,
    pub(super) way: Way,
    pub(super) messages: u32,
    pub(super) message_len: u32,
    /// The handler waits this long between messages.
    pub(super) pause_us: u32,
    /// The handler refuses to go on after so many messages.
    pub(super) refuse_at: Option<u32>,
}

impl StreamAsk {
    pub(super) fn encode(self) -> Vec<u8> {
        let mut bytes = self.id.to_le_bytes().to_vec();
        bytes.push(self.way as u8);
        for word in [self.messages, self.message_len, self.pause_us, self.refuse_at.unwrap_or(u32::MAX)] {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let refuse_at = word(21)?;
        Some(Self {
            id: u64::from_le_bytes(bytes.get(0..8)?.try_into().ok()?),
            way: [Way::Down, Way::Up, Way::Both].into_iter().find(|way| *way as u8 == bytes[8])?,
            messages: word(9)?,
            message_len: word(13)?,
            pause_us: word(17)?,
            refuse_at: (refuse_at != u32::MAX).then_some(refuse_at),
        })
    }

    /// Message `index` of the stream; lengths differ within it.
    pub(super) fn message(self, index: u32) -> Vec<u8> {
        let len = self.message_len * (index % 3 + 1) / 3;
        pattern(self.id, u64::from(index), len as usize)
    }
}

/// All handlers of one life of a server.
pub(super) fn handlers(runtime: &SimRuntime, book: &Arc<Book>) -> Result<Handlers, RegisteredTwice> {
    let (on_delayed, on_counted) = (Answers::new(runtime, book, false), Answers::new(runtime, book, true));
    let (routed, streams) = (on_delayed.clone(), on_delayed.clone());
    let mut handlers = Handlers::new()
        .inline::<Echo>(|_, request| Ok(request))?
        .serve::<Delayed, _>(move |context, request| on_delayed.clone().answer(context, request))?
        .serve::<Counted, _>(move |context, request| on_counted.clone().answer(context, request))?
        .stream(PATTERN, move |_, initial, stream| streams.clone().stream(initial, stream))?;
    for route in ROUTES {
        let answers = routed.clone();
        handlers =
            handlers.serve_on::<Delayed, _>(route, move |context, request| answers.clone().answer(context, request))?;
    }
    Ok(handlers)
}

#[derive(Clone)]
struct Answers {
    runtime: SimRuntime,
    book: Arc<Book>,
    counted: bool,
}

impl Answers {
    fn new(runtime: &SimRuntime, book: &Arc<Book>, counted: bool) -> Self {
        Self { runtime: runtime.clone(), book: Arc::clone(book), counted }
    }

    async fn pause(&self, micros: u32) {
        if micros > 0 {
            self.runtime.sleep_until(self.runtime.now() + Duration::from_micros(u64::from(micros))).await;
        }
    }

    async fn answer(self, _context: CallContext, request: Vec<u8>) -> Result<Vec<u8>, Refusal> {
        let _running = self.book.run("served calls");
        let Some(ask) = Ask::decode(&request) else {
            self.book.wrong("a handler got bytes that nobody sent");
            return Err(Refusal::new(0, ""));
        };
        if self.counted {
            self.book.ran(ask.id);
        }
        self.pause(ask.delay_us).await;
        if ask.refuse { Err(Refusal::new(ASKED_FOR, ask.id.to_string())) } else { Ok(ask.answer()) }
    }

    async fn stream(self, initial: Vec<u8>, mut stream: ServerStream) -> Result<(), Refusal> {
        let _running = self.book.run("served streams");
        let Some(ask) = StreamAsk::decode(&initial) else {
            self.book.wrong("a stream's handler got bytes that nobody sent");
            return Err(Refusal::new(0, ""));
        };
        let done = match ask.way {
            Way::Down => self.down(ask, &mut stream).await,
            Way::Up | Way::Both => self.up(ask, &mut stream).await,
        };
        match done {
            Ok(()) => Ok(()),
            Err(StreamError::Refused(refusal)) if refusal.code == ASKED_FOR => Err(refusal),
            Err(error) => Err(Refusal::new(STREAM_FAILED, error.to_string())),
        }
    }

    fn refuse_at(ask: StreamAsk, index: u32) -> Result<(), StreamError> {
        if ask.refuse_at == Some(index) {
            return Err(StreamError::Refused(Refusal::new(ASKED_FOR, ask.id.to_string())));
        }
        Ok(())
    }

    async fn down(&self, ask: StreamAsk, stream: &mut ServerStream) -> Result<(), StreamError> {
        for index in 0..ask.messages {
            Self::refuse_at(ask, index)?;
            self.pause(ask.pause_us).await;
            stream.sender.send(&ask.message(index)).await?;
        }
        Ok(())
    }

    async fn up(&self, ask: StreamAsk, stream: &mut ServerStream) -> Result<(), StreamError> {
        let mut index = 0;
        while let Some(message) = stream.receiver.receive().await? {
            Self::refuse_at(ask, index)?;
            if message != ask.message(index) {
                self.book.wrong(format_args!("stream {} up: message {index} is not the one that was sent", ask.id));
            }
            if ask.way == Way::Both {
                stream.sender.send(&message).await?;
            }
            index += 1;
            self.pause(ask.pause_us).await;
        }
        if index != ask.messages {
            let (id, sent) = (ask.id, ask.messages);
            self.book.wrong(format_args!("stream {id} up ended in order after {index} of {sent} messages"));
        }
        if ask.way == Way::Up {
            stream.sender.send(&index.to_le_bytes()).await?;
        }
        Ok(())
    }
}
