//! Answers of a run, compared with the model while changes are in progress.

use super::*;

impl Run {
    pub(super) fn take_answers(&mut self) -> Result<(), String> {
        while let Some(event) = self.store().poll_event() {
            if let Event::Damage { extent } = event
                && !self.model.extents.get(&extent).is_some_and(|model| model.may_be_lost(BlockRange::WHOLE))
            {
                return Err(format!("the scrub or a read reports damage of {extent:?}"));
            }
        }
        while let Some((id, result)) = self.store().poll_completion() {
            let asked = self.asked.remove(&id).ok_or("an answer to nothing")?;
            self.take_answer(&asked, result)?;
        }
        Ok(())
    }

    pub(super) fn take_answer(&mut self, asked: &Asked, result: Result<Reply, Error>) -> Result<(), String> {
        match *asked {
            Asked::Change(id, version) => self.take_change(id, version, &result),
            Asked::Read { id, range, least, lives } if self.lives(id) == lives => {
                self.take_read(id, range, least, result)
            }
            Asked::Read { .. } => Ok(()),
            Asked::ForgetExtent(id) => {
                let extent = self.model.extents.get_mut(&id).expect("it was asked for");
                extent.forgetting = false;
                match result {
                    Ok(_) => extent.forget(),
                    Err(Error::HasData) if extent.has_data() => {}
                    Err(Error::VolumeDeleted) => self.expect_dying(id.volume)?,
                    Err(error) => return Err(format!("forgetting {id:?}: {error}")),
                }
                Ok(())
            }
            Asked::DeleteVolume(volume) => match result {
                Ok(_) => {
                    self.model.volumes.insert(volume, VolumeState::Deleted);
                    Ok(())
                }
                Err(error) => Err(format!("deleting a volume: {error}")),
            },
            Asked::ForgetVolume(volume) => {
                self.model.volumes.insert(volume, VolumeState::Deleted);
                match result {
                    Ok(_) => self.drop_volume(volume),
                    Err(Error::Busy) => {}
                    Err(error) => return Err(format!("forgetting a volume: {error}")),
                }
                Ok(())
            }
            Asked::Record(name, value) => {
                self.model.busy_records.remove(&name);
                let record = self.model.records.get_mut(&name).expect("it was asked for");
                match result {
                    Ok(_) => record.values = vec![value],
                    Err(Error::TooManyRecords) => drop(record.values.pop()),
                    Err(error) => return Err(format!("a record: {error}")),
                }
                Ok(())
            }
        }
    }

    /// How often an extent was forgotten.
    pub(super) fn lives(&self, id: ExtentId) -> u64 {
        self.model.extents.get(&id).map_or(0, |extent| extent.lives)
    }

    pub(super) fn drop_volume(&mut self, volume: VolumeId) {
        self.model.volumes.remove(&volume);
        self.model.extents.retain(|id, _| id.volume != volume);
    }

    pub(super) fn expect_dying(&self, volume: VolumeId) -> Result<(), String> {
        match self.model.volumes.get(&volume) {
            Some(VolumeState::Live) => Err(format!("volume {volume} counts as deleted")),
            _ => Ok(()),
        }
    }

    pub(super) fn take_change(
        &mut self,
        id: ExtentId,
        version: Version,
        result: &Result<Reply, Error>,
    ) -> Result<(), String> {
        if matches!(result, Err(Error::VolumeDeleted)) {
            self.expect_dying(id.volume)?;
        }
        let Some(extent) = self.model.extents.get_mut(&id) else { return Ok(()) };
        match result {
            // A discard of what does not exist leaves no version.
            Ok(_) if extent.is_clear_of_nothing(version) => extent.refuse(version),
            Ok(_) => {
                extent.acknowledge(version);
                self.counts.acknowledged += 1;
            }
            Err(Error::Full | Error::VolumeDeleted) => extent.refuse(version),
            Err(error) => return Err(format!("a change of {id:?}: {error}")),
        }
        Ok(())
    }

    pub(super) fn take_read(
        &mut self,
        id: ExtentId,
        range: BlockRange,
        least: Version,
        result: Result<Reply, Error>,
    ) -> Result<(), String> {
        let Some(extent) = self.model.extents.get(&id) else { return Ok(()) };
        match result {
            Ok(Reply::Data { data, version }) => {
                self.counts.reads += 1;
                // Forgotten meanwhile, or a volume about to go: its versions begin anew.
                let least = if self.model.volumes[&id.volume] == VolumeState::Live && !extent.forgetting {
                    least.min(extent.acknowledged)
                } else {
                    return Ok(());
                };
                extent
                    .compare(least, version, range, &data, &LostBlocks::default())
                    .map_err(|what| format!("read of {id:?}: {what}"))
            }
            Err(Error::VolumeDeleted) => self.expect_dying(id.volume),
            Err(Error::Damaged) if extent.may_be_lost(range) => Ok(()),
            other => Err(format!("read of {id:?}: {other:?}")),
        }
    }

    /// Asks for one thing and waits for its answer.
    pub(super) fn demand(&mut self, kind: RequestKind) -> Result<Result<Reply, Error>, String> {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let now = self.now;
        let request = Request { deadline: Instant::NEVER, kind };
        self.store().handle_request(now, id, request).map_err(|error| format!("demand: {error}"))?;
        for _ in 0..STEPS_MAX {
            while let Some((answered, result)) = self.store().poll_completion() {
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
