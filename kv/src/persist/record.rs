//! How a batch lies in a segment: cut into records, each with a checksum that binds it to its log and its place.
//!
//! ```text
//! byte 0      kind: 1 data, 2 mark
//! byte 1      1 if the batch ends with this record
//! 2..4        zero
//! 4..8        bytes of payload that follow the head
//! 8..16       position of the payload's first byte, counted over the whole log
//! 16..24      position up to which the log was known to be durable when this was written
//! 24..32      XXH3-64 of bytes 0 to 24 and the payload, seeded with the log's identity
//! ```
//!
//! Numbers are little-endian. A mark has no payload: it only says how far the log is durable. By that a reader tells a torn
//! tail, which was never acknowledged, from damage to what was.

use xxhash_rust::xxh3::Xxh3;

/// Bytes before the payload.
pub(super) const HEAD_BYTES: usize = 32;
/// The longest payload: longer batches take several records.
pub(super) const PAYLOAD_BYTES_MAX: usize = 1 << 20;

const DATA: u8 = 1;
const MARK: u8 = 2;

/// What names a log: no two have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogId(pub(super) [u8; 16]);

impl LogId {
    fn seed(self) -> u64 {
        let (first, second) = self.0.split_at(8);
        let half = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("a half has eight bytes"));
        half(first).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(half(second))
    }

    /// A checksum that only this log has for these bytes.
    pub(super) fn checksum(self, parts: &[&[u8]]) -> u64 {
        let mut hash = Xxh3::with_seed(self.seed());
        parts.iter().for_each(|part| hash.update(part));
        hash.digest()
    }
}

/// The head of a record, read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) is_last: bool,
    pub(super) len: usize,
    pub(super) position: u64,
    pub(super) durable: u64,
    checksum: u64,
    bytes: [u8; 24],
}

impl Head {
    /// Reads a head. `None` if it cannot be one.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEAD_BYTES] = bytes.first_chunk()?;
        let [kind, last, 0, 0, ..] = *bytes else { return None };
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("there are eight"));
        let len = usize::try_from(u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]])).ok()?;
        let is_possible = match kind {
            DATA => len > 0 && len <= PAYLOAD_BYTES_MAX,
            MARK => len == 0 && last == 1,
            _ => false,
        };
        let mut head = [0; 24];
        head.copy_from_slice(&bytes[..24]);
        (is_possible && last <= 1).then(|| Self {
            is_last: last == 1,
            len,
            position: number(8),
            durable: number(16),
            checksum: number(24),
            bytes: head,
        })
    }

    /// Whether head and payload are those that were written, in this log.
    pub(super) fn is_intact(&self, id: LogId, payload: &[u8]) -> bool {
        payload.len() == self.len && id.checksum(&[&self.bytes, payload]) == self.checksum
    }
}

/// Appends the records of a batch. `position` is that of its first byte.
pub(super) fn encode_batch(id: LogId, position: u64, durable: u64, batch: &[u8], into: &mut Vec<u8>) {
    let pieces = batch.len().div_ceil(PAYLOAD_BYTES_MAX);
    let mut position = position;
    for (number, piece) in batch.chunks(PAYLOAD_BYTES_MAX).enumerate() {
        encode(id, DATA, number + 1 == pieces, position, durable, piece, into);
        position += bytes(piece.len());
    }
}

/// Appends a mark.
pub(super) fn encode_mark(id: LogId, position: u64, durable: u64, into: &mut Vec<u8>) {
    encode(id, MARK, true, position, durable, &[], into);
}

fn encode(id: LogId, kind: u8, is_last: bool, position: u64, durable: u64, payload: &[u8], into: &mut Vec<u8>) {
    let len = u32::try_from(payload.len()).expect("pieces are at most a mebibyte");
    let mut head = [0; 24];
    head[0] = kind;
    head[1] = u8::from(is_last);
    head[4..8].copy_from_slice(&len.to_le_bytes());
    head[8..16].copy_from_slice(&position.to_le_bytes());
    head[16..24].copy_from_slice(&durable.to_le_bytes());
    into.extend_from_slice(&head);
    into.extend_from_slice(&id.checksum(&[&head, payload]).to_le_bytes());
    into.extend_from_slice(payload);
}

/// A count of bytes in memory, as positions are counted.
pub(super) fn bytes(len: usize) -> u64 {
    u64::try_from(len).expect("lengths in memory fit 64 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: LogId = LogId([7; 16]);

    #[test]
    fn the_form_is_fixed() {
        let mut out = Vec::new();
        encode_batch(ID, 5, 3, b"abc", &mut out);
        encode_mark(ID, 8, 8, &mut out);
        // Checksums were computed by another implementation of XXH3.
        let data = [1, 1, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
        let mark = [2, 1, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0];
        let golden = [
            &data[..],
            &[161, 66, 237, 235, 189, 225, 66, 50],
            b"abc",
            &mark[..],
            &[163, 171, 96, 131, 142, 83, 83, 9],
        ];
        assert_eq!(out, golden.concat());
    }

    #[test]
    fn no_bit_changes_unseen() {
        let mut out = Vec::new();
        encode_batch(ID, 5, 3, b"abc", &mut out);
        for bit in 0..out.len() * 8 {
            out[bit / 8] ^= 1 << (bit % 8);
            let seen = Head::decode(&out).is_none_or(|head| !head.is_intact(ID, &out[HEAD_BYTES..]));
            assert!(seen, "bit {bit}");
            out[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(Head::decode(&out).unwrap().is_intact(ID, b"abc"));
        assert!(!Head::decode(&out).unwrap().is_intact(LogId([8; 16]), b"abc"), "of another log");
    }

    #[test]
    fn a_long_batch_takes_several_records() {
        let batch = vec![9; PAYLOAD_BYTES_MAX * 2 + 1];
        let mut out = Vec::new();
        encode_batch(ID, 0, 0, &batch, &mut out);
        let (mut at, mut lens) = (0, Vec::new());
        while at < out.len() {
            let head = Head::decode(&out[at..]).unwrap();
            assert!(head.is_intact(ID, &out[at + HEAD_BYTES..at + HEAD_BYTES + head.len]));
            lens.push((head.len, head.is_last));
            at += HEAD_BYTES + head.len;
        }
        assert_eq!(lens, [(PAYLOAD_BYTES_MAX, false), (PAYLOAD_BYTES_MAX, false), (1, true)]);
    }

    #[test]
    fn only_what_is_written_can_be_the_head_of_a_record() {
        let max = u32::try_from(PAYLOAD_BYTES_MAX).unwrap();
        for (kind, last, len, expected) in [
            (DATA, 0, 1, Some((false, 1))),
            (DATA, 1, max, Some((true, PAYLOAD_BYTES_MAX))),
            (DATA, 1, 0, None),
            (DATA, 1, max + 1, None),
            (DATA, 2, 1, None),
            (MARK, 1, 0, Some((true, 0))),
            (MARK, 0, 0, None),
            (MARK, 1, 1, None),
            (0, 1, 1, None),
            (3, 1, 0, None),
        ] {
            let mut bytes = [0; HEAD_BYTES];
            (bytes[0], bytes[1]) = (kind, last);
            bytes[4..8].copy_from_slice(&len.to_le_bytes());
            let read = |bytes: &[u8]| Head::decode(bytes).map(|head| (head.is_last, head.len));
            assert_eq!(read(&bytes), expected, "{kind} {last} {len}");
            assert_eq!(read(&bytes[..HEAD_BYTES - 1]), None, "a part of it");
            bytes[3] = 1;
            assert_eq!(read(&bytes), None, "what is zero has another meaning one day");
        }
    }
}
