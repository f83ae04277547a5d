//! State machine of a range's owner: requests and completed IOs in, IOs and replies out.
//!
//! At most one batch of changes is under way. Commits that arrive meanwhile are checked against the state that it makes,
//! and share the next batch. See [`super`] for what holds.
//!
//! Parts: `scan` (pages of neighbouring keys), `rewrite` (a shorter stream beside the long one).

use std::collections::{BTreeMap, VecDeque};

use ashlar_wire::checksum::{Salt, checksum};
use bytes::Bytes;

use super::key::{self, BucketId};
use super::log::{
    AREA_EXTENTS_MAX, Area, BATCH_BYTES_MAX, BATCH_HEAD, BLOCK, EXTENT_BYTES, Head, Logged, Place, StreamId,
    decode_batch, encode_batch, logged_bytes,
};
use super::request::{Change, Check, Entry, Reply, Request};
use super::usage::{UsageTable, content_bytes};
use crate::planted::{self, Planted};

mod rewrite;
mod scan;

use rewrite::{Cleaning, Rewrite};

/// Limits of a range.
#[derive(Debug, Clone, Copy)]
pub struct RangeConfig {
    /// Requests that wait. Further ones are answered [`Reply::Unavailable`].
    pub requests_max: usize,
    /// A stream shorter than this is not written anew.
    pub rewrite_bytes_min: u64,
    /// Bytes of one step of writing a stream anew: changes wait for no longer.
    pub rewrite_step_bytes: usize,
}

impl Default for RangeConfig {
    fn default() -> Self {
        Self { requests_max: 4_096, rewrite_bytes_min: 16 << 20, rewrite_step_bytes: 256 << 10 }
    }
}

/// Names an IO from its start to its completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// What the placement group is asked. Each may be executed beside the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Io {
    /// Reads bytes. What was never written is zeroes.
    Read {
        /// The extent.
        place: Place,
        /// How many bytes from its beginning: whole blocks.
        len: usize,
    },
    /// Writes whole blocks, at once or not at all. Durable at every acting copy on completion.
    Write {
        /// The extent.
        place: Place,
        /// First byte in it.
        offset: usize,
        /// What is written.
        data: Bytes,
    },
    /// Makes an extent zeroes, so that it takes no space.
    Clear(Place),
    /// Confirms that this server still has the primary of the placement group, at a moment after the IO began.
    Confirm,
}

/// Why an IO could not be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoFailed {
    /// It may be done or not, and never will be by this owner.
    Lost,
    /// A write needs space for an extent that has none yet, and the drives have none. It is not done, except perhaps for a part.
    Full,
}

/// Names a request from [`Range::handle_request`] to its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// Where a stream goes on.
#[derive(Debug, Clone, Copy)]
struct Stream {
    id: StreamId,
    area: Area,
    /// Number of the next batch.
    sequence: u64,
    extent: u32,
    offset: usize,
    /// Bytes of all its batches.
    bytes: u64,
}

impl Stream {
    const fn new(id: StreamId, area: Area) -> Self {
        Self { id, area, sequence: 0, extent: 0, offset: 0, bytes: 0 }
    }

    /// The next batch, at its place. Nothing if the area is full.
    fn append(&mut self, changes: &[Logged]) -> Option<Io> {
        let data = encode_batch(self.id, self.sequence, changes);
        if self.offset + data.len() > EXTENT_BYTES {
            (self.extent, self.offset) = (self.extent + 1, 0);
        }
        if self.extent >= AREA_EXTENTS_MAX {
            return None;
        }
        let (place, offset) = (Place::Extent(self.area, self.extent), self.offset);
        self.offset += data.len();
        self.sequence += 1;
        self.bytes += data.len() as u64;
        Some(Io::Write { place, offset, data })
    }
}

#[derive(Debug)]
enum State {
    /// The head is being read.
    ReadingHead,
    /// The stream is being read.
    ReadingStream,
    /// The first head is being written.
    WritingHead,
    Serving,
    /// An IO has failed, and another one may be under way.
    Closed,
    /// There is no room for the first head, and nothing is under way.
    NoRoom,
}

/// What an IO was for.
#[derive(Debug)]
enum Purpose {
    Open,
    /// A batch of the stream, or the head.
    Round,
    /// A batch of the stream that is being written anew.
    Rewrite,
    Confirm(Vec<(Token, Reply)>),
    Probe,
    Clear,
}

/// Everything that is written at one time; the next round begins when all of it is durable.
#[derive(Debug, Default)]
struct Round {
    changes: Vec<Logged>,
    replies: Vec<(Token, Reply)>,
    /// IOs that are not completed.
    outstanding: usize,
    /// The head is being changed to the stream that was written anew.
    is_switch: bool,
    /// Where the stream ended before.
    before: Option<Stream>,
    /// There was no room for the changes.
    is_refused: bool,
    /// There was no room in the stream that is written anew.
    spoils_rewrite: bool,
}

/// One range at its owner.
#[derive(Debug)]
pub struct Range {
    config: RangeConfig,
    seed: u64,
    drawn: u64,
    state: State,
    map: BTreeMap<Vec<u8>, Entry>,
    /// What all entries take in a log.
    live_bytes: u64,
    usage: UsageTable,
    /// The next version that is given.
    version: u64,
    stream: Stream,
    rewrite: Option<Rewrite>,
    /// Bytes that the stream has to have before it is written anew, after there was no room for that.
    rewrite_after: u64,
    cleaning: Option<Cleaning>,
    /// Requests that came before the range was open, and commits that wait for the next round.
    waiting: VecDeque<(Token, Request)>,
    round: Option<Round>,
    /// Replies that wait for a confirmation that has not begun.
    unconfirmed: Vec<(Token, Reply)>,
    is_confirming: bool,
    purposes: BTreeMap<IoId, Purpose>,
    io: VecDeque<(IoId, Io)>,
    replies: VecDeque<(Token, Reply)>,
    last_io: u64,
}

impl Range {
    /// The owner begins: it reads the range. `seed` is drawn by chance, and never the same twice.
    #[must_use]
    pub fn open(config: RangeConfig, seed: u64) -> Self {
        let mut range = Self {
            config,
            seed,
            drawn: 0,
            state: State::ReadingHead,
            map: BTreeMap::new(),
            live_bytes: 0,
            usage: UsageTable::default(),
            version: 1,
            stream: Stream::new(StreamId([0; 16]), Area::First),
            rewrite: None,
            rewrite_after: 0,
            cleaning: None,
            waiting: VecDeque::new(),
            round: None,
            unconfirmed: Vec::new(),
            is_confirming: false,
            purposes: BTreeMap::new(),
            io: VecDeque::new(),
            replies: VecDeque::new(),
            last_io: 0,
        };
        range.start(Purpose::Open, Io::Read { place: Place::Head, len: BLOCK });
        range
    }

    /// Whether the range is open and answers.
    #[must_use]
    pub const fn is_serving(&self) -> bool {
        matches!(self.state, State::Serving)
    }

    /// Whether an IO has failed: the owner is to be dropped.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed | State::NoRoom)
    }

    /// Whether it is closed and nothing that it began is under way: it may be opened again in the same epoch.
    #[must_use]
    pub const fn may_reopen(&self) -> bool {
        matches!(self.state, State::NoRoom)
    }

    /// Keys that have a value.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether no key has a value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Bytes of the current stream.
    #[must_use]
    pub const fn stream_bytes(&self) -> u64 {
        self.stream.bytes
    }

    /// Takes a request; [`Range::poll_reply`] gives its reply, exactly once.
    pub fn handle_request(&mut self, token: Token, request: Request) {
        if self.is_closed() || self.waiting.len() >= self.config.requests_max {
            return self.replies.push_back((token, Reply::Unavailable));
        }
        if !request.is_within_limits() {
            return self.replies.push_back((token, Reply::TooLarge));
        }
        if request.is_read() && self.is_serving() {
            self.read(token, &request);
        } else {
            self.waiting.push_back((token, request));
        }
        self.go_on();
    }

    fn read(&mut self, token: Token, request: &Request) {
        let reply = match request {
            Request::Get(key) => Reply::Value(self.map.get(key).cloned()),
            Request::Scan(scan) => scan::page(&self.map, scan),
            Request::Spans(spans) => scan::page_of_spans(&self.map, spans),
            Request::Usage(bucket) => Reply::Usage(self.usage.of(*bucket)),
            Request::Commit { .. } => unreachable!("a commit is no read"),
        };
        self.unconfirmed.push((token, reply));
    }

    /// The next IO to execute.
    pub fn poll_io(&mut self) -> Option<(IoId, Io)> {
        self.io.pop_front()
    }

    /// The next reply.
    pub fn poll_reply(&mut self) -> Option<(Token, Reply)> {
        self.replies.pop_front()
    }

    fn start(&mut self, purpose: Purpose, io: Io) {
        self.last_io += 1;
        let id = IoId(self.last_io);
        self.purposes.insert(id, purpose);
        self.io.push_back((id, io));
    }

    /// An IO is completed; a read with its bytes, exactly as many as were asked for.
    ///
    /// # Panics
    /// The IO is not under way.
    pub fn handle_io(&mut self, id: IoId, result: Result<Bytes, IoFailed>) {
        let Some(purpose) = self.purposes.remove(&id) else {
            assert!(self.is_closed(), "an IO is completed once");
            return;
        };
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(IoFailed::Full) => {
                self.handle_full(&purpose);
                return self.go_on();
            }
            Err(IoFailed::Lost) => {
                if let Purpose::Confirm(replies) = purpose {
                    self.unconfirmed.extend(replies);
                }
                return self.close();
            }
        };
        if self.is_closed() {
            return;
        }
        match purpose {
            Purpose::Open => self.handle_opened(&bytes),
            Purpose::Round | Purpose::Rewrite => self.handle_written(),
            Purpose::Confirm(replies) => {
                self.is_confirming = false;
                self.replies.extend(replies);
            }
            Purpose::Probe => self.handle_probed(&bytes),
            Purpose::Clear => self.handle_cleared(),
        }
        self.go_on();
    }

    /// A write had no room.
    fn handle_full(&mut self, purpose: &Purpose) {
        match (purpose, self.round.as_mut()) {
            (Purpose::Round, Some(round)) if !round.is_switch => round.is_refused = true,
            (Purpose::Rewrite, Some(round)) => round.spoils_rewrite = true,
            (Purpose::Open, _) if matches!(self.state, State::WritingHead) => {
                self.close();
                self.state = State::NoRoom;
                return;
            }
            // What has space already never lacks it.
            _ => return self.close(),
        }
        self.handle_written();
    }

    /// Nothing that is not known to be the latest is told any more.
    fn close(&mut self) {
        self.state = State::Closed;
        let confirming = core::mem::take(&mut self.purposes).into_values().flat_map(|purpose| match purpose {
            Purpose::Confirm(replies) => replies,
            _ => Vec::new(),
        });
        let told = self.round.take().map(|round| round.replies).unwrap_or_default();
        let told = told.into_iter().chain(confirming).chain(self.unconfirmed.drain(..));
        let tokens = told.map(|(token, _)| token).chain(self.waiting.drain(..).map(|(token, _)| token));
        self.replies.extend(tokens.map(|token| (token, Reply::Unavailable)));
        // IOs that were begun are completed into the void; those that were not are not begun.
        self.io.clear();
        self.map.clear();
        self.usage.clear();
    }

    fn handle_opened(&mut self, bytes: &Bytes) {
        match self.state {
            State::ReadingHead => match Head::decode(bytes) {
                Ok(None) => {
                    self.stream = Stream::new(self.draw(), Area::First);
                    self.state = State::WritingHead;
                    self.write_head(Purpose::Open);
                }
                Ok(Some(Head { stream, area, version_min })) => {
                    self.stream = Stream::new(stream, area);
                    self.version = version_min.max(1);
                    self.state = State::ReadingStream;
                    self.read_extent();
                }
                Err(_) => self.close(),
            },
            State::ReadingStream => match self.replay(bytes) {
                Ok(true) => self.read_extent(),
                Ok(false) => self.serve(),
                Err(_) => self.close(),
            },
            State::WritingHead => self.serve(),
            State::Serving | State::Closed | State::NoRoom => unreachable!("nothing is opened then"),
        }
    }

    fn draw(&mut self) -> StreamId {
        self.drawn += 1;
        let half = |which: u64| {
            let parts = [self.seed.to_be_bytes(), self.drawn.to_be_bytes(), which.to_be_bytes()];
            checksum(Salt::new(&[b"stream of an index"]), parts.as_flattened()).0.to_be_bytes()
        };
        let mut id = [0; 16];
        id[..8].copy_from_slice(&half(0));
        id[8..].copy_from_slice(&half(1));
        StreamId(id)
    }

    fn write_head(&mut self, purpose: Purpose) {
        let head = Head { stream: self.stream.id, area: self.stream.area, version_min: self.version };
        self.start(purpose, Io::Write { place: Place::Head, offset: 0, data: Bytes::from(head.encode()) });
    }

    fn read_extent(&mut self) {
        let place = Place::Extent(self.stream.area, self.stream.extent);
        self.start(Purpose::Open, Io::Read { place, len: EXTENT_BYTES });
    }

    /// Applies the batches of the stream's next extent; whether there may be more in the one behind it.
    fn replay(&mut self, extent: &Bytes) -> Result<bool, crate::cursor::Malformed> {
        let mut offset = 0;
        while offset + BATCH_HEAD <= extent.len() {
            let batch = decode_batch(&extent.slice(offset..), self.stream.id, self.stream.sequence)?;
            let Some((changes, blocks)) = batch else { break };
            for logged in changes {
                self.apply(logged);
            }
            offset += blocks;
            self.stream.sequence += 1;
            self.stream.bytes += blocks as u64;
            self.stream.offset = offset;
        }
        if offset == 0 {
            // The stream ended in the extent before, of which the next batch may still have a part.
            if let Some(before) = self.stream.extent.checked_sub(1) {
                self.stream.extent = before;
            }
            return Ok(false);
        }
        if self.stream.extent + 1 >= AREA_EXTENTS_MAX {
            return Ok(false);
        }
        self.stream.extent += 1;
        Ok(true)
    }

    fn serve(&mut self) {
        self.state = State::Serving;
        self.cleaning = Some(Cleaning::probing(self.stream.area.other()));
        self.probe();
        for (token, request) in core::mem::take(&mut self.waiting) {
            if request.is_read() {
                self.read(token, &request);
            } else {
                self.waiting.push_back((token, request));
            }
        }
    }

    /// Changes the map as the log says.
    fn apply(&mut self, logged: Logged) {
        let Logged { change: Change { key, value }, version } = logged;
        self.version = self.version.max(version + 1);
        let bytes = logged_bytes(&key, value.as_ref()) as u64;
        self.usage.change(&key, self.map.get(&key).map(|before| &before.value), value.as_ref());
        let before = match value {
            // A copy: the bytes are a part of a long message or extent.
            Some(value) => {
                self.live_bytes += bytes;
                let entry = Entry { version, value: Bytes::copy_from_slice(&value) };
                let length = key.len();
                self.map.insert(key, entry).map(|before| (length, before))
            }
            None => self.map.remove(&key).map(|before| (key.len(), before)),
        };
        if let Some((key, before)) = before {
            self.live_bytes -= (2 + key + 8 + 1 + 4 + before.value.len()) as u64;
        }
    }

    /// Begins what can be begun.
    fn go_on(&mut self) {
        if !self.is_serving() {
            return;
        }
        self.confirm(Vec::new());
        if self.round.is_none() {
            self.begin_round();
        }
    }

    fn begin_round(&mut self) {
        self.begin_rewrite();
        let mut round = Round::default();
        if self.rewrite.as_ref().is_some_and(|rewrite| rewrite.is_whole) {
            // No change may come between the last one that both streams have and the head.
            self.switch(&mut round);
            self.round = Some(round);
            return;
        }
        self.gather(&mut round);
        // The step first: it has the keys as they are before this round's changes.
        let mut ios: Vec<(Purpose, Option<Io>)> = Vec::new();
        ios.extend(self.step_rewrite().map(|io| (Purpose::Rewrite, io)));
        if !round.changes.is_empty() {
            round.before = Some(self.stream);
            ios.push((Purpose::Round, self.stream.append(&round.changes)));
            let also = self.rewrite.as_mut().map(|rewrite| rewrite.stream.append(&round.changes));
            ios.extend(also.map(|io| (Purpose::Rewrite, io)));
        }
        if ios.iter().any(|(_, io)| io.is_none()) {
            // An area is full: a terabyte of log that was not written anew.
            self.unconfirmed.append(&mut round.replies);
            return self.close();
        }
        if ios.is_empty() {
            self.confirm(round.replies);
            if self.rewrite.as_ref().is_some_and(|rewrite| rewrite.is_whole) {
                self.begin_round();
            }
            return;
        }
        if planted::has(Planted::ReplyUnwritten) {
            self.replies.extend(round.replies.drain(..));
        }
        round.outstanding = ios.len();
        for (purpose, io) in ios {
            if let Some(io) = io {
                self.start(purpose, io);
            }
        }
        self.round = Some(round);
    }

    /// Holds replies that tell what the map has until this server is known to have had the primary after that.
    fn confirm(&mut self, replies: Vec<(Token, Reply)>) {
        self.unconfirmed.extend(replies);
        if planted::has(Planted::TellUnconfirmed) {
            self.replies.extend(self.unconfirmed.drain(..));
        }
        if !self.is_confirming && !self.unconfirmed.is_empty() {
            self.is_confirming = true;
            let replies = core::mem::take(&mut self.unconfirmed);
            self.start(Purpose::Confirm(replies), Io::Confirm);
        }
    }

    fn handle_written(&mut self) {
        let round = self.round.as_mut().expect("its IO was under way");
        round.outstanding -= 1;
        if round.outstanding > 0 {
            return;
        }
        let round = self.round.take().expect("it was just there");
        if let Some(before) = round.before.filter(|_| round.is_refused) {
            // The other stream may have the changes. What was refused by a check may have been so because of others of the round.
            self.stream = before;
            self.give_up_rewrite();
            return self.replies.extend(round.replies.into_iter().map(|(token, _)| (token, Reply::Full)));
        }
        if round.spoils_rewrite {
            self.give_up_rewrite();
        }
        if round.is_switch {
            self.finish_rewrite();
        }
        round.changes.into_iter().for_each(|logged| self.apply(logged));
        self.replies.extend(round.replies);
    }

    /// Checks waiting commits, one on top of the other, as far as their changes share one batch.
    fn gather(&mut self, round: &mut Round) {
        let mut overlay: BTreeMap<Vec<u8>, Option<Entry>> = BTreeMap::new();
        let mut bytes = 0;
        while let Some((token, Request::Commit { checks, changes })) = self.waiting.front() {
            let more: usize = changes.iter().map(|change| logged_bytes(&change.key, change.value.as_ref())).sum();
            if bytes + more > BATCH_BYTES_MAX {
                break;
            }
            let token = *token;
            let refused = checks.iter().position(|check| match check {
                Check::Room(bucket, bytes_max) => !self.has_room(&overlay, changes, *bucket, *bytes_max),
                check => !self.holds(&overlay, check),
            });
            if let Some(refused) = refused {
                let number = u32::try_from(refused).expect("at most CHECKS_MAX");
                round.replies.push((token, Reply::Refused(number)));
                self.waiting.pop_front();
                continue;
            }
            let version = self.version;
            let mut before = Vec::with_capacity(changes.len());
            for change in changes {
                before.push(self.lookup(&overlay, &change.key).cloned());
                let entry = change.value.clone().map(|value| Entry { version, value });
                overlay.insert(change.key.clone(), entry);
                round.changes.push(Logged { change: change.clone(), version });
            }
            self.version += 1;
            bytes += more;
            round.replies.push((token, Reply::Committed { version, before }));
            self.waiting.pop_front();
        }
    }

    fn lookup<'a>(&'a self, overlay: &'a BTreeMap<Vec<u8>, Option<Entry>>, key: &[u8]) -> Option<&'a Entry> {
        match overlay.get(key) {
            Some(changed) => changed.as_ref(),
            None => self.map.get(key),
        }
    }

    /// Whether a bucket has at most so many bytes after `changes` on top of the overlay, or they add none.
    fn has_room(
        &self,
        overlay: &BTreeMap<Vec<u8>, Option<Entry>>,
        changes: &[Change],
        bucket: BucketId,
        bytes_max: u64,
    ) -> bool {
        let is_of = |key: &[u8]| key::bucket(key) == Some(bucket);
        let value_of = |entry: Option<&Entry>, key: &[u8]| content_bytes(key, entry.map(|entry| &entry.value));
        let (mut come, mut gone) = (0, 0);
        for Change { key, value } in changes.iter().filter(|change| is_of(&change.key)) {
            come += content_bytes(key, value.as_ref());
            gone += value_of(self.lookup(overlay, key), key);
        }
        let (mut more, mut less) = (come, gone);
        for (key, entry) in overlay.iter().filter(|(key, _)| is_of(key)) {
            more += value_of(entry.as_ref(), key);
            less += value_of(self.map.get(key), key);
        }
        come <= gone || self.usage.of(bucket).bytes + more <= bytes_max.saturating_add(less)
    }

    fn holds(&self, overlay: &BTreeMap<Vec<u8>, Option<Entry>>, check: &Check) -> bool {
        match check {
            _ if planted::has(Planted::PassChecks) => true,
            Check::Absent(key) => self.lookup(overlay, key).is_none(),
            Check::Version(key, version) => self.lookup(overlay, key).is_some_and(|entry| entry.version == *version),
            Check::Empty(from, to) if from >= to => true,
            Check::Empty(from, to) => {
                let kept = self.map.range(from.clone()..to.clone()).any(|(key, _)| !overlay.contains_key(key));
                let made = overlay.range(from.clone()..to.clone()).any(|(_, entry)| entry.is_some());
                !kept && !made
            }
            Check::Room(..) => unreachable!("it is checked with the changes"),
        }
    }
}

#[cfg(test)]
mod tests;
