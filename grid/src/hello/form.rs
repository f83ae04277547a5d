//! The written forms of the hello's messages: MessagePack arrays that begin with `"ashlar"` and the kind.
//!
//! A later version may add elements: at the end, or before the proof where a message has one, so that a proof always
//! comes last and covers the whole message before it. Elements that are not known are passed over, but they must be
//! there and nothing may follow the last: each message has one reading. The head, the versions of a `Hello` and the
//! whole `Refusal` are the same in every version, so that any two versions can tell each other that they do not match.

use ashlar_wire::id::{ClusterId, Incarnation, ServerId};
use ashlar_wire::pack::{PackError, Reader, write_array_len, write_bin, write_str, write_uint};
use ashlar_wire::secret::KeyId;

use super::{ADDRESS_LEN_MAX, HELLO_LEN_MAX, HelloError, PeerLimits, RefusalCode, VERSIONS};
use crate::seam::Lane;

const MAGIC: &str = "ashlar";
/// Longest text of a refusal, bytes.
const TEXT_LEN_MAX: usize = 1_024;
/// How long a `Hello`, and a `Challenge` before its proof, are made, bytes: longer than a packet of 1,500, and below [`HELLO_LEN_MAX`] with
/// the proof.
const PADDED_LEN: usize = 1_900;
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
    pub(super) proof: [u8; 32],
    /// Where the proof begins in the written form.
    pub(super) proof_at: usize,
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

/// Ends a message with zeroes. Without them the hello would pass over a path that loses every full packet, as a tunnel with a smaller MTU does
/// where nobody hears of it; then the connection would be trusted, fail at the first large message, and be trusted again.
fn pad(out: &mut Vec<u8>) {
    // In an array, to which a later version can add: a `Hello` has as many elements as there can be.
    write_array_len(out, 1);
    // The length of more than 255 bytes takes two, and the kind of the element one.
    let len = PADDED_LEN.saturating_sub(out.len() + 3);
    write_bin(out, &[0; PADDED_LEN][..len]);
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
        let mut out = begin(15, 1);
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
        pad(&mut out);
        out
    }
}

impl Challenge {
    /// All but the proof, which covers it and follows it.
    pub(super) fn encode_without_proof(&self) -> Vec<u8> {
        let mut out = begin(14, 2);
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
        pad(&mut out);
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
    /// All but the proof, which covers it and follows it.
    pub(super) fn encode_without_proof(session_id: u64) -> Vec<u8> {
        let mut out = begin(4, 4);
        write_uint(&mut out, session_id);
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

/// The elements of a message, in order, with an eye on how many are left.
struct Elements<'a> {
    reader: Reader<'a>,
    left: u8,
    total: usize,
}

impl<'a> Elements<'a> {
    /// Begins to read `bytes`, and returns the kind too.
    fn open(bytes: &'a [u8]) -> Result<(Self, u64), PackError> {
        let mut reader = Reader::new(bytes);
        let left = reader.read_array_len()?.checked_sub(2).ok_or(PackError::Malformed)?;
        if reader.read_str(MAGIC.len())? != MAGIC {
            return Err(PackError::Malformed);
        }
        let kind = reader.read_uint()?;
        Ok((Self { reader, left, total: bytes.len() }, kind))
    }

    /// The reader, for the next element.
    fn next(&mut self) -> Result<&mut Reader<'a>, PackError> {
        self.left = self.left.checked_sub(1).ok_or(PackError::Malformed)?;
        Ok(&mut self.reader)
    }

    /// Where the proof begins, and the proof: the last element.
    fn proof(&mut self) -> Result<(usize, [u8; 32]), PackError> {
        while self.left > 1 {
            self.next()?.skip_value()?;
        }
        let proof_at = self.total - self.reader.remaining().len();
        Ok((proof_at, self.next()?.read_bin_array()?))
    }

    /// Passes over what is not known; then nothing may be left.
    fn close(mut self) -> Result<(), PackError> {
        while self.left > 0 {
            self.next()?.skip_value()?;
        }
        if self.reader.remaining().is_empty() { Ok(()) } else { Err(PackError::Malformed) }
    }
}

impl Form {
    /// Reads one message.
    ///
    /// # Errors
    /// It is malformed, longer than [`HELLO_LEN_MAX`], or the `Hello` of another version.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, HelloError> {
        if bytes.len() > HELLO_LEN_MAX {
            return Err(HelloError::too_long());
        }
        let (mut elements, kind) = Elements::open(bytes)?;
        let form = match kind {
            1 => {
                let versions = read_versions(elements.next()?)?;
                // What follows may look different in another version.
                if super::common_version(versions, VERSIONS).is_none() {
                    return Err(HelloError::Refused(RefusalCode::WrongVersion));
                }
                Self::Hello(decode_hello(&mut elements, versions)?)
            }
            2 => Self::Challenge(decode_challenge(&mut elements)?),
            3 => Self::Proof(Proof { proof: elements.proof()?.1 }),
            4 => {
                let session_id = elements.next()?.read_uint()?;
                let (proof_at, proof) = elements.proof()?;
                Self::Welcome(Welcome { session_id, proof, proof_at })
            }
            5 => {
                let code = RefusalCode::from_number(elements.next()?.read_uint()?);
                let text = elements.next()?.read_str(TEXT_LEN_MAX)?;
                // It goes to a log or a terminal, and nobody has vouched for it.
                Self::Refusal(Refusal { code, text: text.replace(char::is_control, " ") })
            }
            _ => return Err(PackError::Malformed.into()),
        };
        elements.close()?;
        Ok(form)
    }
}

fn read_versions(reader: &mut Reader<'_>) -> Result<(u16, u16), PackError> {
    if reader.read_array_len()? != 2 {
        return Err(PackError::Malformed);
    }
    Ok((read_u16(reader)?, read_u16(reader)?))
}

fn decode_hello(elements: &mut Elements<'_>, versions: (u16, u16)) -> Result<Hello, PackError> {
    Ok(Hello {
        versions,
        features: elements.next()?.read_uint()?,
        cluster: ClusterId::from_bytes(elements.next()?.read_bin_array()?),
        server: ServerId::from_bytes(elements.next()?.read_bin_array()?),
        incarnation: Incarnation(elements.next()?.read_uint()?),
        address: elements.next()?.read_str(ADDRESS_LEN_MAX)?.to_owned(),
        expected_peer: match elements.next()?.read_bin(ServerId::LEN)? {
            [] => None,
            id => Some(ServerId::from_bytes(id.try_into().map_err(|_| PackError::Malformed)?)),
        },
        lane: match elements.next()?.read_uint()? {
            1 => Lane::Small,
            2 => Lane::Bulk,
            _ => return Err(PackError::Malformed),
        },
        keys: read_keys(elements.next()?)?,
        nonce: elements.next()?.read_bin_array()?,
        limits: read_limits(elements.next()?)?,
        wants_checksum: elements.next()?.read_uint()? != 0,
    })
}

fn decode_challenge(elements: &mut Elements<'_>) -> Result<Challenge, PackError> {
    let mut challenge = Challenge {
        version: read_u16(elements.next()?)?,
        features: elements.next()?.read_uint()?,
        cluster: ClusterId::from_bytes(elements.next()?.read_bin_array()?),
        server: ServerId::from_bytes(elements.next()?.read_bin_array()?),
        incarnation: Incarnation(elements.next()?.read_uint()?),
        address: elements.next()?.read_str(ADDRESS_LEN_MAX)?.to_owned(),
        key: KeyId(elements.next()?.read_uint()?),
        nonce: elements.next()?.read_bin_array()?,
        limits: read_limits(elements.next()?)?,
        checksum: elements.next()?.read_uint()? != 0,
        proof: [0; 32],
        proof_at: 0,
    };
    (challenge.proof_at, challenge.proof) = elements.proof()?;
    Ok(challenge)
}

fn read_keys(reader: &mut Reader<'_>) -> Result<Vec<KeyId>, PackError> {
    let len = reader.read_array_len()?;
    if len > KEYS_MAX {
        return Err(PackError::TooLong { len: usize::from(len), max: usize::from(KEYS_MAX) });
    }
    (0..len).map(|_| reader.read_uint().map(KeyId)).collect()
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
    let unknown = reader.read_array_len()?.checked_sub(5).ok_or(PackError::Malformed)?;
    let limits = PeerLimits {
        calls_in_flight_max: read_u32(reader)?,
        streams_open_max: read_u32(reader)?,
        chunk_max: read_u32(reader)?,
        payload_max: read_u32(reader)?,
        routes_max: read_u16(reader)?,
    };
    (0..unknown).try_for_each(|_| reader.skip_value())?;
    Ok(limits)
}
