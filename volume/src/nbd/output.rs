//! Bytes to the client: small ones gathered, payloads as they are.

use std::collections::VecDeque;

use bytes::Bytes;

/// Zeroes to be sent where a client has to be told them one by one.
static ZEROES: [u8; 64 * 1_024] = [0; 64 * 1_024];

/// Gathered bytes are closed at this length, so that what was sent is freed.
const GATHERED_BYTES: usize = 16 * 1_024;

/// Room for gathered bytes to begin with: the head of a reply before a payload.
const FIRST_BYTES: usize = 64;

/// A run of bytes.
#[derive(Debug)]
enum Segment {
    Gathered(Vec<u8>),
    Payload(Bytes),
    Zeroes(u64),
}

impl Segment {
    fn len(&self) -> u64 {
        match self {
            Self::Gathered(bytes) => bytes.len() as u64,
            Self::Payload(bytes) => bytes.len() as u64,
            Self::Zeroes(len) => *len,
        }
    }
}

/// Bytes that wait for the socket, in order.
#[derive(Debug, Default)]
pub(super) struct Output {
    segments: VecDeque<Segment>,
    /// Bytes of the first segment that have left.
    sent: u64,
    /// Bytes that wait.
    len: u64,
}

impl Output {
    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// Appends bytes that are copied: headers.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        match self.segments.back_mut() {
            Some(Segment::Gathered(last)) if last.len() < GATHERED_BYTES => last.extend_from_slice(bytes),
            _ => {
                let mut gathered = Vec::with_capacity(FIRST_BYTES.max(bytes.len()));
                gathered.extend_from_slice(bytes);
                self.segments.push_back(Segment::Gathered(gathered));
            }
        }
    }

    /// Appends bytes that are not copied.
    pub(super) fn push_payload(&mut self, bytes: Bytes) {
        self.len += bytes.len() as u64;
        self.segments.push_back(Segment::Payload(bytes));
    }

    /// Appends zeroes.
    pub(super) fn push_zeroes(&mut self, len: u64) {
        self.len += len;
        self.segments.push_back(Segment::Zeroes(len));
    }

    /// What waits, in order, as non-empty slices.
    pub(super) fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let mut skip = self.sent;
        self.segments.iter().flat_map(move |segment| {
            let skipped = std::mem::take(&mut skip);
            Slices { segment, at: skipped }
        })
    }

    /// Removes the first `len` bytes.
    ///
    /// # Panics
    /// When fewer wait.
    pub(super) fn remove(&mut self, len: u64) {
        self.len = self.len.checked_sub(len).expect("no more is sent than waits");
        self.sent += len;
        while let Some(first) = self.segments.front()
            && self.sent >= first.len()
        {
            self.sent -= first.len();
            self.segments.pop_front();
        }
    }
}

/// One segment as slices, from a position on.
struct Slices<'a> {
    segment: &'a Segment,
    at: u64,
}

impl<'a> Iterator for Slices<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let left = self.segment.len() - self.at;
        if left == 0 {
            return None;
        }
        // A position within a segment in memory is a `usize`.
        let at = self.at as usize;
        let slice = match self.segment {
            Segment::Gathered(bytes) => &bytes[at..],
            Segment::Payload(bytes) => &bytes[at..],
            Segment::Zeroes(_) => &ZEROES[..left.min(ZEROES.len() as u64) as usize],
        };
        self.at += slice.len() as u64;
        Some(slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_bytes_are_gathered_up_to_a_length() {
        let mut output = Output::default();
        (0..3).for_each(|_| output.push(&[1; GATHERED_BYTES]));
        (0..3).for_each(|_| output.push(b"x"));
        assert_eq!(output.segments.len(), 4);
    }

    #[test]
    fn bytes_leave_in_order_however_they_are_cut() {
        for step in [1, 7, 1_000, 70_000, 1_000_000] {
            let mut output = Output::default();
            output.push(b"head");
            output.push_payload(Bytes::from_static(b"payload"));
            output.push_zeroes(150_000);
            output.push(b"tail");
            let mut sent = Vec::new();
            while output.len() > 0 {
                let taken: Vec<u8> = output.slices().flatten().copied().take(step).collect();
                assert!(output.slices().all(|slice| !slice.is_empty()));
                output.remove(taken.len() as u64);
                sent.extend_from_slice(&taken);
                if step == 1 && sent.len() > 100 {
                    break;
                }
            }
            let whole = [&b"headpayload"[..], &[0; 150_000], b"tail"].concat();
            assert_eq!(sent, whole[..sent.len()]);
            assert!(step == 1 || sent.len() == whole.len());
        }
    }

    #[test]
    #[should_panic(expected = "no more is sent than waits")]
    fn nothing_is_sent_twice() {
        Output::default().remove(1);
    }
}
