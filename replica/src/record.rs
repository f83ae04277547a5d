//! Durable record of a member: what it promised, and which writes it knows every acting member to have. Version 1.
//!
//! One small record per placement group and drive, replaced as a whole. It has its own checksum, bound to the placement
//! group and the drive, so that another member's record is not taken for this one.

use alloc::vec::Vec;

use ashlar_placement::map::GroupId;
use ashlar_wire::checksum::{Checksum, Salt, checksum};
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::DriveId;
use ashlar_wire::version::Version;

use crate::config::EPOCH_MAX;
use crate::promise::Promise;

/// Version of the written form.
const FORM: u8 = 1;
/// Bytes of the written form.
pub const RECORD_BYTES_MAX: usize = 1 + 8 + 8 + 1 + 16 + 16 + 1 + 8;

/// What a member remembers from life to life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Highest epoch it takes part in, and that epoch's primary.
    pub promise: Promise<Epoch, DriveId>,
    /// Every write up to this version is durable at all acting members.
    pub clean: Version,
    /// The copy may lack what the acting members acknowledged: the drive has lost its data, or it became a learner and
    /// has not been filled to the end since.
    pub is_partial: bool,
}

/// The bytes are not the record of this member: the drive's fault. No retry helps; the member counts as blank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadRecord;

fn salt(group: GroupId, drive: DriveId) -> Salt {
    let (set, pg) = (group.set.0.to_be_bytes(), group.pg.0.to_be_bytes());
    Salt::new(&[b"replica record", &set, &pg, drive.as_bytes()])
}

impl Record {
    /// Before the first promise.
    pub const NEW: Self = Self { promise: Promise::none(Epoch::ZERO), clean: Version::ZERO, is_partial: false };

    /// Whether a member that has saved this record may drop an extent without blocks, its version and all, so that it takes no
    /// place in the drive's tables. `newest` is the greatest version of the member's extents.
    ///
    /// Up to the watermark all acting members have the same content, and a new primary lists what is newer only, so nobody
    /// misses the version. A member that returns is compared as a whole, and loses what it has of the extent. The extent of
    /// the greatest version stays: it proves that the data are not older than the record.
    #[must_use]
    pub fn may_drop(&self, version: Version, newest: Version) -> bool {
        !self.is_partial && version <= self.clean && version < newest
    }

    /// The written form.
    #[must_use]
    pub fn encode(&self, group: GroupId, drive: DriveId) -> Vec<u8> {
        let mut out = Vec::with_capacity(RECORD_BYTES_MAX);
        out.push(FORM);
        out.extend_from_slice(&self.promise.term.0.to_be_bytes());
        out.extend_from_slice(&self.promise.since.0.to_be_bytes());
        out.push(u8::from(self.promise.holder.is_some()));
        out.extend_from_slice(self.promise.holder.unwrap_or_default().as_bytes());
        out.extend_from_slice(&self.clean.to_bytes());
        out.push(u8::from(self.is_partial));
        let sum = checksum(salt(group, drive), &out);
        out.extend_from_slice(&sum.0.to_be_bytes());
        out
    }

    /// The record with this written form.
    ///
    /// # Errors
    /// [`BadRecord`]: damaged, of another member, or of a version that is not known.
    pub fn decode(bytes: &[u8], group: GroupId, drive: DriveId) -> Result<Self, BadRecord> {
        let bytes: &[u8; RECORD_BYTES_MAX] = bytes.try_into().map_err(|_| BadRecord)?;
        let (body, sum) = bytes.split_at(RECORD_BYTES_MAX - 8);
        let sum = Checksum(u64::from_be_bytes(sum.try_into().map_err(|_| BadRecord)?));
        if checksum(salt(group, drive), body) != sum || body[0] != FORM || body[17] > 1 || body[50] > 1 {
            return Err(BadRecord);
        }
        let epoch = |at: usize| Epoch(body[at..at + 8].iter().fold(0, |value, byte| value << 8 | u64::from(*byte)));
        let wide = |at: usize| -> [u8; 16] { core::array::from_fn(|offset| body[at + offset]) };
        let holder = (body[17] == 1).then(|| DriveId::from_bytes(wide(18)));
        let promise = Promise { term: epoch(1), since: epoch(9), holder };
        if promise.since > promise.term || promise.term > EPOCH_MAX {
            return Err(BadRecord);
        }
        Ok(Self { promise, clean: Version::from_bytes(wide(34)), is_partial: body[50] == 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    const DRIVE: DriveId = DriveId::from_bytes([0xd1; 16]);

    fn record() -> Record {
        let promise = Promise { term: Epoch(0x0102), since: Epoch(0x0101), holder: Some(DRIVE) };
        Record { promise, clean: Version { epoch: Epoch(2), sequence: 3 }, is_partial: true }
    }

    #[test]
    fn golden_bytes() {
        let bytes = record().encode(GroupId::default(), DRIVE);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let drive = "d1".repeat(16);
        let golden = format!(
            "01 0000000000000102 0000000000000101 01 {drive} 00000000000000020000000000000003 01 {}",
            "992c538763dfee41"
        );
        assert_eq!(hex, golden.replace(' ', ""));
        assert_eq!(Record::decode(&bytes, GroupId::default(), DRIVE), Ok(record()));
        let new = Record::NEW.encode(GroupId::default(), DRIVE);
        assert_eq!(Record::decode(&new, GroupId::default(), DRIVE), Ok(Record::NEW));
    }

    #[test]
    fn damage_and_other_members_records_are_refused() {
        let good = record().encode(GroupId::default(), DRIVE);
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert_eq!(Record::decode(&bad, GroupId::default(), DRIVE), Err(BadRecord), "{at}.{bit}");
            }
            assert_eq!(Record::decode(&good[..at], GroupId::default(), DRIVE), Err(BadRecord), "{at}");
        }
        let other = DriveId::from_bytes([0xd2; 16]);
        assert_eq!(Record::decode(&good, GroupId::default(), other), Err(BadRecord));
    }
    /// Whole records whose numbers cannot be.
    #[test]
    fn promises_that_nobody_makes_are_refused() {
        let cases =
            [(5, 5, true), (5, 6, false), (EPOCH_MAX.0, 5, true), (EPOCH_MAX.0 + 1, 5, false), (u64::MAX, 5, false)];
        for (term, since, is_good) in cases {
            let promise = Promise { term: Epoch(term), since: Epoch(since), holder: Some(DRIVE) };
            let bytes = Record { promise, ..record() }.encode(GroupId::default(), DRIVE);
            let decoded = Record::decode(&bytes, GroupId::default(), DRIVE);
            assert_eq!(
                decoded.map(|record| record.promise),
                if is_good { Ok(promise) } else { Err(BadRecord) },
                "{term} {since}"
            );
        }
    }
}
