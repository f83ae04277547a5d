//! Flipped bytes of an area at rest.

use super::super::BlobFlipCounts;
use super::ask::is_answer_to_get;
use super::*;

impl Run {
    /// Random changes, then one flipped byte after the other. The flip is undone afterwards.
    pub(in crate::blob::proof) fn flip_bytes(&mut self, stride: usize) -> Result<BlobFlipCounts, String> {
        self.mood = Mood { len_max: 12_000, removals: 4, slow_background: false, few_ids: false };
        for _ in 0..2_500 {
            self.random_step()?;
        }
        self.become_quiet()?;
        let image = self.drive.content().to_vec();
        let mut counts = BlobFlipCounts::default();
        let mut at = self.chance.below(stride);
        while at < self.drive.bytes() {
            for bits in [0x01, 0x80, 0xff] {
                self.drive.flip(at, bits);
                counts.flips += 1;
                let found = self.survey().map_err(|what| format!("byte {at} of block {}: {what}", at / BLOCK_BYTES))?;
                counts.damaged += usize::from(found.damaged > 0);
                counts.lost += usize::from(found.lost > 0);
                self.drive.restore(&image);
            }
            at += 1 + if stride > 1 { self.chance.below(2 * stride - 1) } else { 0 };
        }
        Ok(counts)
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
