//! The append log on files: written in batches, rotated at every start and rewrite, recovered before anything else.
//!
//! Invariants
//! - A segment that the manifest names was made and synced, head and name, before the manifest named it.
//! - Nothing is appended to a file after an append to it failed, nor to one that an earlier process wrote: the manifest closes
//!   it at the length that counts, and a new one is begun.
//! - What was durable is recovered whole and in order, or recovery fails and says where. What was not may be lost from some
//!   batch on, and the report says so.
//!
//! Deliberately absent: repair. A damaged log is restored from a copy, or the operator removes it knowingly.

use std::io;

use xxhash_rust::xxh3::Xxh3;

use super::Folder;
use super::folder::Syncer;
use super::keeper::NewBase;
use super::manifest::{Base, Manifest, Segment};
use super::record::{self, HEAD_BYTES, Head, LogId, PAYLOAD_BYTES_MAX, bytes};

const MANIFEST: &str = "manifest";
/// A longer manifest is none.
const MANIFEST_BYTES_MAX: usize = 16 << 20;
/// Segments begin with this, their number, position, the log's id, and a checksum of these.
const MAGIC: &[u8; 8] = b"AshlarKV";
const SEGMENT_HEAD_BYTES: usize = 48;
/// How much is read at once.
const READ_BYTES: usize = 4 << 20;

/// Why the log cannot be read or written.
#[derive(Debug)]
pub enum LogError {
    /// What is in the files is not what was written there, and it had been acknowledged. Not safe to go on: restore the
    /// directory from a copy, or remove it to begin with nothing.
    Damaged {
        /// Which file.
        file: String,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// The file is intact, and what it says cannot be done by this program, as it is configured. Nothing is lost: change what it
    /// says, or start the version that wrote it. Not safe to go on without it.
    NotApplied {
        /// Which file.
        file: String,
        /// Where in it.
        offset: u64,
        /// What cannot be done, and why.
        what: String,
    },
    /// The file system refused. Safe to retry, after what it says was mended.
    Refused {
        /// What was tried.
        what: &'static str,
        /// With which file.
        file: String,
        /// Why not.
        error: io::Error,
    },
    /// What was written may not have become durable, and the kernel does not try again. Not safe to go on: the process must
    /// end, and recovery find out what is there.
    Lost {
        /// Which file.
        file: String,
        /// What the file system said.
        error: io::Error,
    },
}

impl core::fmt::Display for LogError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Damaged { file, offset, what } => write!(f, "{file} is damaged at byte {offset}: {what}"),
            Self::NotApplied { file, offset, what } => {
                write!(f, "{file} is intact, but what it says up to byte {offset} is refused: {what}")
            }
            Self::Refused { what, file, error } => write!(f, "cannot {what} {file}: {error}"),
            Self::Lost { file, error } => write!(f, "{file} may not be durable: {error}"),
        }
    }
}

impl core::error::Error for LogError {}

/// What recovery finds, in order.
#[derive(Debug)]
pub enum Recovered<'a> {
    /// The next bytes of the base.
    Base(&'a [u8]),
    /// The base was whole.
    BaseEnd,
    /// The next batch.
    Batch(&'a [u8]),
}

/// What recovery did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Batches that were found.
    pub batches: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How the last file ended, if the process that wrote it did not close it.
    pub open_end: Option<OpenEnd>,
}

/// How a file ended that was not closed: its process was killed, or the machine died. What was behind the last whole batch cannot be
/// known: neither whether there was anything, nor who may have cut it off. Only a mark or a batch behind it would tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenEnd {
    /// The file.
    pub file: String,
    /// Bytes of it that are used: it has whole batches up to here.
    pub used_bytes: u64,
    /// Bytes behind these that are part of a batch, or garbage; they are not used. No batch there says that anything behind the used
    /// bytes had become durable. 0 if the file ends behind a whole batch.
    pub cut_bytes: u64,
}

/// A sync of the last segment, which needs no access to the log.
pub(super) struct PendingSync {
    syncer: Syncer,
    file: String,
    end: u64,
}

impl PendingSync {
    /// Waits for the drive. Returns the position up to which the log is durable.
    ///
    /// # Errors
    /// [`LogError::Lost`]: the process must end.
    pub(super) fn run(self) -> Result<u64, LogError> {
        let Self { syncer, file, end } = self;
        syncer().map_err(|error| LogError::Lost { file, error })?;
        Ok(end)
    }
}

/// The append log.
#[derive(Debug)]
pub struct Log<F> {
    folder: F,
    manifest: Manifest,
    /// Bytes of the last segment's file that count.
    length: u64,
    /// Position of the next byte.
    end: u64,
    durable: u64,
    /// What the last record in the file says of `durable`.
    marked: u64,
    /// An append failed: the last segment's file may have more than `length`.
    is_broken: bool,
    /// Recovery would find it: its manifest is in the folder.
    is_named: bool,
    encoded: Vec<u8>,
}

impl<F: Folder> Log<F> {
    /// Recovers the log in a folder, or begins one with this id if there is none. Everything found goes to `visit`, whose
    /// error ends recovery.
    ///
    /// # Errors
    /// See [`LogError`]; what `visit` says is [`LogError::NotApplied`].
    pub fn open(
        mut folder: F,
        id: [u8; 16],
        visit: &mut dyn FnMut(Recovered<'_>) -> Result<(), String>,
    ) -> Result<(Self, Report), LogError> {
        let Some(manifest) = read_manifest(&mut folder)? else {
            return Ok((Self::begin(folder, LogId(id))?, Report::default()));
        };
        let mut report = Report::default();
        if let Some(base) = &manifest.base {
            read_base(&mut folder, base, visit)?;
        }
        let mut end = manifest.base.as_ref().map_or(0, |base| base.position);
        let mut length = 0;
        for segment in &manifest.segments {
            let mut reader = Reader::new(&mut folder, segment.name(), segment.length);
            reader.head(manifest.id, *segment, end)?;
            (end, length) = reader.batches(manifest.id, end, &mut report, visit)?;
        }
        let mut log = Self {
            folder,
            manifest,
            length,
            end,
            durable: end,
            marked: end,
            is_broken: false,
            is_named: true,
            encoded: Vec::new(),
        };
        // What was read must be durable before anybody hears of it, even what was never acknowledged.
        log.sync()?;
        log.rotate()?;
        log.sweep()?;
        Ok((log, report))
    }

    fn begin(mut folder: F, id: LogId) -> Result<Self, LogError> {
        let first = Segment { number: 1, position: 0, length: None };
        // An earlier beginning may have come as far as an empty segment.
        let records = folder.read_at(&first.name(), bytes(SEGMENT_HEAD_BYTES), &mut [0]);
        let others = folder.others(&[&first.name()], false).map_err(|error| refused("look for", MANIFEST, error))?;
        if others > 0 || records.is_ok_and(|count| count > 0) {
            return Err(damaged(MANIFEST, 0, "it is not there, but other files are"));
        }
        let mut log = Self::with_first(folder, id, first);
        log.is_named = true;
        log.begin_segment(first)?;
        log.replace_manifest(log.manifest.clone())?;
        Ok(log)
    }

    /// Begins a log at a position, for data that is there already. The one that may be in the folder stays what recovery finds
    /// until this one has a base.
    ///
    /// # Errors
    /// See [`LogError`]. Nothing that recovery finds has changed.
    pub fn supersede(mut folder: F, id: [u8; 16], position: u64) -> Result<Self, LogError> {
        let before = read_manifest(&mut folder)?;
        let last = before.iter().flat_map(|manifest| &manifest.segments).last().map_or(0, |segment| segment.number);
        let first = Segment { number: last + 1, position, length: None };
        let mut log = Self::with_first(folder, LogId(id), first);
        log.begin_segment(first)?;
        Ok(log)
    }

    fn with_first(folder: F, id: LogId, first: Segment) -> Self {
        let (manifest, end) = (Manifest { id, base: None, segments: vec![first] }, first.position);
        let (length, encoded) = (bytes(SEGMENT_HEAD_BYTES), Vec::new());
        Self { folder, manifest, length, end, durable: end, marked: end, is_broken: false, is_named: false, encoded }
    }

    /// Position of what is appended next: bytes of all batches since the log was begun.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Bytes of the files that a restart would read, without the base.
    pub fn bytes_since_base(&self) -> u64 {
        self.end - self.manifest.segments.first().map_or(self.end, |first| first.position)
    }

    /// Whether a base may end at a position: a segment begins there.
    pub fn begins_at(&self, position: u64) -> bool {
        self.manifest.segments.iter().any(|segment| segment.position == position)
    }

    /// Whether recovery would find it.
    pub fn is_named(&self) -> bool {
        self.is_named
    }

    /// Bytes of the base.
    pub fn base_bytes(&self) -> u64 {
        self.manifest.base.as_ref().map_or(0, |base| base.length)
    }

    /// Appends a batch, which is recovered whole or not at all. Not durable on return.
    ///
    /// # Errors
    /// Nothing was appended; safe to retry.
    pub fn append(&mut self, batch: &[u8]) -> Result<(), LogError> {
        if batch.is_empty() {
            return Ok(());
        }
        if self.is_broken {
            self.rotate()?;
        }
        let mut encoded = core::mem::take(&mut self.encoded);
        encoded.clear();
        record::encode_batch(self.manifest.id, self.end, self.durable, batch, &mut encoded);
        let done = self.append_encoded(&encoded);
        encoded.shrink_to(READ_BYTES);
        self.encoded = encoded;
        done?;
        self.end += bytes(batch.len());
        Ok(())
    }

    fn append_encoded(&mut self, encoded: &[u8]) -> Result<(), LogError> {
        let name = self.segment().name();
        if let Err(error) = self.folder.append(&name, encoded) {
            self.is_broken = true;
            return Err(LogError::Refused { what: "append to", file: name, error });
        }
        self.length += bytes(encoded.len());
        self.marked = self.durable;
        Ok(())
    }

    /// Makes durable what was appended.
    ///
    /// # Errors
    /// [`LogError::Lost`]: the process must end.
    pub fn sync(&mut self) -> Result<(), LogError> {
        let sync = self.begin_sync();
        let durable = sync.run()?;
        self.note_durable(durable);
        Ok(())
    }

    /// What makes durable everything that was appended so far. It may run on another thread, beside further appends.
    pub(super) fn begin_sync(&mut self) -> PendingSync {
        let name = self.segment().name();
        PendingSync { syncer: self.folder.syncer(&name), file: name, end: self.end }
    }

    /// A sync that was begun has ended: the log is durable up to a position.
    pub(super) fn note_durable(&mut self, position: u64) {
        self.durable = self.durable.max(position);
    }

    /// Whether an append failed: nothing is appended before the log was rotated.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Position up to which the log is durable.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Writes down how far the log is durable, if no record says so yet: damage to what was acknowledged is told from a torn
    /// tail by that. To be called when nothing was appended for a while.
    ///
    /// # Errors
    /// Nothing was written; safe to retry.
    pub fn mark(&mut self) -> Result<(), LogError> {
        if !self.wants_mark() {
            return Ok(());
        }
        let mut encoded = Vec::new();
        record::encode_mark(self.manifest.id, self.end, self.durable, &mut encoded);
        self.append_encoded(&encoded)
    }

    /// Closes the last segment, durably, and begins another. Returns its position.
    ///
    /// # Errors
    /// As [`Log::sync`], or the file system refused: the last segment is still open then, and it is safe to retry.
    pub fn rotate(&mut self) -> Result<u64, LogError> {
        self.sync()?;
        let mut manifest = self.manifest.clone();
        let next = Segment { number: self.segment().number + 1, position: self.end, length: None };
        let last = manifest.segments.last_mut().expect("there is always a segment");
        last.length = Some(self.length);
        // A segment without batches has nothing to tell.
        if last.position == self.end {
            manifest.segments.pop();
        }
        manifest.segments.push(next);
        self.begin_segment(next)?;
        self.replace_manifest(manifest)?;
        (self.length, self.is_broken, self.marked) = (bytes(SEGMENT_HEAD_BYTES), false, self.durable);
        Ok(self.end)
    }

    /// Whether [`Log::mark`] would write something.
    pub(super) fn wants_mark(&self) -> bool {
        self.marked != self.durable && !self.is_broken
    }

    /// Closes the last segment for good: recovery will find it whole or damaged, and never torn.
    ///
    /// # Errors
    /// As [`Log::rotate`].
    pub fn close(mut self) -> Result<(), LogError> {
        self.rotate().map(drop)
    }

    /// The log begins with this base from now on; what was before it is removed. The base must be durable, and a segment
    /// begin at its position.
    ///
    /// # Errors
    /// Nothing has changed; safe to retry.
    ///
    /// # Panics
    /// No segment begins there.
    pub fn install_base(&mut self, base: &NewBase) -> Result<(), LogError> {
        let NewBase { name, length, checksum, position, .. } = base.clone();
        let mut manifest = self.manifest.clone();
        manifest.segments.retain(|segment| segment.position >= position);
        let begins = manifest.segments.first().map(|segment| segment.position);
        assert_eq!(begins, Some(position), "a base ends where a segment begins");
        manifest.base = Some(Base { name, length, checksum, position });
        self.replace_manifest(manifest)?;
        self.sweep()
    }

    /// Removes files that are no part of the log.
    fn sweep(&mut self) -> Result<(), LogError> {
        let base = self.manifest.base.iter().map(|base| base.name.clone());
        let names: Vec<String> = base.chain(self.manifest.segments.iter().map(|segment| segment.name())).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).chain([MANIFEST]).collect();
        let removed = self.folder.others(&names, true);
        removed.map(drop).map_err(|error| refused("remove what is beside", MANIFEST, error))
    }

    fn segment(&self) -> Segment {
        *self.manifest.segments.last().expect("there is always a segment")
    }

    /// Makes the file of a segment, durable. One that is there from an attempt that failed is begun anew.
    fn begin_segment(&mut self, segment: Segment) -> Result<(), LogError> {
        let (name, head) = (segment.name(), encode_segment_head(self.manifest.id, segment));
        self.folder.replace(&name, &head).map_err(|error| refused("begin", &name, error))
    }

    fn replace_manifest(&mut self, manifest: Manifest) -> Result<(), LogError> {
        if self.is_named || manifest.base.is_some() {
            let text = manifest.encode();
            self.folder.replace(MANIFEST, text.as_bytes()).map_err(|error| refused("replace", MANIFEST, error))?;
            self.is_named = true;
        }
        self.manifest = manifest;
        Ok(())
    }
}

/// The checksum that a base has in the manifest.
#[derive(Clone, Default)]
pub struct BaseChecksum(Xxh3);

impl core::fmt::Debug for BaseChecksum {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("BaseChecksum").field(&self.0.digest()).finish()
    }
}

impl BaseChecksum {
    /// The next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Of all so far.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.digest()
    }
}

fn encode_segment_head(id: LogId, segment: Segment) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(&segment.number.to_le_bytes());
    head.extend_from_slice(&segment.position.to_le_bytes());
    head.extend_from_slice(&id.0);
    let checksum = id.checksum(&[&head]);
    head.extend_from_slice(&checksum.to_le_bytes());
    head
}

fn read_manifest(folder: &mut impl Folder) -> Result<Option<Manifest>, LogError> {
    let (mut text, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        match folder.read_at(MANIFEST, bytes(text.len()), &mut piece) {
            Ok(0) => break,
            Ok(count) => text.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::NotFound && text.is_empty() => return Ok(None),
            Err(error) => return Err(refused("read", MANIFEST, error)),
        }
        if text.len() > MANIFEST_BYTES_MAX {
            return Err(damaged(MANIFEST, bytes(text.len()), "it is too long"));
        }
    }
    Manifest::decode(&text).map(Some).map_err(|what| damaged(MANIFEST, 0, what))
}

fn read_base(
    folder: &mut impl Folder,
    base: &Base,
    visit: &mut dyn FnMut(Recovered<'_>) -> Result<(), String>,
) -> Result<(), LogError> {
    let (mut at, mut checksum, mut piece) = (0, BaseChecksum::default(), vec![0; READ_BYTES]);
    // Whether the file is damaged or only cannot be read by us is known at its end.
    let mut refusal = None;
    loop {
        let count = folder.read_at(&base.name, at, &mut piece).map_err(|error| refused("read", &base.name, error))?;
        if count == 0 {
            break;
        }
        checksum.update(&piece[..count]);
        if refusal.is_none() {
            refusal = visit(Recovered::Base(&piece[..count])).err().map(|what| not_applied(&base.name, at, what));
        }
        at += bytes(count);
    }
    if at != base.length || checksum.value() != base.checksum {
        return Err(damaged(&base.name, at, "its length or checksum is not that of the manifest"));
    }
    refusal.map_or(Ok(()), Err)?;
    visit(Recovered::BaseEnd).map_err(|what| not_applied(&base.name, at, what))
}

/// Reads one segment through a window.
struct Reader<'f, F> {
    folder: &'f mut F,
    name: String,
    /// Bytes of the file that count, if it is closed.
    length: Option<u64>,
    /// Offset in the file of what is read next.
    at: u64,
    /// Bytes of the file; those before `taken` were read.
    window: Vec<u8>,
    taken: usize,
    is_over: bool,
}

impl<'f, F: Folder> Reader<'f, F> {
    fn new(folder: &'f mut F, name: String, length: Option<u64>) -> Self {
        Self { folder, name, length, at: 0, window: Vec::new(), taken: 0, is_over: false }
    }

    /// What was brought and not read yet.
    fn rest(&self) -> &[u8] {
        &self.window[self.taken..]
    }

    /// Brings at least `wanted` bytes, unless the file ends before.
    fn fill(&mut self, wanted: usize) -> Result<(), LogError> {
        if self.rest().len() >= wanted || self.is_over {
            return Ok(());
        }
        self.window.drain(..self.taken);
        self.taken = 0;
        while self.window.len() < wanted && !self.is_over {
            let from = self.window.len();
            self.window.resize(from + READ_BYTES, 0);
            let count = self
                .folder
                .read_at(&self.name, self.at + bytes(from), &mut self.window[from..])
                .map_err(|error| refused("read", &self.name, error))?;
            self.window.truncate(from + count);
            self.is_over = count == 0;
            let Some(length) = self.length else { continue };
            let left = usize::try_from(length.saturating_sub(self.at)).unwrap_or(usize::MAX);
            if self.window.len() >= left {
                self.window.truncate(left);
                self.is_over = true;
            }
        }
        Ok(())
    }

    fn skip(&mut self, count: usize) {
        self.taken += count;
        self.at += bytes(count);
    }

    fn damaged(&self, what: &str) -> LogError {
        damaged(&self.name, self.at, what)
    }

    /// Reads the head, which must be that of this segment.
    fn head(&mut self, id: LogId, segment: Segment, position: u64) -> Result<(), LogError> {
        self.fill(SEGMENT_HEAD_BYTES)?;
        if !self.rest().starts_with(&encode_segment_head(id, segment)) {
            return Err(self.damaged("it does not begin as the manifest says"));
        }
        if segment.position != position {
            return Err(self.damaged("the segment before it does not reach it"));
        }
        self.skip(SEGMENT_HEAD_BYTES);
        Ok(())
    }

    /// The record at an offset of the window, if an intact one is there.
    fn record(&mut self, id: LogId, offset: usize) -> Result<Option<Head>, LogError> {
        self.fill(offset + HEAD_BYTES)?;
        let Some(head) = self.rest().get(offset..).and_then(Head::decode) else { return Ok(None) };
        let payload = offset + HEAD_BYTES..offset + HEAD_BYTES + head.len;
        self.fill(payload.end)?;
        let payload = self.rest().get(payload);
        Ok(payload.is_some_and(|payload| head.is_intact(id, payload)).then_some(head))
    }

    /// Visits all batches. Returns the position behind them, and how much of the file counts.
    fn batches(
        &mut self,
        id: LogId,
        mut position: u64,
        report: &mut Report,
        visit: &mut dyn FnMut(Recovered<'_>) -> Result<(), String>,
    ) -> Result<(u64, u64), LogError> {
        let (mut batch, mut counts) = (Vec::new(), self.at);
        let begin = |position: u64, batch: &Vec<u8>| position - bytes(batch.len());
        loop {
            match self.record(id, 0)? {
                Some(head) if head.position == position => {
                    batch.extend_from_slice(&self.rest()[HEAD_BYTES..HEAD_BYTES + head.len]);
                    self.skip(HEAD_BYTES + head.len);
                    position += bytes(head.len);
                    if !head.is_last {
                        continue;
                    }
                    if !batch.is_empty() {
                        // Its checksum is right: this is no damage.
                        visit(Recovered::Batch(&batch)).map_err(|what| not_applied(&self.name, self.at, what))?;
                        (report.batches, report.bytes) = (report.batches + 1, report.bytes + bytes(batch.len()));
                    }
                    batch.clear();
                    counts = self.at;
                }
                _ if self.length.is_some() => {
                    return if self.rest().is_empty() && batch.is_empty() && self.length == Some(self.at) {
                        Ok((position, counts))
                    } else {
                        Err(self.damaged("a record is not what was written"))
                    };
                }
                _ => {
                    let position = begin(position, &batch);
                    let end = self.find_end(id, position)?;
                    // A file without batches tells as little as one that was never written to.
                    if end > bytes(SEGMENT_HEAD_BYTES) {
                        let (file, cut_bytes) = (self.name.clone(), end - counts);
                        report.open_end = Some(OpenEnd { file, used_bytes: counts, cut_bytes });
                    }
                    return Ok((position, counts));
                }
            }
        }
    }

    /// Where the file ends, unless what stands before that says that the log was durable beyond a position which cannot be read.
    fn find_end(&mut self, id: LogId, position: u64) -> Result<u64, LogError> {
        let from = self.at;
        loop {
            self.fill(READ_BYTES + PAYLOAD_BYTES_MAX + HEAD_BYTES)?;
            let offsets = self.rest().len().min(READ_BYTES);
            for offset in 0..offsets {
                // Most bytes cannot begin a record: that is seen without a checksum.
                if let Some(head) = self.record(id, offset)?
                    && head.durable > position
                {
                    let what = "a record is not what was written, and a later one says that it had become durable";
                    return Err(damaged(&self.name, from, what));
                }
            }
            self.skip(offsets);
            if self.is_over && self.rest().is_empty() {
                return Ok(self.at);
            }
        }
    }
}

fn damaged(file: &str, offset: u64, what: impl Into<String>) -> LogError {
    LogError::Damaged { file: file.into(), offset, what: what.into() }
}

fn not_applied(file: &str, offset: u64, what: String) -> LogError {
    LogError::NotApplied { file: file.into(), offset, what }
}

fn refused(what: &'static str, file: &str, error: io::Error) -> LogError {
    LogError::Refused { what, file: file.into(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_a_segment_head_is_fixed() {
        let id = LogId(core::array::from_fn(|at| u8::try_from(at).unwrap()));
        let head = encode_segment_head(id, Segment { number: 7, position: 777, length: None });
        let golden = [
            &b"AshlarKV"[..],
            &[7, 0, 0, 0, 0, 0, 0, 0, 9, 3, 0, 0, 0, 0, 0, 0],
            &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
            // Computed by another implementation of XXH3.
            &[30, 220, 87, 144, 250, 218, 67, 162],
        ];
        assert_eq!(head, golden.concat());
    }

    #[test]
    fn the_checksum_of_a_base_is_fixed() {
        let mut checksum = BaseChecksum::default();
        checksum.update(b"hel");
        checksum.update(b"lo");
        assert_eq!(checksum.value(), 0x9555_e855_5c62_dcfd);
    }
}
