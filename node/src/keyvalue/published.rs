//! A message to subscribers on its way to another server: its written form.
//!
//! A stream of the grid carries messages one after another, cut into pieces anywhere. What the stream begins with is the version, one
//! byte; version 1 has, with numbers in little-endian order:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | 0: for subscribers of a channel; 1: for those of a shard channel |
//! | 8 | the replica group that the shard channel belongs to; else 0 |
//! | 4 | length of the channel's name |
//! | 4 | length of the message |
//! | as many | name, message |

use ashlar_bus::slot::GroupId;

/// The version of the written form.
pub(super) const VERSION: u8 = 1;
/// Longest name and message together; longer ones reach subscribers of their own server only.
pub(super) const MESSAGE_BYTES_MAX: usize = 32 * 1024 * 1024;
const HEADER_BYTES: usize = 17;

/// A message, as it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Published<'a> {
    /// The replica group whose nodes it is for; all if none.
    pub(super) group: Option<GroupId>,
    pub(super) channel: &'a [u8],
    pub(super) message: &'a [u8],
}

/// What came is no message, or one that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

impl Published<'_> {
    /// Whether it is short enough to travel.
    pub(super) fn is_sendable(&self) -> bool {
        self.channel.len().saturating_add(self.message.len()) <= MESSAGE_BYTES_MAX
    }

    /// The written form.
    ///
    /// # Panics
    /// It is too long.
    pub(super) fn encode(&self) -> Vec<u8> {
        assert!(self.is_sendable(), "its length was looked at");
        let length = |part: &[u8]| u32::try_from(part.len()).expect("it is short enough").to_le_bytes();
        let mut out = Vec::with_capacity(HEADER_BYTES + self.channel.len() + self.message.len());
        out.push(u8::from(self.group.is_some()));
        out.extend_from_slice(&self.group.map_or(0, |group| group.0).to_le_bytes());
        out.extend_from_slice(&length(self.channel));
        out.extend_from_slice(&length(self.message));
        out.extend_from_slice(self.channel);
        out.extend_from_slice(self.message);
        out
    }
}

/// Puts messages together again.
#[derive(Debug, Default)]
pub(super) struct MessageReader {
    bytes: Vec<u8>,
    /// So many of them are read.
    read: usize,
}

impl MessageReader {
    /// More has come.
    pub(super) fn feed(&mut self, piece: &[u8]) {
        self.bytes.drain(..self.read);
        self.read = 0;
        if self.bytes.is_empty() {
            // Whatever a long published needed is given back.
            self.bytes.shrink_to(2 * piece.len());
        }
        self.bytes.extend_from_slice(piece);
    }

    /// The next published, if it is whole.
    ///
    /// # Errors
    /// What came is none; nothing after it can be read.
    pub(super) fn next_message(&mut self) -> Result<Option<Published<'_>>, Malformed> {
        let Some((header, rest)) = self.bytes[self.read..].split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [kind, group @ .., c0, c1, c2, c3, m0, m1, m2, m3] = *header;
        let group = GroupId(u64::from_le_bytes(group));
        let length = |bytes| usize::try_from(u32::from_le_bytes(bytes)).map_err(|_| Malformed);
        let (channel, message) = (length([c0, c1, c2, c3])?, length([m0, m1, m2, m3])?);
        let whole = channel.checked_add(message).filter(|whole| *whole <= MESSAGE_BYTES_MAX).ok_or(Malformed)?;
        if kind > 1 {
            return Err(Malformed);
        }
        let Some((channel, message)) = rest.get(..whole).map(|text| text.split_at(channel)) else { return Ok(None) };
        self.read += HEADER_BYTES + whole;
        Ok(Some(Published { group: (kind == 1).then_some(group), channel, message }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let hex =
            |published: Published<'_>| published.encode().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let published = Published { group: None, channel: b"ch", message: b"hi!" };
        assert_eq!(hex(published), "00000000000000000002000000030000006368686921");
        let published = Published { group: Some(GroupId(0x0102)), channel: b"c", message: b"" };
        assert_eq!(hex(published), "010201000000000000010000000000000063");
    }

    #[test]
    fn letters_come_whole_however_they_are_cut() {
        let messages = [
            Published { group: None, channel: b"one", message: b"first" },
            Published { group: Some(GroupId(9)), channel: b"", message: b"" },
            Published { group: None, channel: b"two", message: &[7; 100] },
        ];
        let bytes: Vec<u8> = messages.iter().flat_map(Published::encode).collect();
        for piece in 1..=bytes.len() {
            let (mut reader, mut come) = (MessageReader::default(), 0);
            for part in bytes.chunks(piece) {
                reader.feed(part);
                while let Some(published) = reader.next_message().unwrap() {
                    assert_eq!(published, messages[come]);
                    come += 1;
                }
            }
            assert_eq!(come, messages.len());
        }
    }

    #[test]
    fn what_is_too_long_or_of_no_kind_is_refused_before_it_comes() {
        let long = u32::try_from(MESSAGE_BYTES_MAX).unwrap();
        for (kind, channel, message) in [(0, long, 1), (0, u32::MAX, u32::MAX), (2, 1, 1)] {
            let mut reader = MessageReader::default();
            reader.feed(&[&[kind][..], &[0; 8], &u32::to_le_bytes(channel), &u32::to_le_bytes(message)].concat());
            assert_eq!(reader.next_message(), Err(Malformed), "{kind} {channel} {message}");
        }
        assert!(!Published { group: None, channel: b"c", message: &vec![0; MESSAGE_BYTES_MAX] }.is_sendable());
    }
}
