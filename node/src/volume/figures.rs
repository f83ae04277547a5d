//! What the requests of an attached volume come to, for metrics: how many ended, of how many bytes, how long they took, and what
//! is under way.

use core::time::Duration;

use ashlar_volume::initiator::Op;

/// Bounds of the histograms of spans: from 100 us to 10 s.
pub const SPAN_BOUNDS: [Duration; 13] = [
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(10),
];

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpKind {
    /// Reads bytes.
    Read,
    /// Writes bytes.
    Write,
    /// Writes zeroes.
    Zero,
    /// Gives up content.
    Discard,
    /// Flushes, which do nothing, and questions which blocks are stored.
    Other,
}

impl OpKind {
    /// All of them, in the order of [`VolumeFigures::ops`].
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Zero, Self::Discard, Self::Other];

    /// What it is called in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Zero => "zero",
            Self::Discard => "discard",
            Self::Other => "other",
        }
    }

    /// The kind of a request, and its bytes.
    pub(super) fn of(op: &Op) -> (Self, u64) {
        match op {
            Op::Read { len, .. } => (Self::Read, *len),
            Op::Write { data, .. } => (Self::Write, data.len() as u64),
            Op::Zero { len, .. } => (Self::Zero, *len),
            Op::Discard { len, .. } => (Self::Discard, *len),
            Op::Presence { .. } | Op::Flush => (Self::Other, 0),
        }
    }
}

/// Requests of one kind since the volume was attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpFigures {
    /// Requests that were done.
    pub done: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long they took together.
    pub spans: Duration,
    /// How many of them took no longer than each of [`SPAN_BOUNDS`].
    pub within: [u64; SPAN_BOUNDS.len()],
    /// Requests that failed for good.
    pub failed: u64,
}

/// An attached volume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VolumeFigures {
    /// What it is called; its id where the catalog does not know a name any more.
    pub name: String,
    /// Bytes that users see.
    pub size_bytes: u64,
    /// Clients that have it attached here.
    pub clients: usize,
    /// Requests by kind, in the order of [`OpKind::ALL`].
    pub ops: [OpFigures; OpKind::ALL.len()],
    /// Requests that have no answer yet.
    pub in_flight: usize,
    /// How long the oldest of them waits.
    pub oldest: Duration,
}

impl OpFigures {
    /// A request has ended.
    pub(super) fn note(&mut self, bytes: u64, span: Duration, is_done: bool) {
        if !is_done {
            self.failed += 1;
            return;
        }
        self.done += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.spans = self.spans.saturating_add(span);
        for (count, bound) in self.within.iter_mut().zip(SPAN_BOUNDS) {
            *count += u64::from(span <= bound);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_counted_at_each_bound_that_they_keep() {
        let mut figures = OpFigures::default();
        figures.note(4_096, Duration::from_micros(100), true);
        figures.note(4_096, Duration::from_micros(101), true);
        figures.note(4_096, Duration::from_secs(11), true);
        figures.note(4_096, Duration::from_secs(1), false);
        let OpFigures { done, bytes, spans, within, failed } = figures;
        assert_eq!((done, bytes, failed), (3, 3 * 4_096, 1));
        assert_eq!(spans, Duration::from_secs(11) + Duration::from_micros(201));
        assert_eq!((within[0], within[1], within[12]), (1, 2, 2));
        assert!(SPAN_BOUNDS.is_sorted());
    }
}
