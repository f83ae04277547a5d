//! Comparison of everything with the model.

use super::ask::is_answer_to_get;
use super::*;

impl Run {
    /// Compares everything after a recovery, and takes what was found for what is.
    pub(super) fn compare_all(&mut self) -> Result<(), String> {
        let ids: Vec<BlobId> = self.model.keys().copied().collect();
        for blob in ids {
            let found = self.get_whole(blob)?;
            let possible = self.model[&blob].possible();
            let right = possible.iter().find(|(_, state)| {
                let len = state.map_or(0, |content| content.len);
                is_answer_to_get(*state, 0, len, &found)
            });
            let Some((survived, state)) = right else {
                return Err(format!("after recovery, {blob} is {found:?}, expected one of {possible:?}"));
            };
            self.counts.survived += survived;
            self.model.get_mut(&blob).expect("it is one of the model's").settle(*state);
        }
        self.take_answers()?;
        self.compare_list(ListDetail::Brief)?;
        self.compare_list(ListDetail::Headers)?;
        self.check_accounts()
    }

    pub(super) fn get_whole(&mut self, blob: BlobId) -> Result<Result<BlobReply, BlobError>, String> {
        Ok(match self.demand(BlobRequestKind::Get { blob, offset: 0, len: 0 })? {
            Ok(BlobReply::Data { head, .. }) => self.demand(BlobRequestKind::Get { blob, offset: 0, len: head.len })?,
            other => other,
        })
    }

    fn compare_list(&mut self, detail: ListDetail) -> Result<(), String> {
        use crate::blob::ListedHeader;
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let kind = BlobRequestKind::List { after, limit: 1_000, detail };
            let Ok(BlobReply::Blobs { blobs, more }) = self.demand(kind)? else {
                return Err("a list is refused".into());
            };
            after = blobs.last().map(|listed| listed.blob);
            found.extend(blobs.into_iter().map(|listed| (listed.blob, listed.len, listed.stamp, listed.header)));
            if !more {
                break;
            }
        }
        let held = self.model.iter().filter_map(|(blob, model)| model.now().map(|content| (*blob, content)));
        let expected: Vec<_> = held
            .map(|(blob, content)| {
                let header = match detail {
                    ListDetail::Brief => ListedHeader::NotAsked,
                    ListDetail::Headers => ListedHeader::Whole(content.header()),
                };
                (blob, content.len, content.stamp, header)
            })
            .collect();
        if found == expected { Ok(()) } else { Err(format!("the list is {found:?}, expected {expected:?}")) }
    }

    /// Numbers of blobs, bytes and segments are those of the model and of the index.
    pub(super) fn check_accounts(&mut self) -> Result<(), String> {
        self.blobs().check_accounts()?;
        let stats = self.blobs().stats();
        let held: Vec<Content> = self.model.values().filter_map(super::super::model::BlobModel::now).collect();
        let bytes: u64 = held.iter().map(|content| u64::from(content.len)).sum();
        if (stats.blobs, stats.data_bytes) == (held.len(), bytes) {
            return Ok(());
        }
        Err(format!("{stats:?}, but there are {} blobs of {bytes} bytes", held.len()))
    }
}
