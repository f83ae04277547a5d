//! An initiator and the test's own hands, and (in `model`) a cluster that fails in every way.

mod limits;
mod model;
mod single;

use std::sync::Arc;

use ashlar_placement::choose::PgTable;
use ashlar_placement::domains::Conflict;
use ashlar_placement::map::{Drive, DriveState, GroupId, Map, PgId, Rack, SetId, Shape, Weight, Zone};
use ashlar_placement::part::{Part, Volume};
use ashlar_placement::rule::{ExtentSize, Mapping, Rule};
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, VolumeId};

use super::*;
use crate::message::{Generation, GroupConfig, SessionId, Verb};

/// Bytes of an extent in tests.
const EXTENT: u64 = 65_536;
/// Extents of the volume.
const EXTENTS: u64 = 8;
const SIZE: u64 = EXTENT * EXTENTS;
const K: u64 = 4_096;

const ATTACHMENT: Attachment = Attachment { generation: Generation(3), session: SessionId(77) };

/// Six servers with a drive each, eight placement groups of three.
fn table(set: u32, pgs: u32) -> Arc<PgTable> {
    let drive = |number: u8| Drive {
        id: DriveId::from_bytes([number; 16]),
        server: ServerId::from_bytes([number + 100; 16]),
        rack: Rack(0),
        zone: Zone(0),
        weight: Weight(100),
        state: DriveState::In,
    };
    let shape = Shape { pgs, width: 3, conflict: Conflict::Server };
    Arc::new(PgTable::new(Map::new(SetId(set), Epoch(1), shape, (0..6).map(drive).collect()).unwrap()))
}

fn volume() -> Volume {
    let rule = Rule { extent_size: ExtentSize::new(EXTENT).unwrap(), mapping: Mapping::Shuffled };
    Volume::new(VolumeId::from_bytes([9; 16]), rule, &[Part { set: SetId(1), extents: EXTENTS }]).unwrap()
}

fn initiator(limits: Limits) -> Initiator {
    Initiator::new(ATTACHMENT, volume(), vec![table(1, 8)], limits, Pacing::default(), 1).unwrap()
}

/// The configuration of a group in which the drive of seat `seat` leads.
fn config(table: &PgTable, group: GroupId, epoch: u64, seat: usize) -> GroupConfig {
    let drive = table.drives(group.pg).nth(seat).unwrap();
    GroupConfig { epoch: Epoch(epoch), drive: drive.id, server: drive.server }
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn read(offset: u64, len: u64) -> Op {
    Op::Read { offset, len }
}

fn write(offset: u64, len: u64, byte: u8) -> Op {
    Op::Write { offset, data: Bytes::from(vec![byte; usize::try_from(len).unwrap()]) }
}

const DONE: Answer = Answer::Answered(AnswerKind::Done, Bytes::new());

fn answered(kind: AnswerKind) -> Answer {
    Answer::Answered(kind, Bytes::new())
}

/// The bytes of a completed read.
fn flat(pieces: &[Piece]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Data(data) => bytes.extend_from_slice(data),
            Piece::Zeroes(len) => bytes.resize(bytes.len() + usize::try_from(*len).unwrap(), 0),
            Piece::Stored(_) => panic!("a read has content"),
        }
    }
    bytes
}

/// All subrequests that can be sent now.
fn subrequests(initiator: &mut Initiator) -> Vec<Subrequest> {
    std::iter::from_fn(|| initiator.poll_subrequest()).collect()
}

/// The one subrequest that can be sent now.
fn only(initiator: &mut Initiator) -> Subrequest {
    let mut all = subrequests(initiator);
    assert_eq!(all.len(), 1, "{all:?}");
    all.pop().unwrap()
}

/// The ids of the requests that have completed, with what came of them.
fn completions(initiator: &mut Initiator) -> Vec<(u64, Result<Vec<u8>, Error>)> {
    let all = std::iter::from_fn(|| initiator.poll_completion());
    all.map(|completion| (completion.id.0, completion.result.map(|pieces| flat(&pieces)))).collect()
}

fn start(initiator: &mut Initiator, id: u64, op: Op) {
    initiator.handle_request(at(0), RequestId(id), op, None).unwrap();
}
