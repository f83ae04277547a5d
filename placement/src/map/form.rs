//! The written form of a map: MessagePack values one after the other, described in `docs/formats.md`.
//!
//! Numbers are those of the written form and never change their meaning. What is read is as valid as what is built:
//! both go through the same checks.

use alloc::vec::Vec;

use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, ServerId};
use ashlar_wire::pack::{PackError, Reader, write_array_len, write_bin, write_str, write_uint};

use super::{DRIVES_MAX, Drive, DriveIndex, DriveState, Map, PgId, Pins, Rack, SEATS_MAX, SetId, Shape, Weight, Zone};
use crate::domains::Conflict;
use crate::error::Error;

const MAGIC: &str = "ashlar map";
const VERSION: u64 = 1;
/// Values of one drive.
const DRIVE_LEN: u8 = 6;

impl Map {
    /// The written form: about 45 bytes for each drive, and 8 for each pinned placement group of three seats.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write_str(&mut out, MAGIC);
        write_uint(&mut out, VERSION);
        write_uint(&mut out, u64::from(self.set.0));
        write_uint(&mut out, self.epoch.0);
        write_uint(&mut out, u64::from(self.shape.pgs));
        write_uint(&mut out, u64::from(self.shape.width));
        write_uint(&mut out, conflict_number(self.shape.conflict));
        write_count(&mut out, self.drives.len());
        self.drives.iter().for_each(|drive| write_drive(&mut out, drive));
        write_count(&mut out, self.pins.pgs.len());
        let mut next = 0;
        for (pg, seats) in self.pins() {
            write_uint(&mut out, u64::from(pg.0 - next));
            next = pg.0 + 1;
            seats.iter().for_each(|index| write_uint(&mut out, u64::from(index.0)));
        }
        out
    }

    /// Reads what [`Map::encode`] wrote, all of it.
    ///
    /// # Errors
    /// The writer's: the bytes are cut, of another type or version, out of order, or what they say makes no map. No
    /// retry helps.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        match reader.read_str(MAGIC.len()) {
            Ok(MAGIC) => {}
            Err(PackError::Truncated) => return Err(PackError::Truncated.into()),
            _ => return Err(Error::NotAMap),
        }
        let version = reader.read_uint()?;
        if version != VERSION {
            return Err(Error::UnknownVersion(version));
        }
        let set = SetId(read_u32(&mut reader, "set")?);
        let epoch = Epoch(reader.read_uint()?);
        let pgs = read_u32(&mut reader, "number of placement groups")?;
        let seats = reader.read_uint()?;
        let seats = u8::try_from(seats).map_err(|_| Error::BadNumber { what: "number of seats", value: seats })?;
        let conflict = read_number(&mut reader, "conflict rule", &Conflict::ALL, conflict_number)?;
        let drives = read_drives(&mut reader)?;
        let map = Self::new(set, epoch, Shape { pgs, width: seats, conflict }, drives)?;
        let pins = map.read_pins(&mut reader)?;
        if !reader.remaining().is_empty() {
            return Err(Error::TrailingBytes);
        }
        map.with_pins(pins)
    }

    fn read_pins(&self, reader: &mut Reader<'_>) -> Result<Pins, Error> {
        let count = read_count(reader, "pins", self.shape.pgs)?;
        let mut pins = Pins::default();
        let mut next = 0_u32;
        for _ in 0..count {
            let gap = read_u32(reader, "gap between pins")?;
            let pg = next.checked_add(gap).filter(|pg| *pg < self.shape.pgs);
            let pg = pg.ok_or(Error::BadNumber { what: "gap between pins", value: u64::from(gap) })?;
            let mut seats = [DriveIndex::VACANT; SEATS_MAX];
            let seats = &mut seats[..self.shape.width()];
            for seat in &mut *seats {
                let place = reader.read_uint()?;
                let known = usize::try_from(place).ok().filter(|place| *place < self.drives.len());
                *seat =
                    known.map(DriveIndex::new).ok_or(Error::BadNumber { what: "place of a drive", value: place })?;
            }
            pins.push(PgId(pg), seats);
            next = pg + 1;
        }
        Ok(pins)
    }
}

const fn conflict_number(conflict: Conflict) -> u64 {
    match conflict {
        Conflict::Drive => 1,
        Conflict::Server => 2,
        Conflict::Rack => 3,
        Conflict::Zone => 4,
    }
}

const fn state_number(state: DriveState) -> u64 {
    match state {
        DriveState::In => 1,
        DriveState::Full => 2,
        DriveState::Out => 3,
    }
}

fn write_drive(out: &mut Vec<u8>, drive: &Drive) {
    write_array_len(out, DRIVE_LEN);
    write_bin(out, drive.id.as_bytes());
    write_bin(out, drive.server.as_bytes());
    write_uint(out, u64::from(drive.rack.0));
    write_uint(out, u64::from(drive.zone.0));
    write_uint(out, u64::from(drive.weight.0));
    write_uint(out, state_number(drive.state));
}

fn read_drives(reader: &mut Reader<'_>) -> Result<Vec<Drive>, Error> {
    let count = read_count(reader, "drives", DRIVES_MAX as u32)?;
    let mut drives: Vec<Drive> = Vec::new();
    for _ in 0..count {
        let drive = read_drive(reader)?;
        if drives.last().is_some_and(|last| last.id >= drive.id) {
            return Err(Error::OutOfOrder("drives"));
        }
        drives.push(drive);
    }
    Ok(drives)
}

fn read_drive(reader: &mut Reader<'_>) -> Result<Drive, Error> {
    if reader.read_array_len()? != DRIVE_LEN {
        return Err(PackError::Malformed.into());
    }
    Ok(Drive {
        id: DriveId::from_bytes(reader.read_bin_array()?),
        server: ServerId::from_bytes(reader.read_bin_array()?),
        rack: Rack(read_u32(reader, "rack")?),
        zone: Zone(read_u32(reader, "zone")?),
        weight: Weight(read_u32(reader, "weight")?),
        state: read_number(reader, "state", &[DriveState::In, DriveState::Full, DriveState::Out], state_number)?,
    })
}

fn write_count(out: &mut Vec<u8>, count: usize) {
    write_uint(out, u64::try_from(count).expect("a size of this machine fits 64 bits"));
}

fn read_count(reader: &mut Reader<'_>, what: &'static str, max: u32) -> Result<u32, Error> {
    let count = reader.read_uint()?;
    let max = u64::from(max);
    u32::try_from(count).ok().filter(|_| count <= max).ok_or(Error::TooMany { what, count, max })
}

fn read_u32(reader: &mut Reader<'_>, what: &'static str) -> Result<u32, Error> {
    let value = reader.read_uint()?;
    u32::try_from(value).map_err(|_| Error::BadNumber { what, value })
}

fn read_number<T: Copy>(
    reader: &mut Reader<'_>,
    what: &'static str,
    all: &[T],
    number: fn(T) -> u64,
) -> Result<T, Error> {
    let value = reader.read_uint()?;
    all.iter().copied().find(|one| number(*one) == value).ok_or(Error::BadNumber { what, value })
}
