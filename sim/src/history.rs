//! Whether what clients were told can be the history of one register.

use std::collections::BTreeSet;

/// When something has not ended.
pub(crate) const NEVER: u64 = u64::MAX;
/// Operations of one key that can be looked at.
pub(crate) const OPERATIONS_MAX: usize = 128;

/// What was done to a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// This was written; each value is written once.
    Write(u64),
    /// This was read; 0 for nothing.
    Read(u64),
}

/// One operation of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) deed: Deed,
    /// When the request left.
    pub(crate) begin: u64,
    /// When the reply came; [`NEVER`] if none did: then a write may have been done at any time after, or never.
    pub(crate) end: u64,
}

/// Whether there is an order of the operations in which each read gives what was last written, and which agrees with all that had ended
/// before another began. A search over sets of operations that were ordered already (Wing and Gong, 1993; Lowe, 2017).
pub(crate) fn is_linearizable(operations: &[Operation]) -> bool {
    let is_read = |value: u64| operations.iter().any(|operation| operation.deed == Deed::Read(value));
    // What nobody was told of, and nobody has read, may as well not have been done.
    let matters = |operation: &&Operation| match operation.deed {
        Deed::Write(value) => operation.end != NEVER || is_read(value),
        Deed::Read(_) => true,
    };
    let operations: Vec<Operation> = operations.iter().filter(matters).copied().collect();
    assert!(operations.len() <= OPERATIONS_MAX, "whoever makes them counts them");
    let wanted: u128 = (0..operations.len()).filter(|at| operations[*at].end != NEVER).fold(0, |sum, at| sum | 1 << at);
    let mut seen: BTreeSet<(u128, u64)> = BTreeSet::new();
    let mut open = vec![(0_u128, 0_u64)];
    while let Some((done, value)) = open.pop() {
        if done & wanted == wanted {
            return true;
        }
        if !seen.insert((done, value)) {
            continue;
        }
        let left = || (0..operations.len()).filter(|at| done & 1 << at == 0);
        let first_end = left().map(|at| operations[at].end).min().unwrap_or(NEVER);
        let mut reads = left().filter(|at| operations[*at].deed == Deed::Read(value));
        if let Some(at) = reads.next() {
            // Each value is written once: all its reads come before the next write, and none of them is in another's way.
            let at =
                reads.fold(at, |one, other| if operations[other].begin < operations[one].begin { other } else { one });
            if operations[at].begin <= first_end {
                open.push((done | 1 << at, value));
            }
            continue;
        }
        for at in left().filter(|at| operations[*at].begin <= first_end) {
            if let Deed::Write(written) = operations[at].deed {
                open.push((done | 1 << at, written));
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(value: u64, begin: u64, end: u64) -> Operation {
        Operation { deed: Deed::Write(value), begin, end }
    }

    fn read(value: u64, begin: u64, end: u64) -> Operation {
        Operation { deed: Deed::Read(value), begin, end }
    }

    #[test]
    fn what_can_be_and_what_cannot() {
        assert!(is_linearizable(&[]));
        assert!(is_linearizable(&[write(1, 0, 10), read(0, 1, 2), read(1, 3, 4)]), "it took effect between the reads");
        assert!(!is_linearizable(&[write(1, 0, 10), read(1, 1, 2), read(0, 3, 4)]), "it does not go away again");
        assert!(!is_linearizable(&[write(1, 0, 1), read(0, 2, 3)]), "it was lost");
        assert!(!is_linearizable(&[write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)]), "it is too old");
        assert!(!is_linearizable(&[read(7, 0, 1)]), "nobody wrote it");
    }

    #[test]
    fn what_nobody_was_told_of_may_be_or_not() {
        assert!(is_linearizable(&[write(1, 0, NEVER), read(0, 5, 6)]));
        assert!(is_linearizable(&[write(1, 0, NEVER), read(0, 5, 6), read(1, 7, 8)]));
        assert!(!is_linearizable(&[write(1, 0, NEVER), read(1, 5, 6), read(0, 7, 8)]));
        assert!(!is_linearizable(&[write(1, 3, NEVER), read(1, 1, 2)]), "not before it was asked for");
    }
}
