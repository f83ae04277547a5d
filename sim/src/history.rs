//! Whether what clients were told can be the history of one register.

use std::collections::BTreeSet;

/// When something has not ended.
pub(crate) const NEVER: u64 = u64::MAX;
/// Operations of one key that can be looked at.
pub(crate) const OPERATIONS_MAX: usize = 128;

/// What was done to a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// This was written; each value but 0 is written once.
    Write(u64),
    /// This was read; 0 for nothing.
    Read(u64),
}

/// One operation of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) action: Action,
    /// When the request left.
    pub(crate) begin: u64,
    /// When the reply came; [`NEVER`] if none did: then a write may have been done at any time after, or never.
    pub(crate) end: u64,
    /// It was done before its end or never will be, and nobody was told which.
    pub(crate) is_attempt: bool,
    /// A write that was done only where this was, if it was done; nothing for one that was done in any case.
    pub(crate) seen: Option<u64>,
}

/// Whether there is an order of the operations in which each read gives what was last written, and which agrees with all that had ended
/// before another began. A search over sets of operations that were ordered already (Wing and Gong, 1993; Lowe, 2017).
pub(crate) fn is_linearizable(operations: &[Operation]) -> bool {
    let reads =
        |operation: &Operation, value: u64| operation.action == Action::Read(value) || operation.seen == Some(value);
    let is_read = |value: u64| operations.iter().any(|operation| reads(operation, value));
    // What nobody was told of, and nobody has read, may as well not have been done.
    let matters = |operation: &&Operation| match operation.action {
        Action::Write(value) => (operation.end != NEVER && !operation.is_attempt) || is_read(value),
        Action::Read(_) => true,
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
        let mut reads = left().filter(|at| operations[*at].action == Action::Read(value));
        if let Some(at) = reads.next() {
            // Each value is written once: all its reads come before the next write, and none of them is in another's way.
            let at =
                reads.fold(at, |one, other| if operations[other].begin < operations[one].begin { other } else { one });
            let is_next = operations[at].begin <= first_end;
            if is_next {
                open.push((done | 1 << at, value));
            }
            // What comes before it is a write, and this value is not written again: unless that is not done, or the value is 0.
            if is_next || (value != 0 && !left().any(|at| operations[at].is_attempt)) {
                continue;
            }
        }
        for at in left().filter(|at| operations[*at].begin <= first_end) {
            let is_possible = operations[at].seen.is_none_or(|seen| seen == value);
            if let Action::Write(written) = operations[at].action
                && is_possible
            {
                open.push((done | 1 << at, written));
                if operations[at].is_attempt {
                    open.push((done | 1 << at, value));
                }
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(value: u64, begin: u64, end: u64) -> Operation {
        Operation { action: Action::Write(value), begin, end, is_attempt: false, seen: None }
    }

    fn read(value: u64, begin: u64, end: u64) -> Operation {
        Operation { action: Action::Read(value), ..write(0, begin, end) }
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
    fn a_conditional_write_is_done_where_its_condition_holds() {
        let swap = |seen, value, begin, end| Operation { seen: Some(seen), ..write(value, begin, end) };
        assert!(is_linearizable(&[swap(0, 1, 0, 9), swap(1, 2, 0, 9), read(2, 10, 11)]));
        assert!(!is_linearizable(&[swap(0, 1, 0, 9), swap(0, 2, 0, 9)]), "two have won");
        assert!(is_linearizable(&[swap(0, 1, 0, 9), swap(0, 2, 0, NEVER)]));
        assert!(is_linearizable(&[swap(0, 1, 0, NEVER), swap(1, 2, 3, 4)]));
        assert!(!is_linearizable(&[write(1, 0, 1), swap(0, 2, 2, 3)]), "something was there");
        assert!(!is_linearizable(&[write(1, 0, 1), write(2, 2, 3), swap(1, 3, 4, 5)]), "it was replaced before");
    }

    #[test]
    fn an_attempt_is_over_at_its_end() {
        let attempt = |begin, end| Operation { is_attempt: true, ..write(1, begin, end) };
        assert!(is_linearizable(&[attempt(0, 4), read(0, 5, 6), read(0, 7, 8)]), "it was not done");
        assert!(is_linearizable(&[attempt(0, 4), read(0, 1, 2), read(1, 5, 6)]), "it was done in time");
        let zeroes = Operation { action: Action::Write(0), ..attempt(3, 4) };
        assert!(is_linearizable(&[write(2, 1, 2), zeroes, read(2, 5, 6), write(0, 7, 8), read(0, 9, 10)]));
        assert!(!is_linearizable(&[attempt(0, 4), read(0, 5, 6), read(1, 7, 8)]), "it was done after its end");
        assert!(!is_linearizable(&[attempt(0, 4), write(2, 5, 6), read(1, 7, 8)]), "and what came later was lost");
    }

    #[test]
    fn nothing_may_be_written_again() {
        assert!(is_linearizable(&[read(0, 0, 1), write(1, 2, 3), write(0, 4, 5), read(0, 6, 7)]));
        assert!(is_linearizable(&[write(1, 2, 3), write(0, 4, NEVER), read(0, 6, 7)]));
        assert!(!is_linearizable(&[write(1, 2, 3), write(0, 6, 9), read(0, 4, 5)]), "before it was asked for");
    }

    #[test]
    fn what_nobody_was_told_of_may_be_or_not() {
        assert!(is_linearizable(&[write(1, 0, NEVER), read(0, 5, 6)]));
        assert!(is_linearizable(&[write(1, 0, NEVER), read(0, 5, 6), read(1, 7, 8)]));
        assert!(!is_linearizable(&[write(1, 0, NEVER), read(1, 5, 6), read(0, 7, 8)]));
        assert!(!is_linearizable(&[write(1, 3, NEVER), read(1, 1, 2)]), "not before it was asked for");
    }
}
