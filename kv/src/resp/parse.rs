//! Requests, read in place.
//!
//! A request is an array of bulk strings, or a line of words as people type it. The words of an array are found, not
//! copied: [`Args`] points into the bytes that came. A request that is not complete is remembered by how far it was read, so
//! that bytes that trickle in are looked at once.

use std::ops::Index;

use super::number::parse_i64;

/// The longest line: of words, or a length.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Words of one request, whatever the configuration says.
const WORDS_MAX: i64 = i32::MAX as i64;
/// Words and bytes per word that a client may send before it has said who it is.
const UNKNOWN_WORDS_MAX: i64 = 10;
const UNKNOWN_WORD_BYTES_MAX: i64 = 16_384;
/// Places for words that are made room for before the words have come.
const WORDS_AHEAD_MAX: usize = 1024;

/// Where a word is in the bytes of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word {
    start: u32,
    len: u32,
}

/// The words of one request. Word 0 is the command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Args<'a> {
    bytes: &'a [u8],
    words: &'a [Word],
}

impl<'a> Args<'a> {
    /// How many words, the command's name included.
    pub(crate) fn len(self) -> usize {
        self.words.len()
    }

    /// A word, if there are so many.
    pub(crate) fn get(self, at: usize) -> Option<&'a [u8]> {
        self.words.get(at).map(|word| self.slice(*word))
    }

    /// The words from `at` on.
    pub(crate) fn from(
        self,
        at: usize,
    ) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + Clone + use<'a> {
        self.words[at.min(self.words.len())..].iter().map(move |word| self.slice(*word))
    }

    /// Whether a word is `expected`, which is upper case, in any case.
    pub(crate) fn is(self, at: usize, expected: &str) -> bool {
        self.get(at).is_some_and(|word| word.eq_ignore_ascii_case(expected.as_bytes()))
    }

    fn slice(self, word: Word) -> &'a [u8] {
        let start = word.start as usize;
        &self.bytes[start..start + word.len as usize]
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    /// # Panics
    /// There are fewer words: the arity of every command is checked before it runs.
    fn index(&self, at: usize) -> &[u8] {
        self.slice(self.words[at])
    }
}

/// A request with bytes of its own: one that is queued, blocked, or made by a script.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    bytes: Vec<u8>,
    words: Vec<Word>,
}

impl Request {
    /// A copy of what `args` points to.
    pub(crate) fn copy(args: Args<'_>) -> Self {
        args.from(0).collect()
    }

    /// One more word.
    ///
    /// # Panics
    /// All words together are 4 GiB or longer.
    pub(crate) fn push(&mut self, word: &[u8]) {
        let small = |len: usize| u32::try_from(len).expect("requests are shorter than 4 GiB");
        self.words.push(Word { start: small(self.bytes.len()), len: small(word.len()) });
        self.bytes.extend_from_slice(word);
    }

    /// Its words.
    pub(crate) fn args(&self) -> Args<'_> {
        Args { bytes: &self.bytes, words: &self.words }
    }
}

impl<'a> FromIterator<&'a [u8]> for Request {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(words: I) -> Self {
        let mut request = Self::default();
        words.into_iter().for_each(|word| request.push(word));
        request
    }
}

/// How large requests may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestLimits {
    /// Bytes of one word (`proto-max-bulk-len`).
    pub(crate) word_bytes_max: i64,
    /// Whether the client has said who it is.
    pub(crate) is_known: bool,
}

/// A request that is none. The connection ends after this reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProtocolError {
    LineTooLong,
    CountTooLong,
    Count,
    CountOfUnknown,
    LengthTooLong,
    NoLength(u8),
    Length,
    LengthOfUnknown,
    Quotes,
    LineEnd,
}

impl ProtocolError {
    /// As Valkey words it, without `ERR`.
    pub(crate) fn text(self) -> String {
        let what = match self {
            Self::LineTooLong => "too big inline request",
            Self::CountTooLong => "too big mbulk count string",
            Self::Count => "invalid multibulk length",
            Self::CountOfUnknown => "unauthenticated multibulk length",
            Self::LengthTooLong => "too big bulk count string",
            Self::NoLength(byte) => return format!("Protocol error: expected '$', got '{}'", char::from(byte)),
            Self::Length => "invalid bulk length",
            Self::LengthOfUnknown => "unauthenticated bulk length",
            Self::Quotes => "unbalanced quotes in request",
            Self::LineEnd => "invalid CRLF in request",
        };
        format!("Protocol error: {what}")
    }
}

/// Reads one request after another from bytes that grow at their end.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    words: Vec<Word>,
    /// Words that the array has yet to bring; 0 between requests.
    missing: usize,
    /// How far the present request was read.
    at: usize,
    /// The words of a line, without quotes.
    line: Vec<u8>,
    is_line: bool,
}

/// Words that a connection keeps room for between requests.
const WORDS_KEPT: usize = 256;

impl Parser {
    /// Looks for one request at the beginning of `input`, which begins with the same bytes as at the last call unless that
    /// returned a request. Returns how many bytes the request takes: [`Parser::args`] are its words; there are none in an
    /// empty line or array.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn parse(&mut self, input: &[u8], limits: RequestLimits) -> Result<Option<usize>, ProtocolError> {
        if self.missing == 0 {
            self.words.clear();
            self.words.shrink_to(WORDS_KEPT);
            self.at = 0;
            self.is_line = input.first().is_some_and(|first| *first != b'*');
            if self.is_line {
                return self.parse_line(input);
            }
            let Some(count) = self.take_number(input, b'*', ProtocolError::CountTooLong, ProtocolError::Count)? else {
                return Ok(None);
            };
            match count {
                _ if count > WORDS_MAX => return Err(ProtocolError::Count),
                _ if count > UNKNOWN_WORDS_MAX && !limits.is_known => return Err(ProtocolError::CountOfUnknown),
                1.. => {}
                _ => return Ok(Some(self.at)),
            }
            self.missing = usize::try_from(count).expect("it is positive");
            self.words.reserve(self.missing.min(WORDS_AHEAD_MAX));
        }
        while self.missing > 0 {
            if !self.take_word(input, limits)? {
                return Ok(None);
            }
        }
        Ok(Some(self.at))
    }

    /// The words of the request that was found last. `input` is what it was found in.
    pub(crate) fn args<'a>(&'a self, input: &'a [u8]) -> Args<'a> {
        Args { bytes: if self.is_line { &self.line } else { input }, words: &self.words }
    }

    /// One bulk string; false if it has not come whole.
    fn take_word(&mut self, input: &[u8], limits: RequestLimits) -> Result<bool, ProtocolError> {
        let before = self.at;
        let Some(len) = self.take_number(input, b'$', ProtocolError::LengthTooLong, ProtocolError::Length)? else {
            return Ok(false);
        };
        if len < 0 || len > limits.word_bytes_max {
            return Err(ProtocolError::Length);
        }
        if len > UNKNOWN_WORD_BYTES_MAX && !limits.is_known {
            return Err(ProtocolError::LengthOfUnknown);
        }
        let start = self.at;
        let len = usize::try_from(len).expect("it is not negative");
        if input.len() < start + len + 2 {
            self.at = before;
            return Ok(false);
        }
        if input[start + len..start + len + 2] != *b"\r\n" {
            return Err(ProtocolError::LineEnd);
        }
        let small = |value: usize| u32::try_from(value).map_err(|_| ProtocolError::Length);
        self.words.push(Word { start: small(start)?, len: small(len)? });
        self.at = start + len + 2;
        self.missing -= 1;
        Ok(true)
    }

    /// A number behind the byte `kind`, and its line's end. `None` if the line has not come whole.
    fn take_number(
        &mut self,
        input: &[u8],
        kind: u8,
        too_long: ProtocolError,
        wrong: ProtocolError,
    ) -> Result<Option<i64>, ProtocolError> {
        let line = &input[self.at.min(input.len())..];
        // Nearly every number is a digit or two.
        let (len, number) = match line {
            [first, digit @ b'0'..=b'9', b'\r', b'\n', ..] if *first == kind => (2, i64::from(digit - b'0')),
            [first, ten @ b'1'..=b'9', one @ b'0'..=b'9', b'\r', b'\n', ..] if *first == kind => {
                (3, i64::from(ten - b'0') * 10 + i64::from(one - b'0'))
            }
            _ => {
                let Some(len) = line.iter().take(LINE_BYTES_MAX + 1).position(|byte| *byte == b'\r') else {
                    return if line.len() > LINE_BYTES_MAX { Err(too_long) } else { Ok(None) };
                };
                let Some(end) = line.get(len + 1) else { return Ok(None) };
                if let Some(other) = line.first().filter(|first| **first != kind) {
                    return Err(ProtocolError::NoLength(*other));
                }
                if *end != b'\n' {
                    return Err(ProtocolError::LineEnd);
                }
                (len, parse_i64(&line[1..len]).ok_or(wrong)?)
            }
        };
        self.at += len + 2;
        Ok(Some(number))
    }

    /// A line of words.
    fn parse_line(&mut self, input: &[u8]) -> Result<Option<usize>, ProtocolError> {
        // A line with a byte of value 0 in it has no end.
        let mut bytes = input.iter().take(LINE_BYTES_MAX + 1).take_while(|byte| **byte != 0);
        let Some(end) = bytes.position(|byte| *byte == b'\n') else {
            return if input.len() > LINE_BYTES_MAX { Err(ProtocolError::LineTooLong) } else { Ok(None) };
        };
        let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        self.line.clear();
        split_line(line, &mut self.line, &mut self.words).ok_or(ProtocolError::Quotes)?;
        Ok(Some(end + 1))
    }
}

/// The words of a line, as people type it. `None` if quotes do not end.
pub(crate) fn words_of_line(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut bytes, mut words) = (Vec::new(), Vec::new());
    split_line(line, &mut bytes, &mut words)?;
    let args = Args { bytes: &bytes, words: &words };
    Some(args.from(0).map(<[u8]>::to_vec).collect())
}

/// Cuts a line into words at spaces. Parts of a word may stand in quotes. Double quotes take the escapes `\n \r \t \b \a \xHH` and
/// `\` before any other byte, single quotes only `\'`. `None` if quotes do not end.
fn split_line(line: &[u8], bytes: &mut Vec<u8>, words: &mut Vec<Word>) -> Option<()> {
    let mut rest = skip_blanks(line);
    while !rest.is_empty() && rest[0] != 0 {
        let start = bytes.len();
        rest = skip_blanks(take_line_word(rest, bytes)?);
        let len = u32::try_from(bytes.len() - start).expect("lines are short");
        words.push(Word { start: u32::try_from(start).expect("lines are short"), len });
    }
    Some(())
}

/// What lies between words; it need not end a word.
fn skip_blanks(line: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    &line[line.iter().take_while(|byte| is_blank(byte)).count()..]
}

fn take_line_word<'a>(mut rest: &'a [u8], bytes: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] | [0, ..] => return Some(rest),
            [b' ' | b'\n' | b'\r' | b'\t', after @ ..] => return Some(after),
            [quote @ (b'"' | b'\''), quoted @ ..] => rest = take_quoted(*quote, quoted, bytes)?,
            [byte, after @ ..] => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
}

/// What stands in quotes; returns what follows the quote's end.
fn take_quoted<'a>(quote: u8, mut rest: &'a [u8], bytes: &mut Vec<u8>) -> Option<&'a [u8]> {
    let hex = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    loop {
        rest = match rest {
            [] | [0, ..] => return None,
            [end, after @ ..] if *end == quote => return Some(after),
            [b'\\', b'\'', after @ ..] if quote == b'\'' => {
                bytes.push(b'\'');
                after
            }
            [b'\\', b'x', high, low, after @ ..] if quote == b'"' && hex(*high).is_some() && hex(*low).is_some() => {
                bytes.push(hex(*high)? << 4 | hex(*low)?);
                after
            }
            [b'\\', escaped, after @ ..] if quote == b'"' => {
                bytes.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                after
            }
            [byte, after @ ..] => {
                bytes.push(*byte);
                after
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RequestLimits = RequestLimits { word_bytes_max: 100_000, is_known: true };

    /// The requests in `input`, which comes in pieces of `step` bytes.
    fn read(input: &[u8], step: usize, limits: RequestLimits) -> Result<Vec<Vec<Vec<u8>>>, ProtocolError> {
        let (mut parser, mut requests, mut start, mut end) = (Parser::default(), Vec::new(), 0, 0);
        loop {
            while start < end
                && let Some(taken) = parser.parse(&input[start..end], limits)?
            {
                let args = parser.args(&input[start..end]);
                requests.push(args.from(0).map(<[u8]>::to_vec).collect());
                start += taken;
            }
            if end == input.len() {
                return Ok(requests);
            }
            end = (end + step).min(input.len());
        }
    }

    #[test]
    fn requests_come_whole_or_in_pieces() {
        let long = [&b"*2\r\n$4\r\nECHO\r\n$20000\r\n"[..], &[b'x'; 20_000], b"\r\n"].concat();
        type Requests<'a> = &'a [&'a [&'a [u8]]];
        let cases: [(&[u8], Requests<'_>); 11] = [
            (b"*1\r\n$4\r\nPING\r\n", &[&[b"PING"]]),
            (b"*2\r\n$3\r\nGET\r\n$0\r\n\r\nPING\r\n", &[&[b"GET", b""], &[b"PING"]]),
            (b"*0\r\n*-1\r\n\r\n", &[&[], &[], &[]]),
            (b"SET a \"b c\"\n", &[&[b"SET", b"a", b"b c"]]),
            (b"a \"\\x41\\n\\q\\\"\" 'it\\'s' \r\n", &[&[b"a", b"A\nq\"", b"it's"]]),
            (b"*3\r\n$12\r\nabcdefghijkl\r\n$2\r\n\r\n\r\n$1\r\na\r\n", &[&[b"abcdefghijkl", b"\r\n", b"a"]]),
            (b"\"S\"ET 'a'\"b\"c''  \"\"x\x0c\r\n", &[&[b"SET", b"abc", b"x\x0c"]]),
            (b"\x0bPING \x0b''\n", &[&[b"PING", b""]]),
            (b"*2\r\n$3\r\nGET\r\n$3\r\nab", &[]),
            (b"*", &[]),
            (&long, &[&[b"ECHO", &[b'x'; 20_000]]]),
        ];
        for (input, expected) in cases {
            let expected: Vec<Vec<Vec<u8>>> =
                expected.iter().map(|words| words.iter().map(|word| word.to_vec()).collect()).collect();
            for step in [1, 2, 3, 7, 64, 100_000] {
                assert_eq!(read(input, step, LIMITS).as_ref(), Ok(&expected), "{step} {}", input.escape_ascii());
            }
        }
    }

    #[test]
    fn what_is_no_request_is_named() {
        let unknown = RequestLimits { is_known: false, ..LIMITS };
        let endless = vec![b'1'; LINE_BYTES_MAX + 2];
        let cases: [(&[u8], RequestLimits, ProtocolError); 19] = [
            (b"*x\r\n", LIMITS, ProtocolError::Count),
            (b"*3000000000\r\n", LIMITS, ProtocolError::Count),
            (b"*11\r\n", unknown, ProtocolError::CountOfUnknown),
            (b"*1\r\n#4\r\nPING\r\n", LIMITS, ProtocolError::NoLength(b'#')),
            (b"*1\r\n$-1\r\n", LIMITS, ProtocolError::Length),
            (b"*1\r\n$100001\r\n", LIMITS, ProtocolError::Length),
            (b"*1\r\n$1x\r\n", LIMITS, ProtocolError::Length),
            (b"*1\r\n$16385\r\n", unknown, ProtocolError::LengthOfUnknown),
            (b"a \"b\r\n", LIMITS, ProtocolError::Quotes),
            (b"a 'b'a'r\r\n", LIMITS, ProtocolError::Quotes),
            (b"*3x\n$3\r\nSET\r\n", LIMITS, ProtocolError::Count),
            (b"*3\rx$3\r\nSET\r\n", LIMITS, ProtocolError::LineEnd),
            (b"*30\rx$3\r\nSET\r\n", LIMITS, ProtocolError::LineEnd),
            (b"*1\r\n$3\rxSET\r\n", LIMITS, ProtocolError::LineEnd),
            (b"*1\r\n$3\r\nSET\rx", LIMITS, ProtocolError::LineEnd),
            (b"*1\r\n$3\r\nSETxx", LIMITS, ProtocolError::LineEnd),
            (&[b"x\0\r\n", &endless[..]].concat(), LIMITS, ProtocolError::LineTooLong),
            (&endless, LIMITS, ProtocolError::LineTooLong),
            (&[b"*", &endless[..]].concat(), LIMITS, ProtocolError::CountTooLong),
        ];
        for (input, limits, expected) in cases {
            assert_eq!(
                read(input, input.len(), limits),
                Err(expected),
                "{}",
                input[..20.min(input.len())].escape_ascii()
            );
        }
        let endless_length = [&b"*1\r\n$"[..], &endless].concat();
        assert_eq!(read(&endless_length, 4_096, LIMITS), Err(ProtocolError::LengthTooLong));
    }
}
