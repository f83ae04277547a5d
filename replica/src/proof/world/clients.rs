//! What clients of the world do: requests, repetitions, replies, and volumes that go from one client to another.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use ashlar_placement::map::{GroupId, PgId, SetId};
use ashlar_placement::rule::{Extent, ExtentId};
use ashlar_wire::id::VolumeId;
use bytes::Bytes;

use super::super::client::Outstanding;
use super::super::history::Block;
use super::super::store::{DAMAGED, LOST, block_of, tags_of};
use super::{Event, MS, Takeover, World};
use crate::error::Refusal;
use crate::request::{
    Answer, BLOCK_BYTES, ClientRequest, ClientResult, Content, Generation, Operation, Range, RequestId, Run,
};

/// Volumes of the world.
const VOLUMES: u8 = 2;
/// Extents of a volume.
const EXTENTS: u64 = 6;
/// Blocks of an extent that are used.
const BLOCKS: u64 = 4;
/// Requests that a client has outstanding.
const OUTSTANDING_MAX: usize = 4;

/// A volume of the world, or another one that took its place: the extents of both are in the same groups.
fn volume(number: u8, deleted: usize) -> VolumeId {
    let mut id = [0xe0 + number; 16];
    id[14..].copy_from_slice(&u16::try_from(deleted).expect("few volumes").to_be_bytes());
    VolumeId::from_bytes(id)
}

impl World {
    pub(super) fn found_clients(&mut self) {
        for number in 0..VOLUMES {
            let client = usize::from(number) % self.clients.len();
            self.volumes.push(volume(number, 0));
            self.open_volume(number, client);
        }
        for client in 0..self.clients.len() {
            for group in self.catalog.groups() {
                let configuration = self.catalog.configuration(group).clone();
                self.clients[client].learn(&configuration);
            }
            self.schedule(MS, Event::ClientTick { client });
        }
    }

    /// A volume that nobody has used is attached by a client.
    fn open_volume(&mut self, number: u8, client: usize) {
        let volume = self.volumes[usize::from(number)];
        self.clients[client].attached.insert(volume, Generation(1));
        self.generations.insert(volume, Generation(1));
    }

    /// A volume is deleted while it is used: nobody waits for an answer of it any more. Another one takes its place.
    pub(super) fn delete_volume(&mut self) {
        let number = u8::try_from(self.chance.below(u64::from(VOLUMES))).expect("below a byte");
        let gone = self.volumes[usize::from(number)];
        if self.takeover.as_ref().is_some_and(|takeover| takeover.volume == gone) {
            return;
        }
        for client in &mut self.clients {
            client.attached.remove(&gone);
            client.outstanding.retain(|_, request| request.blocks[0].0.volume != gone);
        }
        self.history.forget(gone);
        self.deleted.push(gone);
        self.outcome.deletions += 1;
        self.volumes[usize::from(number)] = volume(number, self.deleted.len());
        let client = self.chance.index(self.clients.len());
        self.open_volume(number, client);
        (0..self.servers.len()).for_each(|server| self.tell_deleted(server, gone));
    }

    pub(super) fn group_of(&self, extent: ExtentId) -> GroupId {
        let place = extent.extent.0 + u64::from(extent.volume.as_bytes()[0]);
        let pg = u32::try_from(place % u64::from(self.options.groups)).expect("below a 32-bit number");
        GroupId { set: SetId(1), pg: PgId(pg) }
    }

    pub(super) fn client_tick(&mut self, client: usize) {
        let next = self.now + self.chance.between(2, 40) * MS;
        self.schedule(next, Event::ClientTick { client });
        let late: Vec<RequestId> = self.clients[client]
            .outstanding
            .iter()
            .filter(|(_, request)| request.again_at <= self.now || request.until <= self.now)
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            self.repeat(client, id);
        }
        if self.has_load && self.clients[client].outstanding.len() < OUTSTANDING_MAX {
            self.begin_random(client);
        }
    }

    fn begin_random(&mut self, client: usize) {
        let number = self.chance.index(self.volumes.len());
        let extent = ExtentId { volume: self.volumes[number], extent: Extent(self.chance.below(EXTENTS)) };
        let first = self.chance.below(BLOCKS);
        let count = self.chance.between(1, BLOCKS - first);
        let writes = self.chance.is(500) && self.clients[client].attached.contains_key(&extent.volume);
        if writes {
            self.begin_write(client, extent, first, count);
        } else {
            self.begin_read(client, extent, first, count);
        }
    }

    fn blocks(extent: ExtentId, first: u64, count: u64) -> Vec<Block> {
        (first..first + count).map(|block| (extent, u32::try_from(block).expect("few blocks"))).collect()
    }

    fn offset(block: u64) -> u32 {
        u32::try_from(block).expect("few blocks") * BLOCK_BYTES
    }

    /// A client writes blocks, if it has no write of one of them outstanding.
    pub(in super::super) fn begin_write(&mut self, client: usize, extent: ExtentId, first: u64, count: u64) {
        let blocks = Self::blocks(extent, first, count);
        if self.clients[client].is_writing(&blocks) {
            return;
        }
        let is_discard = self.chance.is(150);
        self.begin_write_of(client, blocks, is_discard);
    }

    /// A client discards all blocks of an extent that the load uses.
    #[cfg(test)]
    pub(in super::super) fn begin_discard(&mut self, client: usize, extent: ExtentId) {
        self.begin_write_of(client, Self::blocks(extent, 0, BLOCKS), true);
    }

    fn begin_write_of(&mut self, client: usize, blocks: Vec<Block>, is_discard: bool) {
        self.next_tag += 1;
        let write = self.next_tag;
        let (extent, first, count) = (blocks[0].0, u64::from(blocks[0].1), blocks.len() as u64);
        let tag = if is_discard { 0 } else { write };
        let attached = self.clients[client].attached.get(&extent.volume).copied().unwrap_or_default();
        if attached < self.owner_generation(extent.volume) {
            self.history.forbid(write);
        } else {
            self.history.begin_write(&blocks, write, tag);
        }
        let data: Vec<u8> = blocks.iter().flat_map(|_| block_of(tag)).collect();
        let data = Content::Data(Bytes::from(data));
        let content = if is_discard { Content::Zeroes(Self::offset(count)) } else { data };
        self.begin(client, Operation::Write(Run { offset: Self::offset(first), content }), blocks, (write, tag));
    }

    /// The generation of the client that may write a volume: the former one until a takeover is complete.
    fn owner_generation(&self, volume: VolumeId) -> Generation {
        let holders = self.clients.iter().filter_map(|client| client.attached.get(&volume));
        holders.max().copied().unwrap_or_default()
    }

    /// A client reads blocks.
    pub(in super::super) fn begin_read(&mut self, client: usize, extent: ExtentId, first: u64, count: u64) {
        let len = Self::offset(count);
        let blocks = Self::blocks(extent, first, count);
        self.begin(client, Operation::Read(Range { offset: Self::offset(first), len }), blocks, (0, 0));
    }

    fn begin(&mut self, client: usize, operation: Operation, blocks: Vec<Block>, (write, tag): (u64, u64)) {
        let floors = self.history.begin_read(&blocks);
        let group = self.group_of(blocks[0].0);
        let (begun, until) = (self.now, self.now + 6_000 * MS);
        let it = &mut self.clients[client];
        let id = RequestId(it.next);
        it.next += 1;
        let (again_at, tries) = (0, 0);
        let request = Outstanding { operation, blocks, floors, write, tag, group, begun, until, again_at, tries };
        it.outstanding.insert(id, request);
        self.repeat(client, id);
    }

    /// Sends a request, again if it was sent before, or gives it up.
    fn repeat(&mut self, client: usize, id: RequestId) {
        let (now, patience) = (self.now, self.chance.between(60, 400) * MS);
        let it = &mut self.clients[client];
        let Some(request) = it.outstanding.get_mut(&id) else { return };
        if request.until <= now {
            it.outstanding.remove(&id);
            return;
        }
        request.tries += 1;
        request.again_at = now + patience;
        let (group, tries) = (request.group, request.tries);
        let configuration = it.configurations[&group].clone();
        let extent = request.blocks[0].0;
        let generation = match &request.operation {
            Operation::Write(_) => it.attached.get(&extent.volume).copied().unwrap_or_default(),
            Operation::Read(_) | Operation::Presence(_) => self.generations[&extent.volume],
        };
        let request = ClientRequest {
            session: it.session,
            request: id,
            floor: it.floor(),
            generation,
            epoch: configuration.epoch,
            extent,
            operation: it.outstanding[&id].operation.clone(),
        };
        let endpoint = self.servers.len() + 1 + client;
        let server = usize::from(configuration.primary.as_bytes()[0]) - 1;
        for _ in 0..=usize::from(self.is_doubled()) {
            if let Some(at) = self.transit(endpoint, server) {
                self.schedule(at, Event::Request { server, client, group, request: request.clone() });
            }
        }
        if tries > 1 {
            self.ask_catalog(client, group);
        }
    }

    fn ask_catalog(&mut self, client: usize, group: GroupId) {
        let (catalog, endpoint) = (self.servers.len(), self.servers.len() + 1 + client);
        let configuration = self.catalog.configuration(group).clone();
        if let Some(at) = self.transit(catalog, endpoint) {
            self.schedule(at, Event::ClientConfiguration { client, configuration });
        }
    }

    pub(super) fn handle_reply(&mut self, client: usize, id: RequestId, result: ClientResult) {
        let it = &mut self.clients[client];
        let Some(request) = it.outstanding.get(&id).cloned() else { return };
        match result {
            Ok(Answer::Written) => {
                it.outstanding.remove(&id);
                self.outcome.writes += 1;
                if let Err(what) = self.history.acknowledge(&request.blocks, request.write) {
                    self.fail(what);
                }
                self.acknowledged_at.extend(request.blocks.iter().map(|block| (*block, self.now)));
                self.check_copies(&request);
            }
            Ok(Answer::Read(data)) => {
                it.outstanding.remove(&id);
                self.outcome.reads += 1;
                let tags = tags_of(&data);
                if let Err(what) = self.history.end_read(&request.blocks, &request.floors, &tags) {
                    self.fail(format!("{what} (session of client {client}, request {})", id.0));
                }
            }
            Err(Refusal::Moved(configuration) | Refusal::Unknown(configuration)) => {
                it.learn(&configuration);
                self.hasten(client, id);
            }
            Err(Refusal::Damaged) if !matches!(request.operation, Operation::Write(_)) => {
                it.outstanding.remove(&id);
            }
            Err(Refusal::Fenced(_)) if matches!(request.operation, Operation::Write(_)) => {
                it.outstanding.remove(&id);
            }
            Err(Refusal::NoSpace) => {
                self.outcome.no_space += 1;
                self.hasten(client, id);
            }
            Err(Refusal::BadRange | Refusal::TooFarAhead | Refusal::Damaged) => {
                self.fail(format!("client {client} was refused request {}, which is good", id.0));
            }
            Err(_) => self.hasten(client, id),
        }
    }

    /// A request that was refused for now is repeated soon.
    fn hasten(&mut self, client: usize, id: RequestId) {
        let soon = self.now + self.chance.between(5, 50) * MS;
        if let Some(request) = self.clients[client].outstanding.get_mut(&id) {
            request.again_at = request.again_at.min(soon);
        }
    }

    /// An acknowledged write is on as many drives as promised, but for those that have lost their data since it began.
    fn check_copies(&mut self, request: &Outstanding) {
        let (extent, block) = request.blocks[0];
        let has = |server: &super::Server| {
            let node = server.nodes.get(&request.group).map(|node| &node.store);
            let store = node.or_else(|| server.stores.get(&request.group));
            let extents = store.map(|store| store.visible().clone()).unwrap_or_default();
            // What a drive damages later was there.
            let tag = extents.get(&extent).and_then(|extent| extent.blocks.get(&block)).copied();
            tag.map(|tag| if tag == LOST { LOST } else { tag & !DAMAGED })
        };
        if self.history.is_replaced(request.blocks[0], request.write) {
            return;
        }
        let is_there = |server: &&super::Server| [request.tag, LOST].contains(&has(server).unwrap_or(0));
        let copies = self.servers.iter().filter(is_there).count();
        let emptied = self.emptied.iter().filter(|(at, _)| *at >= request.begun).map(|(_, server)| *server);
        let lost = emptied.collect::<BTreeSet<_>>().len();
        let promised = usize::from(self.options.min_copies);
        if copies + lost < promised {
            self.fail(format!("write {} was acknowledged with {copies} of {promised} copies", request.write));
        }
    }

    /// A volume goes to another client: every member is told, and the client begins when all have confirmed.
    pub(in super::super) fn begin_takeover(&mut self) {
        let number = self.chance.index(self.volumes.len());
        let (volume, client) = (self.volumes[number], self.chance.index(self.clients.len()));
        if self.takeover.is_some() || self.clients[client].attached.contains_key(&volume) {
            return;
        }
        let generation = Generation(self.generations[&volume].0 + 1);
        self.generations.insert(volume, generation);
        let up = self.servers.iter().enumerate().filter(|(_, server)| server.is_up);
        let all = up.flat_map(|(number, server)| server.nodes.keys().map(move |group| (number, server.life, *group)));
        let missing: BTreeSet<_> = all.collect();
        self.takeover = Some(Takeover { volume, generation, client, missing: missing.clone() });
        for (server, _, group) in missing {
            if let Some(node) = self.servers[server].nodes.get_mut(&group) {
                node.member.handle_fence(volume, generation);
            }
            self.drain(server, group);
        }
        self.finish_takeover();
    }

    pub(super) fn finish_takeover(&mut self) {
        if self.takeover.as_ref().is_some_and(|takeover| takeover.missing.is_empty()) {
            let takeover = self.takeover.take().expect("it is there");
            self.clients[takeover.client].attached.insert(takeover.volume, takeover.generation);
        }
    }
}
