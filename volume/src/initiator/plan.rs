//! Cutting a request into runs: whole blocks within one extent.

use crate::block::{BLOCK_BYTES, ByteRange};
use crate::message::Verb;

/// What a request does to its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Action {
    pub(super) verb: Verb,
    /// The bytes that the guest named; for a discard, the whole blocks in them.
    pub(super) range: ByteRange,
}

/// How a run is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// With the request's own verb.
    Direct,
    /// The blocks at the ends that the guest names in part are read first, then the whole run is written.
    Merge {
        /// The first block is named in part.
        head: bool,
        /// The last block is named in part, and is not the first.
        tail: bool,
    },
}

/// The next part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// Whole blocks.
    pub(super) blocks: ByteRange,
    pub(super) method: Method,
}

impl Action {
    /// The blocks that the request locks.
    pub(super) const fn blocks(self) -> ByteRange {
        self.range.outer()
    }

    /// Payload bytes of the whole request, in either direction.
    pub(super) const fn payload_len(self) -> u64 {
        match self.verb {
            Verb::Read | Verb::Write => self.range.len(),
            Verb::Zero | Verb::ZeroInPlace | Verb::Discard | Verb::Presence => 0,
        }
    }

    /// The run that begins at `at`, a block of the request, with `extent_left` bytes to the end of the extent.
    pub(super) fn next_run(self, at: u64, extent_left: u64, payload_max: u32) -> Run {
        let end = self.blocks().end.min(at + extent_left);
        match self.verb {
            Verb::Discard | Verb::Presence => Run { blocks: ByteRange { start: at, end }, method: Method::Direct },
            Verb::Read => {
                let end = end.min(at + u64::from(payload_max));
                Run { blocks: ByteRange { start: at, end }, method: Method::Direct }
            }
            Verb::Write => {
                let end = end.min(at + u64::from(payload_max));
                self.run_of_write(ByteRange { start: at, end })
            }
            Verb::Zero | Verb::ZeroInPlace => self.run_of_zero(at, end),
        }
    }

    fn run_of_write(self, blocks: ByteRange) -> Run {
        let head = blocks.start < self.range.start;
        let tail = self.range.end < blocks.end;
        let is_one = blocks.len() == u64::from(BLOCK_BYTES);
        let method = match (head, tail) {
            (false, false) => Method::Direct,
            _ if is_one => Method::Merge { head: true, tail: false },
            _ => Method::Merge { head, tail },
        };
        Run { blocks, method }
    }

    /// Zeroes of whole blocks need no payload, so blocks that are named in part are runs of their own.
    fn run_of_zero(self, at: u64, end: u64) -> Run {
        let whole = self.range.inner();
        let is_whole = whole.start <= at && at < whole.end;
        if is_whole {
            return Run { blocks: ByteRange { start: at, end: end.min(whole.end) }, method: Method::Direct };
        }
        self.run_of_write(ByteRange { start: at, end: at + u64::from(BLOCK_BYTES) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arbtest::arbtest;

    const K: u64 = 4_096;

    fn runs(verb: Verb, start: u64, end: u64, extent: u64) -> Vec<(u64, u64, Method)> {
        let action = Action { verb, range: ByteRange { start, end } };
        let mut at = action.blocks().start;
        let mut runs = Vec::new();
        while at < action.blocks().end {
            let run = action.next_run(at, extent - at % extent, 65_536);
            assert_eq!(run.blocks.start, at);
            at = run.blocks.end;
            runs.push((run.blocks.start, run.blocks.end, run.method));
        }
        runs
    }

    #[test]
    fn runs_of_requests() {
        let (direct, merge) = (Method::Direct, |head, tail| Method::Merge { head, tail });
        assert_eq!(runs(Verb::Read, 1, 2, 1 << 20), [(0, K, direct)]);
        assert_eq!(runs(Verb::Write, 0, K, 1 << 20), [(0, K, direct)]);
        assert_eq!(runs(Verb::Write, 1, K, 1 << 20), [(0, K, merge(true, false))]);
        assert_eq!(runs(Verb::Write, 0, K - 1, 1 << 20), [(0, K, merge(true, false))]);
        assert_eq!(runs(Verb::Write, 1, 2 * K, 1 << 20), [(0, 2 * K, merge(true, false))]);
        assert_eq!(runs(Verb::Write, 0, 2 * K - 1, 1 << 20), [(0, 2 * K, merge(false, true))]);
        assert_eq!(runs(Verb::Write, 1, 3 * K - 1, 1 << 20), [(0, 3 * K, merge(true, true))]);
        // Across the border of an extent.
        let two = [(65_536 - K, 65_536, merge(true, false)), (65_536, 65_536 + K, merge(true, false))];
        assert_eq!(runs(Verb::Write, 65_535, 65_537, 65_536), two);
        // Up to the longest payload.
        assert_eq!(runs(Verb::Write, 0, 65_536 + K, 1 << 20), [(0, 65_536, direct), (65_536, 65_536 + K, direct)]);
        assert_eq!(runs(Verb::Discard, 0, 1 << 20, 1 << 20), [(0, 1 << 20, direct)]);
        let zero = [(0, K, merge(true, false)), (K, 9 * K, direct), (9 * K, 10 * K, merge(true, false))];
        assert_eq!(runs(Verb::Zero, 5, 10 * K - 5, 1 << 20), zero);
        assert_eq!(runs(Verb::Zero, 5, 6, 1 << 20), [(0, K, merge(true, false))]);
    }

    #[test]
    fn runs_make_up_the_request() {
        arbtest(|u| {
            let verb = *u.choose(&[Verb::Read, Verb::Write, Verb::Zero])?;
            let start = u.int_in_range(0..=300_000)?;
            let end = start + u.int_in_range(1..=300_000)?;
            let range = ByteRange { start, end };
            let runs = runs(verb, start, end, 65_536);
            assert_eq!(runs.first().unwrap().0, range.outer().start);
            assert_eq!(runs.last().unwrap().1, range.outer().end);
            for (start, end, method) in runs {
                assert!(start / 65_536 == (end - 1) / 65_536, "within one extent");
                let blocks = ByteRange { start, end };
                let is_whole = blocks.intersection(range) == blocks;
                assert!(verb == Verb::Read || is_whole == (method == Method::Direct));
            }
            Ok(())
        });
    }
}
