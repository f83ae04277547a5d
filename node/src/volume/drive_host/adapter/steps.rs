//! Steps of the adapter: what a completed request of the store means for the job that asked.
//!
//! A deleted volume has no extents: its changes count as done, and reads of it give zeroes. Clients of the volume are told
//! by the catalog, not by a drive.

use super::*;

impl Adapter {
    /// Goes on with a job after a request of the store.
    pub(super) fn advance(&mut self, job: &mut Job, result: Result<Reply, Error>) -> Step {
        let group = job.group;
        match &mut job.work {
            Work::Write { .. } | Work::Save { .. } => Step::Done(changed(&result)),
            Work::Zeroes { extent, range, version, is_known } => {
                if *is_known || result.is_err() {
                    return Step::Done(changed(&result));
                }
                *is_known = true;
                Step::Next(clear(group, *extent, *range, *version, version_of(&result)))
            }
            Work::Patch(patch) => patch.advance(group, result),
            Work::Read { range, .. } => {
                let blocks = range.len as usize / BLOCK_BYTES;
                Step::Done(read(result, blocks).map(|(data, _)| StoreReply::Read(data)))
            }
            Work::Occupied { .. } => Step::Done(occupied(&result)),
            Work::Presence { range, .. } => Step::Done(presence(*range, &result)),
            Work::Checksums { extent } => Step::Done(checksums(*extent, result)),
            Work::Difference { extent, than } => Step::Done(salvaged(result).map(|(data, version, lost)| {
                let difference: Difference = content::difference(*extent, version, &data, &lost, than);
                StoreReply::Difference(difference)
            })),
            Work::List(listing) => self.advance_list(group, listing, result),
            Work::DeleteVolume(_) | Work::Forget(_) | Work::Drop { .. } => unreachable!("they have steps of their own"),
        }
    }

    fn advance_list(&mut self, group: GroupId, listing: &mut Listing, result: Result<Reply, Error>) -> Step {
        let (extents, more) = match result {
            Ok(Reply::Extents { extents, more }) => (extents, more),
            Ok(_) => unreachable!("a list is answered with extents"),
            Err(error) => return Step::Done(Err(fault_of(error))),
        };
        for (extent, version) in &extents {
            listing.newest = listing.newest.max(*version);
            listing.take(*extent, *version, self.damaged.contains(extent));
        }
        let is_full = listing.page.has_more && !listing.seeks_newest;
        if more && !is_full {
            listing.cursor = extents.last().map(|(extent, _)| *extent);
            return Step::Next(RequestKind::List { group, after: listing.cursor });
        }
        let known = self.groups.get_mut(&group).expect("a job has a group");
        if listing.seeks_newest {
            known.listed = Some(listing.newest);
        }
        let listed = known.listed.unwrap_or_default();
        let mut page = core::mem::take(&mut listing.page);
        let proven = if self.store.has_deleted_volumes() { known.clean } else { Version::ZERO };
        page.newest = listed.max(known.completed).max(proven);
        Step::Done(Ok(StoreReply::List(page)))
    }
}

impl Listing {
    fn take(&mut self, extent: ExtentId, version: Version, is_damaged: bool) {
        // The watermark has everything up to it at all acting members; a damaged extent may lack it here.
        let shown = if is_damaged && self.above == Version::ZERO { Version::ZERO } else { version };
        let is_wanted = version > self.above && self.after.is_none_or(|after| extent > after);
        if !is_wanted {
            return;
        }
        if self.page.entries.len() == PAGE_MAX {
            self.page.has_more = true;
        } else {
            self.page.entries.push((extent, shown));
        }
    }
}

impl Patch {
    /// Whether what the extent has now is a part of what it will have.
    pub(super) fn needs_content(&self) -> bool {
        self.version != Version::ZERO && (!content::covers_extent(&self.runs) || self.runs.iter().any(Run::is_lost))
    }

    pub(super) fn advance(&mut self, group: GroupId, result: Result<Reply, Error>) -> Step {
        let reply = match result {
            Ok(reply) => reply,
            Err(error) => return Step::Done(changed(&Err(error))),
        };
        match self.step {
            PatchStep::Looks => self.plan(group, reply),
            PatchStep::Empties => {
                self.step = PatchStep::Forgets;
                Step::Next(RequestKind::ForgetExtent { extent: self.extent, version: self.held })
            }
            PatchStep::Forgets if self.version == Version::ZERO => Step::Done(Ok(StoreReply::Done)),
            PatchStep::Forgets => self.replace(group),
            PatchStep::Replaces if self.is_mend && !self.lost.is_empty() => Step::Done(Err(StoreError::Damaged)),
            PatchStep::Replaces => Step::Done(Ok(StoreReply::Done)),
        }
    }

    /// What is there is known: the first change.
    fn plan(&mut self, group: GroupId, reply: Reply) -> Step {
        self.held = match &reply {
            Reply::Salvaged { version, .. } | Reply::Checksums { version, .. } => *version,
            _ => unreachable!("what is salvaged, or checksums"),
        };
        if self.is_mend && self.held != self.version {
            let Reply::Salvaged { lost, .. } = &reply else {
                return Step::Next(RequestKind::Salvage { extent: self.extent });
            };
            self.runs = content::known_again(self.extent, lost, &self.runs);
            if self.runs.is_empty() {
                return Step::Done(Err(StoreError::Damaged));
            }
            self.version = self.held;
        }
        if self.version != Version::ZERO {
            let (extent, lost) = match reply {
                Reply::Salvaged { data, lost, .. } => (data, lost),
                _ => (AlignedBuf::zeroed(EXTENT_BLOCKS), LostBlocks::default()),
            };
            if self.held == self.version {
                // A version stands for one content: what others have lost may be whole here.
                self.runs.retain(|run| !run.is_lost());
            }
            let patched = content::patch(self.extent, extent, lost, &self.runs);
            self.lost = patched.lost.clone();
            self.content = Some(patched);
        }
        self.runs = Vec::new();
        if self.held <= self.version {
            // Also when both are zero: the extent is not there, and is not to be.
            return if self.version == Version::ZERO { Step::Done(Ok(StoreReply::Done)) } else { self.replace(group) };
        }
        self.step = PatchStep::Empties;
        let (extent, version) = (self.extent, self.held);
        Step::Next(empty(group, extent, version))
    }

    fn replace(&mut self, group: GroupId) -> Step {
        self.step = PatchStep::Replaces;
        let content = self.content.take().expect("the content was made when the extent was looked at");
        let (extent, version, Patched { blocks, lost, data }) = (self.extent, self.version, content);
        Step::Next(RequestKind::Replace { extent, group, version, blocks, lost, data })
    }
}

/// An extent without blocks has this version.
pub(super) fn empty(group: GroupId, extent: ExtentId, version: Version) -> RequestKind {
    RequestKind::Replace { extent, group, version, blocks: BlockSet::EMPTY, lost: LostBlocks::default(), data: None }
}

/// An extent that is not there gets the version all the same: other copies compare it.
fn clear(group: GroupId, extent: ExtentId, range: Range, version: Version, held: Version) -> RequestKind {
    if held == Version::ZERO {
        empty(group, extent, version)
    } else {
        RequestKind::Clear { extent, offset: range.offset, len: range.len, version }
    }
}

fn version_of(result: &Result<Reply, Error>) -> Version {
    match result {
        Ok(Reply::Checksums { version, .. }) => *version,
        _ => Version::ZERO,
    }
}

fn changed(result: &Result<Reply, Error>) -> StoreResult {
    match result {
        Ok(_) | Err(Error::VolumeDeleted) => Ok(StoreReply::Done),
        Err(error) => Err(fault_of(*error)),
    }
}

/// Bytes and version of a read. The bytes are the store's own buffer.
fn read(result: Result<Reply, Error>, blocks: usize) -> Result<(Bytes, Version), StoreError> {
    match result {
        Ok(Reply::Data { data, version }) => Ok((Bytes::from_owner(SharedBuf(data)), version)),
        Ok(_) => unreachable!("a read is answered with data"),
        Err(Error::VolumeDeleted) => Ok((Bytes::from_owner(SharedBuf(AlignedBuf::zeroed(blocks))), Version::ZERO)),
        Err(error) => Err(fault_of(error)),
    }
}

/// All bytes of an extent, its version, and which blocks cannot be read.
fn salvaged(result: Result<Reply, Error>) -> Result<(Bytes, Version, LostBlocks), StoreError> {
    match result {
        Ok(Reply::Salvaged { data, version, lost }) => Ok((Bytes::from_owner(SharedBuf(data)), version, lost)),
        other => read(other, EXTENT_BLOCKS).map(|(data, version)| (data, version, LostBlocks::default())),
    }
}

/// An extent of which the drive cannot say which block is damaged counts as damaged in all.
fn checksums(extent: ExtentId, result: Result<Reply, Error>) -> StoreResult {
    if matches!(result, Err(Error::Damaged | Error::ReadFailed(_))) {
        return Ok(StoreReply::Checksums(vec![content::UNREADABLE; EXTENT_BLOCKS]));
    }
    let (data, version, lost) = salvaged(result)?;
    let is_empty = version == Version::ZERO || lost.is_empty() && content::is_zero(&data);
    let sums = if is_empty { Vec::new() } else { content::block_checksums(extent, &data, &lost) };
    Ok(StoreReply::Checksums(sums))
}

/// A damaged extent counts as one with blocks: whoever writes it is told.
fn occupied(result: &Result<Reply, Error>) -> StoreResult {
    match result {
        Ok(Reply::Checksums { blocks, .. }) => Ok(StoreReply::Occupied(blocks.iter().any(Option::is_some))),
        Ok(_) => unreachable!("checksums are answered with checksums"),
        Err(Error::VolumeDeleted) => Ok(StoreReply::Occupied(false)),
        Err(Error::Damaged | Error::ReadFailed(_)) => Ok(StoreReply::Occupied(true)),
        Err(error) => Err(fault_of(*error)),
    }
}

/// Damaged blocks count as stored: whoever reads them is told.
fn presence(range: Range, result: &Result<Reply, Error>) -> StoreResult {
    let (first, count) = (range.offset as usize / BLOCK_BYTES, range.len as usize / BLOCK_BYTES);
    let is_stored = |number: usize| match result {
        Ok(Reply::Checksums { blocks, .. }) => Ok(blocks.get(number).is_some_and(Option::is_some)),
        Ok(_) => unreachable!("checksums are answered with checksums"),
        Err(Error::VolumeDeleted) => Ok(false),
        Err(Error::Damaged | Error::ReadFailed(_)) => Ok(true),
        Err(error) => Err(fault_of(*error)),
    };
    let mut bits = vec![0_u8; range.presence_len()];
    for at in 0..count {
        bits[at / 8] |= u8::from(is_stored(first + at)?) << (at % 8);
    }
    Ok(StoreReply::Read(Bytes::from(bits)))
}

/// What an error of the store is to a member.
///
/// # Panics
/// On what only a wrong request of ours can give.
fn fault_of(error: Error) -> StoreError {
    match error {
        Error::Full | Error::TooManyRecords | Error::TooManyTombstones => StoreError::Full,
        Error::Damaged | Error::ReadFailed(_) => StoreError::Damaged,
        Error::Poisoned(_) => StoreError::Failed,
        // The copy is not what the member takes it for: it has to be compared and filled anew.
        Error::StaleVersion { .. } | Error::OtherGroup { .. } => StoreError::Damaged,
        Error::Misaligned
        | Error::OutsideExtent
        | Error::ZeroVersion
        | Error::VolumeDeleted
        | Error::HasData
        | Error::BadKey
        | Error::ValueTooLong
        | Error::Busy
        | Error::Expired => panic!("the adapter asks the store for what it can do: {error}"),
    }
}

/// A buffer of the store that replies share.
struct SharedBuf(AlignedBuf);

impl AsRef<[u8]> for SharedBuf {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
