//! Bodies between hyper and the service, buffer by buffer, without copying.

use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::io;
use std::time::Duration;

use ashlar_object::api::{BoxFuture, Content, Error};
use ashlar_object::s3::ResponseBody;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};

use super::account::Account;
use crate::os::clock;

/// The body of a request. A client that is too slow, or gone, has lost it.
pub(super) struct IncomingBody {
    body: Incoming,
    pause_max: Duration,
    received: u64,
    is_asked: bool,
    is_lost: bool,
}

impl IncomingBody {
    /// The body of a client that may stop for so long.
    pub(super) fn new(body: Incoming, pause_max: Duration) -> Self {
        Self { body, pause_max, received: 0, is_asked: false, is_lost: false }
    }

    /// Whether all of it was read.
    pub(super) fn has_ended(&self) -> bool {
        !self.is_lost && self.body.is_end_stream()
    }

    /// Bytes that were read.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Whether any of it was asked for. hyper has then invited a client that waits for `100 Continue`.
    pub(super) fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// Reads the rest of it, up to so many bytes. Whether that was all.
    pub(super) async fn discard(&mut self, bytes_max: u64) -> bool {
        let mut left = bytes_max;
        while let Ok(next) = self.next_data().await {
            let Some(bytes) = next else { return true };
            let Some(rest) = left.checked_sub(bytes.len() as u64) else { return false };
            left = rest;
        }
        false
    }

    async fn next_data(&mut self) -> Result<Option<Bytes>, Error> {
        if self.is_lost {
            return Err(Error::BodyLost);
        }
        self.is_asked = true;
        loop {
            match clock::within(self.pause_max, self.body.frame()).await {
                Some(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => {
                        self.received += data.len() as u64;
                        return Ok(Some(data));
                    }
                    _ => {}
                },
                Some(None) => return Ok(None),
                Some(Some(Err(_))) | None => {
                    self.is_lost = true;
                    return Err(Error::BodyLost);
                }
            }
        }
    }
}

impl Content for IncomingBody {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, Error>> {
        Box::pin(self.next_data())
    }
}

/// The next buffer of a content, and the content to ask again.
type Fetching = Pin<Box<dyn Future<Output = (Box<dyn Content>, Result<Option<Bytes>, Error>)> + Send>>;

/// The body of a reply.
pub(super) struct OutgoingBody {
    state: OutgoingState,
    bytes_left: u64,
    /// Ends with this value: when all is sent, or nobody is there any more.
    account: Account,
}

enum OutgoingState {
    Whole(Bytes),
    Fetching(Fetching),
    Done,
}

impl OutgoingBody {
    /// The body that the service answers with.
    pub(super) fn new(body: ResponseBody, account: Account) -> Self {
        let (state, bytes_left) = match body {
            ResponseBody::Whole(bytes) => {
                let len = bytes.len() as u64;
                (OutgoingState::Whole(bytes), len)
            }
            ResponseBody::Content(content, bytes) if bytes > 0 => (OutgoingState::Fetching(fetch(content)), bytes),
            ResponseBody::Empty | ResponseBody::Content(..) => (OutgoingState::Done, 0),
        };
        Self { state, bytes_left, account }
    }

    /// A body that breaks off closes the connection: the client sees that it is not whole.
    fn break_off(&mut self, error: Error) -> io::Error {
        tracing::warn!(%error, left = self.bytes_left, "the body of an S3 reply breaks off");
        self.state = OutgoingState::Done;
        io::Error::other(error)
    }
}

fn fetch(mut content: Box<dyn Content>) -> Fetching {
    Box::pin(async move {
        let next = content.next().await;
        (content, next)
    })
}

impl Body for OutgoingBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let (content, next) = match &mut self.state {
            OutgoingState::Done => return Poll::Ready(None),
            OutgoingState::Whole(bytes) => {
                let bytes = core::mem::take(bytes);
                (self.state, self.bytes_left) = (OutgoingState::Done, 0);
                self.account.note_sent(bytes.len());
                return Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))));
            }
            OutgoingState::Fetching(fetching) => ready!(fetching.as_mut().poll(cx)),
        };
        let bytes = match next {
            Ok(Some(bytes)) => bytes,
            // Too few bytes: the service has promised more.
            Ok(None) => return Poll::Ready(Some(Err(self.break_off(Error::Damaged)))),
            Err(error) => return Poll::Ready(Some(Err(self.break_off(error)))),
        };
        let Some(left) = self.bytes_left.checked_sub(bytes.len() as u64) else {
            return Poll::Ready(Some(Err(self.break_off(Error::Damaged))));
        };
        self.bytes_left = left;
        self.account.note_sent(bytes.len());
        self.state = if left == 0 { OutgoingState::Done } else { OutgoingState::Fetching(fetch(content)) };
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, OutgoingState::Done)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_left)
    }
}
