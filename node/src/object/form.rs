//! Written forms of calls about shards and ranges, version 1. Numbers are big-endian.
//!
//! A request to a drive is: version, drive, kind, name of the shard; for a put or a repair the stamp, the length of the header,
//! the header and the shard; for a get offset and length. The answer is: version, kind; for bytes the bytes. A request to the owner of a
//! range is: version, set, placement group, and the request as the object crate writes it.

use ashlar_grid::handler::{MalformedPayload, Payload};
use ashlar_object::cluster::{ShardReply, ShardRequest};
use ashlar_object::cursor::Malformed;
use ashlar_placement::map::{GroupId, PgId, SetId};
use ashlar_wire::id::{BlobId, DriveId};
use bytes::Bytes;

const VERSION: u8 = 1;
/// Bytes before what is of variable length.
const HEAD: usize = 1 + 16 + 1 + 16;

const PUT: u8 = 0;
const GET: u8 = 1;
const REMOVE: u8 = 2;
const REPAIR: u8 = 3;

/// A request and the drive that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ToDrive {
    pub(super) drive: DriveId,
    pub(super) request: ShardRequest,
}

impl ToDrive {
    fn encode_into(&self, out: &mut Vec<u8>) {
        let (kind, blob, more) = match &self.request {
            ShardRequest::Put { blob, header, data, is_repair, .. } => {
                (if *is_repair { REPAIR } else { PUT }, blob, 8 + 2 + header.len() + data.len())
            }
            ShardRequest::Get { blob, .. } => (GET, blob, 8),
            ShardRequest::Remove(blob) => (REMOVE, blob, 0),
        };
        out.reserve(HEAD + more);
        out.push(VERSION);
        out.extend_from_slice(self.drive.as_bytes());
        out.push(kind);
        out.extend_from_slice(blob.as_bytes());
        match &self.request {
            ShardRequest::Put { stamp, header, data, .. } => {
                out.extend_from_slice(&stamp.to_be_bytes());
                out.extend_from_slice(&u16::try_from(header.len()).expect("at most 512 bytes").to_be_bytes());
                out.extend_from_slice(header);
                out.extend_from_slice(data);
            }
            ShardRequest::Get { offset, len, .. } => {
                out.extend_from_slice(&offset.to_be_bytes());
                out.extend_from_slice(&len.to_be_bytes());
            }
            ShardRequest::Remove(_) => {}
        }
    }

    pub(super) fn decode(bytes: Bytes) -> Result<Self, Malformed> {
        let mut from = Taker(bytes);
        if from.array::<1>()? != [VERSION] {
            return Err(Malformed);
        }
        let drive = DriveId::from_bytes(from.array()?);
        let [kind] = from.array()?;
        let blob = BlobId::from_bytes(from.array()?);
        let request = match kind {
            PUT | REPAIR => {
                let stamp = u64::from_be_bytes(from.array()?);
                let len = u16::from_be_bytes(from.array()?);
                let header = from.take(len.into())?;
                let data = core::mem::take(&mut from.0);
                ShardRequest::Put { blob, stamp, header, data, is_repair: kind == REPAIR }
            }
            GET => ShardRequest::Get {
                blob,
                offset: u32::from_be_bytes(from.array()?),
                len: u32::from_be_bytes(from.array()?),
            },
            REMOVE => ShardRequest::Remove(blob),
            _ => return Err(Malformed),
        };
        if from.0.is_empty() { Ok(Self { drive, request }) } else { Err(Malformed) }
    }
}

/// A request to a drive on its way: the shard is copied once, into the buffer from which it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DriveCall {
    /// Of this server.
    Own(ToDrive),
    /// As another server has written it.
    Written(Vec<u8>),
}

impl DriveCall {
    pub(super) fn decode(self) -> Result<ToDrive, Malformed> {
        match self {
            Self::Own(request) => Ok(request),
            Self::Written(bytes) => ToDrive::decode(Bytes::from(bytes)),
        }
    }
}

impl Payload for DriveCall {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Own(request) => request.encode_into(out),
            Self::Written(bytes) => out.extend_from_slice(bytes),
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, MalformedPayload> {
        Ok(Self::Written(bytes.to_vec()))
    }

    fn take(bytes: Vec<u8>) -> Result<Self, MalformedPayload> {
        Ok(Self::Written(bytes))
    }
}

/// The written form of a drive's answer.
pub(super) fn encode_reply(reply: &ShardReply) -> Vec<u8> {
    let (kind, bytes): (u8, &[u8]) = match reply {
        ShardReply::Done => (0, &[]),
        ShardReply::Data(bytes) => (1, bytes),
        ShardReply::Missing => (2, &[]),
        ShardReply::Damaged => (3, &[]),
        ShardReply::Full => (4, &[]),
        ShardReply::Unavailable => (5, &[]),
    };
    [&[VERSION, kind], bytes].concat()
}

/// Reads it back.
pub(super) fn decode_reply(bytes: &Bytes) -> Result<ShardReply, Malformed> {
    match bytes.as_ref() {
        [VERSION, 0] => Ok(ShardReply::Done),
        [VERSION, 1, ..] => Ok(ShardReply::Data(bytes.slice(2..))),
        [VERSION, 2] => Ok(ShardReply::Missing),
        [VERSION, 3] => Ok(ShardReply::Damaged),
        [VERSION, 4] => Ok(ShardReply::Full),
        [VERSION, 5] => Ok(ShardReply::Unavailable),
        _ => Err(Malformed),
    }
}

/// A request to the owner of a range.
pub(super) fn encode_to_range(group: GroupId, request: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(9 + request.len());
    out.push(VERSION);
    out.extend_from_slice(&group.set.0.to_be_bytes());
    out.extend_from_slice(&group.pg.0.to_be_bytes());
    out.extend_from_slice(request);
    out
}

/// The placement group, and the request that is left.
pub(super) fn decode_to_range(bytes: Bytes) -> Result<(GroupId, Bytes), Malformed> {
    let mut from = Taker(bytes);
    if from.array::<1>()? != [VERSION] {
        return Err(Malformed);
    }
    let (set, pg) = (SetId(u32::from_be_bytes(from.array()?)), PgId(u32::from_be_bytes(from.array()?)));
    Ok((GroupId { set, pg }, from.0))
}

struct Taker(Bytes);

impl Taker {
    fn take(&mut self, len: usize) -> Result<Bytes, Malformed> {
        if len > self.0.len() { Err(Malformed) } else { Ok(self.0.split_to(len)) }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let bytes = self.take(N)?;
        bytes.as_ref().try_into().map_err(|_| Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Vec<ShardRequest> {
        let blob = BlobId::from_bytes([2; 16]);
        vec![
            ShardRequest::Put {
                blob,
                stamp: 3,
                header: Bytes::from_static(b"head"),
                data: Bytes::from_static(b"shard"),
                is_repair: false,
            },
            ShardRequest::Get { blob, offset: 4, len: 5 },
            ShardRequest::Remove(blob),
        ]
    }

    fn calls() -> impl Iterator<Item = DriveCall> {
        let to = |request| ToDrive { drive: DriveId::from_bytes([1; 16]), request };
        requests().into_iter().map(move |request| DriveCall::Own(to(request)))
    }

    fn written(call: &DriveCall) -> Vec<u8> {
        let mut out = Vec::new();
        call.encode(&mut out);
        out
    }

    #[test]
    fn golden_bytes() {
        let forms: Vec<Vec<u8>> = calls().map(|call| written(&call)).collect();
        let head = |kind| [&[1][..], &[1; 16], &[kind], &[2; 16]].concat();
        let put = [&head(0)[..], &[0, 0, 0, 0, 0, 0, 0, 3, 0, 4], b"headshard"].concat();
        assert_eq!(forms, [put, [&head(1)[..], &[0, 0, 0, 4, 0, 0, 0, 5]].concat(), head(2)]);
        assert_eq!(encode_reply(&ShardReply::Data(Bytes::from_static(b"ab"))), [1, 1, b'a', b'b']);
        assert_eq!(encode_reply(&ShardReply::Full), [1, 4]);
        let group = GroupId { set: SetId(1), pg: PgId(258) };
        assert_eq!(encode_to_range(group, b"x"), [1, 0, 0, 0, 1, 0, 0, 1, 2, b'x']);
    }

    #[test]
    fn forms_are_read_back_or_refused() {
        for call in calls() {
            let form = Bytes::from(written(&call));
            for taken in [<DriveCall as Payload>::decode(&form), DriveCall::take(form.to_vec())] {
                let taken = taken.unwrap();
                assert_eq!(written(&taken), form, "as a third server hands it on");
                assert_eq!(taken.decode(), call.clone().decode());
            }
            for len in 0..HEAD {
                assert_eq!(ToDrive::decode(form.slice(..len.min(form.len() - 1))), Err(Malformed));
            }
        }
        let replies = [
            ShardReply::Done,
            ShardReply::Data(Bytes::from_static(b"ab")),
            ShardReply::Missing,
            ShardReply::Damaged,
            ShardReply::Full,
            ShardReply::Unavailable,
        ];
        for reply in replies {
            assert_eq!(decode_reply(&Bytes::from(encode_reply(&reply))), Ok(reply));
        }
        for wrong in [&[][..], &[1], &[2, 0], &[1, 6], &[1, 0, 0]] {
            assert_eq!(decode_reply(&Bytes::copy_from_slice(wrong)), Err(Malformed));
        }
        let group = GroupId { set: SetId(1), pg: PgId(2) };
        let form = Bytes::from(encode_to_range(group, b"x"));
        assert_eq!(decode_to_range(form.clone()), Ok((group, Bytes::from_static(b"x"))));
        assert_eq!(decode_to_range(form.slice(..8)), Err(Malformed));
    }
}
