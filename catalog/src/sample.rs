//! Catalogs for tests: a regular one, and random changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use arbtest::arbitrary::{Result, Unstructured};
use ashlar_placement::domains::Conflict;
use ashlar_placement::map::{GroupId, PgId, Rack, SetId, Shape, Zone};
use ashlar_placement::part::Part;
use ashlar_placement::rule::ExtentSize;
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{ClusterId, DriveId, ServerId, VolumeId};

use crate::change::{Applied, CatalogVersion, Change, Command, ProposalId};
use crate::error::Refusal;
use crate::plan::failure::{plan_failure, plan_learners, plan_promotion};
use crate::plan::placement::{plan_reshaped, plan_set};
use crate::record::{Expected, Feature, RecordKey};
use crate::server::{Drive, DriveClass, DriveState, Server, ServerState};
use crate::set::{Copies, PgStep, Settled};
use crate::state::State;
use crate::volume::{Generation, VolumeClass, VolumeRecord};

/// An id of 16 bytes that ends in a number.
pub(crate) fn id(number: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[12..].copy_from_slice(&number.to_be_bytes());
    bytes
}

pub(crate) fn server_id(number: u32) -> ServerId {
    ServerId::from_bytes(id(number))
}

pub(crate) fn drive_id(number: u32) -> DriveId {
    DriveId::from_bytes(id(0x100 + number))
}

pub(crate) fn volume_id(number: u32) -> VolumeId {
    VolumeId::from_bytes(id(0x1000 + number))
}

pub(crate) fn group(set: u32, pg: u32) -> GroupId {
    GroupId { set: SetId(set), pg: PgId(pg) }
}

/// Two servers to a rack and to a zone.
pub(crate) fn server(number: u32) -> Server {
    Server {
        id: server_id(number),
        address: format!("server-{number}:7946"),
        zone: Zone(number / 2),
        rack: Rack(number / 2),
        release: 1,
        state: ServerState::Active,
    }
}

pub(crate) fn drive(number: u32, server: u32) -> Drive {
    Drive {
        id: drive_id(number),
        server: server_id(server),
        class: DriveClass::Ssd,
        size_bytes: 100 << 30,
        state: DriveState::Active,
        set: None,
    }
}

pub(crate) fn volume(number: u32, set: u32, extents: u64) -> VolumeRecord {
    VolumeRecord {
        id: volume_id(number),
        name: format!("volume {number}"),
        class: VolumeClass::Ssd,
        extent_size: ExtentSize::DEFAULT,
        size_bytes: extents << 20,
        parts: vec![Part { set: SetId(set), extents }],
        generation: Generation(0),
        attached: None,
    }
}

pub(crate) fn key(name: &str) -> RecordKey {
    RecordKey { space: "object/bucket".into(), name: name.into() }
}

/// A state and the commands that made it.
pub(crate) struct Sample {
    pub(crate) state: State,
    pub(crate) commands: Vec<Command>,
}

impl Sample {
    pub(crate) fn new() -> Self {
        Self { state: State::new(ClusterId::from_bytes(id(7))), commands: Vec::new() }
    }

    /// `servers` servers with a drive each, and set 1 of `pgs` placement groups of three drives.
    pub(crate) fn with_set(servers: u32, pgs: u32) -> Self {
        let mut sample = Self::new();
        for number in 0..servers {
            sample.must(Change::AddServer(server(number)));
            sample.must(Change::AddDrive(drive(number, number)));
        }
        let shape = Shape { pgs, width: 3, conflict: Conflict::Server };
        let copies = Copies { write_min: 2, acting_min: 1 };
        let change = plan_set(&sample.state, SetId(1), shape, DriveClass::Ssd, copies, &[]).unwrap();
        sample.must(change);
        sample
    }

    pub(crate) fn command(&self, change: Change) -> Command {
        let number = u32::try_from(self.commands.len()).unwrap();
        Command { id: ProposalId(id(0xffff_0000 + number)), seen: self.state.version(), change }
    }

    pub(crate) fn must(&mut self, change: Change) -> Applied {
        let applied = self.apply(change);
        applied.unwrap_or_else(|refusal| panic!("{:?}: {refusal}", self.commands.last()))
    }

    pub(crate) fn must_all(&mut self, changes: impl IntoIterator<Item = Change>) {
        for change in changes {
            self.must(change);
        }
    }

    /// Applies a change in a command of its own.
    pub(crate) fn apply(&mut self, change: Change) -> std::result::Result<Applied, Refusal> {
        let command = self.command(change);
        let applied = self.state.apply(&command);
        self.commands.push(command);
        applied
    }
}

fn some_server(u: &mut Unstructured<'_>) -> Result<u32> {
    u.int_in_range(0..=6)
}

fn some_drive(u: &mut Unstructured<'_>) -> Result<DriveId> {
    Ok(drive_id(u.int_in_range(0..=9)?))
}

fn some_volume(u: &mut Unstructured<'_>) -> Result<VolumeId> {
    Ok(volume_id(u.int_in_range(0..=4)?))
}

fn some_servers(u: &mut Unstructured<'_>) -> Result<BTreeSet<ServerId>> {
    (0..u.int_in_range(0..=3)?).map(|_| some_server(u).map(server_id)).collect()
}

/// A change that often fits the state, and often does not.
pub(crate) fn any_change(u: &mut Unstructured<'_>, state: &State) -> Result<Change> {
    match u.int_in_range(0..=3)? {
        0 => any_machine(u),
        1 => any_set(u, state),
        2 => any_pgs(u, state),
        _ => any_data(u, state),
    }
}

fn any_machine(u: &mut Unstructured<'_>) -> Result<Change> {
    let number = some_server(u)?;
    Ok(match u.int_in_range(0..=9)? {
        0..=1 => Change::AddServer(Server { release: u.int_in_range(0..=2)?, ..server(number) }),
        2 => Change::UpdateServer {
            id: server_id(number),
            address: "moved 100%:1".into(),
            release: u.int_in_range(0..=3)?,
        },
        3 => Change::SetServerState { id: server_id(number), state: *u.choose(ServerState::ALL)? },
        4 => Change::RemoveServer(server_id(number)),
        5..=6 => {
            // A drive stands in one server only, so that it comes back where it was.
            let drive_number = u.int_in_range(0..=9)?;
            Change::AddDrive(drive(drive_number, drive_number % 7))
        }
        7 if u.ratio(1, 4)? => Change::GiveUpMissing(some_drive(u)?),
        7 => Change::SetDriveState { id: some_drive(u)?, state: *u.choose(DriveState::ALL)? },
        8 => Change::SetDriveSize { id: some_drive(u)?, size_bytes: u.int_in_range(0..=4_u64)? << 30 },
        _ if u.arbitrary()? => Change::ReleaseDrive(some_drive(u)?),
        _ => Change::RemoveDrive(some_drive(u)?),
    })
}

fn some_set(u: &mut Unstructured<'_>) -> Result<SetId> {
    let set = SetId(u.int_in_range(1..=2)?);
    Ok(if u.arbitrary()? { set.companion() } else { set })
}

fn any_set(u: &mut Unstructured<'_>, state: &State) -> Result<Change> {
    let set = some_set(u)?;
    if let Some(known) = state.set(set).filter(|_| u.ratio(1, 2).unwrap_or_default()) {
        let added = if u.arbitrary()? { vec![some_drive(u)?] } else { Vec::new() };
        let mut shape = known.target.shape();
        if set.is_companion() {
            shape.width += u.int_in_range(0..=1)?;
            shape.conflict = *u.choose(&Conflict::ALL)?;
        }
        if let Ok(Some(change)) = plan_reshaped(state, known, &added, shape) {
            return Ok(change);
        }
    }
    let shape =
        Shape { pgs: u.int_in_range(1..=6)?, width: u.int_in_range(1..=3)?, conflict: *u.choose(&Conflict::ALL)? };
    let copies = Copies { write_min: u.int_in_range(0..=2)?, acting_min: u.int_in_range(0..=2)? };
    let planned = plan_set(state, set, shape, DriveClass::Ssd, copies, &[]);
    Ok(planned.unwrap_or(Change::JumpEpochs(u.int_in_range(0..=3)?)))
}

fn any_pgs(u: &mut Unstructured<'_>, state: &State) -> Result<Change> {
    let planned = match u.int_in_range(0..=3)? {
        0 => plan_failure(state, &some_servers(u)?).into_iter().next(),
        1 => plan_learners(state, &some_servers(u)?, 4).into_iter().next(),
        2 => {
            let group = GroupId { set: some_set(u)?, pg: PgId(u.int_in_range(0..=5)?) };
            let learners = state.pg(group).map(|config| config.learners).unwrap_or_default();
            plan_promotion(state, group, &learners).map(|step| Change::ConfigurePgs(vec![step]))
        }
        _ => None,
    };
    if let Some(change) = planned {
        return Ok(change);
    }
    let group = group(u.int_in_range(1..=2)?, u.int_in_range(0..=5)?);
    let drives = |u: &mut Unstructured<'_>| (0..u.int_in_range(0..=3)?).map(|_| some_drive(u)).collect::<Result<_>>();
    let mut step = PgStep {
        group,
        expected: Epoch(u.int_in_range(0..=9)?),
        acting: drives(u)?,
        primary: some_drive(u)?,
        learners: drives(u)?,
        certified: drives(u)?,
        settled: *u.choose(Settled::ALL)?,
    };
    if let Some(config) = state.pg(group).filter(|_| u.arbitrary().unwrap_or(false)) {
        step.expected = config.epoch;
        step.primary = *u.choose(&config.acting)?;
        step.acting = config.acting.into_iter().filter(|_| u.arbitrary().unwrap_or(true)).collect();
        step.certified.retain(|drive| config.learners.contains(drive));
        step.acting.extend(&step.certified);
    }
    Ok(Change::ConfigurePgs(vec![step]))
}

fn any_data(u: &mut Unstructured<'_>, state: &State) -> Result<Change> {
    let id = some_volume(u)?;
    let generation = Generation(u.int_in_range(0..=5)?);
    let revision = CatalogVersion(state.version().0.saturating_sub(u.int_in_range(0..=3)?));
    let expected = *u.choose(&[Expected::Anything, Expected::Absent, Expected::Revision(revision)])?;
    let key = key(["one", "two", "drei %"][u.int_in_range(0..=2_usize)?]);
    Ok(match u.int_in_range(0..=10)? {
        0..=1 => Change::CreateVolume(volume(u.int_in_range(0..=4)?, u.int_in_range(1..=2)?, u.int_in_range(0..=9)?)),
        2 => {
            let extents = u.int_in_range(1..=20)?;
            let parts = vec![Part { set: SetId(1), extents }];
            let expected_bytes = state.volume(id).map_or(0, |volume| volume.size_bytes);
            Change::ResizeVolume { id, expected_bytes, size_bytes: (extents << 20) - 5, parts }
        }
        3 => Change::RenameVolume { id, name: format!("name {}", u.int_in_range(0..=2)?) },
        4..=5 => {
            let fence = if u.arbitrary()? { Some(generation) } else { None };
            Change::AttachVolume { id, server: server_id(some_server(u)?), fence }
        }
        6 => Change::DetachVolume { id, generation },
        7 if u.arbitrary()? => Change::DeleteVolume(id),
        7 => Change::ForgetVolume(id),
        8 => Change::PutRecord { key, expected, value: u.arbitrary::<[u8; 3]>()?.to_vec() },
        9 => Change::RemoveRecord { key, expected },
        _ if u.arbitrary()? => {
            let name = ["a", "b c"][u.int_in_range(0..=1_usize)?].into();
            Change::UseFeature(Feature { name, release_min: u.int_in_range(0..=2)? })
        }
        _ => Change::SetVoters(some_servers(u)?.into_iter().collect()),
    })
}

/// A map that is not needed often: that of set 1.
pub(crate) fn target_of(state: &State, set: u32) -> Arc<ashlar_placement::map::Map> {
    state.set(SetId(set)).unwrap().target.clone()
}
