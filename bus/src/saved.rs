//! What a member remembers from one life to the next: the saved record, version 1.
//!
//! | part | written as |
//! |---|---|
//! | magic | `ASHLRBUS` |
//! | version | 1 byte |
//! | cluster, server | 16 bytes each |
//! | incarnation | uint |
//! | greatest epoch known | uint |
//! | memory since | uint: the life in which the memory began |
//! | refuted | how many failures it has refuted |
//! | voters | 0, or 1 and the set, and the epoch of the rival from which the member came to it |
//! | votes | count; each group, epoch, candidate |
//! | claims | count; each as in packets |
//! | members | count; each as in packets |
//! | kept out | count; each as in packets |
//! | places | count; each group, offset |
//! | checksum | XXH3-64 over all before it, with cluster and server mixed in; 8 bytes big-endian |
//!
//! A record is taken whole or not at all. A member whose record is damaged must not start: it could vote twice.

use alloc::vec::Vec;

use ashlar_wire::checksum::{Salt, checksum};
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{ClusterId, Incarnation, ServerId};
use ashlar_wire::pack::write_uint;

use crate::ballot::Given;
use crate::claim::Claim;
use crate::config::{Config, Identity};
use crate::event::RestoreError;
use crate::member::MemberRecord;
use crate::packet::{
    EPOCH_MAX, Forgetting, Input, PacketError, encode_claim, encode_forgetting, encode_member, encode_voters,
};
use crate::planted::{Bugs, Planted};
use crate::slot::GroupId;
use crate::voters::{FIRST_LIFE, Origin, VoterSet};

const MAGIC: [u8; 8] = *b"ASHLRBUS";
/// The version that this program writes.
pub const SAVED_VERSION: u8 = 2;
const CHECKSUM_LEN: usize = 8;
/// Voters that are lost have not decided in more epochs than this since one that is left heard of them.
const EPOCHS_LOST_MAX: u64 = 1 << 32;

/// A member's memory. A simulator or an installer may write one for a member that has not lived yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Itself.
    pub server: ServerId,
    /// The life that wrote it.
    pub incarnation: Incarnation,
    /// The greatest epoch that it knows of.
    pub current: Epoch,
    /// In which life its memory began: the first one, unless it lost it once.
    pub memory_since: Incarnation,
    /// How many failures it has refuted.
    pub refuted: u64,
    /// Who votes.
    pub voters: Option<VoterSet>,
    /// The epoch of the rival from which it came to these voters: zero for none, that of `voters` if that is not known.
    pub voters_from: Epoch,
    /// Votes that it has given: the last one for each group.
    pub votes: Vec<(GroupId, Given)>,
    /// Claims that stand.
    pub claims: Vec<Claim>,
    /// Other members.
    pub members: Vec<MemberRecord>,
    /// Members that are kept out, or were so a while ago.
    pub kept_out: Vec<Forgetting>,
    /// Groups that it has a part in, and how far its copy of each goes.
    pub places: Vec<(GroupId, u64)>,
}

impl Saved {
    /// The memory of a member that knows nobody.
    #[must_use]
    pub fn new(cluster: ClusterId, server: ServerId) -> Self {
        Self {
            cluster,
            server,
            incarnation: Incarnation(0),
            current: Epoch::ZERO,
            memory_since: FIRST_LIFE,
            refuted: 0,
            voters: None,
            voters_from: Epoch::ZERO,
            votes: Vec::new(),
            claims: Vec::new(),
            members: Vec::new(),
            kept_out: Vec::new(),
            places: Vec::new(),
        }
    }

    /// Makes it the memory of a member that goes on without the other voters, by an operator's explicit command: it alone votes, from an
    /// epoch that none of the others can have come to. The others stay known and count as failed, until they refute it.
    /// Whoever comes back with the voters of before takes up these, as their epoch is greater.
    pub fn go_on_alone(&mut self) {
        let set_before = self.voters.as_ref().map_or(Epoch::ZERO, |set| set.epoch);
        let decided =
            self.votes.iter().map(|(_, given)| given.epoch).chain(self.claims.iter().map(|claim| claim.epoch));
        let known = decided.fold(self.current.max(set_before), Epoch::max);
        let floor = Epoch(known.0.saturating_add(EPOCHS_LOST_MAX).min(EPOCH_MAX.0 - 1));
        let is_forgetful = self.memory_since > FIRST_LIFE;
        self.voters = Some(VoterSet {
            epoch: floor.next().min(EPOCH_MAX),
            origin: Origin::Chosen,
            after: set_before.min(floor),
            floor,
            voters: Vec::from([self.server]),
            previous: Vec::new(),
            forgetful: if is_forgetful { Vec::from([(self.server, self.memory_since)]) } else { Vec::new() },
            previous_forgetful: Vec::new(),
        });
        self.voters_from = Epoch::ZERO;
        self.current = self.current.max(floor);
        self.members.iter_mut().for_each(|member| member.life.failed = true);
    }

    /// Its written form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(self.cluster, self.server, self.incarnation);
        writer.numbers(self.current, self.memory_since, self.refuted);
        writer.voters(self.voters.as_ref(), self.voters_from);
        writer.votes(self.votes.len(), self.votes.iter().copied());
        writer.count(self.claims.len());
        self.claims.iter().for_each(|claim| writer.claim(claim));
        writer.count(self.members.len());
        self.members.iter().for_each(|member| writer.member(member.id, &member.description, member.life));
        writer.kept_out(&self.kept_out);
        writer.places(self.places.len(), self.places.iter().copied());
        writer.finish()
    }

    /// Reads the memory of the member with this identity.
    ///
    /// # Errors
    /// It is damaged, or not this member's, or not of an earlier program or life. Not safe to retry.
    pub fn decode(bytes: &[u8], identity: &Identity, config: &Config) -> Result<Self, RestoreError> {
        Self::decode_with(bytes, identity, config, Bugs::default())
    }

    pub(crate) fn decode_with(
        bytes: &[u8],
        identity: &Identity,
        config: &Config,
        bugs: Bugs,
    ) -> Result<Self, RestoreError> {
        let rest = bytes.strip_prefix(&MAGIC).ok_or(RestoreError::Damaged)?;
        let version = *rest.first().ok_or(RestoreError::Damaged)?;
        if version > SAVED_VERSION {
            return Err(RestoreError::NewerVersion { version });
        }
        let (body, code) = bytes.split_last_chunk::<CHECKSUM_LEN>().ok_or(RestoreError::Damaged)?;
        let ids = body.get(MAGIC.len() + 1..).and_then(|ids| ids.split_first_chunk::<32>());
        let (ids, fields) = ids.ok_or(RestoreError::Damaged)?;
        let (cluster, server) = split_ids(ids);
        let whole = checksum(salt(cluster, server), body).0 == u64::from_be_bytes(*code);
        if version != SAVED_VERSION || !whole && !bugs.has(Planted::RestoreDamage) {
            return Err(RestoreError::Damaged);
        }
        if cluster != identity.cluster {
            return Err(RestoreError::OtherCluster);
        }
        if server != identity.server {
            return Err(RestoreError::OtherServer);
        }
        let mut input = Input::new(fields, config);
        // It is whole, so what does not fit now is a limit that was lowered.
        let saved = read(&mut input, cluster, server, config).map_err(|_| RestoreError::TooLong)?;
        if !input.reader.remaining().is_empty() {
            return Err(RestoreError::Damaged);
        }
        if saved.incarnation > identity.incarnation {
            return Err(RestoreError::LaterLife { incarnation: saved.incarnation });
        }
        Ok(saved)
    }
}

fn salt(cluster: ClusterId, server: ServerId) -> Salt {
    Salt::new(&[b"ashlar bus saved", cluster.as_bytes(), server.as_bytes()])
}

fn split_ids(ids: &[u8; 32]) -> (ClusterId, ServerId) {
    let (mut cluster, mut server) = ([0; 16], [0; 16]);
    cluster.copy_from_slice(&ids[..16]);
    server.copy_from_slice(&ids[16..]);
    (ClusterId::from_bytes(cluster), ServerId::from_bytes(server))
}

fn read(input: &mut Input<'_>, cluster: ClusterId, server: ServerId, config: &Config) -> Result<Saved, PacketError> {
    let mut saved = Saved::new(cluster, server);
    saved.incarnation = Incarnation(input.uint()?);
    (saved.current, saved.memory_since, saved.refuted) = (input.epoch()?, Incarnation(input.uint()?), input.uint()?);
    if input.flag()? {
        saved.voters = Some(input.voters()?);
        saved.voters_from = input.epoch()?;
    }
    for _ in 0..input.count(config.groups_max, 18)? {
        let (group, epoch) = (input.group()?, input.epoch()?);
        saved.votes.push((group, Given { epoch, candidate: input.id()? }));
    }
    // Claims of its own stand beside those that it knows until they are told.
    for _ in 0..input.count(config.groups_max.saturating_mul(2), 19)? {
        saved.claims.push(input.claim()?);
    }
    for _ in 0..input.count(config.members_max, 24)? {
        saved.members.push(input.record()?);
    }
    for _ in 0..input.count(config.keep_outs_max, 18)? {
        saved.kept_out.push(input.forgetting()?);
    }
    for _ in 0..input.count(config.groups_max.saturating_add(config.follows_max), 2)? {
        saved.places.push((input.group()?, input.uint()?));
    }
    Ok(saved)
}

/// Writes a saved record, part by part in the order of its table, without a copy of the tables.
pub(crate) struct Writer {
    out: Vec<u8>,
    salt: Salt,
}

impl Writer {
    pub(crate) fn new(cluster: ClusterId, server: ServerId, incarnation: Incarnation) -> Self {
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(&MAGIC);
        out.push(SAVED_VERSION);
        out.extend_from_slice(cluster.as_bytes());
        out.extend_from_slice(server.as_bytes());
        write_uint(&mut out, incarnation.0);
        Self { out, salt: salt(cluster, server) }
    }

    pub(crate) fn count(&mut self, count: usize) {
        write_uint(&mut self.out, count as u64);
    }

    pub(crate) fn numbers(&mut self, current: Epoch, memory_since: Incarnation, refuted: u64) {
        [current.0, memory_since.0, refuted].into_iter().for_each(|number| write_uint(&mut self.out, number));
    }

    pub(crate) fn voters(&mut self, set: Option<&VoterSet>, from: Epoch) {
        write_uint(&mut self.out, u64::from(set.is_some()));
        if let Some(set) = set {
            encode_voters(&mut self.out, set);
            write_uint(&mut self.out, from.0);
        }
    }

    pub(crate) fn votes(&mut self, count: usize, votes: impl Iterator<Item = (GroupId, Given)>) {
        self.count(count);
        for (group, given) in votes {
            write_uint(&mut self.out, group.0);
            write_uint(&mut self.out, given.epoch.0);
            self.out.extend_from_slice(given.candidate.as_bytes());
        }
    }

    pub(crate) fn claim(&mut self, claim: &Claim) {
        encode_claim(&mut self.out, claim);
    }

    pub(crate) fn member(&mut self, id: ServerId, description: &crate::member::Description, life: crate::member::Life) {
        encode_member(&mut self.out, id, description, life);
    }

    pub(crate) fn kept_out(&mut self, kept_out: &[Forgetting]) {
        self.count(kept_out.len());
        kept_out.iter().for_each(|forgetting| encode_forgetting(&mut self.out, forgetting));
    }

    pub(crate) fn places(&mut self, count: usize, places: impl Iterator<Item = (GroupId, u64)>) {
        self.count(count);
        for (group, offset) in places {
            write_uint(&mut self.out, group.0);
            write_uint(&mut self.out, offset);
        }
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        let code = checksum(self.salt, &self.out).0;
        self.out.extend_from_slice(&code.to_be_bytes());
        self.out
    }
}

#[cfg(test)]
mod tests;
