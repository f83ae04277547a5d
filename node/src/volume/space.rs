//! How full drives are: a server tells of its own drives, and any server asks all others.

use core::time::Duration;

use ashlar_grid::CallOptions;
use ashlar_grid::handler::{HandlerId, MalformedPayload, Method, Payload};
use ashlar_grid::seam::Runtime;
use ashlar_wire::id::{DriveId, ServerId};
use ashlar_wire::pack::{PackError, Reader, write_array_len, write_bin, write_uint};

use super::service::VolumeService;
use crate::together;

/// How long a server may take to answer before its drives are shown without figures.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Drives that one answer tells of.
const DRIVES_MAX: usize = 1_024;
/// Version of the written form.
const VERSION: u64 = 1;
/// Elements of the written form of one drive.
const FIELDS: u8 = 6;

/// Space of one kind on a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Room {
    /// Bytes of data that it can hold.
    pub bytes: u64,
    /// Bytes of data that still can be written before something is deleted, an upper bound.
    pub free: u64,
}

/// Space on a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriveSpace {
    /// Which drive.
    pub drive: DriveId,
    /// For extents of volumes.
    pub volumes: Room,
    /// For shards of objects; nothing in it where the drive has none.
    pub objects: Room,
    /// It has failed a write or a sync since its server started, and is not used any more.
    pub has_failed: bool,
}

/// "How full are your drives?"
pub(super) struct SpaceCall;

impl Method for SpaceCall {
    const ID: HandlerId = HandlerId::new(66);
    const IDEMPOTENT: bool = true;
    type Request = ();
    type Reply = SpaceForm;
}

/// The answer as it is written: version, how many drives, and for each its id, bytes and free bytes for volumes, the same for objects, and 1 if it has
/// failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SpaceForm(pub(super) Vec<DriveSpace>);

#[allow(clippy::needless_pass_by_value, reason = "the signature of map_err")]
fn malformed(_: PackError) -> MalformedPayload {
    MalformedPayload
}

impl Payload for SpaceForm {
    fn encode(&self, out: &mut Vec<u8>) {
        let drives = self.0.iter().take(DRIVES_MAX);
        write_uint(out, VERSION);
        write_uint(out, drives.len() as u64);
        for DriveSpace { drive, volumes, objects, has_failed } in drives {
            write_array_len(out, FIELDS);
            write_bin(out, drive.as_bytes());
            [volumes.bytes, volumes.free, objects.bytes, objects.free]
                .into_iter()
                .for_each(|number| write_uint(out, number));
            write_uint(out, u64::from(*has_failed));
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, MalformedPayload> {
        let mut from = Reader::new(bytes);
        let (version, count) = (from.read_uint().map_err(malformed)?, from.read_uint().map_err(malformed)?);
        if version != VERSION || count > DRIVES_MAX as u64 {
            return Err(MalformedPayload);
        }
        let drives = (0..count).map(|_| read_drive(&mut from)).collect::<Result<_, _>>()?;
        if from.remaining().is_empty() { Ok(Self(drives)) } else { Err(MalformedPayload) }
    }
}

fn read_drive(from: &mut Reader<'_>) -> Result<DriveSpace, MalformedPayload> {
    if from.read_array_len().map_err(malformed)? != FIELDS {
        return Err(MalformedPayload);
    }
    let drive = DriveId::from_bytes(from.read_bin_array().map_err(malformed)?);
    let mut number = || from.read_uint().map_err(malformed);
    let volumes = Room { bytes: number()?, free: number()? };
    let objects = Room { bytes: number()?, free: number()? };
    let has_failed = match number()? {
        0 => false,
        1 => true,
        _ => return Err(MalformedPayload),
    };
    Ok(DriveSpace { drive, volumes, objects, has_failed })
}

impl<R: Runtime> VolumeService<R> {
    /// The drives of these servers, asked at the same time; nothing for a server that has not answered within two seconds.
    pub async fn space_of(&self, servers: &[ServerId]) -> Vec<Option<Vec<DriveSpace>>> {
        let asked = servers.iter().map(|server| -> together::Pending<'_, _> { Box::pin(self.space_at(*server)) });
        together::all(asked.collect()).await
    }

    async fn space_at(&self, server: ServerId) -> Option<Vec<DriveSpace>> {
        let node = self.node()?;
        if node.id() == server {
            return Some(self.space_here());
        }
        let options = CallOptions { fail_fast: true, ..CallOptions::within(ANSWER_MAX) };
        match node.grid().call::<SpaceCall>(server, &(), options).await {
            Ok(SpaceForm(drives)) => Some(drives),
            Err(error) => {
                tracing::debug!(%server, %error, "a server does not tell how full its drives are");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_and_what_is_no_such_value() {
        let drive = DriveSpace {
            drive: DriveId::from_bytes([0xd1; 16]),
            volumes: Room { bytes: 300, free: 7 },
            objects: Room { bytes: 0, free: 0 },
            has_failed: true,
        };
        let mut golden = vec![1, 1, 0x96, 0xc4, 16];
        golden.extend([0xd1; 16]);
        golden.extend([0xcd, 1, 44, 7, 0, 0, 1]);
        let mut bytes = Vec::new();
        SpaceForm(vec![drive]).encode(&mut bytes);
        assert_eq!(bytes, golden);
        assert_eq!(SpaceForm::decode(&bytes), Ok(SpaceForm(vec![drive])));
        (0..bytes.len()).for_each(|end| assert_eq!(SpaceForm::decode(&bytes[..end]), Err(MalformedPayload), "{end}"));
        assert_eq!(SpaceForm::decode(&[&bytes[..], &[0]].concat()), Err(MalformedPayload));
        assert_eq!(SpaceForm::decode(&[2, 0]), Err(MalformedPayload), "another version");
        *bytes.last_mut().expect("it has bytes") = 2;
        assert_eq!(SpaceForm::decode(&bytes), Err(MalformedPayload), "neither failed nor not");
        assert_eq!(SpaceForm::decode(&[1, 0]), Ok(SpaceForm(Vec::new())));
        assert_eq!(SpaceForm::decode(&[1, 0xcd, 4, 1]), Err(MalformedPayload), "more than there may be");
    }
}
