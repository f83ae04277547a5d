//! Use of an area whose content may be anything.

use super::ask::is_answer_to_get;
use super::*;
use crate::blob::layout::{BlobGeometry, BlobSuperblock};

impl Run {
    /// The superblock of its area.
    pub(in crate::blob::proof) fn superblock(&self) -> BlobSuperblock {
        let NewBlobArea { cluster, server, drive, nonce, bytes, segment_blocks } = self.area;
        let geometry = BlobGeometry::plan(bytes, segment_blocks).expect("the area was formatted");
        BlobSuperblock { cluster, server, drive, nonce, geometry }
    }

    /// What was put in it.
    pub(in crate::blob::proof) fn into_model(self) -> Model {
        self.model
    }

    /// Opens an area with this content, of which `model` says what was put, reads everything, removes and puts blobs, and
    /// opens it again. Content that was forged is not compared.
    pub(in crate::blob::proof) fn exercise(
        &mut self,
        model: &Model,
        image: &[u8],
        is_forged: bool,
    ) -> Result<(), String> {
        self.model.clone_from(model);
        // Not used before.
        self.next_tag = 1 << 40;
        self.drive.restore(image);
        if self.open().is_err() {
            return Ok(());
        }
        for round in 0..2 {
            self.check_contents(is_forged)?;
            let ids: Vec<BlobId> = self.model.keys().copied().collect();
            for (index, blob) in ids.into_iter().enumerate() {
                if index % 3 == round {
                    self.demand(BlobRequestKind::Remove { blob })?.ok();
                }
                if index % 5 == round {
                    let content = Content { tag: self.new_tag(), len: 3_000, stamp: 1 };
                    self.model.entry(blob).or_default().ever.push(content);
                    self.demand(BlobRequestKind::Put(content.put(blob)))?.ok();
                }
            }
            self.rest()?;
            self.blobs().check_accounts()?;
            self.blobs = None;
            self.drive.crash(&mut self.chance);
            self.open()?;
        }
        self.check_contents(is_forged)
    }

    /// What is read was put under that id.
    fn check_contents(&mut self, is_forged: bool) -> Result<(), String> {
        let ids: Vec<BlobId> = self.model.keys().copied().collect();
        for blob in ids {
            let reply = self.get_whole(blob)?;
            let ever = &self.model[&blob].ever;
            let is_known = ever.iter().any(|content| is_answer_to_get(Some(*content), 0, content.len, &reply));
            if reply.is_ok() && !is_known && !is_forged {
                return Err(format!("{blob} is {reply:?}, which it never was"));
            }
        }
        self.demand(BlobRequestKind::List { after: None, limit: 1_000, detail: ListDetail::Headers })?.ok();
        while self.blobs().poll_event().is_some() {}
        Ok(())
    }

    /// Lets everything come to its end, whatever is damaged.
    fn rest(&mut self) -> Result<(), String> {
        for _ in 0..STEPS_MAX {
            self.complete_one();
            while self.blobs().poll_event().is_some() {}
            if self.drive.in_flight() == 0 {
                if self.blobs().is_settled() {
                    return Ok(());
                }
                self.pass_time(Duration::from_millis(5));
            }
        }
        Err("the area never comes to rest".into())
    }
}
