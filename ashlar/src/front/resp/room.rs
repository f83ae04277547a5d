//! Room for requests and replies: one of each for a thread, lent to the connection that it serves just now.
//!
//! So what one connection leaves in the processor's caches is warm for the next one, and a connection that is idle keeps no
//! room at all: only a request that has not come whole, and replies that its client does not take.

use std::cell::Cell;
use std::io;
use std::task::{Context, Poll, ready};

use ashlar_kv::Session;

use super::socket::Socket;

/// What is read at once, bytes: a batch of a hundred requests with values of half a kibibyte.
const INPUT_BYTES: usize = 64 << 10;
/// A request that has come up to here is added to where it lies; a shorter one is put in front of what comes.
const SHORT_BYTES_MAX: usize = 8 << 10;
/// Room for replies that is kept for the next connection, bytes.
const REPLIES_BYTES_MAX: usize = 128 << 10;

thread_local! {
    static INPUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    static REPLIES: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// What came, behind what had come before of the same request. Dropping it gives the room back.
#[derive(Debug)]
pub(super) struct Came {
    room: Vec<u8>,
    len: usize,
}

impl Came {
    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.room[..self.len]
    }
}

impl Drop for Came {
    fn drop(&mut self) {
        INPUT.set(std::mem::take(&mut self.room));
    }
}

/// Reads what is there, and puts a short `rest` before it; a long one is to be put there by the caller. No bytes are the end.
pub(super) fn poll_read<S: Socket>(
    stream: &mut S,
    rest: &mut Vec<u8>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<Option<Came>>> {
    let mut came = Came { room: INPUT.take(), len: 0 };
    came.room.resize(INPUT_BYTES, 0);
    let start = if is_short(rest) { rest.len() } else { 0 };
    let count = ready!(stream.poll_read(cx, &mut came.room[start..]))?;
    if count == 0 {
        return Poll::Ready(Ok(None));
    }
    came.room[..start].copy_from_slice(&rest[..start]);
    rest.drain(..start);
    came.len = start + count;
    Poll::Ready(Ok(Some(came)))
}

fn is_short(rest: &[u8]) -> bool {
    rest.len() <= SHORT_BYTES_MAX
}

/// Lends a session room for replies, if it has none.
pub(super) fn lend(session: &mut Session) {
    let spare = session.lend_room(REPLIES.take());
    REPLIES.set(spare);
}

/// Takes it back once all replies have left.
pub(super) fn take_back(session: &mut Session) {
    let room = session.take_room();
    if (1..=REPLIES_BYTES_MAX).contains(&room.capacity()) {
        REPLIES.set(room);
    }
}
