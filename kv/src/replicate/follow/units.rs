//! The primary's stream, cut into what is done as one: a command, or a transaction.

use super::Fault;
use crate::resp::{Args, Parser, Request, RequestLimits};

/// Bytes of a transaction, or of a command, that has not come whole.
pub(super) const UNIT_BYTES_MAX: usize = 1 << 30;
/// The longest word of a command, bytes: whatever the primary takes, we take.
const WORD_BYTES_MAX: i64 = (1 << 31) - 1_024;
/// Bytes that were done and lie before those that were not.
const DONE_BYTES_MAX: usize = 64 << 10;

/// What has come of the stream and is not done.
#[derive(Debug, Default)]
pub(super) struct Units {
    buffer: Vec<u8>,
    /// Where the present unit begins.
    start: usize,
    /// Where in it the next command begins.
    next: usize,
    parser: Parser,
    /// Commands since MULTI.
    open: Option<Vec<Request>>,
}

/// What is to be done as one.
#[derive(Debug)]
pub(super) enum Unit {
    /// The command that [`Units::args`] has.
    One,
    /// Those commands.
    Many(Vec<Request>),
}

impl Units {
    /// Takes a piece of the stream.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        if self.start == self.buffer.len() || self.start > DONE_BYTES_MAX {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Bytes of what has not come whole, or was not looked at.
    pub(super) fn waiting(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// The next unit, if it has come whole. [`Units::done`] is to be called when it was done.
    ///
    /// # Errors
    /// It is no command, or is too long.
    pub(super) fn next(&mut self) -> Result<Option<Unit>, Fault> {
        loop {
            let rest = &self.buffer[self.start + self.next..];
            if rest.is_empty() {
                return Ok(None);
            }
            let limits = RequestLimits { word_bytes_max: WORD_BYTES_MAX, is_known: true };
            let len = self.parser.parse(rest, limits).map_err(|error| Fault::text(error.text()))?;
            let Some(len) = len else {
                let is_long = self.waiting() > UNIT_BYTES_MAX;
                return if is_long {
                    Err(Fault::diverged("a transaction is longer than 1 GiB: a full copy is asked for".into()))
                } else {
                    Ok(None)
                };
            };
            let args = self.parser.args(rest);
            if args.len() > 0 && args.is(0, "MULTI") {
                self.open.get_or_insert_default();
                self.next += len;
                continue;
            }
            if let Some(open) = &mut self.open {
                let is_last = args.is(0, "EXEC");
                if !is_last && args.len() > 0 {
                    open.push(Request::copy(args));
                }
                self.next += len;
                if is_last {
                    return Ok(self.open.take().map(Unit::Many));
                }
                continue;
            }
            self.next += len;
            return Ok(Some(Unit::One));
        }
    }

    /// The words of a unit that is one command.
    pub(super) fn args(&self) -> Args<'_> {
        self.parser.args(self.bytes())
    }

    /// The bytes of the present unit.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.start + self.next]
    }

    /// The present unit was done.
    pub(super) fn done(&mut self) {
        self.start += self.next;
        self.next = 0;
    }
}
