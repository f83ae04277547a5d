//! Binary form of fields: MessagePack values one after the other, without names.

use ashlar_wire::pack::{Reader, write_bin, write_str, write_uint};

use super::{Fields, Sink, Source};
use crate::error::FormError;

/// Appends fields to bytes.
#[derive(Debug, Default)]
pub(crate) struct PackSink(pub(crate) Vec<u8>);

impl Sink for PackSink {
    fn uint(&mut self, _: &'static str, value: u64) {
        write_uint(&mut self.0, value);
    }

    fn id(&mut self, _: &'static str, value: &[u8; 16]) {
        write_bin(&mut self.0, value);
    }

    fn text(&mut self, _: &'static str, value: &str) {
        write_str(&mut self.0, value);
    }

    fn bytes(&mut self, _: &'static str, value: &[u8]) {
        write_bin(&mut self.0, value);
    }

    fn word(&mut self, name: &'static str, _: &'static [&'static str], place: usize) {
        self.count(name, place + 1);
    }
}

/// Reads fields from the front of bytes.
#[derive(Debug)]
pub(crate) struct PackSource<'a>(Reader<'a>);

impl<'a> PackSource<'a> {
    /// A source over `bytes`.
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(Reader::new(bytes))
    }

    /// Checks that everything has been read.
    pub(crate) const fn finish(&self) -> Result<(), FormError> {
        if self.0.remaining().is_empty() { Ok(()) } else { Err(FormError::TrailingBytes) }
    }
}

impl Source for PackSource<'_> {
    fn uint(&mut self, _: &'static str) -> Result<u64, FormError> {
        Ok(self.0.read_uint()?)
    }

    fn id(&mut self, _: &'static str) -> Result<[u8; 16], FormError> {
        Ok(self.0.read_bin_array()?)
    }

    fn text(&mut self, _: &'static str, max: usize) -> Result<String, FormError> {
        Ok(self.0.read_str(max)?.to_owned())
    }

    fn bytes(&mut self, _: &'static str, max: usize) -> Result<Vec<u8>, FormError> {
        Ok(self.0.read_bin(max)?.to_vec())
    }

    fn word(&mut self, name: &'static str, words: &'static [&'static str]) -> Result<usize, FormError> {
        let value = self.0.read_uint()?;
        let place = usize::try_from(value).ok().and_then(|number| number.checked_sub(1));
        place.filter(|place| *place < words.len()).ok_or(FormError::BadNumber { what: name, value })
    }
}

/// The binary form of one record.
pub(crate) fn encode(record: &impl Fields) -> Vec<u8> {
    let mut out = PackSink::default();
    record.write(&mut out);
    out.0
}

/// Reads one record, all of the bytes.
pub(crate) fn decode<T: Fields>(bytes: &[u8]) -> Result<T, FormError> {
    let mut from = PackSource::new(bytes);
    let record = T::read(&mut from)?;
    from.finish()?;
    Ok(record)
}
