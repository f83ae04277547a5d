//! Big-endian fields of written forms, appended and taken.

use bytes::Bytes;

/// The bytes are no written form that this program knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the bytes are no form that this program knows")
    }
}

impl core::error::Error for Malformed {}

/// Appends fields.
pub(crate) trait Put {
    fn put_u8(&mut self, value: u8);
    fn put_u16(&mut self, value: u16);
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
    /// A length of two bytes, and so many bytes.
    fn put_short(&mut self, bytes: &[u8]);
    /// A length of four bytes, and so many bytes.
    fn put_long(&mut self, bytes: &[u8]);
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_short(&mut self, bytes: &[u8]) {
        self.put_u16(u16::try_from(bytes.len()).expect("limits of names are far below 64 KiB"));
        self.extend_from_slice(bytes);
    }

    fn put_long(&mut self, bytes: &[u8]) {
        self.put_u32(u32::try_from(bytes.len()).expect("limits of values are far below 4 GiB"));
        self.extend_from_slice(bytes);
    }
}

/// Takes fields from the front of shared bytes; what is taken shares them.
#[derive(Debug, Clone)]
pub(crate) struct Cursor(pub(crate) Bytes);

impl Cursor {
    pub(crate) fn bytes(&mut self, len: usize) -> Result<Bytes, Malformed> {
        if len > self.0.len() { Err(Malformed) } else { Ok(self.0.split_to(len)) }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let bytes = self.bytes(N)?;
        bytes.as_ref().try_into().map_err(|_| Malformed)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// What [`Put::put_short`] wrote, up to `max` bytes.
    pub(crate) fn short(&mut self, max: usize) -> Result<Bytes, Malformed> {
        let len = usize::from(self.u16()?);
        if len > max { Err(Malformed) } else { self.bytes(len) }
    }

    /// What [`Put::put_long`] wrote, up to `max` bytes.
    pub(crate) fn long(&mut self, max: usize) -> Result<Bytes, Malformed> {
        let len = usize::try_from(self.u32()?).map_err(|_| Malformed)?;
        if len > max { Err(Malformed) } else { self.bytes(len) }
    }

    /// A text that [`Put::put_short`] wrote.
    pub(crate) fn text(&mut self, max: usize) -> Result<String, Malformed> {
        let bytes = self.short(max)?;
        core::str::from_utf8(&bytes).map(str::to_owned).map_err(|_| Malformed)
    }

    /// A count of four bytes, of things that take at least one byte each.
    pub(crate) fn count(&mut self, max: usize) -> Result<usize, Malformed> {
        let count = usize::try_from(self.u32()?).map_err(|_| Malformed)?;
        if count > max.min(self.0.len()) { Err(Malformed) } else { Ok(count) }
    }

    /// Nothing may be left.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Cursor {
        let mut bytes = Vec::new();
        write(&mut bytes);
        Cursor(Bytes::from(bytes))
    }

    #[test]
    fn fields_are_taken_as_they_were_put() {
        let mut from = written(|to| {
            to.put_u8(0x12);
            to.put_u16(0x1234);
            to.put_u32(0x1234_5678);
            to.put_u64(0x1234_5678_9abc_def0);
            to.put_short("ä".as_bytes());
            to.put_long(b"long");
            to.put_u16(2);
        });
        assert_eq!(from.0[..7], [0x12, 0x12, 0x34, 0x12, 0x34, 0x56, 0x78], "the first byte is the highest one");
        assert_eq!((from.u8(), from.u16(), from.u32()), (Ok(0x12), Ok(0x1234), Ok(0x1234_5678)));
        assert_eq!((from.u64(), from.text(2)), (Ok(0x1234_5678_9abc_def0), Ok("ä".to_owned())));
        assert_eq!(from.long(4).as_deref(), Ok(&b"long"[..]));
        assert_eq!((from.end(), from.array()), (Err(Malformed), Ok([0, 2])));
        assert_eq!((from.end(), from.bytes(0).as_deref()), (Ok(()), Ok(&b""[..])));
        assert_eq!((from.bytes(1), from.u8()), (Err(Malformed), Err(Malformed)));
        assert_eq!(written(|to| to.put_short(b"\xff")).text(9), Err(Malformed), "it is no UTF-8");
        assert_eq!(Malformed.to_string(), "the bytes are no form that this program knows");
    }

    #[test]
    fn limits_of_lengths_and_counts() {
        for len in 0..=6 {
            let bytes = vec![b'x'; len];
            let expected = if len <= 4 { Ok(Bytes::from(bytes.clone())) } else { Err(Malformed) };
            assert_eq!(written(|to| to.put_short(&bytes)).short(4), expected, "{len}");
            assert_eq!(written(|to| to.put_long(&bytes)).long(4), expected, "{len}");
            assert_eq!(written(|to| to.put_short(&bytes)).text(4).is_ok(), len <= 4, "{len}");
            let mut short = written(|to| to.put_short(&bytes));
            short.0.truncate(short.0.len() - 1);
            assert_eq!(short.short(9), Err(Malformed), "{len} bytes of which one is missing");
        }
        // A count, the bytes behind it, and the greatest count.
        for (count, behind, max) in [(0, 0, 0), (1, 1, 1), (4, 4, 4), (4, 9, 4), (3, 3, 9)] {
            let counted = |count: u32| {
                written(|to| {
                    to.put_u32(count);
                    to.extend_from_slice(&vec![0; behind]);
                })
            };
            assert_eq!(counted(count).count(max), Ok(count as usize), "{count} {behind} {max}");
            assert_eq!(counted(count + 1).count(max), Err(Malformed), "{count} {behind} {max}");
        }
    }
}
