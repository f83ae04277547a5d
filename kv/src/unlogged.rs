//! Replies of one connection that tell of writes which the append log does not have yet.
//!
//! A command runs, appends to the journal, and writes its reply; then the log is written, and the reply leaves. If the log cannot
//! be written in between, the client must not be told that its write was done: an error takes the place of the reply. The write stands in
//! memory, and is written once that is possible: until then a restart loses it, and the error says so.

use std::ops::Range;

/// Room that a connection keeps for places of replies.
const REPLIES_KEPT: usize = 256;

/// Where these replies are in the buffer.
#[derive(Debug, Default)]
pub(crate) struct Unlogged {
    /// In order. Empty ones are of commands whose replies nobody wants.
    replies: Vec<Range<usize>>,
    /// Where the journal ended after the last of them.
    end: u64,
    /// There is one whose place is not known.
    is_hidden: bool,
}

impl Unlogged {
    /// The last reply tells of a write.
    pub(crate) fn note(&mut self, reply: Range<usize>, end: u64) {
        self.replies.push(reply);
        self.end = end;
    }

    /// Among what others have left for the client is a reply that tells of a write.
    pub(crate) fn note_hidden(&mut self, end: u64) {
        (self.is_hidden, self.end) = (true, end);
    }

    /// Where the journal ended after the last of these writes; 0 if there is none.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Bytes were put into the buffer before what begins at a place.
    pub(crate) fn handle_inserted(&mut self, at: usize, len: usize) {
        for reply in self.replies.iter_mut().rev().take_while(|reply| reply.start >= at) {
            *reply = reply.start + len..reply.end + len;
        }
    }

    /// The log has all of them, or the client was told otherwise.
    pub(crate) fn clear(&mut self) {
        if self.end > 0 {
            self.replies.clear();
            self.replies.shrink_to(REPLIES_KEPT);
            (self.end, self.is_hidden) = (0, false);
        }
    }

    /// Puts errors in place of these replies, of which the first `sent` bytes have left. Returns whether that is all: if not,
    /// the connection must end without them.
    #[must_use]
    pub(crate) fn replace(&mut self, buffer: &mut Vec<u8>, sent: usize, why: &str) -> bool {
        let why: String = why.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
        let error = format!(
            "-MISCONF Errors writing to the AOF file: {why}. The command was carried out in memory. It is lost if the server \
             restarts before the file can be written again.\r\n"
        );
        let (mut from, mut replaced) = (0, Vec::new());
        for reply in self.replies.iter().filter(|reply| !reply.is_empty()) {
            if reply.start < sent || self.is_hidden {
                return false;
            }
            replaced.extend_from_slice(&buffer[from..reply.start]);
            replaced.extend_from_slice(error.as_bytes());
            from = reply.end;
        }
        replaced.extend_from_slice(&buffer[from..]);
        *buffer = replaced;
        !self.is_hidden
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_take_the_place_of_replies() {
        let mut buffer = b"+PONG\r\n+OK\r\n$1\r\nx\r\n:1\r\n".to_vec();
        let mut unlogged = Unlogged::default();
        unlogged.note(7..12, 50);
        unlogged.note(12..12, 55);
        unlogged.note(19..23, 60);
        assert_eq!(unlogged.end(), 60);
        // A message is put before the last reply.
        buffer.splice(19..19, *b"+M\r\n");
        unlogged.handle_inserted(19, 4);
        assert!(unlogged.replace(&mut buffer, 7, "no\r\nspace"));
        let text = String::from_utf8(buffer).unwrap();
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!((lines.len(), lines[0]), (7, "+PONG"), "{text}");
        assert!(
            lines[1].starts_with("-MISCONF Errors writing to the AOF file: no  space. The command was carried out")
        );
        assert_eq!((lines[2], lines[3], lines[4], lines[5]), ("$1", "x", "+M", lines[1]));
        unlogged.clear();
        assert_eq!(unlogged.end(), 0);
    }

    #[test]
    fn what_cannot_be_replaced_ends_the_connection() {
        let mut unlogged = Unlogged::default();
        unlogged.note(0..5, 1);
        assert!(!unlogged.replace(&mut b"+OK\r\n".to_vec(), 2, "full"), "a part of it has left");
        unlogged.clear();
        unlogged.note_hidden(7);
        assert!(!unlogged.replace(&mut b"+OK\r\n".to_vec(), 0, "full"));
    }
}
