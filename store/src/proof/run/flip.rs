//! Flipped bytes of a drive at rest.

use super::*;

impl Run {
    /// Random changes, then one flipped byte in every block of superblocks and tables, in one of `others_of` blocks of data
    /// and six times as many of the journal: the drive refuses to
    /// open, or an extent is reported as damaged, or nothing is wrong. The flip is undone afterwards.
    pub(in crate::proof) fn flip_bytes(&mut self, quiet: Quiet, others_of: usize) -> Result<FlipCounts, String> {
        for _ in 0..600 {
            self.random_step()?;
        }
        match quiet {
            Quiet::Settled => self.become_quiet()?,
            Quiet::Sealed => {
                self.complete_all()?;
                self.pass_time(test_config().seal_after);
                self.complete_all()?;
            }
        }
        for extent in self.model.extents.values_mut() {
            extent.settle(extent.acknowledged);
        }
        let mut counts = FlipCounts::default();
        for block in 0..self.drive.bytes() / BLOCK_BYTES {
            let content = self.drive.content(block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES);
            let is_empty = content.iter().all(|byte| *byte == 0);
            let one_of = match block {
                1..8 => 1,
                _ if is_empty || (DATA_START..DRIVE_BYTES / BLOCK_BYTES - 1).contains(&block) => others_of,
                8..JOURNAL_END => others_of.div_ceil(6),
                _ => 1,
            };
            if !self.chance.one_in(one_of) {
                continue;
            }
            let at = block * BLOCK_BYTES + self.chance.below(BLOCK_BYTES);
            let bits = u8::try_from(1 + self.chance.below(255)).expect("a byte");
            self.drive.flip(at, bits);
            counts.flips += 1;
            match self.open() {
                Err(_) => counts.refused += 1,
                Ok(()) => {
                    let damaged = self.survey().map_err(|what| format!("byte {at} flipped: {what}"))?;
                    counts.reported += usize::from(damaged > 0);
                }
            }
            self.drive.flip(at, bits);
            // What the drive was given and has not done.
            self.drive.crash(&mut self.chance);
        }
        Ok(counts)
    }

    /// Compares everything, and counts extents that are reported as damaged.
    pub(super) fn survey(&mut self) -> Result<usize, String> {
        let mut damaged = 0;
        let extents: Vec<ExtentId> = self.model.extents.keys().copied().collect();
        for id in extents {
            if self.model.volumes[&id.volume] != VolumeState::Live {
                continue;
            }
            let len = block_bytes(EXTENT_BLOCKS);
            match self.demand(RequestKind::Read { extent: id, offset: 0, len })? {
                Ok(Reply::Data { data, version }) => {
                    let extent = &self.model.extents[&id];
                    extent.compare(extent.acknowledged, version, BlockRange::WHOLE, &data, &LostBlocks::default())?;
                }
                Err(Error::Damaged) => damaged += 1,
                other => return Err(format!("read of {id:?}: {other:?}")),
            }
        }
        self.compare_lists()?;
        self.compare_records()?;
        Ok(damaged)
    }
}
