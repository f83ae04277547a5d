//! A snapshot in pieces, and whole again with the last one.

use std::sync::Arc;

use super::form::{CHUNK_BYTES_MAX, SnapshotChunk};
use super::types::{Snapshot, SnapshotMeta, Vote};
use crate::state::SNAPSHOT_BYTES_MAX;

/// The pieces of a snapshot, in order; of an empty one none.
pub(super) fn pieces(vote: Vote, snapshot: &Snapshot) -> impl Iterator<Item = SnapshotChunk> {
    let Snapshot { meta, snapshot: bytes } = snapshot;
    let len = bytes.len() as u64;
    let offsets = (0..len).step_by(CHUNK_BYTES_MAX);
    let pieces = offsets.zip(bytes.chunks(CHUNK_BYTES_MAX));
    pieces.map(move |(offset, data)| SnapshotChunk { vote, meta: meta.clone(), len, offset, data: data.to_vec() })
}

/// The snapshot that is coming in, if one is. One at a time: the first piece of another one takes its place.
#[derive(Default)]
pub(super) struct Incoming(Option<Begun>);

struct Begun {
    vote: Vote,
    meta: SnapshotMeta,
    /// Of the whole.
    len: usize,
    /// The pieces so far.
    bytes: Vec<u8>,
}

/// What became of a piece of a snapshot.
#[derive(Debug)]
pub(super) enum Joined {
    /// It does not follow those before it: the sender begins again.
    Misfit,
    /// More are to come.
    Partial,
    /// It was the last.
    Whole(Vote, Snapshot),
}

impl Incoming {
    /// Adds a piece to those that came before it. After one that does not fit, those are gone.
    pub(super) fn join(&mut self, chunk: &SnapshotChunk) -> Joined {
        let Some(len) = usize::try_from(chunk.len).ok().filter(|len| *len <= SNAPSHOT_BYTES_MAX) else {
            self.0 = None;
            return Joined::Misfit;
        };
        if chunk.offset == 0 {
            self.0 = Some(Begun { vote: chunk.vote, meta: chunk.meta.clone(), len, bytes: Vec::new() });
        }
        let Some(mut known) = self.0.take() else { return Joined::Misfit };
        let is_same = known.vote == chunk.vote && known.meta == chunk.meta && known.len == len;
        let is_next = u64::try_from(known.bytes.len()) == Ok(chunk.offset);
        if !is_same || !is_next || chunk.data.len() > len - known.bytes.len() {
            return Joined::Misfit;
        }
        known.bytes.extend_from_slice(&chunk.data);
        if known.bytes.len() < len {
            self.0 = Some(known);
            return Joined::Partial;
        }
        Joined::Whole(known.vote, Snapshot { meta: known.meta, snapshot: Arc::new(known.bytes) })
    }
}

#[cfg(test)]
mod tests {
    use openraft::StoredMembership;
    use openraft::impls::leader_id_std::LeaderId;

    use super::super::types::{LogId, Membership};
    use super::*;
    use crate::sample::server_id;
    use crate::state::STATE_BYTES_MAX;

    fn vote(term: u64) -> Vote {
        Vote { leader_id: LeaderId { term, voted_for: server_id(1) }, committed: true }
    }

    fn meta(index: u64) -> SnapshotMeta {
        let last_membership = StoredMembership::new(None, Membership::default());
        SnapshotMeta { last_log_id: Some(LogId::new_term_index(3, index)), last_membership }
    }

    fn chunk(offset: u64, data: &[u8]) -> SnapshotChunk {
        SnapshotChunk { vote: vote(3), meta: meta(9), len: 5, offset, data: data.to_vec() }
    }

    /// Of a snapshot `abcde`: what comes of each piece, in order.
    fn join(incoming: &mut Incoming, chunk: &SnapshotChunk) -> String {
        match incoming.join(chunk) {
            Joined::Misfit => "misfit".into(),
            Joined::Partial => "partial".into(),
            Joined::Whole(by, snapshot) => {
                assert_eq!((by, &snapshot.meta), (chunk.vote, &chunk.meta));
                String::from_utf8(snapshot.snapshot.to_vec()).unwrap()
            }
        }
    }

    #[test]
    fn a_snapshot_is_whole_with_its_last_piece() {
        let mut incoming = Incoming::default();
        let pieces = [(0, "ab", "partial"), (2, "cd", "partial"), (4, "e", "abcde"), (0, "abcde", "abcde")];
        for (offset, data, expected) in pieces {
            assert_eq!(join(&mut incoming, &chunk(offset, data.as_bytes())), expected, "{offset}");
        }
        // What is over is over; and a first piece begins anew, whatever came before.
        assert_eq!(join(&mut incoming, &chunk(4, b"e")), "misfit");
        assert_eq!(join(&mut incoming, &chunk(0, b"xyz")), "partial");
        assert_eq!(join(&mut incoming, &chunk(0, b"ab")), "partial");
        assert_eq!(join(&mut incoming, &chunk(2, b"cde")), "abcde");
        let empty = SnapshotChunk { len: 0, ..chunk(0, b"") };
        assert_eq!(join(&mut incoming, &empty), "");
    }

    #[test]
    fn a_piece_that_does_not_follow_ends_what_came_before() {
        let misfits = [
            chunk(1, b"b"),
            chunk(3, b"d"),
            chunk(2, b"cdef"),
            SnapshotChunk { vote: vote(4), ..chunk(2, b"cde") },
            SnapshotChunk { meta: meta(8), ..chunk(2, b"cde") },
            SnapshotChunk { len: 1, ..chunk(2, b"") },
            SnapshotChunk { len: SNAPSHOT_BYTES_MAX as u64 + 1, ..chunk(2, b"c") },
        ];
        for misfit in misfits {
            let mut incoming = Incoming::default();
            assert_eq!(join(&mut incoming, &chunk(0, b"ab")), "partial");
            assert_eq!(join(&mut incoming, &misfit), "misfit", "{}: {:?}", misfit.offset, misfit.data);
            assert_eq!(join(&mut incoming, &chunk(2, b"cde")), "misfit");
        }
        // As large as a full catalog, and as much again for configurations.
        let whole = SnapshotChunk { len: 2 * STATE_BYTES_MAX as u64, ..chunk(0, b"ab") };
        assert_eq!(join(&mut Incoming::default(), &whole), "partial");
    }

    #[test]
    fn pieces_come_to_what_they_were() {
        for len in [1, CHUNK_BYTES_MAX - 1, CHUNK_BYTES_MAX, CHUNK_BYTES_MAX + 1, 2 * CHUNK_BYTES_MAX + 7] {
            let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let snapshot = Snapshot { meta: meta(9), snapshot: Arc::new(bytes) };
            let (mut incoming, mut count) = (Incoming::default(), 0);
            let mut whole = None;
            for piece in pieces(vote(3), &snapshot) {
                assert!(whole.is_none() && piece.data.len() <= CHUNK_BYTES_MAX, "{len}");
                count += 1;
                match incoming.join(&piece) {
                    Joined::Misfit => panic!("piece {count} of {len} bytes does not follow"),
                    Joined::Partial => {}
                    Joined::Whole(_, snapshot) => whole = Some(snapshot),
                }
            }
            assert_eq!(count, len.div_ceil(CHUNK_BYTES_MAX));
            assert!(whole.is_some_and(|whole| whole.snapshot == snapshot.snapshot && whole.meta == meta(9)), "{len}");
        }
        let empty = Snapshot { meta: meta(9), snapshot: Arc::default() };
        assert_eq!(pieces(vote(3), &empty).count(), 0);
    }
}
