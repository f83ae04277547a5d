//! Counting replies in a stream of bytes, without building them.
//!
//! Replies of RESP2 and RESP3 are skipped as they come, cut anywhere; what is kept of one is whether it is an error or nothing,
//! and the text of the first error.

/// The longest line that is kept, bytes: an error's text is cut there.
const LINE_BYTES_MAX: usize = 1_024;

/// What came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Whole replies, errors and nulls among them.
    pub replies: u64,
    /// Error replies.
    pub errors: u64,
    /// Null replies: nothing was there.
    pub nulls: u64,
}

impl Counts {
    /// Adds what came elsewhere.
    pub fn add(&mut self, other: &Self) {
        self.replies += other.replies;
        self.errors += other.errors;
        self.nulls += other.nulls;
    }
}

/// Reads one connection's bytes.
#[derive(Debug, Default)]
pub struct Scanner {
    /// Bytes of a bulk and the line end behind it that are still to come.
    skip: usize,
    /// A line that has not ended yet.
    line: Vec<u8>,
    /// Values that the reply still needs; 0 between replies.
    needed: u64,
    /// What comes is no reply: a push, or an attribute before the reply.
    is_aside: bool,
    first_error: Option<String>,
}

/// The other side does not speak RESP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotResp;

impl Scanner {
    /// The first error's text.
    #[must_use]
    pub fn first_error(&self) -> Option<&str> {
        self.first_error.as_deref()
    }

    /// Counts the replies that end in `bytes`, which follow what came before.
    ///
    /// # Errors
    /// These are no replies. Not retry safe: the connection is of no use.
    pub fn scan(&mut self, mut bytes: &[u8], counts: &mut Counts) -> Result<(), NotResp> {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                self.skip -= skipped;
                bytes = &bytes[skipped..];
                if self.skip == 0 {
                    self.value(counts);
                }
                continue;
            }
            let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else {
                return self.keep(bytes);
            };
            let (line, rest) = (&bytes[..=end], &bytes[end + 1..]);
            bytes = rest;
            if self.line.is_empty() {
                self.head(line, counts)?;
            } else {
                self.keep(line)?;
                let line = std::mem::take(&mut self.line);
                self.head(&line, counts)?;
                self.line = line;
                self.line.clear();
            }
        }
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), NotResp> {
        if self.line.len() + bytes.len() > LINE_BYTES_MAX && self.line.first().or(bytes.first()) != Some(&b'-') {
            return Err(NotResp);
        }
        let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(())
    }

    /// A line with its end: the head of a value, or all of it.
    fn head(&mut self, line: &[u8], counts: &mut Counts) -> Result<(), NotResp> {
        let (&kind, text) = line.split_first().ok_or(NotResp)?;
        let is_outermost = self.needed == 0;
        match kind {
            b'+' | b':' | b',' | b'#' | b'(' => self.value(counts),
            b'-' => {
                self.error(text, is_outermost, counts);
                self.value(counts);
            }
            b'_' => {
                counts.nulls += u64::from(is_outermost);
                self.value(counts);
            }
            b'$' | b'=' | b'!' => match number(text)? {
                -1 => {
                    counts.nulls += u64::from(is_outermost);
                    self.value(counts);
                }
                bytes => {
                    counts.errors += u64::from(kind == b'!' && is_outermost);
                    self.skip = usize::try_from(bytes).map_err(|_| NotResp)? + 2;
                }
            },
            b'*' | b'~' | b'%' | b'>' | b'|' => {
                let count = number(text)?;
                if count == -1 {
                    counts.nulls += u64::from(is_outermost);
                }
                let values = u64::try_from(count.max(0)).map_err(|_| NotResp)?;
                let values = values.checked_mul(if kind == b'%' || kind == b'|' { 2 } else { 1 }).ok_or(NotResp)?;
                self.is_aside |= is_outermost && (kind == b'>' || kind == b'|');
                // An attribute is no value: what it belongs to is still to come.
                let own = u64::from(kind == b'|' && !is_outermost);
                self.needed = self.needed.max(1).checked_add(values + own).ok_or(NotResp)?;
                self.value(counts);
            }
            _ => return Err(NotResp),
        }
        Ok(())
    }

    /// One value has ended, or one that has parts has begun.
    fn value(&mut self, counts: &mut Counts) {
        self.needed = self.needed.max(1) - 1;
        if self.needed == 0 {
            counts.replies += u64::from(!self.is_aside);
            self.is_aside = false;
        }
    }

    fn error(&mut self, text: &[u8], is_outermost: bool, counts: &mut Counts) {
        counts.errors += u64::from(is_outermost);
        if self.first_error.is_none() {
            self.first_error = Some(String::from_utf8_lossy(text.trim_ascii_end()).into_owned());
        }
    }
}

fn number(text: &[u8]) -> Result<i64, NotResp> {
    let text = core::str::from_utf8(text.trim_ascii_end()).map_err(|_| NotResp)?;
    let number = text.parse::<i64>().map_err(|_| NotResp)?;
    if number < -1 { Err(NotResp) } else { Ok(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLIES: &[(&str, u64, u64, u64)] = &[
        ("+OK\r\n", 1, 0, 0),
        ("$5\r\na\r\nb\n\r\n", 1, 0, 0),
        ("$0\r\n\r\n", 1, 0, 0),
        ("$-1\r\n:12\r\n_\r\n", 3, 0, 2),
        ("-ERR no\r\n+OK\r\n", 2, 1, 0),
        ("!6\r\nERR no\r\n", 1, 1, 0),
        ("*0\r\n*-1\r\n", 2, 0, 1),
        ("*2\r\n*2\r\n$1\r\na\r\n$-1\r\n-ERR inner\r\n+x\r\n", 2, 0, 0),
        ("%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n,1.5\r\n", 1, 0, 0),
        ("~1\r\n#t\r\n(123\r\n=7\r\ntxt:abc\r\n", 3, 0, 0),
        (">2\r\n+invalidate\r\n*1\r\n+k\r\n+OK\r\n", 1, 0, 0),
        ("|1\r\n+a\r\n+b\r\n+OK\r\n", 1, 0, 0),
        ("*2\r\n|1\r\n+a\r\n+b\r\n+x\r\n+y\r\n", 1, 0, 0),
    ];

    #[test]
    fn whole_and_cut_anywhere() {
        for &(text, replies, errors, nulls) in REPLIES {
            let expected = Counts { replies, errors, nulls };
            for step in 1..=text.len() {
                let (mut scanner, mut counts) = (Scanner::default(), Counts::default());
                for part in text.as_bytes().chunks(step) {
                    scanner.scan(part, &mut counts).unwrap();
                }
                assert_eq!(counts, expected, "{text:?} in pieces of {step}");
            }
        }
    }

    #[test]
    fn unfinished_replies_do_not_count() {
        for text in ["+OK", "$5\r\nhell", "*2\r\n+a\r\n", "%1\r\n+a\r\n"] {
            let (mut scanner, mut counts) = (Scanner::default(), Counts::default());
            scanner.scan(text.as_bytes(), &mut counts).unwrap();
            assert_eq!(counts.replies, 0, "{text:?}");
        }
    }

    #[test]
    fn other_protocols_are_refused_and_errors_kept() {
        let scan = |text: &str| Scanner::default().scan(text.as_bytes(), &mut Counts::default());
        assert_eq!(scan("HTTP/1.1 400 Bad Request\r\n"), Err(NotResp));
        assert_eq!(scan("$x\r\n"), Err(NotResp));
        assert_eq!(scan(&"+".repeat(LINE_BYTES_MAX + 1)), Err(NotResp));
        let mut scanner = Scanner::default();
        scanner.scan(b"-WRONG type\r\n-ERR other\r\n", &mut Counts::default()).unwrap();
        assert_eq!(scanner.first_error(), Some("WRONG type"));
    }
}
