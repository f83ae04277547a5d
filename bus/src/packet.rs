//! The written form of everything that members say to each other: version 2.
//!
//! A packet is a header and a body. Numbers are MessagePack unsigned integers in their shortest form
//! ([`pack`](ashlar_wire::pack)), ids are their 16 bytes, fingerprints 8 bytes big-endian. News stands at the end of a packet
//! and fills the rest of it, so it needs no count.
//!
//! Decoding reads a packet whole before anything is done with it: a packet that is wrong anywhere moves no state. Every
//! count is compared with a limit, and lists are no longer than the bytes that are there.
//!
//! Not here: who may say what, and when. That is for those who handle the body.

use alloc::boxed::Box;
use alloc::vec::Vec;

use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{ClusterId, Incarnation, ServerId};
use ashlar_wire::pack::{PackError, Reader, write_bin, write_str, write_uint};

use crate::claim::Claim;
use crate::config::Config;
use crate::event::Departure;
use crate::member::{Description, Life, MemberRecord, SERVICES_BYTES_MAX};
use crate::pubsub::INTEREST_BYTES_MAX;
use crate::slot::{GroupId, SLOTS, Slot, SlotRange, SlotSet, Zone};
use crate::voters::{Adoption, FORGETFUL_MAX, Origin, VoterSet};

/// The version that this program speaks.
pub const VERSION: u8 = 2;
/// Ranges of slots that are written as ranges; more are written as one bit a slot.
pub const SLOT_RANGES_MAX: usize = 512;
/// Bits of one per slot, as bytes.
const SLOT_BITMAP_BYTES: usize = SLOTS as usize / 8;
/// Stands in place of a number of ranges before bits.
const SLOT_BITMAP_MARK: u64 = 1_000;
/// Greater epochs are damage, not age: 2^62 elections have not taken place.
pub const EPOCH_MAX: Epoch = Epoch(1 << 62);
/// A part of a sync: fingerprints of this many classes of members or claims at most.
pub const SYNC_CLASSES_MAX: usize = 256;
/// No configuration makes packets shorter than this: the longest single piece of news fits.
pub const PACKET_BYTES_MIN: usize = 6 * 1_024;

/// Why bytes are not a packet for this member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketError {
    /// Not a packet, or against a limit.
    Malformed,
    /// A version that this program does not speak.
    Version(u8),
    /// Of another cluster.
    Cluster,
}

impl From<PackError> for PacketError {
    fn from(_: PackError) -> Self {
        Self::Malformed
    }
}

/// What stands before every body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The life of the sender.
    pub incarnation: Incarnation,
    /// Counts the packets of that life to this receiver, from 1.
    pub sequence: u32,
}

/// What goes with every probe and answer: the pulse of the whole cluster in a few bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Beat {
    /// Fingerprint of the sender's table of members.
    pub members: u64,
    /// Fingerprint of its claims and voters.
    pub claims: u64,
    /// Half of the fingerprint of its voters.
    pub voters: u32,
    /// How old its knowledge is that a majority of the voters hear each other, in units of 10 ms; at most
    /// [`Beat::AGE_MAX`], which means never.
    pub quorum_age: u64,
    /// What it thinks of the receiver: the `refuted` at which the receiver has failed, if it has.
    pub you_failed: Option<u64>,
}

impl Beat {
    /// No majority in reach.
    pub const AGE_MAX: u64 = 65_535;
}

/// One member's silence, as another one saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// Who is silent.
    pub id: ServerId,
    /// In which life.
    pub incarnation: Incarnation,
    /// How often it has refuted a failure, as far as is known.
    pub refuted: u64,
    /// For how long, milliseconds. In a report zero means: it was heard again.
    pub age_ms: u64,
}

/// What a vote is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The primary has failed.
    Election,
    /// The primary has agreed, or the operator forces it.
    ByHand,
    /// The primary itself takes more slots, or a new group begins.
    Slots,
    /// A new set of voters may be chosen. Not about a group: that is [`CHOICE`].
    Voters,
}

/// Stands for no group: in ballots about the next set of voters.
pub const CHOICE: GroupId = GroupId(u64::MAX);

/// A request for a vote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoteRequest {
    /// For which group.
    pub group: GroupId,
    /// For what.
    pub purpose: Purpose,
    /// For which epoch.
    pub epoch: Epoch,
    /// The epoch of the group's claim that the candidate knows; zero if it knows none.
    pub base: Epoch,
    /// Fingerprint of the set of voters that it counts.
    pub voters: u64,
    /// How far its copy goes.
    pub offset: u64,
    /// The primary that has failed, and at which `refuted`, for an election.
    pub failed: Option<(ServerId, u64)>,
    /// What it will claim.
    pub slots: SlotSet,
    /// What of that it takes from others; the rest it has already.
    pub taken: SlotSet,
}

impl VoteRequest {
    /// Whether a primary keeps what it has, or less, in a greater epoch.
    pub(crate) fn takes_nothing(&self) -> bool {
        self.purpose == Purpose::Slots && self.taken.is_empty()
    }
}

/// Why a vote is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The one asked does not vote.
    NotVoter,
    /// The candidate counts other voters.
    OtherVoters,
    /// The voter has voted for another in this epoch or a later one, or the epoch is decided.
    StaleEpoch,
    /// A claim of the group is known that the candidate does not know.
    StaleClaim,
    /// The primary lives.
    PrimaryAlive,
    /// Another candidate has more data.
    BetterCandidate,
    /// A slot belongs to someone else by now.
    SlotTaken,
    /// The voter has lost its memory and abstains.
    NoMemory,
    /// The candidate is no replica of the group.
    NotReplica,
    /// The voter remembers votes for as many groups as it can.
    NoRoom,
}

/// The answer to a request for a vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vote {
    /// For which group.
    pub group: GroupId,
    /// The epoch that was asked for.
    pub epoch: Epoch,
    /// Given, or why not.
    pub refused: Option<Reason>,
    /// The greatest epoch that the voter knows for this group.
    pub known: Epoch,
}

/// Fingerprints by class: what differs between two members, narrowed down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sync {
    /// Whether the receiver should send its own fingerprints back.
    pub wants_answer: bool,
    /// Fingerprint of the voters.
    pub voters: u64,
    /// Members by class of id; the number of classes is a power of two up to [`SYNC_CLASSES_MAX`].
    pub members: Vec<u32>,
    /// Claims by class of group.
    pub claims: Vec<u32>,
}

/// A wish that a member be forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgetting {
    /// Which member.
    pub id: ServerId,
    /// Tells this wish from others about the same member.
    pub tag: u32,
    /// How long it is to be kept out still, milliseconds.
    pub left_ms: u64,
}

/// A piece of news.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// A member.
    Member(Box<MemberRecord>),
    /// A member's life alone.
    Life(ServerId, Life),
    /// A claim.
    Claim(Claim),
    /// Who votes.
    Voters(Box<VoterSet>),
    /// A member is forgotten and kept out.
    Forget(Forgetting),
}

/// What a packet says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Are you there?
    Probe(u32, Beat, Vec<News>),
    /// Yes.
    Answer(u32, Beat, Vec<News>),
    /// Please probe this member for me.
    Ask(u32, ServerId),
    /// The member that you asked about has answered me, in this life.
    Heard(u32, ServerId, Incarnation),
    /// These did not answer me. `relayed`: a voter passes it on to the other voters.
    Doubt {
        /// Whether a voter has passed it on.
        relayed: bool,
        /// Who was silent.
        silent: Vec<Silence>,
    },
    /// These I suspect, as a voter.
    Report(Vec<Silence>),
    /// You should know.
    News(Vec<News>),
    /// Here is what I know, in short.
    Sync(Sync),
    /// Here is what differs.
    Records(Vec<News>),
    /// Let me in; this is who I am.
    Meet(MemberRecord),
    /// The primary of our group has failed; I have this much of its data, on this claim.
    Stand {
        /// Which group.
        group: GroupId,
        /// The epoch of the claim of the failed primary.
        base: Epoch,
        /// How far the copy goes.
        offset: u64,
    },
    /// Vote for me.
    Request(VoteRequest),
    /// I do, or not.
    Vote(Vote),
    /// I, a voter of the set before, take part in this change of voters, durably.
    Adopted(Adoption),
    /// Please pause and let me take over your group.
    HandoverAsk(GroupId),
    /// I have paused (or not); my copy goes this far.
    HandoverOffset {
        /// Which group.
        group: GroupId,
        /// How far the paused primary's copy goes; none if it has not paused.
        offset: Option<u64>,
    },
    /// A message for subscribers of a channel.
    Publish {
        /// Its name.
        channel: Box<[u8]>,
        /// The message.
        message: Box<[u8]>,
    },
    /// You are no member any more, and are kept out.
    Forgotten(Forgetting),
    /// I am about to stop, or have stopped, or go on after all.
    Departure(Departure),
    /// I am about to stop: please take over our group, once your copy goes this far.
    HandoverOffer {
        /// Which group.
        group: GroupId,
        /// How far the primary's copy went when it said so.
        offset: u64,
    },
}

impl Body {
    const fn kind(&self) -> u8 {
        match self {
            Self::Probe(..) => 1,
            Self::Answer(..) => 2,
            Self::Ask(..) => 3,
            Self::Heard(..) => 4,
            Self::Doubt { .. } => 5,
            Self::Report(..) => 6,
            Self::News(..) => 7,
            Self::Sync(..) => 8,
            Self::Records(..) => 9,
            Self::Meet(..) => 10,
            Self::Stand { .. } => 11,
            Self::Request(..) => 12,
            Self::Vote(..) => 13,
            Self::Adopted(..) => 14,
            Self::HandoverAsk(..) => 15,
            Self::HandoverOffset { .. } => 16,
            Self::Publish { .. } => 17,
            Self::Forgotten(_) => 18,
            Self::Departure(_) => 19,
            Self::HandoverOffer { .. } => 20,
        }
    }
}

/// Writes a packet.
#[must_use]
pub fn encode(cluster: ClusterId, header: Header, body: &Body) -> Vec<u8> {
    let mut out = Vec::with_capacity(96);
    encode_header(&mut out, cluster, header, body.kind());
    encode_body(&mut out, body);
    out
}

fn encode_header(out: &mut Vec<u8>, cluster: ClusterId, header: Header, kind: u8) {
    out.extend_from_slice(&[VERSION, kind]);
    out.extend_from_slice(cluster.as_bytes());
    write_uint(out, header.incarnation.0);
    write_uint(out, header.sequence.into());
}

/// Longest written [`Header`], with version, kind and cluster, bytes.
const HEADER_BYTES_MAX: usize = 18 + 9 + 5;

/// A body that goes to many, written once.
#[derive(Debug, Clone)]
pub(crate) struct Circular {
    kind: u8,
    body: Vec<u8>,
}

impl Circular {
    pub(crate) fn new(body: &Body) -> Self {
        let mut written = Vec::new();
        encode_body(&mut written, body);
        Self { kind: body.kind(), body: written }
    }

    /// The packet for one of them.
    pub(crate) fn encode(&self, cluster: ClusterId, header: Header) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES_MAX + self.body.len());
        encode_header(&mut out, cluster, header, self.kind);
        out.extend_from_slice(&self.body);
        out
    }
}

fn encode_body(out: &mut Vec<u8>, body: &Body) {
    match body {
        Body::Probe(token, beat, news) | Body::Answer(token, beat, news) => {
            write_uint(out, (*token).into());
            encode_beat(out, beat);
            news.iter().for_each(|news| encode_news(out, news));
        }
        Body::Ask(token, id) => {
            write_uint(out, (*token).into());
            out.extend_from_slice(id.as_bytes());
        }
        Body::Heard(token, id, incarnation) => {
            write_uint(out, (*token).into());
            out.extend_from_slice(id.as_bytes());
            write_uint(out, incarnation.0);
        }
        Body::Doubt { relayed, silent } => {
            write_uint(out, u64::from(*relayed));
            silent.iter().for_each(|silence| encode_silence(out, silence));
        }
        Body::Report(silent) => silent.iter().for_each(|silence| encode_silence(out, silence)),
        Body::News(news) | Body::Records(news) => news.iter().for_each(|news| encode_news(out, news)),
        Body::Sync(sync) => encode_sync(out, sync),
        Body::Meet(record) => encode_record(out, record),
        Body::Stand { group, base, offset } => {
            write_uint(out, group.0);
            write_uint(out, base.0);
            write_uint(out, *offset);
        }
        Body::Request(request) => encode_request(out, request),
        Body::Vote(vote) => {
            write_uint(out, vote.group.0);
            write_uint(out, vote.epoch.0);
            write_uint(out, vote.refused.map_or(0, reason_number));
            write_uint(out, vote.known.0);
        }
        Body::Adopted(adoption) => {
            out.extend_from_slice(&adoption.voters.to_be_bytes());
            let epochs = [adoption.epoch, adoption.after, adoption.from, adoption.known];
            epochs.into_iter().for_each(|epoch| write_uint(out, epoch.0));
        }
        Body::HandoverAsk(group) => write_uint(out, group.0),
        Body::HandoverOffset { group, offset } => {
            write_uint(out, group.0);
            write_option(out, *offset);
        }
        Body::Publish { channel, message } => {
            write_bin(out, channel);
            write_bin(out, message);
        }
        Body::Forgotten(forgetting) => encode_forgetting(out, forgetting),
        Body::Departure(departure) => write_uint(out, departure_number(*departure)),
        Body::HandoverOffer { group, offset } => {
            write_uint(out, group.0);
            write_uint(out, *offset);
        }
    }
}

fn write_option(out: &mut Vec<u8>, value: Option<u64>) {
    write_uint(out, u64::from(value.is_some()));
    value.into_iter().for_each(|value| write_uint(out, value));
}

fn encode_beat(out: &mut Vec<u8>, beat: &Beat) {
    out.extend_from_slice(&beat.members.to_be_bytes());
    out.extend_from_slice(&beat.claims.to_be_bytes());
    out.extend_from_slice(&beat.voters.to_be_bytes());
    write_uint(out, beat.quorum_age.min(Beat::AGE_MAX));
    write_option(out, beat.you_failed);
}

fn encode_silence(out: &mut Vec<u8>, silence: &Silence) {
    out.extend_from_slice(silence.id.as_bytes());
    write_uint(out, silence.incarnation.0);
    write_uint(out, silence.refuted);
    write_uint(out, silence.age_ms);
}

/// A short piece of news has about so many bytes.
const NEWS_BYTES_USUAL: usize = 20;
/// Longest written [`Silence`], bytes.
pub(crate) const SILENCE_BYTES_MAX: usize = 16 + 3 * 9;

fn encode_sync(out: &mut Vec<u8>, sync: &Sync) {
    write_uint(out, u64::from(sync.wants_answer));
    out.extend_from_slice(&sync.voters.to_be_bytes());
    for classes in [&sync.members, &sync.claims] {
        write_uint(out, classes.len() as u64);
        classes.iter().for_each(|class| out.extend_from_slice(&class.to_be_bytes()));
    }
}

fn encode_request(out: &mut Vec<u8>, request: &VoteRequest) {
    write_uint(out, request.group.0);
    write_uint(out, purpose_number(request.purpose));
    write_uint(out, request.epoch.0);
    write_uint(out, request.base.0);
    out.extend_from_slice(&request.voters.to_be_bytes());
    write_uint(out, request.offset);
    write_uint(out, u64::from(request.failed.is_some()));
    if let Some((id, refuted)) = request.failed {
        out.extend_from_slice(id.as_bytes());
        write_uint(out, refuted);
    }
    encode_slots(out, &request.slots);
    encode_slots(out, &request.taken);
}

/// Writes one piece of news.
pub(crate) fn encode_news(out: &mut Vec<u8>, news: &News) {
    match news {
        News::Member(record) => {
            write_uint(out, 1);
            encode_record(out, record);
        }
        News::Life(id, life) => {
            write_uint(out, 2);
            out.extend_from_slice(id.as_bytes());
            encode_life(out, *life);
        }
        News::Claim(claim) => {
            write_uint(out, 3);
            encode_claim(out, claim);
        }
        News::Voters(set) => {
            write_uint(out, 4);
            encode_voters(out, set);
        }
        News::Forget(forgetting) => {
            write_uint(out, 5);
            encode_forgetting(out, forgetting);
        }
    }
}

pub(crate) fn encode_forgetting(out: &mut Vec<u8>, forgetting: &Forgetting) {
    out.extend_from_slice(forgetting.id.as_bytes());
    write_uint(out, forgetting.tag.into());
    write_uint(out, forgetting.left_ms);
}

fn encode_life(out: &mut Vec<u8>, life: Life) {
    write_uint(out, life.refuted);
    write_uint(out, u64::from(life.failed));
}

fn encode_record(out: &mut Vec<u8>, record: &MemberRecord) {
    encode_member(out, record.id, &record.description, record.life);
}

/// Writes what is told about a member.
pub(crate) fn encode_member(out: &mut Vec<u8>, id: ServerId, description: &Description, life: Life) {
    out.extend_from_slice(id.as_bytes());
    write_uint(out, description.incarnation.0);
    write_uint(out, description.revision.into());
    encode_life(out, life);
    write_uint(out, description.zone.0.into());
    write_uint(out, description.memory_since.0);
    write_str(out, &description.address);
    write_uint(out, description.follows.len() as u64);
    description.follows.iter().for_each(|group| write_uint(out, group.0));
    write_bin(out, &description.interest);
    write_bin(out, &description.services);
}

pub(crate) fn encode_claim(out: &mut Vec<u8>, claim: &Claim) {
    write_uint(out, claim.group.0);
    out.extend_from_slice(claim.owner.as_bytes());
    write_uint(out, claim.epoch.0);
    encode_slots(out, &claim.slots);
}

pub(crate) fn encode_voters(out: &mut Vec<u8>, set: &VoterSet) {
    write_uint(out, set.epoch.0);
    write_uint(out, u64::from(set.origin == Origin::Told));
    write_uint(out, set.after.0);
    write_uint(out, set.floor.0);
    for list in [&set.voters, &set.previous] {
        write_uint(out, list.len() as u64);
        list.iter().for_each(|id| out.extend_from_slice(id.as_bytes()));
    }
    for forgetful in [&set.forgetful, &set.previous_forgetful] {
        write_uint(out, forgetful.len() as u64);
        for (id, since) in forgetful {
            out.extend_from_slice(id.as_bytes());
            write_uint(out, since.0);
        }
    }
}

fn encode_slots(out: &mut Vec<u8>, slots: &SlotSet) {
    if slots.ranges().len() > SLOT_RANGES_MAX {
        write_uint(out, SLOT_BITMAP_MARK);
        let start = out.len();
        out.resize(start + SLOT_BITMAP_BYTES, 0);
        slots.iter().for_each(|slot| out[start + slot.index() / 8] |= 0x80 >> (slot.index() % 8));
        return;
    }
    write_uint(out, slots.ranges().len() as u64);
    for range in slots.ranges() {
        out.extend_from_slice(&range.first.number().to_be_bytes());
        out.extend_from_slice(&range.last.number().to_be_bytes());
    }
}

const fn departure_number(departure: Departure) -> u64 {
    match departure {
        Departure::Stays => 0,
        Departure::Leaves => 1,
        Departure::Left => 2,
    }
}

const fn purpose_number(purpose: Purpose) -> u64 {
    match purpose {
        Purpose::Election => 1,
        Purpose::ByHand => 2,
        Purpose::Slots => 3,
        Purpose::Voters => 4,
    }
}

const fn reason_number(reason: Reason) -> u64 {
    match reason {
        Reason::NotVoter => 1,
        Reason::OtherVoters => 2,
        Reason::StaleEpoch => 3,
        Reason::StaleClaim => 4,
        Reason::PrimaryAlive => 5,
        Reason::BetterCandidate => 6,
        Reason::SlotTaken => 7,
        Reason::NoMemory => 8,
        Reason::NotReplica => 9,
        Reason::NoRoom => 10,
    }
}

/// Reads a packet for a member of `cluster`, whole.
///
/// # Errors
/// It is not one, or not for this cluster, or of a version that this program does not speak.
pub fn decode(bytes: &[u8], cluster: ClusterId, config: &Config) -> Result<(Header, Body), PacketError> {
    if bytes.len() > config.packet_bytes_max.max(PACKET_BYTES_MIN) {
        return Err(PacketError::Malformed);
    }
    let mut input = Input::new(bytes, config);
    let [version] = input.array()?;
    if version != VERSION {
        return Err(PacketError::Version(version));
    }
    let [kind] = input.array()?;
    if ClusterId::from_bytes(input.array()?) != cluster {
        return Err(PacketError::Cluster);
    }
    let header = Header { incarnation: Incarnation(input.uint()?), sequence: input.uint32()? };
    let body = decode_body(kind, &mut input)?;
    if input.reader.remaining().is_empty() { Ok((header, body)) } else { Err(PacketError::Malformed) }
}

fn decode_body(kind: u8, input: &mut Input<'_>) -> Result<Body, PacketError> {
    Ok(match kind {
        1 => Body::Probe(input.uint32()?, input.beat()?, input.all_news()?),
        2 => Body::Answer(input.uint32()?, input.beat()?, input.all_news()?),
        3 => Body::Ask(input.uint32()?, input.id()?),
        4 => Body::Heard(input.uint32()?, input.id()?, Incarnation(input.uint()?)),
        5 => Body::Doubt { relayed: input.flag()?, silent: input.silences()? },
        6 => Body::Report(input.silences()?),
        7 => Body::News(input.all_news()?),
        8 => {
            let (wants_answer, voters) = (input.flag()?, input.fingerprint()?);
            Body::Sync(Sync { wants_answer, voters, members: input.classes()?, claims: input.classes()? })
        }
        9 => Body::Records(input.all_news()?),
        10 => Body::Meet(input.record()?),
        11 => Body::Stand { group: input.group()?, base: input.epoch()?, offset: input.uint()? },
        12 => Body::Request(input.request()?),
        13 => {
            let (group, epoch) = (input.group()?, input.epoch()?);
            Body::Vote(Vote { group, epoch, refused: input.reason()?, known: input.epoch()? })
        }
        14 => {
            let (voters, epoch, after) = (input.fingerprint()?, input.epoch()?, input.epoch()?);
            Body::Adopted(Adoption { voters, epoch, after, from: input.epoch()?, known: input.epoch()? })
        }
        15 => Body::HandoverAsk(input.group()?),
        16 => Body::HandoverOffset { group: input.group()?, offset: input.option()? },
        17 => {
            let channel = input.reader.read_bin(input.config.channel_bytes_max)?.into();
            Body::Publish { channel, message: input.reader.read_bin(input.config.message_bytes_max)?.into() }
        }
        18 => Body::Forgotten(input.forgetting()?),
        19 => Body::Departure(input.departure()?),
        20 => Body::HandoverOffer { group: input.group()?, offset: input.uint()? },
        _ => return Err(PacketError::Malformed),
    })
}

/// Reads the parts of packets and of saved records.
pub(crate) struct Input<'a> {
    pub(crate) reader: Reader<'a>,
    config: &'a Config,
}

impl<'a> Input<'a> {
    pub(crate) const fn new(bytes: &'a [u8], config: &'a Config) -> Self {
        Self { reader: Reader::new(bytes), config }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], PacketError> {
        let (taken, rest) = self.reader.remaining().split_first_chunk::<N>().ok_or(PacketError::Malformed)?;
        self.reader = Reader::new(rest);
        Ok(*taken)
    }

    pub(crate) fn uint(&mut self) -> Result<u64, PacketError> {
        Ok(self.reader.read_uint()?)
    }

    pub(crate) fn uint32(&mut self) -> Result<u32, PacketError> {
        u32::try_from(self.uint()?).map_err(|_| PacketError::Malformed)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, PacketError> {
        match self.uint()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(PacketError::Malformed),
        }
    }

    fn option(&mut self) -> Result<Option<u64>, PacketError> {
        if self.flag()? { Ok(Some(self.uint()?)) } else { Ok(None) }
    }

    pub(crate) fn id(&mut self) -> Result<ServerId, PacketError> {
        Ok(ServerId::from_bytes(self.array()?))
    }

    pub(crate) fn group(&mut self) -> Result<GroupId, PacketError> {
        Ok(GroupId(self.uint()?))
    }

    pub(crate) fn epoch(&mut self) -> Result<Epoch, PacketError> {
        Some(Epoch(self.uint()?)).filter(|epoch| *epoch <= EPOCH_MAX).ok_or(PacketError::Malformed)
    }

    fn fingerprint(&mut self) -> Result<u64, PacketError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// A number of things, each of which takes at least `bytes_min` of what is left.
    pub(crate) fn count(&mut self, max: usize, bytes_min: usize) -> Result<usize, PacketError> {
        let count = usize::try_from(self.uint()?).map_err(|_| PacketError::Malformed)?;
        let fits = count <= max && count <= self.reader.remaining().len() / bytes_min;
        if fits { Ok(count) } else { Err(PacketError::Malformed) }
    }

    fn beat(&mut self) -> Result<Beat, PacketError> {
        let (members, claims) = (self.fingerprint()?, self.fingerprint()?);
        let voters = u32::from_be_bytes(self.array()?);
        let quorum_age = self.uint()?;
        if quorum_age > Beat::AGE_MAX {
            return Err(PacketError::Malformed);
        }
        Ok(Beat { members, claims, voters, quorum_age, you_failed: self.option()? })
    }

    fn departure(&mut self) -> Result<Departure, PacketError> {
        match self.uint()? {
            0 => Ok(Departure::Stays),
            1 => Ok(Departure::Leaves),
            2 => Ok(Departure::Left),
            _ => Err(PacketError::Malformed),
        }
    }

    fn silences(&mut self) -> Result<Vec<Silence>, PacketError> {
        let mut silences = Vec::with_capacity(self.reader.remaining().len() / 19);
        while !self.reader.remaining().is_empty() {
            let (id, incarnation) = (self.id()?, Incarnation(self.uint()?));
            silences.push(Silence { id, incarnation, refuted: self.uint()?, age_ms: self.uint()? });
        }
        Ok(silences)
    }

    fn classes(&mut self) -> Result<Vec<u32>, PacketError> {
        let count = self.count(SYNC_CLASSES_MAX, 4)?;
        if !count.is_power_of_two() {
            return Err(PacketError::Malformed);
        }
        (0..count).map(|_| Ok(u32::from_be_bytes(self.array()?))).collect()
    }

    fn request(&mut self) -> Result<VoteRequest, PacketError> {
        let group = self.group()?;
        let purpose = match self.uint()? {
            1 => Purpose::Election,
            2 => Purpose::ByHand,
            3 => Purpose::Slots,
            4 => Purpose::Voters,
            _ => return Err(PacketError::Malformed),
        };
        let (epoch, base) = (self.epoch()?, self.epoch()?);
        let (voters, offset) = (self.fingerprint()?, self.uint()?);
        let failed = if self.flag()? { Some((self.id()?, self.uint()?)) } else { None };
        let (slots, taken) = (self.slots()?, self.slots()?);
        if (group == CHOICE) != (purpose == Purpose::Voters) {
            return Err(PacketError::Malformed);
        }
        Ok(VoteRequest { group, purpose, epoch, base, voters, offset, failed, slots, taken })
    }

    fn reason(&mut self) -> Result<Option<Reason>, PacketError> {
        Ok(Some(match self.uint()? {
            0 => return Ok(None),
            1 => Reason::NotVoter,
            2 => Reason::OtherVoters,
            3 => Reason::StaleEpoch,
            4 => Reason::StaleClaim,
            5 => Reason::PrimaryAlive,
            6 => Reason::BetterCandidate,
            7 => Reason::SlotTaken,
            8 => Reason::NoMemory,
            9 => Reason::NotReplica,
            10 => Reason::NoRoom,
            _ => return Err(PacketError::Malformed),
        }))
    }

    fn all_news(&mut self) -> Result<Vec<News>, PacketError> {
        let mut news = Vec::with_capacity(self.reader.remaining().len().div_ceil(NEWS_BYTES_USUAL));
        while !self.reader.remaining().is_empty() {
            news.push(self.news()?);
        }
        Ok(news)
    }

    fn news(&mut self) -> Result<News, PacketError> {
        Ok(match self.uint()? {
            1 => News::Member(Box::new(self.record()?)),
            2 => News::Life(self.id()?, self.life()?),
            3 => News::Claim(self.claim()?),
            4 => News::Voters(Box::new(self.voters()?)),
            5 => News::Forget(self.forgetting()?),
            _ => return Err(PacketError::Malformed),
        })
    }

    pub(crate) fn forgetting(&mut self) -> Result<Forgetting, PacketError> {
        Ok(Forgetting { id: self.id()?, tag: self.uint32()?, left_ms: self.uint()? })
    }

    fn life(&mut self) -> Result<Life, PacketError> {
        Ok(Life { refuted: self.uint()?, failed: self.flag()? })
    }

    pub(crate) fn record(&mut self) -> Result<MemberRecord, PacketError> {
        let id = self.id()?;
        let (incarnation, revision) = (Incarnation(self.uint()?), self.uint32()?);
        let (life, zone) = (self.life()?, Zone(self.uint32()?));
        let memory_since = Incarnation(self.uint()?);
        let address = self.reader.read_str(self.config.address_bytes_max)?.into();
        let count = self.count(self.config.follows_max, 1)?;
        let follows: Box<[GroupId]> = (0..count).map(|_| self.group()).collect::<Result<_, _>>()?;
        if !follows.is_sorted_by(|one, other| one < other) {
            return Err(PacketError::Malformed);
        }
        let interest = self.reader.read_bin(INTEREST_BYTES_MAX)?.into();
        let services = self.reader.read_bin(SERVICES_BYTES_MAX)?.into();
        Ok(MemberRecord {
            id,
            description: Description {
                incarnation,
                revision,
                zone,
                address,
                follows,
                memory_since,
                interest,
                services,
            },
            life,
        })
    }

    pub(crate) fn claim(&mut self) -> Result<Claim, PacketError> {
        let group = Some(self.group()?).filter(|group| *group != CHOICE).ok_or(PacketError::Malformed)?;
        Ok(Claim { group, owner: self.id()?, epoch: self.epoch()?, slots: self.slots()? })
    }

    pub(crate) fn voters(&mut self) -> Result<VoterSet, PacketError> {
        let epoch = self.epoch()?;
        let origin = if self.flag()? { Origin::Told } else { Origin::Chosen };
        let (after, floor) = (self.epoch()?, self.epoch()?);
        let (voters, previous) = (self.voter_list()?, self.voter_list()?);
        let (forgetful, previous_forgetful) = (self.forgetful(&voters)?, self.forgetful(&previous)?);
        let set = VoterSet { epoch, origin, after, floor, voters, previous, forgetful, previous_forgetful };
        if set.voters.is_empty() || after >= epoch { Err(PacketError::Malformed) } else { Ok(set) }
    }

    fn forgetful(&mut self, voters: &[ServerId]) -> Result<Vec<(ServerId, Incarnation)>, PacketError> {
        let count = self.count(voters.len().min(FORGETFUL_MAX), 17)?;
        let voter = |input: &mut Self| Ok((input.id()?, Incarnation(input.uint()?)));
        let list = (0..count).map(|_| voter(self)).collect::<Result<Vec<_>, PacketError>>()?;
        let is_sorted = list.is_sorted_by(|one, other| one.0 < other.0);
        if is_sorted { Ok(list) } else { Err(PacketError::Malformed) }
    }

    fn voter_list(&mut self) -> Result<Vec<ServerId>, PacketError> {
        let count = self.count(self.config.voters_max, 16)?;
        let ids = (0..count).map(|_| self.id()).collect::<Result<Vec<_>, _>>()?;
        if ids.is_sorted_by(|one, other| one < other) { Ok(ids) } else { Err(PacketError::Malformed) }
    }

    fn slots(&mut self) -> Result<SlotSet, PacketError> {
        let count = self.uint()?;
        if count == SLOT_BITMAP_MARK {
            let bits = self.array::<SLOT_BITMAP_BYTES>()?;
            let is_set = |slot: Slot| bits[slot.index() / 8] & 0x80 >> (slot.index() % 8) != 0;
            let slots = SlotSet::all().filtered(is_set);
            // One set has one form.
            return if slots.ranges().len() > SLOT_RANGES_MAX { Ok(slots) } else { Err(PacketError::Malformed) };
        }
        let count = usize::try_from(count).map_err(|_| PacketError::Malformed)?;
        if count > SLOT_RANGES_MAX {
            return Err(PacketError::Malformed);
        }
        let mut ranges = Vec::with_capacity(count.min(self.reader.remaining().len() / 4));
        for _ in 0..count {
            let (first, last) = (u16::from_be_bytes(self.array()?), u16::from_be_bytes(self.array()?));
            ranges.push(SlotRange::new(first, last).ok_or(PacketError::Malformed)?);
        }
        let slots = SlotSet::from_ranges(ranges.iter().copied());
        if slots.ranges() == ranges { Ok(slots) } else { Err(PacketError::Malformed) }
    }
}

#[cfg(test)]
mod tests;
