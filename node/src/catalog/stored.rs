//! What a storage holds after a step: for storages that replay their steps.

use ashlar_catalog::raft::host::{LogWrite, StoredLog};

/// A step does not follow what is there: its entries would leave a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Index of the entry that should come.
    pub due: u64,
    /// Index of the one that came.
    pub found: u64,
}

/// Takes a step, whose parts take effect in the order in which [`LogWrite`] has them.
///
/// # Errors
/// [`Gap`]: the storage's fault, which has lost a step before this one. No retry helps.
pub fn take_step(stored: &mut StoredLog, step: LogWrite) -> Result<(), Gap> {
    if let Some(from) = step.truncate_from {
        let kept = stored.entries.partition_point(|(index, _)| *index < from);
        stored.entries.truncate(kept);
    }
    for (index, bytes) in step.append {
        if let Some((last, _)) = stored.entries.last()
            && *last + 1 != index
        {
            return Err(Gap { due: last + 1, found: index });
        }
        stored.entries.push((index, bytes));
    }
    if let Some((upto, purged)) = step.purge {
        let first = stored.entries.partition_point(|(index, _)| *index <= upto);
        stored.entries.drain(..first);
        stored.purged = Some(purged);
    }
    stored.vote = step.vote.or(stored.vote.take());
    stored.committed = step.committed.or(stored.committed.take());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(indexes: impl IntoIterator<Item = u64>) -> Vec<(u64, Vec<u8>)> {
        indexes.into_iter().map(|index| (index, vec![index as u8])).collect()
    }

    #[test]
    fn parts_take_effect_in_their_order() {
        let mut stored = StoredLog::default();
        let first = LogWrite { append: entries(0..6), vote: Some(vec![1]), ..LogWrite::default() };
        take_step(&mut stored, first).unwrap();
        let second = LogWrite {
            truncate_from: Some(4),
            append: entries(4..9),
            purge: Some((2, vec![9])),
            committed: Some(vec![2]),
            ..LogWrite::default()
        };
        take_step(&mut stored, second).unwrap();
        let expected = StoredLog {
            vote: Some(vec![1]),
            committed: Some(vec![2]),
            purged: Some(vec![9]),
            entries: entries(3..9),
            snapshot: None,
        };
        assert_eq!(stored, expected);
        let gap = LogWrite { append: entries(10..11), ..LogWrite::default() };
        assert_eq!(take_step(&mut stored, gap), Err(Gap { due: 9, found: 10 }));
    }
}
