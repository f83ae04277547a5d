//! Streams as their users hold them: a half to send, a half to receive.
//!
//! What arrives is kept until its reader takes it; the sender feels a slow reader through the window. Letting go of a
//! stream that has not ended cancels it at both ends.

use core::future::poll_fn;
use core::task::Poll;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::StreamError;
use crate::link::Link;
use crate::mux::streams::{StreamKey, cost};

/// Consumption is reported to the mux at least after this many bytes.
const REPORT_BYTES: u64 = 32 * 1024;

/// Keeps a stream of ours alive; the last half to go releases it.
#[derive(Debug)]
struct Owner {
    link: Arc<Link>,
    key: StreamKey,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.link.lock().release_stream(self.key);
    }
}

/// The sending half.
#[derive(Debug)]
pub struct Sender {
    link: Arc<Link>,
    key: StreamKey,
    _owner: Option<Arc<Owner>>,
}

impl Sender {
    /// Sends one message; waits while the receiver's window is full. On return it is queued here; the stream's end
    /// tells whether all arrived. Cancel-safe: a message is sent whole or not at all.
    ///
    /// # Errors
    /// The stream has ended; what was sent before may not have arrived.
    pub async fn send(&mut self, message: &[u8]) -> Result<(), StreamError> {
        poll_fn(|cx| self.link.lock().poll_send(self.key, message, cx)).await
    }

    /// Ends this direction in order: the receiver sees the end after the last message. The other direction goes on.
    ///
    /// # Errors
    /// The stream has ended otherwise.
    pub async fn finish(&mut self) -> Result<(), StreamError> {
        poll_fn(|cx| self.link.lock().poll_finish(self.key, cx)).await
    }
}

/// The receiving half.
#[derive(Debug)]
pub struct Receiver {
    link: Arc<Link>,
    key: StreamKey,
    inbox: VecDeque<Vec<u8>>,
    /// Cost of messages taken out of `inbox` and not yet reported.
    consumed: u64,
    _owner: Option<Arc<Owner>>,
}

impl Receiver {
    /// The next message; `None` after the sender's orderly end, when every message that it sent has been returned
    /// here. Cancel-safe.
    ///
    /// # Errors
    /// Any other end: what was returned before is a prefix of what was sent.
    pub async fn receive(&mut self) -> Result<Option<Vec<u8>>, StreamError> {
        if let Some(message) = self.next_ready() {
            return Ok(Some(message));
        }
        let end = poll_fn(|cx| {
            let mut mux = self.link.lock();
            if self.consumed > 0 {
                mux.consumed(self.key, core::mem::take(&mut self.consumed));
            }
            match mux.poll_receive(self.key, &mut self.inbox, cx) {
                Poll::Ready(end) => Poll::Ready(end),
                Poll::Pending => Poll::Pending,
            }
        });
        match end.await {
            Some(Ok(())) => Ok(None),
            Some(Err(error)) => Err(error),
            None => Ok(self.next_ready()),
        }
    }

    /// A message that is here already, without waiting.
    pub fn next_ready(&mut self) -> Option<Vec<u8>> {
        let message = self.inbox.pop_front()?;
        self.consumed += cost(message.len());
        if self.consumed >= REPORT_BYTES {
            self.link.lock().consumed(self.key, core::mem::take(&mut self.consumed));
        }
        Some(message)
    }
}

/// A stream that this server opened.
#[derive(Debug)]
pub struct ClientStream {
    /// To the handler.
    pub sender: Sender,
    /// From the handler.
    pub receiver: Receiver,
}

impl ClientStream {
    pub(crate) fn new(link: Arc<Link>, key: StreamKey) -> Self {
        let owner = Arc::new(Owner { link: link.clone(), key });
        Self {
            sender: Sender { link: link.clone(), key, _owner: Some(owner.clone()) },
            receiver: Receiver { link, key, inbox: VecDeque::new(), consumed: 0, _owner: Some(owner) },
        }
    }
}

/// A stream that a peer opened, as its handler holds it. The handler's return ends it.
#[derive(Debug)]
pub struct ServerStream {
    /// To the initiator.
    pub sender: Sender,
    /// From the initiator.
    pub receiver: Receiver,
}

impl ServerStream {
    pub(crate) fn new(link: &Arc<Link>, key: StreamKey) -> Self {
        Self {
            sender: Sender { link: link.clone(), key, _owner: None },
            receiver: Receiver { link: link.clone(), key, inbox: VecDeque::new(), consumed: 0, _owner: None },
        }
    }
}
