//! The written forms of the hello's messages: MessagePack arrays that begin with `"ashlar"` and the kind.

use ashlar_wire::id::{ClusterId, Incarnation, ServerId};
use ashlar_wire::pack::{PackError, Reader, write_array_len, write_bin, write_str, write_uint};
use ashlar_wire::secret::KeyId;

use super::{ADDRESS_LEN_MAX, PeerLimits, RefusalCode};
use crate::seam::Lane;

const MAGIC: &str = "ashlar";
/// Longest text of a refusal, bytes.
const TEXT_LEN_MAX: usize = 1_024;
/// Secrets that a server may hold.
const KEYS_MAX: u8 = 2;

/// Message 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) versions: (u16, u16),
    pub(super) features: u64,
    pub(super) cluster: ClusterId,
    pub(super) server: ServerId,
    pub(super) incarnation: Incarnation,
    pub(super) address: String,
    pub(super) expected_peer: Option<ServerId>,
    pub(super) lane: Lane,
    pub(super) keys: Vec<KeyId>,
    pub(super) nonce: [u8; 32],
    pub(super) limits: PeerLimits,
    pub(super) wants_checksum: bool,
}

/// Message 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Challenge {
    pub(super) version: u16,
    pub(super) features: u64,
    pub(super) cluster: ClusterId,
    pub(super) server: ServerId,
    pub(super) incarnation: Incarnation,
    pub(super) address: String,
    pub(super) key: KeyId,
    pub(super) nonce: [u8; 32],
    pub(super) limits: PeerLimits,
    pub(super) checksum: bool,
    pub(super) proof: [u8; 32],
    /// Where the proof begins in the written form.
    pub(super) proof_at: usize,
}

/// Message 3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proof {
    pub(super) proof: [u8; 32],
}

/// Message 4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Welcome {
    pub(super) session_id: u64,
}

/// Instead of message 2 or 4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: RefusalCode,
    pub(super) text: String,
}

/// Any of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    Hello(Hello),
    Challenge(Challenge),
    Proof(Proof),
    Welcome(Welcome),
    Refusal(Refusal),
}

fn begin(elements: u8, kind: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    write_array_len(&mut out, elements);
    write_str(&mut out, MAGIC);
    write_uint(&mut out, kind);
    out
}

fn write_limits(out: &mut Vec<u8>, limits: &PeerLimits) {
    write_array_len(out, 5);
    write_uint(out, u64::from(limits.calls_in_flight_max));
    write_uint(out, u64::from(limits.streams_open_max));
    write_uint(out, u64::from(limits.chunk_max));
    write_uint(out, u64::from(limits.payload_max));
    write_uint(out, u64::from(limits.routes_max));
}

impl Hello {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = begin(14, 1);
        write_array_len(&mut out, 2);
        write_uint(&mut out, u64::from(self.versions.0));
        write_uint(&mut out, u64::from(self.versions.1));
        write_uint(&mut out, self.features);
        write_bin(&mut out, self.cluster.as_bytes());
        write_bin(&mut out, self.server.as_bytes());
        write_uint(&mut out, self.incarnation.0);
        write_str(&mut out, &self.address);
        write_bin(&mut out, self.expected_peer.as_ref().map_or(&[], |id| id.as_bytes().as_slice()));
        write_uint(&mut out, lane_number(self.lane));
        write_array_len(&mut out, u8::try_from(self.keys.len()).expect("at most two secrets"));
        self.keys.iter().for_each(|key| write_uint(&mut out, key.0));
        write_bin(&mut out, &self.nonce);
        write_limits(&mut out, &self.limits);
        write_uint(&mut out, u64::from(self.wants_checksum));
        out
    }
}

impl Challenge {
    /// All but the proof, which covers it and follows it.
    pub(super) fn encode_without_proof(&self) -> Vec<u8> {
        let mut out = begin(13, 2);
        write_uint(&mut out, u64::from(self.version));
        write_uint(&mut out, self.features);
        write_bin(&mut out, self.cluster.as_bytes());
        write_bin(&mut out, self.server.as_bytes());
        write_uint(&mut out, self.incarnation.0);
        write_str(&mut out, &self.address);
        write_uint(&mut out, self.key.0);
        write_bin(&mut out, &self.nonce);
        write_limits(&mut out, &self.limits);
        write_uint(&mut out, u64::from(self.checksum));
        out
    }
}

impl Proof {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = begin(3, 3);
        write_bin(&mut out, &self.proof);
        out
    }
}

impl Welcome {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = begin(3, 4);
        write_uint(&mut out, self.session_id);
        out
    }
}

impl Refusal {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = begin(4, 5);
        write_uint(&mut out, self.code as u64);
        write_str(&mut out, &self.text);
        out
    }
}

impl Form {
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, PackError> {
        let mut reader = Reader::new(bytes);
        let elements = reader.read_array_len()?;
        if reader.read_str(MAGIC.len())? != MAGIC {
            return Err(PackError::Malformed);
        }
        let kind = reader.read_uint()?;
        let elements_min = match kind {
            1 => 14,
            2 => 13,
            3 | 4 => 3,
            5 => 4,
            _ => return Err(PackError::Malformed),
        };
        if elements < elements_min {
            return Err(PackError::Malformed);
        }
        Ok(match kind {
            1 => Self::Hello(decode_hello(&mut reader)?),
            2 => Self::Challenge(decode_challenge(bytes, &mut reader)?),
            3 => Self::Proof(Proof { proof: reader.read_bin_array()? }),
            4 => Self::Welcome(Welcome { session_id: reader.read_uint()? }),
            _ => Self::Refusal(Refusal {
                code: RefusalCode::from_number(reader.read_uint()?),
                text: reader.read_str(TEXT_LEN_MAX)?.to_owned(),
            }),
        })
    }
}

fn decode_hello(reader: &mut Reader<'_>) -> Result<Hello, PackError> {
    if reader.read_array_len()? != 2 {
        return Err(PackError::Malformed);
    }
    Ok(Hello {
        versions: (read_u16(reader)?, read_u16(reader)?),
        features: reader.read_uint()?,
        cluster: ClusterId::from_bytes(reader.read_bin_array()?),
        server: ServerId::from_bytes(reader.read_bin_array()?),
        incarnation: Incarnation(reader.read_uint()?),
        address: reader.read_str(ADDRESS_LEN_MAX)?.to_owned(),
        expected_peer: match reader.read_bin(ServerId::LEN)? {
            [] => None,
            id => Some(ServerId::from_bytes(id.try_into().map_err(|_| PackError::Malformed)?)),
        },
        lane: match reader.read_uint()? {
            1 => Lane::Small,
            2 => Lane::Bulk,
            _ => return Err(PackError::Malformed),
        },
        keys: {
            let len = reader.read_array_len()?;
            if len > KEYS_MAX {
                return Err(PackError::Malformed);
            }
            (0..len).map(|_| reader.read_uint().map(KeyId)).collect::<Result<_, _>>()?
        },
        nonce: reader.read_bin_array()?,
        limits: read_limits(reader)?,
        wants_checksum: reader.read_uint()? != 0,
    })
}

fn decode_challenge(bytes: &[u8], reader: &mut Reader<'_>) -> Result<Challenge, PackError> {
    let mut challenge = Challenge {
        version: read_u16(reader)?,
        features: reader.read_uint()?,
        cluster: ClusterId::from_bytes(reader.read_bin_array()?),
        server: ServerId::from_bytes(reader.read_bin_array()?),
        incarnation: Incarnation(reader.read_uint()?),
        address: reader.read_str(ADDRESS_LEN_MAX)?.to_owned(),
        key: KeyId(reader.read_uint()?),
        nonce: reader.read_bin_array()?,
        limits: read_limits(reader)?,
        checksum: reader.read_uint()? != 0,
        proof: [0; 32],
        proof_at: bytes.len() - reader.remaining().len(),
    };
    challenge.proof = reader.read_bin_array()?;
    Ok(challenge)
}

const fn lane_number(lane: Lane) -> u64 {
    match lane {
        Lane::Small => 1,
        Lane::Bulk => 2,
    }
}

fn read_u16(reader: &mut Reader<'_>) -> Result<u16, PackError> {
    u16::try_from(reader.read_uint()?).map_err(|_| PackError::Malformed)
}

fn read_u32(reader: &mut Reader<'_>) -> Result<u32, PackError> {
    u32::try_from(reader.read_uint()?).map_err(|_| PackError::Malformed)
}

fn read_limits(reader: &mut Reader<'_>) -> Result<PeerLimits, PackError> {
    if reader.read_array_len()? < 5 {
        return Err(PackError::Malformed);
    }
    Ok(PeerLimits {
        calls_in_flight_max: read_u32(reader)?,
        streams_open_max: read_u32(reader)?,
        chunk_max: read_u32(reader)?,
        payload_max: read_u32(reader)?,
        routes_max: read_u16(reader)?,
    })
}
