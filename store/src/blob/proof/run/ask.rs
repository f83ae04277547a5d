//! Random requests of a run, and its answers while changes are in progress.

use super::*;

impl Run {
    fn ask(&mut self, kind: BlobRequestKind, asked: Asked) -> bool {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let now = self.now;
        let is_taken = self.blobs().handle_request(now, id, BlobRequest { deadline: Instant::NEVER, kind }).is_ok();
        if is_taken {
            self.asked.insert(id, asked);
        }
        is_taken
    }

    pub(super) fn ask_change(&mut self, blob: BlobId, change: Change) -> bool {
        let kind = match change {
            Change::Put(content) => BlobRequestKind::Put(content.put(blob)),
            Change::Repair(content) => BlobRequestKind::Repair(content.put(blob)),
            Change::Remove => BlobRequestKind::Remove { blob },
        };
        let is_taken = self.ask(kind, Asked::Change(blob));
        if is_taken {
            self.model.entry(blob).or_default().issue(change);
        }
        is_taken
    }

    pub(super) fn random_id(&mut self) -> BlobId {
        let among = if self.mood.few_ids { IDS / 10 } else { IDS };
        let number = u8::try_from(self.chance.below(among)).expect("few ids");
        // Not in the order of their numbers.
        BlobId::from_bytes([number.wrapping_mul(37); 16])
    }

    pub(super) fn random_request(&mut self) {
        if self.asked.len() >= REQUESTS_MAX {
            return;
        }
        let blob = self.random_id();
        let model = self.model.entry(blob).or_default();
        let (now, version, last) = (model.now(), model.version(), model.ever.last().copied());
        let reads = self.asked.values().filter(|asked| !matches!(asked, Asked::Change(_))).count();
        match self.chance.below(12) {
            number if number < 8 || reads >= READS_MAX => {
                let change = self.random_change(last);
                self.ask_change(blob, change);
            }
            8 => drop(self.ask(BlobRequestKind::Head { blob }, Asked::Head { blob, version })),
            _ => {
                let held = now.map_or(1, |content| content.len);
                let offset = self.below(held + 1);
                let len = if self.chance.one_in(10) { held + 1 } else { self.below(held - offset + 1) };
                let kind = BlobRequestKind::Get { blob, offset, len };
                self.ask(kind, Asked::Get { blob, offset, len, version });
            }
        }
    }

    fn below(&mut self, limit: u32) -> u32 {
        u32::try_from(self.chance.below(limit as usize)).expect("below a limit of 32 bits")
    }

    fn random_change(&mut self, last: Option<Content>) -> Change {
        if self.chance.below(10) < self.mood.removals {
            return Change::Remove;
        }
        let len_max = self.mood.len_max;
        let fresh = Content { tag: self.new_tag(), len: self.below(len_max + 1), stamp: self.next_request };
        // Often what is there already, or was there before.
        let content =
            last.filter(|_| self.chance.one_in(3)).map_or(fresh, |last| Content { stamp: fresh.stamp, ..last });
        if self.chance.one_in(4) { Change::Repair(content) } else { Change::Put(content) }
    }

    pub(super) fn take_answers(&mut self) -> Result<(), String> {
        if let Some(event) = self.blobs().poll_event() {
            return Err(format!("nothing is damaged, and yet {event:?}"));
        }
        while let Some((id, result)) = self.blobs().poll_reply() {
            let asked = self.asked.remove(&id).ok_or("an answer to nothing")?;
            self.take_answer(&asked, result)?;
        }
        Ok(())
    }

    fn take_answer(&mut self, asked: &Asked, result: Result<BlobReply, BlobError>) -> Result<(), String> {
        match *asked {
            Asked::Change(blob) => {
                let model = self.model.get_mut(&blob).expect("it was asked for");
                let is_put = matches!(model.pending.front(), Some(Change::Put(_) | Change::Repair(_)));
                if matches!(result, Err(BlobError::Full)) && is_put {
                    model.refuse();
                    self.counts.refused += 1;
                    return Ok(());
                }
                let change = model.pending.front().copied();
                let expected = model.acknowledge();
                self.counts.acknowledged += 1;
                match (expected, result) {
                    (Ok(()), Ok(BlobReply::Done)) => Ok(()),
                    (Err(expected), Err(error)) if expected == error => Ok(()),
                    (expected, result) => Err(format!("{change:?} of {blob}: {result:?}, expected {expected:?}")),
                }
            }
            Asked::Get { blob, offset, len, version } => {
                self.counts.reads += 1;
                let states: Vec<_> = self.model[&blob].since(version).collect();
                let is_right = |state: &Option<Content>| is_answer_to_get(*state, offset, len, &result);
                if states.iter().any(is_right) {
                    return Ok(());
                }
                Err(format!("get of {blob} ({offset} + {len}): {result:?}, expected one of {states:?}"))
            }
            Asked::Head { blob, version } => {
                let states: Vec<_> = self.model[&blob].since(version).collect();
                let is_right = |state: &Option<Content>| match (state, &result) {
                    (None, Err(BlobError::NoSuchBlob)) => true,
                    (Some(content), Ok(BlobReply::Head(head))) => {
                        (head.blob, head.len, head.stamp, &head.header)
                            == (blob, content.len, content.stamp, &content.header())
                    }
                    _ => false,
                };
                if states.iter().any(is_right) {
                    return Ok(());
                }
                Err(format!("head of {blob}: {result:?}, expected one of {states:?}"))
            }
        }
    }

    /// Asks for one thing and waits for its answer.
    pub(super) fn demand(&mut self, kind: BlobRequestKind) -> Result<Result<BlobReply, BlobError>, String> {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let now = self.now;
        let request = BlobRequest { deadline: Instant::NEVER, kind };
        self.blobs().handle_request(now, id, request).map_err(|error| format!("demand: {error}"))?;
        for _ in 0..STEPS_MAX {
            while let Some((answered, result)) = self.blobs().poll_reply() {
                if answered == id {
                    return Ok(result);
                }
                let asked = self.asked.remove(&answered).ok_or("an answer to nothing")?;
                self.take_answer(&asked, result)?;
            }
            self.complete_one();
        }
        Err("a request is never answered".into())
    }
}

pub(super) fn is_answer_to_get(
    state: Option<Content>,
    offset: u32,
    len: u32,
    result: &Result<BlobReply, BlobError>,
) -> bool {
    match (state, result) {
        (None, Err(BlobError::NoSuchBlob)) => true,
        (Some(content), Err(BlobError::OutsideBlob { len: held })) => {
            content.len == *held && u64::from(offset) + u64::from(len) > u64::from(*held)
        }
        (Some(content), Ok(BlobReply::Data { head, bytes })) => {
            let end = (offset + len) as usize;
            (head.len, head.stamp, &head.header) == (content.len, content.stamp, &content.header())
                && content.bytes().get(offset as usize..end) == Some(&bytes[..])
        }
        _ => false,
    }
}
