//! Reading and writing of big-endian fields, for all written forms of the drive.

/// Reads fields in order. Every read fails behind the end; none panics.
#[derive(Debug)]
pub(crate) struct FieldReader<'a>(&'a [u8]);

impl<'a> FieldReader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Whether all that follows is zero.
    pub(crate) fn rest_is_zero(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }
}

/// Writes fields in order into memory of a known size.
#[derive(Debug)]
pub(crate) struct FieldWriter<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> FieldWriter<'a> {
    pub(crate) const fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) const fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn put(&mut self, field: &[u8]) {
        self.bytes[self.at..][..field.len()].copy_from_slice(field);
        self.at += field.len();
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.put(&value.to_be_bytes());
    }
}
