//! Options of the handshake: their bytes taken apart.

use super::protocol::{OPTION_MAGIC, STRING_BYTES_MAX, allocation, info};

/// What stands before the data of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OptionHeader {
    pub(super) option: u32,
    /// Bytes of data, as announced.
    pub(super) len: u32,
}

impl OptionHeader {
    pub(super) const LEN: usize = 16;

    /// The header in these bytes, unless they begin with another magic number.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let magic = (u64::from(reader.u32()?) << 32) | u64::from(reader.u32()?);
        let (option, len) = (reader.u32()?, reader.u32()?);
        (magic == OPTION_MAGIC).then_some(Self { option, len })
    }
}

/// Reads big-endian numbers and texts from the front of bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn u16(&mut self) -> Option<u16> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_be_bytes(*bytes))
    }

    fn u32(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*bytes))
    }

    /// A text after its length.
    fn text(&mut self) -> Option<&'a str> {
        let len = usize::try_from(self.u32()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        decode_text(bytes)
    }
}

/// The text in these bytes: UTF-8 without NUL, of up to 4,096 bytes.
pub(super) fn decode_text(bytes: &[u8]) -> Option<&str> {
    let is_text = bytes.len() <= STRING_BYTES_MAX && !bytes.contains(&0);
    std::str::from_utf8(bytes).ok().filter(|_| is_text)
}

/// What an `INFO` or `GO` option asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct InfoQuery {
    pub(super) name: String,
    pub(super) wants_name: bool,
    pub(super) wants_description: bool,
    pub(super) wants_block_size: bool,
}

impl InfoQuery {
    pub(super) fn decode(data: &[u8]) -> Option<Self> {
        let mut reader = Reader(data);
        let mut query = Self { name: reader.text()?.to_owned(), ..Self::default() };
        for _ in 0..reader.u16()? {
            match reader.u16()? {
                info::NAME => query.wants_name = true,
                info::DESCRIPTION => query.wants_description = true,
                info::BLOCK_SIZE => query.wants_block_size = true,
                // Export is always told; unknown kinds are to be ignored.
                _ => {}
            }
        }
        reader.0.is_empty().then_some(query)
    }
}

/// What a `LIST_META_CONTEXT` or `SET_META_CONTEXT` option asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContextQuery {
    pub(super) export: String,
    /// No query at all: a list of everything, a choice of nothing.
    pub(super) is_empty: bool,
    /// `base:allocation` was named.
    pub(super) names_allocation: bool,
    /// `base:` was named, which matches everything in a list and nothing in a choice.
    pub(super) names_base: bool,
}

impl ContextQuery {
    pub(super) fn decode(data: &[u8]) -> Option<Self> {
        let mut reader = Reader(data);
        let export = reader.text()?.to_owned();
        let count = reader.u32()?;
        let mut query = Self { export, is_empty: count == 0, names_allocation: false, names_base: false };
        // Each query takes at least four bytes, so the loop ends with the data, however many are announced.
        for _ in 0..count {
            let text = reader.text()?;
            text.find(':').filter(|end| *end > 0)?;
            query.names_allocation |= text == allocation::NAME;
            query.names_base |= text == "base:";
        }
        reader.0.is_empty().then_some(query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Option<ContextQuery> {
        let mut data = Vec::new();
        data.extend(1_u32.to_be_bytes());
        data.push(b'e');
        data.extend(1_u32.to_be_bytes());
        data.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
        data.extend(text.as_bytes());
        ContextQuery::decode(&data)
    }

    #[test]
    fn a_context_has_a_name_before_its_colon() {
        assert!(query("base:allocation").unwrap().names_allocation);
        assert!(query("base:").unwrap().names_base);
        assert!(query("x:y").is_some_and(|query| !query.names_allocation && !query.names_base));
        for wrong in [":allocation", "base", ""] {
            assert!(query(wrong).is_none(), "{wrong}");
        }
    }
}
