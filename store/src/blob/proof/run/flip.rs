//! Flipped bytes of an area at rest.

use super::super::BlobFlipCounts;
use super::ask::is_answer_to_get;
use super::*;

impl Run {
    /// Random changes, then one flipped byte after the other: one of the first of each block, and every `stride`th of
    /// all. The flip is undone afterwards.
    pub(in crate::blob::proof) fn flip_bytes(&mut self, stride: usize) -> Result<BlobFlipCounts, String> {
        let image = self.prepare()?;
        let mut counts = BlobFlipCounts::default();
        for block in 0..self.drive.bytes() / BLOCK_BYTES {
            let start = block * BLOCK_BYTES;
            let mut places = vec![start + self.chance.below(128)];
            let mut at = start + self.chance.below(stride.min(BLOCK_BYTES));
            while at < start + BLOCK_BYTES {
                if stride <= BLOCK_BYTES || self.chance.one_in(stride / BLOCK_BYTES) {
                    places.push(at);
                }
                at += stride;
            }
            for at in places {
                for bits in [0x01, 0x80, 0xff] {
                    self.drive.flip(at, bits);
                    self.count(&mut counts, &format!("byte {at} of block {block}"))?;
                    self.drive.restore(&image);
                }
            }
        }
        Ok(counts)
    }

    /// Random changes, then one block after the other is overwritten by another one, as misdirected writes do.
    pub(in crate::blob::proof) fn misplace_blocks(&mut self, count: usize) -> Result<BlobFlipCounts, String> {
        let image = self.prepare()?;
        let is_used = |block: &usize| image[block * BLOCK_BYTES..][..BLOCK_BYTES].iter().any(|byte| *byte != 0);
        let used: Vec<usize> = (0..self.drive.bytes() / BLOCK_BYTES).filter(is_used).collect();
        let mut counts = BlobFlipCounts::default();
        for _ in 0..count {
            let (from, to) = (used[self.chance.below(used.len())], used[self.chance.below(used.len())]);
            self.drive.misplace(from, to);
            self.count(&mut counts, &format!("block {from} in the place of {to}"))?;
            self.drive.restore(&image);
        }
        Ok(counts)
    }

    /// An area at rest; its bytes.
    pub(in crate::blob::proof) fn prepare(&mut self) -> Result<Vec<u8>, String> {
        let len_max = [12_000, 1_000, 3][self.chance.below(3)];
        self.mood = Mood { len_max, removals: 4, slow_reads: false, slow_marks: false, slowness: 1, few_ids: false };
        for _ in 0..2_500 {
            self.random_step()?;
        }
        self.become_quiet()?;
        Ok(self.drive.content(0..self.drive.bytes()))
    }

    fn count(&mut self, counts: &mut BlobFlipCounts, what: &str) -> Result<(), String> {
        let found = self.survey().map_err(|found| format!("{what}: {found}"))?;
        counts.flips += 1;
        counts.damaged += usize::from(found.damaged > 0);
        counts.lost += usize::from(found.lost > 0);
        Ok(())
    }

    /// Opens, compares everything, and counts what is reported.
    fn survey(&mut self) -> Result<Survey, String> {
        self.blobs = None;
        self.open()?;
        let mut found = Survey::default();
        let ids: Vec<BlobId> = self.model.keys().copied().collect();
        for blob in ids {
            let reply = self.get_whole(blob)?;
            self.count_events(&mut found)?;
            let model = &self.model[&blob];
            let is_expected = is_whole(model.now(), &reply);
            let is_old = matches!(reply, Err(BlobError::NoSuchBlob))
                || model.ever.iter().any(|content| is_whole(Some(*content), &reply));
            match reply {
                _ if is_expected => {}
                Err(BlobError::Damaged) if model.now().is_some() || found.lost > 0 => {}
                _ if is_old && found.lost > 0 => {}
                other => return Err(format!("{blob}: {other:?}, expected {:?}", model.now())),
            }
        }
        self.blobs().check_accounts()?;
        Ok(found)
    }

    fn count_events(&mut self, found: &mut Survey) -> Result<(), String> {
        while let Some(event) = self.blobs().poll_event() {
            match event {
                BlobEvent::Damage { .. } => found.damaged += 1,
                BlobEvent::Lost { .. } => found.lost += 1,
                BlobEvent::Poisoned(_) => return Err("it is poisoned".into()),
            }
        }
        Ok(())
    }
}

fn is_whole(state: Option<Content>, reply: &Result<BlobReply, BlobError>) -> bool {
    is_answer_to_get(state, 0, state.map_or(0, |content| content.len), reply)
}

#[derive(Debug, Default)]
struct Survey {
    damaged: usize,
    lost: usize,
}
