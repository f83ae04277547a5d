//! What commands append to, in memory, on its way to the log.
//!
//! Threads that run commands append while keys are locked. Before replies leave, one of them takes what has gathered and writes
//! it for all of them (`Journal::write_out`); with `appendfsync always` the log's thread does. A batch is a sequence of units:
//!
//! ```text
//! 8 bytes   Unix milliseconds at which the unit ran; 0 for what a primary said, for whom nothing has expired that it does not say has
//! 4 bytes   its database
//! 4 bytes   how many bytes of commands follow; 2^32 - 1 if the next 8 bytes say it
//! 8 bytes   only then: how many bytes of commands follow
//! then      commands as clients send them
//! ```
//!
//! Numbers are little-endian. What one command or transaction appends is never cut by a batch's end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::record::bytes;
use crate::resp::number::Decimal;
use crate::settings::LogSync;

const HEAD_BYTES: usize = 16;
/// In place of a length that needs 8 bytes, which follow.
const IS_LONG: u32 = u32::MAX;
const LONG_BYTES: usize = 8;
/// Commands of a unit that is not made longer, bytes.
const UNIT_BYTES_MAX: usize = 1 << 20;
/// What nobody replies to, and that may wait until the log's thread looks by itself, bytes.
const UNANSWERED_BYTES_MAX: usize = 1 << 20;

/// What one command, transaction or script has to say to the log and to replicas.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Commands, in RESP.
    bytes: Vec<u8>,
    runs: Vec<Run>,
    commands: usize,
}

/// Commands in a row for the same database and the same readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    database: usize,
    readers: Readers,
    /// Where it ends in the bytes.
    end: usize,
}

/// Who gets a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    /// The log and replicas.
    All,
    /// Replicas only: it changes nothing that is kept.
    Replicas,
}

impl Written {
    /// Adds a command that was run in a database.
    pub(crate) fn push<'a>(&mut self, database: usize, words: impl ExactSizeIterator<Item = &'a [u8]>) {
        self.push_for(Readers::All, database, words);
    }

    /// The same for some readers.
    pub(crate) fn push_for<'a>(
        &mut self,
        readers: Readers,
        database: usize,
        words: impl ExactSizeIterator<Item = &'a [u8]>,
    ) {
        encode_request(words, &mut self.bytes);
        self.commands += 1;
        let end = self.bytes.len();
        match self.runs.last_mut() {
            Some(last) if last.database == database && last.readers == readers => last.end = end,
            _ => self.runs.push(Run { database, readers, end }),
        }
    }

    /// How many commands there are.
    pub(crate) fn commands(&self) -> usize {
        self.commands
    }

    /// Commands in RESP, in runs of one database each, and who gets them.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (usize, Readers, &[u8])> {
        let mut from = 0;
        self.runs.iter().map(move |run| {
            let begin = std::mem::replace(&mut from, run.end);
            (run.database, run.readers, &self.bytes[begin..run.end])
        })
    }

    /// Whether there is nothing to say.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Forgets everything, and keeps the room for more.
    pub(crate) fn clear(&mut self) {
        self.runs.clear();
        self.commands = 0;
        self.bytes.clear();
        self.bytes.shrink_to(UNIT_BYTES_MAX);
    }
}

/// A request, as clients send it.
pub(crate) fn encode_request<'a>(words: impl ExactSizeIterator<Item = &'a [u8]>, into: &mut Vec<u8>) {
    let head = |mark: u8, number: usize, into: &mut Vec<u8>| {
        into.push(mark);
        let number = i64::try_from(number).expect("lengths in memory fit 63 bits");
        into.extend_from_slice(Decimal::new(number).as_bytes());
        into.extend_from_slice(b"\r\n");
    };
    head(b'*', words.len(), into);
    for word in words {
        head(b'$', word.len(), into);
        into.extend_from_slice(word);
        into.extend_from_slice(b"\r\n");
    }
}

/// One unit of a batch, read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unit<'a> {
    pub(crate) unix_ms: i64,
    pub(crate) database: usize,
    pub(crate) commands: &'a [u8],
}

/// The units of a batch; `None` if it is none.
pub(crate) fn decode_batch(mut batch: &[u8]) -> Option<Vec<Unit<'_>>> {
    let mut units = Vec::new();
    while !batch.is_empty() {
        let (head, rest) = batch.split_at_checked(HEAD_BYTES)?;
        let number = |at: usize| Some(u32::from_le_bytes(*head[at..].first_chunk()?));
        let unix_ms = i64::from_le_bytes(*head.first_chunk()?);
        let (len, rest) = match number(12)? {
            IS_LONG => {
                let (len, rest) = rest.split_at_checked(LONG_BYTES)?;
                (u64::from_le_bytes(*len.first_chunk()?), rest)
            }
            len => (u64::from(len), rest),
        };
        let (commands, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
        units.push(Unit { unix_ms, database: usize::try_from(number(8)?).ok()?, commands });
        batch = rest;
    }
    Some(units)
}

/// Writes what waits in a journal to the log's file.
pub(crate) trait WriteOut: Send + Sync {
    /// Writes what waits, unless the file has everything up to a position. Returns whether it has that now.
    fn write_out(&self, journal: &Journal, position: u64) -> bool;
}

/// What commands have appended and the log does not have yet.
pub struct Journal {
    is_on: AtomicBool,
    /// Nothing is appended before the log begins anew: what is there now came without commands.
    is_held: AtomicBool,
    waiting: Mutex<Waiting>,
    /// Position of the end of what was appended, counted as the log counts. Changes with `waiting` locked.
    end: AtomicU64,
    /// Position up to which the log's file has what was appended: the death of the process loses nothing before it.
    written: AtomicU64,
    /// Position up to which the drive has it.
    durable: AtomicU64,
    /// The log's thread looks here soon without being woken.
    is_attended: AtomicBool,
    wake: RwLock<Option<Box<dyn Fn() + Send + Sync>>>,
    /// What writes to the log's file, on whatever thread.
    writer: RwLock<Option<Arc<dyn WriteOut>>>,
    /// Whether there is a reason.
    is_refused: AtomicBool,
    /// Why the log cannot be written.
    refusal: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// The last unit, if it may be made longer.
    open: Option<Open>,
    /// Offset in `bytes` of a cut: what is before it and what is behind it go to different segments.
    cut: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    at: usize,
    unix_ms: i64,
    database: usize,
}

/// What was taken from a journal.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// One batch; empty if nothing was appended.
    pub batch: Vec<u8>,
    /// A new segment begins behind it.
    pub then_cut: bool,
    /// More waits behind the cut.
    pub is_more: bool,
}

impl Default for Journal {
    fn default() -> Self {
        Self {
            is_on: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
            waiting: Mutex::default(),
            end: AtomicU64::new(0),
            written: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            is_attended: AtomicBool::new(false),
            wake: RwLock::default(),
            writer: RwLock::default(),
            is_refused: AtomicBool::new(false),
            refusal: Mutex::default(),
        }
    }
}

impl Journal {
    /// Begins to take what commands append, from a position of the log on. `wake` is called, with locks held, when something
    /// was appended to an empty journal: it must only schedule.
    pub fn start(&self, position: u64, wake: Box<dyn Fn() + Send + Sync>) {
        self.end.store(position, Ordering::Release);
        self.release(position);
        *self.wake.write().unwrap_or_else(PoisonError::into_inner) = Some(wake);
        self.is_held.store(false, Ordering::Release);
        self.is_on.store(true, Ordering::Release);
    }

    /// From now on any thread may write what waits, with this.
    pub(super) fn attach(&self, writer: Arc<dyn WriteOut>) {
        *self.writer.write().unwrap_or_else(PoisonError::into_inner) = Some(writer);
    }

    /// Takes no more.
    pub fn stop(&self) {
        self.is_on.store(false, Ordering::Release);
        *self.writer.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether what commands do is to be appended.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed) && !self.is_held()
    }

    /// Appends nothing until the log begins anew. All shards are locked, or no command runs.
    pub(crate) fn hold(&self) {
        self.is_held.store(true, Ordering::Release);
    }

    /// Whether nothing is appended because the log is to begin anew.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }

    /// Whether there is a log, held or not.
    pub(crate) fn has_log(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Appends what a command has to say; its keys must still be locked.
    pub(crate) fn append(&self, written: &Written, unix_ms: i64) {
        let mut waiting = self.waiting();
        let before = waiting.bytes.len();
        for (database, _, commands) in written.runs().filter(|(_, readers, _)| *readers == Readers::All) {
            waiting.append(unix_ms, database, commands);
        }
        let after = waiting.bytes.len();
        self.end.fetch_add(bytes(after - before), Ordering::AcqRel);
        drop(waiting);
        // Threads that reply write what waits themselves. The log's thread comes for what nobody replies to.
        let is_first = before == 0 && after > 0 && !self.is_attended.load(Ordering::SeqCst);
        if is_first || (before < UNANSWERED_BYTES_MAX && after >= UNANSWERED_BYTES_MAX) {
            self.wake();
        }
    }

    /// Whether the log's thread looks here soon, so that an append need not wake it. Returns whether something waits.
    pub(super) fn attend(&self, is_attended: bool) -> bool {
        self.is_attended.store(is_attended, Ordering::SeqCst);
        let waiting = self.waiting();
        !waiting.bytes.is_empty() || waiting.cut.is_some()
    }

    /// What is appended from now on goes to a new segment. Returns the position. All shards must be locked.
    pub fn cut(&self) -> u64 {
        self.is_held.store(false, Ordering::Release);
        let mut waiting = self.waiting();
        waiting.cut = Some(waiting.bytes.len());
        waiting.open = None;
        drop(waiting);
        self.wake();
        self.end()
    }

    /// Takes what was appended, up to a cut if there is one.
    pub fn take(&self) -> Taken {
        self.take_for(Vec::new())
    }

    /// The same, in exchange for an empty buffer.
    pub(super) fn take_for(&self, spare: Vec<u8>) -> Taken {
        let mut waiting = self.waiting();
        waiting.open = None;
        let Some(cut) = waiting.cut.take() else {
            return Taken { batch: std::mem::replace(&mut waiting.bytes, spare), then_cut: false, is_more: false };
        };
        let rest = waiting.bytes.split_off(cut);
        let batch = std::mem::replace(&mut waiting.bytes, rest);
        Taken { batch, then_cut: true, is_more: !waiting.bytes.is_empty() }
    }

    /// Position of the end of everything that was appended.
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// The log has everything up to a position, durably: clients may be told of it, whatever was asked for.
    pub fn release(&self, position: u64) {
        self.note_written(position);
        self.note_durable(position);
    }

    /// The log's file has everything up to a position.
    pub(super) fn note_written(&self, position: u64) {
        self.written.store(position, Ordering::Release);
    }

    /// The drive has everything up to a position.
    pub(super) fn note_durable(&self, position: u64) {
        self.durable.store(position, Ordering::Release);
    }

    /// Bytes that were appended and that the log's file does not have.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        if self.is_on() { self.end().saturating_sub(self.written.load(Ordering::Acquire)) } else { 0 }
    }

    /// Whether clients may be told of everything up to a position: the log's file has it, and the drive if `is_durable`.
    pub(crate) fn has(&self, position: u64, is_durable: bool) -> bool {
        let has = if is_durable { &self.durable } else { &self.written };
        has.load(Ordering::Acquire) >= position || !self.is_on()
    }

    /// The position that the log must have before replies of what has run so far may be sent; nothing if it has.
    #[inline]
    pub(crate) fn holds(&self, is_durable: bool) -> Option<u64> {
        if !self.is_on() {
            return None;
        }
        let end = self.end();
        (!self.has(end, is_durable)).then_some(end)
    }

    /// Has the log take everything up to a position, and returns whether it has. Unless every write must be durable, this thread
    /// writes what waits to the log's file, for all others too. If the log does not have it on return, the log's thread
    /// sees to it, or refuses writes.
    pub(crate) fn write_out(&self, position: u64, sync: LogSync) -> bool {
        let is_durable = sync == LogSync::Always;
        if self.has(position, is_durable) {
            return true;
        }
        let writer = self.writer.read().unwrap_or_else(PoisonError::into_inner);
        !is_durable && writer.as_ref().is_some_and(|writer| writer.write_out(self, position))
    }

    /// The log cannot be written, and writes are to be refused; or it can again.
    pub(crate) fn refuse(&self, why: Option<String>) {
        if why.is_none() && !self.is_refused.load(Ordering::Relaxed) {
            return;
        }
        self.is_refused.store(why.is_some(), Ordering::Relaxed);
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Whether writes are to be refused.
    #[inline]
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Why writes are to be refused, if they are.
    #[inline]
    pub(crate) fn refusal(&self) -> Option<String> {
        if !self.is_refused.load(Ordering::Relaxed) {
            return None;
        }
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn wake(&self) {
        if let Some(wake) = &*self.wake.read().unwrap_or_else(PoisonError::into_inner) {
            wake();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn append(&mut self, unix_ms: i64, database: usize, commands: &[u8]) {
        let before = self.bytes.len();
        let goes_on = self.open.filter(|open| {
            let len = before - open.at - HEAD_BYTES + commands.len();
            open.unix_ms == unix_ms && open.database == database && len <= UNIT_BYTES_MAX
        });
        let at = goes_on.map_or(before, |open| open.at);
        if goes_on.is_none() {
            encode_head(unix_ms, database, commands.len(), &mut self.bytes);
            self.open = (commands.len() <= UNIT_BYTES_MAX).then_some(Open { at, unix_ms, database });
        }
        self.bytes.extend_from_slice(commands);
        if goes_on.is_some() {
            let len = u32::try_from(self.bytes.len() - at - HEAD_BYTES).expect("longer units are not made longer");
            self.bytes[at + 12..at + HEAD_BYTES].copy_from_slice(&len.to_le_bytes());
        }
    }
}

/// Appends the head of a unit whose commands have so many bytes: any number.
fn encode_head(unix_ms: i64, database: usize, len: usize, into: &mut Vec<u8>) {
    let database = u32::try_from(database).expect("there are far fewer databases");
    into.extend_from_slice(&unix_ms.to_le_bytes());
    into.extend_from_slice(&database.to_le_bytes());
    match u32::try_from(len).ok().filter(|len| *len != IS_LONG) {
        Some(len) => into.extend_from_slice(&len.to_le_bytes()),
        None => {
            into.extend_from_slice(&IS_LONG.to_le_bytes());
            into.extend_from_slice(&bytes(len).to_le_bytes());
        }
    }
}

impl core::fmt::Debug for Journal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Journal").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(database: usize, commands: &[&[&str]]) -> Written {
        let mut written = Written::default();
        for command in commands {
            written.push(database, command.iter().map(|word| word.as_bytes()));
        }
        written
    }

    fn on() -> Journal {
        let journal = Journal::default();
        journal.start(100, Box::new(|| {}));
        journal
    }

    #[test]
    fn units_are_joined_by_time_and_database() {
        let journal = on();
        journal.append(&written(0, &[&["SET", "a", "1"]]), 7);
        journal.append(&written(0, &[&["DEL", "a"]]), 7);
        journal.append(&written(0, &[&["DEL", "b"]]), 8);
        journal.append(&written(3, &[&["DEL", "c"]]), 8);
        let taken = journal.take();
        let units = decode_batch(&taken.batch).unwrap();
        let shown: Vec<_> = units.iter().map(|unit| (unit.unix_ms, unit.database, unit.commands)).collect();
        assert_eq!(
            shown,
            [
                (7, 0, &b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n*2\r\n$3\r\nDEL\r\n$1\r\na\r\n"[..]),
                (8, 0, b"*2\r\n$3\r\nDEL\r\n$1\r\nb\r\n"),
                (8, 3, b"*2\r\n$3\r\nDEL\r\n$1\r\nc\r\n"),
            ]
        );
        assert_eq!(journal.end(), 100 + bytes(taken.batch.len()));
        for len in 1..taken.batch.len() {
            if let Some(units) = decode_batch(&taken.batch[..len]) {
                assert!(units.len() < 3, "{len} bytes of it");
            }
        }
    }

    #[test]
    fn the_form_of_a_unit_is_fixed() {
        let journal = on();
        journal.append(&written(3, &[&["DEL", "a"]]), 0x0102);
        let mut golden = vec![2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 20, 0, 0, 0];
        golden.extend_from_slice(b"*2\r\n$3\r\nDEL\r\n$1\r\na\r\n");
        assert_eq!(journal.take().batch, golden);
    }

    #[test]
    fn a_unit_may_have_any_length() {
        let head = |len: usize| {
            let mut head = Vec::new();
            encode_head(7, 1, len, &mut head);
            head
        };
        assert_eq!(head(0xffff_fffe), [7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff]);
        let long = [7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(head(0xffff_ffff), [&long[..], &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]].concat());
        assert_eq!(head(0x1_0000_0002), [&long[..], &[2, 0, 0, 0, 1, 0, 0, 0]].concat());
        // The longer form is read whatever length it has.
        let batch = [&long[..], &[3, 0, 0, 0, 0, 0, 0, 0], b"abc"].concat();
        let units = decode_batch(&batch).unwrap();
        assert_eq!(units, [Unit { unix_ms: 7, database: 1, commands: b"abc" }]);
        assert!((17..batch.len()).all(|len| decode_batch(&batch[..len]).is_none()));
    }

    #[test]
    fn a_cut_divides_batches() {
        let journal = on();
        journal.append(&written(0, &[&["DEL", "a"]]), 7);
        let position = journal.cut();
        journal.append(&written(0, &[&["DEL", "b"]]), 7);
        let first = journal.take();
        assert!(first.then_cut && first.is_more);
        assert_eq!(position, 100 + bytes(first.batch.len()));
        let second = journal.take();
        assert!(!second.then_cut && !second.is_more && decode_batch(&second.batch).unwrap().len() == 1);
        assert_eq!(journal.take(), Taken::default());
    }

    #[test]
    fn replies_wait_for_what_they_tell() {
        let journal = on();
        assert_eq!((journal.holds(true), journal.holds(false)), (None, None));
        journal.append(&written(0, &[&["DEL", "a"]]), 7);
        let end = journal.end();
        assert_eq!((journal.holds(true), journal.holds(false)), (Some(end), Some(end)));
        journal.note_written(end);
        assert_eq!((journal.holds(true), journal.holds(false)), (Some(end), None), "the drive does not have it");
        journal.note_durable(end);
        assert_eq!(journal.holds(true), None);
    }

    #[test]
    fn the_thread_is_woken_for_what_nobody_replies_to() {
        let (journal, woken) = (Journal::default(), Arc::new(AtomicU64::new(0)));
        let counter = Arc::clone(&woken);
        journal.start(0, Box::new(move || _ = counter.fetch_add(1, Ordering::Relaxed)));
        let (short, long) = (&["DEL", "a"][..], "x".repeat(UNANSWERED_BYTES_MAX));
        let append = |words: &[&str]| {
            journal.append(&written(0, &[words]), 7);
            woken.load(Ordering::Relaxed)
        };
        let mut of_replicas = Written::default();
        of_replicas.push_for(Readers::Replicas, 0, [&b"PING"[..]].into_iter());
        journal.append(&of_replicas, 7);
        assert_eq!(woken.load(Ordering::Relaxed), 0, "nothing of it is for the log");
        assert_eq!((append(short), append(short)), (1, 1), "once");
        assert!(journal.attend(true));
        journal.take();
        assert_eq!((append(short), append(short)), (1, 1), "it looks by itself");
        assert_eq!((append(&["SET", "a", &long]), append(short)), (2, 2), "but there is much");
        journal.take();
        assert!(!journal.attend(false));
        assert_eq!(append(short), 3);
    }

    #[test]
    fn what_was_written_comes_in_runs_of_one_database_and_the_same_readers() {
        let mut all = Written::default();
        assert!(all.is_empty() && all.runs().next().is_none());
        for (readers, database, word) in [
            (Readers::All, 0, "a"),
            (Readers::All, 0, "b"),
            (Readers::Replicas, 0, "c"),
            (Readers::Replicas, 1, "d"),
            (Readers::All, 1, "e"),
        ] {
            all.push_for(readers, database, [word.as_bytes()].into_iter());
        }
        let one = |word: &str| format!("*1\r\n$1\r\n{word}\r\n");
        let runs: Vec<_> = all.runs().map(|(database, readers, bytes)| (database, readers, bytes.to_vec())).collect();
        let expected = [
            (0, Readers::All, one("a") + &one("b")),
            (0, Readers::Replicas, one("c")),
            (1, Readers::Replicas, one("d")),
            (1, Readers::All, one("e")),
        ];
        assert_eq!(runs, expected.map(|(database, readers, text)| (database, readers, text.into_bytes())));
        assert!(all.commands() == 5 && !all.is_empty());
        let journal = on();
        journal.append(&all, 7);
        let taken = journal.take();
        let kept: Vec<_> = decode_batch(&taken.batch).unwrap().iter().map(|unit| unit.commands.to_vec()).collect();
        assert_eq!(kept, [one("a") + &one("b"), one("e")].map(String::into_bytes), "the log has no use for the others");
        all.clear();
        assert!(all.is_empty() && all.commands() == 0 && all.runs().next().is_none());
        journal.append(&all, 7);
        assert_eq!((journal.take(), journal.end()), (Taken::default(), 100 + bytes(taken.batch.len())));
    }

    #[test]
    fn a_unit_is_made_longer_up_to_a_mebibyte() {
        // A command of one word has nine bytes and the figures of the word's length besides the word.
        let of_len = |len: usize| written(0, &[&[&"x".repeat(len - 9 - len.to_string().len())[..]]]);
        let half = UNIT_BYTES_MAX / 2;
        for (lens, expected) in [
            ([half, half, 90], vec![UNIT_BYTES_MAX, 90]),
            ([half, half - 90, 90], vec![UNIT_BYTES_MAX]),
            ([half, half + 1, 90], vec![half, half + 91]),
            ([UNIT_BYTES_MAX + 1, 90, 90], vec![UNIT_BYTES_MAX + 1, 180]),
        ] {
            let journal = on();
            lens.iter().for_each(|len| journal.append(&of_len(*len), 7));
            let taken = journal.take();
            let units: Vec<usize> =
                decode_batch(&taken.batch).unwrap().iter().map(|unit| unit.commands.len()).collect();
            assert_eq!(units, expected);
        }
    }

    #[test]
    fn a_journal_that_is_off_or_held_takes_nothing_and_nobody_waits_for_it() {
        let state = |journal: &Journal| (journal.is_on(), journal.has_log(), journal.is_held());
        let journal = Journal::default();
        assert_eq!(state(&journal), (false, false, false));
        journal.start(100, Box::new(|| {}));
        assert_eq!((state(&journal), journal.waiting_bytes()), ((true, true, false), 0));
        journal.append(&written(0, &[&["DEL", "a"]]), 7);
        let end = journal.end();
        assert_eq!((journal.waiting_bytes(), journal.has(end, false)), (end - 100, false));
        journal.hold();
        assert_eq!((state(&journal), journal.waiting_bytes()), ((false, true, true), 0));
        assert!(journal.has(end, true) && journal.holds(true).is_none());
        assert_eq!(journal.cut(), end);
        assert_eq!((state(&journal), journal.holds(false)), ((true, true, false), Some(end)), "the log begins anew");
        journal.note_written(end);
        assert_eq!((journal.waiting_bytes(), journal.has(end, false), journal.has(end, true)), (0, true, false));
        journal.hold();
        journal.stop();
        journal.start(end, Box::new(|| {}));
        assert_eq!((state(&journal), journal.holds(true)), ((true, true, false), None));
        journal.stop();
        assert_eq!(state(&journal), (false, false, false));
    }

    #[test]
    fn a_cut_wakes_the_thread_and_waits_for_it_like_what_was_appended() {
        let (journal, woken) = (Journal::default(), Arc::new(AtomicU64::new(0)));
        let counter = Arc::clone(&woken);
        journal.start(0, Box::new(move || _ = counter.fetch_add(1, Ordering::Relaxed)));
        assert!(!journal.attend(false));
        journal.cut();
        assert!(woken.load(Ordering::Relaxed) == 1 && journal.attend(false));
        let taken = journal.take();
        assert!(taken.batch.is_empty() && taken.then_cut && !taken.is_more && !journal.attend(false));
        // What is appended in several pieces wakes it once the pieces are a mebibyte together.
        let piece = "x".repeat(UNANSWERED_BYTES_MAX / 4);
        let counts = [(); 5].map(|()| {
            journal.append(&written(0, &[&["SET", "a", &piece]]), 7);
            woken.load(Ordering::Relaxed)
        });
        assert_eq!(counts, [2, 2, 2, 3, 3]);
        // Exactly a mebibyte waits: it has been woken for that, and not for what comes behind it.
        journal.take();
        let before = journal.end();
        let whole = "x".repeat(UNANSWERED_BYTES_MAX - HEAD_BYTES - "*1\r\n$1048544\r\n\r\n".len());
        let counts = [&whole[..], "x"].map(|word| {
            journal.append(&written(0, &[&[word]]), 7);
            (journal.end() - before >= bytes(UNANSWERED_BYTES_MAX), woken.load(Ordering::Relaxed))
        });
        assert_eq!(counts, [(true, 4), (true, 4)]);
    }

    /// Writes all that waits to a file, if it can.
    struct File {
        can_write: bool,
    }

    impl WriteOut for File {
        fn write_out(&self, journal: &Journal, position: u64) -> bool {
            if self.can_write {
                journal.note_written(position);
            }
            journal.has(position, false)
        }
    }

    #[test]
    fn who_replies_writes_what_waits_unless_the_drive_must_have_it() {
        for can_write in [true, false] {
            let journal = on();
            journal.append(&written(0, &[&["DEL", "a"]]), 7);
            let end = journal.end();
            assert!(!journal.write_out(end, LogSync::EverySecond), "nobody writes yet");
            journal.attach(Arc::new(File { can_write }));
            assert!(!journal.write_out(end, LogSync::Always), "the log's thread does");
            assert!(!journal.has(end, false));
            assert_eq!(journal.write_out(end, LogSync::No), can_write);
            assert_eq!(journal.write_out(end, LogSync::EverySecond), can_write);
            assert!(!journal.write_out(end, LogSync::Always) && journal.write_out(100, LogSync::Always));
        }
    }

    #[test]
    fn why_writes_are_refused_is_known_until_they_are_not() {
        let journal = on();
        let state = |journal: &Journal| (journal.is_refused(), journal.refusal());
        for why in [None, Some("no room"), Some("no drive"), None] {
            journal.refuse(why.map(str::to_owned));
            assert_eq!(state(&journal), (why.is_some(), why.map(str::to_owned)));
        }
    }
}
