//! Calls between the catalogs of servers, and their written forms: described in `docs/formats.md`.

use ashlar_grid::handler::{HandlerId, MalformedPayload, Method, Payload};
use ashlar_placement::map::{GroupId, PgId, SetId};
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, ServerId};
use ashlar_wire::pack::{PackError, Reader, write_array_len, write_bin, write_uint};

use super::reports::{Report, ReportKind};
use crate::detour::Repeatable;

/// Version of the forms of this file.
const VERSION: u64 = 1;

/// A message of Raft, as the catalog writes it, and its answer.
pub(super) struct Messages;

impl Method for Messages {
    const ID: HandlerId = HandlerId::new(80);
    // Raft sends again itself, and tells a repeated message from a new one.
    const IDEMPOTENT: bool = false;
    type Request = Vec<u8>;
    type Reply = Vec<u8>;
}

/// "How do you stand to the catalog?"
pub(super) struct Introduce;

impl Method for Introduce {
    const ID: HandlerId = HandlerId::new(81);
    const IDEMPOTENT: bool = true;
    type Request = ();
    type Reply = Introduced;
}

/// "A member of a placement group has caught up, or is lost."
pub(super) struct TakeReport;

impl Method for TakeReport {
    const ID: HandlerId = HandlerId::new(82);
    const IDEMPOTENT: bool = true;
    type Request = Report;
    type Reply = ();
}

/// "This server is about to stop: let others go on with what lies there." Answered with whether nothing is left that others can take
/// over. To be said again until that is so; the server counts as one that departs for 15 seconds.
pub(super) struct Depart;

impl Method for Depart {
    const ID: HandlerId = HandlerId::new(87);
    const IDEMPOTENT: bool = true;
    type Request = Departing;
    type Reply = Departed;
}

impl Repeatable for Depart {
    const BY_WAY: HandlerId = HandlerId::new(88);
}

/// Who is about to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Departing {
    /// The server.
    pub(super) server: ServerId,
}

/// The answer to [`Depart`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Departed {
    /// Nothing is left that others can take over.
    pub(super) is_done: bool,
}

/// A report that a third server brings for the one that makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Brought {
    /// The server that reports.
    pub(super) from: ServerId,
    /// What it says.
    pub(super) report: Report,
}

/// [`TakeReport`] for servers whose link to the leader is cut.
pub(super) struct TakeBrought;

impl Method for TakeBrought {
    const ID: HandlerId = HandlerId::new(83);
    const IDEMPOTENT: bool = true;
    type Request = Brought;
    type Reply = ();
}

impl Repeatable for Messages {
    const BY_WAY: HandlerId = HandlerId::new(84);
}

impl Repeatable for Introduce {
    const BY_WAY: HandlerId = HandlerId::new(85);
}

impl Repeatable for TakeBrought {
    const BY_WAY: HandlerId = HandlerId::new(86);
}

impl Payload for Brought {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.from.as_bytes());
        self.report.encode(out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, MalformedPayload> {
        let (from, report) = bytes.split_first_chunk().ok_or(MalformedPayload)?;
        Ok(Self { from: ServerId::from_bytes(*from), report: Report::decode(report)? })
    }
}

/// Which catalog a server takes part in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Membership {
    /// None so far: its log is empty.
    None,
    /// One whose name it does not know yet.
    Unnamed,
    /// A leader has given it some of a log, of which it does not know anything to be decided, and it has no vote there. That leader may have
    /// been lost, and not remember.
    Given,
    /// That of this name.
    Named([u8; 16]),
}

/// The answer to [`Introduce`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Introduced {
    /// The release of the program that the server runs.
    pub(super) release: u32,
    /// Its catalog.
    pub(super) membership: Membership,
}

fn check_head(from: &mut Reader<'_>, len: u8) -> Result<(), MalformedPayload> {
    let is_known = from.read_array_len().map_err(malformed)? == len && from.read_uint().map_err(malformed)? == VERSION;
    if is_known { Ok(()) } else { Err(MalformedPayload) }
}

fn check_end(from: &Reader<'_>) -> Result<(), MalformedPayload> {
    if from.remaining().is_empty() { Ok(()) } else { Err(MalformedPayload) }
}

fn malformed(_: PackError) -> MalformedPayload {
    MalformedPayload
}

fn read_uint32(from: &mut Reader<'_>) -> Result<u32, MalformedPayload> {
    u32::try_from(from.read_uint().map_err(malformed)?).map_err(|_| MalformedPayload)
}

impl Payload for Introduced {
    fn encode(&self, out: &mut Vec<u8>) {
        write_array_len(out, 4);
        write_uint(out, VERSION);
        write_uint(out, u64::from(self.release));
        let (kind, name): (u64, &[u8]) = match &self.membership {
            Membership::None => (0, &[]),
            Membership::Unnamed => (1, &[]),
            Membership::Named(name) => (2, name),
            Membership::Given => (3, &[]),
        };
        write_uint(out, kind);
        write_bin(out, name);
    }

    fn decode(bytes: &[u8]) -> Result<Self, MalformedPayload> {
        let mut from = Reader::new(bytes);
        check_head(&mut from, 4)?;
        let release = read_uint32(&mut from)?;
        let kind = from.read_uint().map_err(malformed)?;
        let name = from.read_bin(16).map_err(malformed)?;
        let membership = match (kind, name) {
            (0, []) => Membership::None,
            (1, []) => Membership::Unnamed,
            (2, name) => Membership::Named(name.try_into().map_err(|_| MalformedPayload)?),
            (3, []) => Membership::Given,
            _ => return Err(MalformedPayload),
        };
        check_end(&from)?;
        Ok(Self { release, membership })
    }
}

impl Payload for Departing {
    fn encode(&self, out: &mut Vec<u8>) {
        write_array_len(out, 2);
        write_uint(out, VERSION);
        write_bin(out, self.server.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<Self, MalformedPayload> {
        let mut from = Reader::new(bytes);
        check_head(&mut from, 2)?;
        let server = ServerId::from_bytes(from.read_bin_array().map_err(malformed)?);
        check_end(&from)?;
        Ok(Self { server })
    }
}

impl Payload for Departed {
    fn encode(&self, out: &mut Vec<u8>) {
        write_array_len(out, 2);
        write_uint(out, VERSION);
        write_uint(out, u64::from(self.is_done));
    }

    fn decode(bytes: &[u8]) -> Result<Self, MalformedPayload> {
        let mut from = Reader::new(bytes);
        check_head(&mut from, 2)?;
        let is_done = match from.read_uint().map_err(malformed)? {
            0 => false,
            1 => true,
            _ => return Err(MalformedPayload),
        };
        check_end(&from)?;
        Ok(Self { is_done })
    }
}

impl Payload for Report {
    fn encode(&self, out: &mut Vec<u8>) {
        write_array_len(out, 6);
        write_uint(out, VERSION);
        write_uint(out, u64::from(self.group.set.0));
        write_uint(out, u64::from(self.group.pg.0));
        write_uint(out, self.epoch.0);
        write_uint(
            out,
            match self.kind {
                ReportKind::CaughtUp => 1,
                ReportKind::Lost => 2,
                ReportKind::Restarted => 3,
            },
        );
        write_bin(out, self.drive.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<Self, MalformedPayload> {
        let mut from = Reader::new(bytes);
        check_head(&mut from, 6)?;
        let group = GroupId { set: SetId(read_uint32(&mut from)?), pg: PgId(read_uint32(&mut from)?) };
        let epoch = Epoch(from.read_uint().map_err(malformed)?);
        let kind = match from.read_uint().map_err(malformed)? {
            1 => ReportKind::CaughtUp,
            2 => ReportKind::Lost,
            3 => ReportKind::Restarted,
            _ => return Err(MalformedPayload),
        };
        let drive = DriveId::from_bytes(from.read_bin_array().map_err(malformed)?);
        check_end(&from)?;
        Ok(Self { group, epoch, kind, drive })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(value: &impl Payload) -> Vec<u8> {
        let mut out = Vec::new();
        value.encode(&mut out);
        out
    }

    #[test]
    fn golden() {
        let report = Report {
            group: GroupId { set: SetId(3), pg: PgId(300) },
            epoch: Epoch(7),
            kind: ReportKind::Lost,
            drive: DriveId::from_bytes([0xd1; 16]),
        };
        let mut expected = vec![0x96, 1, 3, 0xcd, 1, 44, 7, 2, 0xc4, 16];
        expected.extend([0xd1; 16]);
        assert_eq!(encoded(&report), expected);
        assert_eq!(Report::decode(&expected), Ok(report));
        let mut named = vec![0x94, 1, 5, 2, 0xc4, 16];
        named.extend([0xab; 16]);
        for (membership, bytes) in [
            (Membership::None, vec![0x94, 1, 5, 0, 0xc4, 0]),
            (Membership::Unnamed, vec![0x94, 1, 5, 1, 0xc4, 0]),
            (Membership::Named([0xab; 16]), named),
            (Membership::Given, vec![0x94, 1, 5, 3, 0xc4, 0]),
        ] {
            let introduced = Introduced { release: 5, membership };
            assert_eq!(encoded(&introduced), bytes);
            assert_eq!(Introduced::decode(&bytes), Ok(introduced));
        }
    }

    #[test]
    fn golden_departures() {
        let departing = Departing { server: ServerId::from_bytes([0xab; 16]) };
        let expected = [&[0x92, 1, 0xc4, 16][..], &[0xab; 16]].concat();
        assert_eq!((encoded(&departing), Departing::decode(&expected)), (expected.clone(), Ok(departing)));
        for (is_done, last) in [(false, 0), (true, 1)] {
            let departed = Departed { is_done };
            assert_eq!((encoded(&departed), Departed::decode(&[0x92, 1, last])), (vec![0x92, 1, last], Ok(departed)));
        }
        for bad in [&[0x92, 1, 2][..], &[0x92, 2, 1], &[0x92, 1, 1, 0], &[0x92, 1]] {
            assert_eq!(Departed::decode(bad), Err(MalformedPayload), "{bad:?}");
        }
        for bad in [&expected[..19], &[&expected[..], &[0]].concat()] {
            assert_eq!(Departing::decode(bad), Err(MalformedPayload), "{bad:?}");
        }
    }

    #[test]
    fn what_is_no_such_value_is_refused() {
        let whole = encoded(&Introduced { release: 5, membership: Membership::Named([1; 16]) });
        for len in 0..whole.len() {
            assert!(Introduced::decode(&whole[..len]).is_err(), "{len} bytes");
        }
        for bytes in [&[0x94, 2, 5, 0, 0xc4, 0][..], &[0x94, 1, 5, 4, 0xc4, 0], &[0x94, 1, 5, 0, 0xc4, 0, 0]] {
            assert!(Introduced::decode(bytes).is_err(), "{bytes:?}");
        }
        assert!(Report::decode(&[0x96, 1, 3, 4, 7, 3]).is_err());
    }
}
