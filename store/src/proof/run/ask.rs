//! Random requests of a run: few extents get most of them, so that changes overlap.

use super::*;

impl Run {
    pub(super) fn ask(&mut self, kind: RequestKind, asked: Asked) -> bool {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let now = self.now;
        let request = Request { deadline: Instant::NEVER, kind };
        let is_taken = self.store().handle_request(now, id, request).is_ok();
        if is_taken {
            self.asked.insert(id, asked);
        }
        is_taken
    }

    pub(super) fn random_request(&mut self) {
        if self.asked.len() >= REQUESTS_MAX {
            return;
        }
        match self.chance.below(24) {
            0..17 => self.random_change(),
            17..20 => self.random_read(),
            20..22 => self.random_record(),
            22 => self.random_forget(),
            _ => self.random_volume(),
        }
    }

    pub(super) fn random_extent(&mut self) -> Option<ExtentId> {
        let live = |id: &ExtentId| self.model.volumes[&id.volume] == VolumeState::Live;
        let extents: Vec<ExtentId> = self.model.extents.keys().copied().filter(live).collect();
        // A few extents get most changes, so that changes of one extent overlap.
        let among = if self.chance.one_in(3) { extents.len() } else { extents.len().min(3) };
        (among > 0).then(|| extents[self.chance.below(among)])
    }

    pub(super) fn random_range(&mut self) -> BlockRange {
        if self.mood.large && !self.chance.one_in(3) {
            let count = 150 + self.chance.below(100);
            return BlockRange { first: self.chance.below(EXTENT_BLOCKS + 1 - count), count };
        }
        let count = match self.chance.below(8) {
            0..5 => 1 + self.chance.below(4),
            5 | 6 => 16 + self.chance.below(32),
            _ => 1 + self.chance.below(EXTENT_BLOCKS),
        };
        // Small ranges meet often.
        let places = if self.chance.one_in(2) { 40 } else { EXTENT_BLOCKS + 1 };
        BlockRange { first: self.chance.below(places.min(EXTENT_BLOCKS + 1 - count)), count }
    }

    pub(super) fn random_change(&mut self) {
        let Some(id) = self.random_extent() else { return };
        if self.model.extents[&id].forgetting {
            return;
        }
        self.sequence += 1;
        let version = Version { epoch: Epoch(self.epoch), sequence: self.sequence };
        let mut range = self.random_range();
        let first_tag = self.next_tag;
        self.next_tag += EXTENT_BLOCKS as u64;
        let group = group_of(id);
        let (kind, change) = match self.chance.below(8) {
            0 => {
                if self.chance.one_in(3) {
                    range = BlockRange::WHOLE;
                }
                let (offset, len) = (block_bytes(range.first), block_bytes(range.count));
                (RequestKind::Clear { extent: id, offset, len, version }, Change::Clear { range })
            }
            1 => {
                let mut blocks = BlockSet::of(range);
                blocks.insert(self.chance.below(EXTENT_BLOCKS));
                if self.chance.one_in(6) {
                    blocks = BlockSet::EMPTY;
                }
                let tags: Vec<u64> = (first_tag..).take(blocks.len()).collect();
                let data = (!blocks.is_empty()).then(|| data_of(&tags).into());
                let mut lost = LostBlocks::default();
                if self.chance.one_in(4) && !blocks.is_empty() {
                    let place = self.chance.below(blocks.len());
                    blocks.iter().skip(place).step_by(3).for_each(|block| {
                        let sum = BlockChecksum::of(id, block, data_of(&[first_tag]).block(0));
                        lost.insert(block, (block % 2 == 0).then_some(BlockChecksum(!sum.0)));
                    });
                }
                let kind = RequestKind::Replace { extent: id, group, version, blocks, lost: lost.clone(), data };
                (kind, Change::Replace { blocks, lost, first_tag })
            }
            _ => {
                let tags: Vec<u64> = (first_tag..).take(range.count).collect();
                let (offset, data) = (block_bytes(range.first), data_of(&tags).into());
                let kind = RequestKind::Write { extent: id, group, offset, data, version };
                (kind, Change::Write { range, first_tag })
            }
        };
        // In the model first: an answer may come at once.
        self.model.extents.get_mut(&id).expect("chosen from it").issue(version, change);
        if !self.ask(kind, Asked::Change(id, version)) {
            self.model.extents.get_mut(&id).expect("chosen from it").refuse(version);
        }
    }

    pub(super) fn random_read(&mut self) {
        let Some(id) = self.random_extent() else { return };
        let range = self.random_range();
        let least = self.model.extents[&id].acknowledged;
        if self.model.extents[&id].forgetting {
            return;
        }
        self.ask_read(id, range, least);
    }

    pub(super) fn ask_read(&mut self, id: ExtentId, range: BlockRange, least: Version) {
        let (offset, len) = (block_bytes(range.first), block_bytes(range.count));
        let asked = Asked::Read { id, range, least, lives: self.lives(id) };
        self.ask(RequestKind::Read { extent: id, offset, len }, asked);
    }

    pub(super) fn random_record(&mut self) {
        let name = u8::try_from(self.chance.below(usize::from(RECORDS))).expect("few records");
        if !self.model.busy_records.insert(name) {
            return;
        }
        let key = Key::new(&[b'k', name]).expect("a short key");
        let value = (!self.chance.one_in(3)).then(|| self.chance.next());
        let kind = match value {
            Some(value) => RequestKind::PutRecord { key, value: record_value(value) },
            None => RequestKind::DeleteRecord { key },
        };
        let record = self.model.records.entry(name).or_default();
        if record.values.is_empty() {
            record.values.push(None);
        }
        record.values.push(value);
        if !self.ask(kind, Asked::Record(name, value)) {
            self.model.records.get_mut(&name).expect("just made").values.pop();
            self.model.busy_records.remove(&name);
        }
    }

    pub(super) fn random_forget(&mut self) {
        let Some(id) = self.random_extent() else { return };
        let extent = self.model.extents.get_mut(&id).expect("chosen from it");
        if extent.pending > 0 || extent.forgetting {
            return;
        }
        extent.forgetting = true;
        let version = extent.acknowledged.max(Version { epoch: Epoch(1), sequence: 1 });
        let is_taken = self.ask(RequestKind::ForgetExtent { extent: id, version }, Asked::ForgetExtent(id));
        if !is_taken {
            self.model.extents.get_mut(&id).expect("chosen from it").forgetting = false;
        }
    }

    pub(super) fn random_volume(&mut self) {
        let volumes: Vec<VolumeId> = self.model.volumes.keys().copied().collect();
        let volume = volumes[self.chance.below(volumes.len())];
        match self.model.volumes[&volume] {
            VolumeState::Live if self.chance.one_in(4) => {
                let is_taken = self.ask(RequestKind::DeleteVolume { volume }, Asked::DeleteVolume(volume));
                if is_taken {
                    self.model.volumes.insert(volume, VolumeState::Deleting);
                    self.new_volume(volume.as_bytes()[15]);
                }
            }
            VolumeState::Deleted => {
                let is_taken = self.ask(RequestKind::ForgetVolume { volume }, Asked::ForgetVolume(volume));
                if is_taken {
                    self.model.volumes.insert(volume, VolumeState::Forgetting);
                }
            }
            _ => {}
        }
    }
}
