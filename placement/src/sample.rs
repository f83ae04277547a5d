//! Maps for tests: regular ones, and any at all.

use alloc::vec::Vec;

use arbtest::arbitrary::{Result, Unstructured};
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, ServerId};

use crate::choose::PgTable;
use crate::domains::Conflict;
use crate::error::Error;
use crate::map::{Drive, DriveState, Map, PgId, Rack, SetId, Shape, Weight, Zone};

/// An id of 16 bytes that ends in a number.
pub(crate) fn id(number: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[12..].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Drive `number` in a regular set: so many drives to a server, 5 servers to a rack, 4 racks to a zone.
pub(crate) fn drive(number: u32, drives_per_server: u32, weight: u32) -> Drive {
    let server = number / drives_per_server;
    Drive {
        id: DriveId::from_bytes(id(number)),
        server: ServerId::from_bytes(id(server)),
        rack: Rack(server / 5),
        zone: Zone(server / 20),
        weight: Weight(weight),
        state: DriveState::In,
    }
}

/// `count` alike drives.
pub(crate) fn drives(count: u32, drives_per_server: u32) -> Vec<Drive> {
    (0..count).map(|number| drive(number, drives_per_server, 4_000)).collect()
}

pub(crate) fn shape(pgs: u32, seats: u8, conflict: Conflict) -> Shape {
    Shape { pgs, width: seats, conflict }
}

/// A valid map of set 1.
pub(crate) fn map(epoch: u64, shape: Shape, drives: &[Drive]) -> Map {
    Map::new(SetId(1), Epoch(epoch), shape, drives.to_vec()).unwrap()
}

/// The ids of a placement group's drives.
pub(crate) fn ids(table: &PgTable, pg: u32) -> Vec<DriveId> {
    table.drives(PgId(pg)).map(|drive| drive.id).collect()
}

/// Seats whose drive is another one in `after`, and how many of these have left each drive that `is_excused`.
pub(crate) fn moved(
    before: &PgTable,
    after: &PgTable,
    is_excused: impl Fn(DriveId, DriveId) -> bool,
) -> (usize, usize) {
    let (mut all, mut excused) = (0, 0);
    for pg in 0..before.map().shape().pgs {
        for (old, new) in ids(before, pg).into_iter().zip(ids(after, pg)).filter(|(old, new)| old != new) {
            all += 1;
            excused += usize::from(is_excused(old, new));
        }
    }
    (all, excused)
}

/// The most that a drive is off what it is due, in parts of a thousand; and whether each is within the tolerance, or
/// less than two seats off.
pub(crate) fn unevenness(table: &PgTable) -> (u64, bool) {
    let one = crate::choose::Due::ONE;
    let off = |fill: &crate::choose::Fill| (u64::from(fill.seats) * one).abs_diff(fill.due.0);
    let fill = table.fill();
    let due = fill.iter().filter(|fill| fill.due.0 > 0);
    let worst = due.clone().map(|fill| off(fill) * 1_000 / fill.due.0).max().unwrap_or(0);
    (worst, due.clone().all(|fill| off(fill) < 2 * one || off(fill) <= fill.due.0 / crate::balance::TOLERANCE))
}

/// Nobody shares a domain with another seat of its placement group, or is out.
pub(crate) fn check_rule(table: &PgTable) {
    let conflict = table.map().shape().conflict;
    for pg in 0..table.map().shape().pgs {
        let drives: Vec<&Drive> = table.drives(PgId(pg)).collect();
        assert_eq!(drives.len(), table.map().shape().width());
        for (place, drive) in drives.iter().enumerate() {
            assert_ne!(drive.state, DriveState::Out, "pg {pg}");
            let before = drives[..place].iter();
            assert!(before.clone().all(|other| !conflict.is_between(other, drive)), "pg {pg}: {drives:?}");
            assert!(before.clone().all(|other| other.id != drive.id), "pg {pg}: {drives:?}");
        }
    }
}

/// Any drives: up to 40, in servers, racks and zones of any sizes and weights.
pub(crate) fn any_drives(u: &mut Unstructured<'_>) -> Result<Vec<Drive>> {
    let (servers, racks, zones) =
        (u.int_in_range(1..=20_u32)?, u.int_in_range(1..=10_u32)?, u.int_in_range(1..=5_u32)?);
    let weight_bits = u.int_in_range(0..=31)?;
    let mut drives = Vec::new();
    for number in 0..u.int_in_range(1..=40_u32)? {
        let server = u.int_in_range(0..=servers - 1)?;
        let rack = server % racks;
        drives.push(Drive {
            id: DriveId::from_bytes(id(number)),
            server: ServerId::from_bytes(id(server)),
            rack: Rack(rack),
            zone: Zone(rack % zones),
            weight: Weight(u.int_in_range(1..=1 << weight_bits)?),
            state: any_state(u)?,
        });
    }
    Ok(drives)
}

fn any_state(u: &mut Unstructured<'_>) -> Result<DriveState> {
    Ok(match u.int_in_range(0..=9)? {
        0 => DriveState::Full,
        1 => DriveState::Out,
        _ => DriveState::In,
    })
}

/// Any shape with few placement groups.
pub(crate) fn any_shape(u: &mut Unstructured<'_>) -> Result<Shape> {
    Ok(Shape { pgs: u.int_in_range(1..=60)?, width: u.int_in_range(1..=6)?, conflict: *u.choose(&Conflict::ALL)? })
}

/// The map of any drives, or why there is none.
pub(crate) fn any_map(u: &mut Unstructured<'_>, epoch: u64, shape: Shape) -> Result<core::result::Result<Map, Error>> {
    Ok(Map::new(SetId(u32::from(u.arbitrary::<u8>()? > 0)), Epoch(epoch), shape, any_drives(u)?))
}

/// Drives some of which have left, joined, moved, or changed their weight or state.
pub(crate) fn changed(u: &mut Unstructured<'_>, drives: &[Drive]) -> Result<Vec<Drive>> {
    let mut changed = Vec::new();
    for drive in drives {
        let mut drive = *drive;
        match u.int_in_range(0..=15)? {
            0 => continue,
            1 => drive.weight = Weight(drive.weight.0 / 2 + 1),
            2 => drive.state = any_state(u)?,
            3 => {
                let other = u.choose(drives)?;
                (drive.server, drive.rack, drive.zone) = (other.server, other.rack, other.zone);
            }
            _ => {}
        }
        changed.push(drive);
    }
    for number in 0..u.int_in_range(0..=3_u32)? {
        let place = *u.choose(drives)?;
        let drive_id = DriveId::from_bytes(id(u.arbitrary::<u32>()? | 0x100 | number << 24));
        if changed.iter().all(|drive| drive.id != drive_id) {
            changed.push(Drive { id: drive_id, state: DriveState::In, ..place });
        }
    }
    Ok(changed)
}
