//! Replies: RESP2 and RESP3 from the same calls.
//!
//! A [`Reply`] appends to one buffer per connection. What only RESP3 knows (maps, sets, doubles, booleans, pushes) is written
//! to a RESP2 client as what Valkey sends it: flat arrays, bulk strings, integers.

use super::number::Decimal;

/// Which version a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Protocol {
    /// What every client begins with.
    #[default]
    Resp2,
    /// After `HELLO 3`.
    Resp3,
}

/// Small array and bulk headers, as they are written most often.
const SMALL: usize = 32;
const fn headers(kind: u8) -> [[u8; 5]; SMALL] {
    let mut all = [[kind, b'0', b'0', b'\r', b'\n']; SMALL];
    let mut at = 0;
    while at < SMALL {
        #[expect(clippy::cast_possible_truncation, reason = "digits are below ten")]
        let (ten, one) = ((at / 10) as u8, (at % 10) as u8);
        all[at][1] = b'0' + ten;
        all[at][2] = b'0' + one;
        at += 1;
    }
    all
}
static BULK_HEADERS: [[u8; 5]; SMALL] = headers(b'$');

/// A place in a reply where a length is written later.
#[derive(Debug)]
#[must_use = "the reply lacks its length until it is given to `Reply::finish`"]
pub(crate) struct Later {
    at: usize,
    kind: u8,
}

/// Where a reply stood, to go back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark(usize);

/// Replies of one connection that have not left yet.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    out: Vec<u8>,
    protocol: Protocol,
}

impl Reply {
    /// A new buffer for a client that speaks `protocol`.
    pub(crate) fn new(protocol: Protocol) -> Self {
        Self { out: Vec::new(), protocol }
    }

    /// Which version is written.
    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Writes that version from now on.
    pub(crate) fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// What was written.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.out
    }

    /// The buffer itself, to be emptied by whoever sends it.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Where it stands.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.out.len())
    }

    /// How many bytes were written since.
    pub(crate) fn len_since(&self, mark: Mark) -> usize {
        self.out.len() - mark.0
    }

    /// What was written since.
    pub(crate) fn since(&self, mark: Mark) -> &[u8] {
        &self.out[mark.0..]
    }

    /// Takes back what was written since.
    pub(crate) fn rewind(&mut self, mark: Mark) {
        self.out.truncate(mark.0);
    }

    /// Bytes that are a whole reply already.
    pub(crate) fn raw(&mut self, reply: &[u8]) {
        self.out.extend_from_slice(reply);
    }

    /// Puts bytes that are whole replies before what was written since.
    pub(crate) fn insert(&mut self, mark: Mark, replies: &[u8]) {
        self.raw(replies);
        self.out[mark.0..].rotate_right(replies.len());
    }

    /// A short word or sentence.
    pub(crate) fn status(&mut self, text: &str) {
        self.out.push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    /// `+OK`.
    pub(crate) fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// An error: its code, a space, a sentence. Line ends in it become spaces.
    pub(crate) fn error(&mut self, text: &str) {
        self.out.push(b'-');
        let start = self.out.len();
        self.out.extend_from_slice(text.trim_end_matches(['\r', '\n']).as_bytes());
        self.out[start..].iter_mut().filter(|byte| matches!(byte, b'\r' | b'\n')).for_each(|byte| *byte = b' ');
        self.out.extend_from_slice(b"\r\n");
    }

    /// An integer.
    pub(crate) fn integer(&mut self, value: i64) {
        match value {
            0 => self.out.extend_from_slice(b":0\r\n"),
            1 => self.out.extend_from_slice(b":1\r\n"),
            _ => self.number(b':', value),
        }
    }

    /// A count.
    ///
    /// # Panics
    /// It is above 2^63, which nothing in memory is.
    pub(crate) fn count(&mut self, value: usize) {
        self.integer(i64::try_from(value).expect("counts of things in memory fit 63 bits"));
    }

    /// A byte string.
    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        self.out.reserve(bytes.len() + 16);
        match bytes.len() {
            len @ 0..10 => {
                let header = BULK_HEADERS[len];
                self.out.extend_from_slice(&[b'$', header[2], b'\r', b'\n']);
            }
            len @ 10..SMALL => self.out.extend_from_slice(&BULK_HEADERS[len]),
            len => self.header(b'$', len),
        }
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// An integer as a byte string.
    pub(crate) fn bulk_integer(&mut self, value: i64) {
        self.bulk(Decimal::new(value).as_bytes());
    }

    /// Text for people: RESP3 marks it as such.
    pub(crate) fn verbatim(&mut self, format: &str, text: &[u8]) {
        if self.protocol == Protocol::Resp2 {
            return self.bulk(text);
        }
        assert_eq!(format.len(), 3, "RESP3 wants three letters");
        self.header(b'=', text.len() + 4);
        self.out.extend_from_slice(format.as_bytes());
        self.out.push(b':');
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Nothing, where a value was asked for.
    pub(crate) fn null(&mut self) {
        self.out.extend_from_slice(if self.protocol == Protocol::Resp2 { b"$-1\r\n" } else { b"_\r\n" });
    }

    /// Nothing, where an array was asked for.
    pub(crate) fn null_array(&mut self) {
        self.out.extend_from_slice(if self.protocol == Protocol::Resp2 { b"*-1\r\n" } else { b"_\r\n" });
    }

    /// A floating point number, whose text is given; a byte string in RESP2.
    pub(crate) fn double(&mut self, text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                self.out.push(b',');
                self.out.extend_from_slice(text);
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Yes or no; an integer in RESP2.
    pub(crate) fn boolean(&mut self, is_true: bool) {
        match self.protocol {
            Protocol::Resp2 => self.integer(i64::from(is_true)),
            Protocol::Resp3 => self.out.extend_from_slice(if is_true { b"#t\r\n" } else { b"#f\r\n" }),
        }
    }

    /// An integer of any length, whose text is given; a byte string in RESP2.
    pub(crate) fn big_number(&mut self, text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                self.out.push(b'(');
                self.out.extend_from_slice(text);
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// The head of an array; its `len` elements follow.
    pub(crate) fn array(&mut self, len: usize) {
        self.header(b'*', len);
    }

    /// The head of a map; its `len` pairs follow.
    pub(crate) fn map(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', len * 2),
            Protocol::Resp3 => self.header(b'%', len),
        }
    }

    /// The head of a set; its `len` members follow.
    pub(crate) fn set(&mut self, len: usize) {
        self.header(if self.protocol == Protocol::Resp2 { b'*' } else { b'~' }, len);
    }

    /// The head of something that was not asked for: an array in RESP2.
    pub(crate) fn push(&mut self, len: usize) {
        self.header(if self.protocol == Protocol::Resp2 { b'*' } else { b'>' }, len);
    }

    /// An array whose length is known later.
    pub(crate) fn array_later(&mut self) -> Later {
        Later { at: self.out.len(), kind: b'*' }
    }

    /// A map whose length is known later.
    pub(crate) fn map_later(&mut self) -> Later {
        Later { at: self.out.len(), kind: b'%' }
    }

    /// A set whose length is known later.
    pub(crate) fn set_later(&mut self) -> Later {
        Later { at: self.out.len(), kind: if self.protocol == Protocol::Resp2 { b'*' } else { b'~' } }
    }

    /// The elements, or pairs of a map, that have been written since.
    pub(crate) fn finish(&mut self, Later { at, kind }: Later, len: usize) {
        let (kind, len) = match (kind, self.protocol) {
            (b'%', Protocol::Resp2) => (b'*', len * 2),
            (kind, _) => (kind, len),
        };
        let end = self.out.len();
        self.header(kind, len);
        let header = self.out.len() - end;
        self.out[at..].rotate_right(header);
    }

    fn header(&mut self, kind: u8, len: usize) {
        if let (0..10, Ok(digit)) = (len, u8::try_from(len)) {
            return self.out.extend_from_slice(&[kind, b'0' + digit, b'\r', b'\n']);
        }
        self.number(kind, i64::try_from(len).expect("lengths of things in memory fit 63 bits"));
    }

    fn number(&mut self, kind: u8, value: i64) {
        self.out.push(kind);
        self.out.extend_from_slice(Decimal::new(value).as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELEVEN: &str = "*11\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n";

    #[test]
    fn one_call_two_protocols() {
        type Case<'a> = (&'a str, fn(&mut Reply), &'a str, &'a str);
        let write: [Case<'_>; 16] = [
            ("status", |reply| reply.status("PONG"), "+PONG\r\n", "+PONG\r\n"),
            ("error", |reply| reply.error("ERR a\r\nb\n"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
            ("integer", |reply| reply.integer(-42), ":-42\r\n", ":-42\r\n"),
            ("bulk", |reply| reply.bulk(b"hello, world"), "$12\r\nhello, world\r\n", "$12\r\nhello, world\r\n"),
            ("empty", |reply| reply.bulk(b""), "$0\r\n\r\n", "$0\r\n\r\n"),
            ("integer text", |reply| reply.bulk_integer(10), "$2\r\n10\r\n", "$2\r\n10\r\n"),
            ("verbatim", |reply| reply.verbatim("txt", b"hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
            ("null", Reply::null, "$-1\r\n", "_\r\n"),
            ("null array", Reply::null_array, "*-1\r\n", "_\r\n"),
            ("double", |reply| reply.double(b"3.5"), "$3\r\n3.5\r\n", ",3.5\r\n"),
            ("array", |reply| reply.array(12), "*12\r\n", "*12\r\n"),
            ("map", |reply| reply.map(2), "*4\r\n", "%2\r\n"),
            ("set", |reply| reply.set(0), "*0\r\n", "~0\r\n"),
            ("push", |reply| reply.push(3), "*3\r\n", ">3\r\n"),
            (
                "array later",
                |reply| {
                    let later = reply.array_later();
                    (0..11).for_each(|_| reply.integer(0));
                    reply.finish(later, 11);
                },
                ELEVEN,
                ELEVEN,
            ),
            (
                "map later",
                |reply| {
                    let later = reply.map_later();
                    reply.bulk(b"a");
                    reply.integer(1);
                    reply.finish(later, 1);
                },
                "*2\r\n$1\r\na\r\n:1\r\n",
                "%1\r\n$1\r\na\r\n:1\r\n",
            ),
        ];
        for (name, write, resp2, resp3) in write {
            for (protocol, expected) in [(Protocol::Resp2, resp2), (Protocol::Resp3, resp3)] {
                let mut reply = Reply::new(protocol);
                reply.raw(b"before");
                let mark = reply.mark();
                write(&mut reply);
                assert_eq!(
                    reply.since(mark).escape_ascii().to_string(),
                    expected.as_bytes().escape_ascii().to_string(),
                    "{name}"
                );
                reply.rewind(mark);
                assert_eq!(reply.bytes(), b"before");
            }
        }
    }

    #[test]
    fn every_length_of_a_bulk_string() {
        for len in 0..1_200 {
            let mut reply = Reply::default();
            reply.bulk(&vec![b'x'; len]);
            assert!(reply.bytes().starts_with(format!("${len}\r\n").as_bytes()), "{len}");
            assert_eq!(reply.bytes().len(), format!("${len}\r\n").len() + len + 2);
        }
    }
}
