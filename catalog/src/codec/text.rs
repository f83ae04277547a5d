//! Text form of fields: `name=value` words with a blank between them, for people and for their tools.
//!
//! Numbers are decimal, ids and bytes hexadecimal. In a text everything but visible ASCII is written as `%` and two
//! hexadecimal digits for each byte, and so is `%` itself: a word never holds a blank.

use core::fmt::Write as _;

use super::{Sink, Source};
use crate::error::FormError;

/// Appends words to a line.
#[derive(Debug, Default)]
pub(crate) struct TextSink(pub(crate) String);

impl TextSink {
    fn word_with(&mut self, name: &str, value: impl FnOnce(&mut String)) {
        if !self.0.is_empty() && !self.0.ends_with('\n') {
            self.0.push(' ');
        }
        self.0.push_str(name);
        self.0.push('=');
        value(&mut self.0);
    }
}

fn push_hex(out: &mut String, bytes: &[u8]) {
    bytes.iter().for_each(|byte| write!(out, "{byte:02x}").expect("writing to a string never fails"));
}

fn push_escaped(out: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02x}").expect("writing to a string never fails");
        }
    }
}

impl Sink for TextSink {
    fn uint(&mut self, name: &'static str, value: u64) {
        self.word_with(name, |out| write!(out, "{value}").expect("writing to a string never fails"));
    }

    fn id(&mut self, name: &'static str, value: &[u8; 16]) {
        self.word_with(name, |out| push_hex(out, value));
    }

    fn text(&mut self, name: &'static str, value: &str) {
        self.word_with(name, |out| push_escaped(out, value));
    }

    fn bytes(&mut self, name: &'static str, value: &[u8]) {
        self.word_with(name, |out| push_hex(out, value));
    }

    fn word(&mut self, name: &'static str, words: &'static [&'static str], place: usize) {
        self.word_with(name, |out| out.push_str(words[place]));
    }
}

/// Reads the words of one line.
#[derive(Debug)]
pub(crate) struct TextSource<'a> {
    words: core::str::SplitAsciiWhitespace<'a>,
    /// Number of the line, from 1.
    line: usize,
}

impl<'a> TextSource<'a> {
    /// A source over line number `line`.
    pub(crate) fn new(text: &'a str, line: usize) -> Self {
        Self { words: text.split_ascii_whitespace(), line }
    }

    /// The error that this line has no good `what`.
    pub(crate) const fn bad(&self, what: &'static str) -> FormError {
        FormError::BadText { line: self.line, what }
    }

    /// The first word of the line, which says what kind of record follows.
    pub(crate) fn kind(&mut self) -> Result<&'a str, FormError> {
        self.words.next().ok_or(self.bad("kind of record"))
    }

    /// Checks that everything has been read.
    pub(crate) fn finish(&mut self) -> Result<(), FormError> {
        if self.words.next().is_none() { Ok(()) } else { Err(self.bad("end of the line")) }
    }

    fn value(&mut self, name: &'static str) -> Result<&'a str, FormError> {
        let value = self.words.next().and_then(|word| word.strip_prefix(name)).and_then(|rest| rest.strip_prefix('='));
        value.ok_or(self.bad(name))
    }
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

fn hex_byte(pair: &[u8]) -> Option<u8> {
    match pair {
        [high, low] => Some(hex_digit(*high)? << 4 | hex_digit(*low)?),
        _ => None,
    }
}

fn unescape(value: &str, max: usize) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        if *first == b'%' {
            bytes.push(hex_byte(behind.get(..2)?)?);
            rest = &behind[2..];
        } else {
            bytes.push(*first);
            rest = behind;
        }
    }
    String::from_utf8(bytes).ok().filter(|text| text.len() <= max)
}

impl Source for TextSource<'_> {
    fn uint(&mut self, name: &'static str) -> Result<u64, FormError> {
        let value = self.value(name)?;
        // `parse` takes a sign; a number here has none.
        let digits = Some(value).filter(|value| value.bytes().all(|digit| digit.is_ascii_digit()));
        digits.and_then(|digits| digits.parse().ok()).ok_or(self.bad(name))
    }

    fn id(&mut self, name: &'static str) -> Result<[u8; 16], FormError> {
        let bytes = self.bytes(name, 16)?;
        bytes.try_into().map_err(|_| self.bad(name))
    }

    fn text(&mut self, name: &'static str, max: usize) -> Result<String, FormError> {
        let value = self.value(name)?;
        unescape(value, max).ok_or(self.bad(name))
    }

    fn bytes(&mut self, name: &'static str, max: usize) -> Result<Vec<u8>, FormError> {
        let digits = self.value(name)?.as_bytes();
        let bytes: Option<Vec<u8>> = digits.chunks(2).map(hex_byte).collect();
        bytes.filter(|bytes| bytes.len() <= max).ok_or(self.bad(name))
    }

    fn word(&mut self, name: &'static str, words: &'static [&'static str]) -> Result<usize, FormError> {
        let value = self.value(name)?;
        words.iter().position(|word| *word == value).ok_or(self.bad(name))
    }
}
