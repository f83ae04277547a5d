//! The source's connection to a target: requests, and the lines that answer them.

use std::time::Duration;

use ashlar_wire::time::Instant;

use super::job::Job;
use crate::engine::Engine;
use crate::persist::journal::encode_request;
use crate::time::Now;

/// The longest line of an answer.
const LINE_BYTES_MAX: usize = 4 << 10;

/// What was asked and is not answered.
#[derive(Debug)]
pub(super) struct Link {
    input: Vec<u8>,
    /// Answers that have not come.
    owed: usize,
    heard_at: Instant,
}

/// An answer: what is behind its first byte, and whether that was a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) is_refusal: bool,
}

impl Link {
    pub(super) fn new(now: Now) -> Self {
        Self { input: Vec::new(), owed: 0, heard_at: now.instant }
    }

    /// Whether answers have not come.
    pub(super) fn is_owed(&self) -> bool {
        self.owed > 0
    }

    /// How many.
    pub(super) fn owed(&self) -> usize {
        self.owed
    }

    /// So many more requests are being sent that are answered.
    pub(super) fn ask(&mut self, count: usize, now: Now) {
        if self.owed == 0 {
            self.heard_at = now.instant;
        }
        self.owed += count;
    }

    /// Whether an answer is owed for so long.
    pub(super) fn is_silent(&self, span: Duration, now: Now) -> bool {
        self.is_owed() && now.instant.saturating_since(self.heard_at) > span
    }

    /// These bytes came: the answers that are whole by now.
    ///
    /// # Errors
    /// They are no answers.
    pub(super) fn handle_bytes(&mut self, bytes: &[u8], now: Now) -> Result<Vec<Answer>, &'static str> {
        self.heard_at = now.instant;
        self.input.extend_from_slice(bytes);
        let mut answers = Vec::new();
        while let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.input.drain(..=end).collect();
            let text = String::from_utf8_lossy(line.get(1..).unwrap_or_default()).trim_end().to_owned();
            let is_refusal = match line.first() {
                Some(b'+' | b':') => false,
                Some(b'-') => true,
                _ => return Err("The target answers with something else than a line"),
            };
            // A refusal of what is not answered otherwise comes in place of the next answer.
            self.owed = self.owed.saturating_sub(1);
            answers.push(Answer { text, is_refusal });
        }
        if self.input.len() > LINE_BYTES_MAX { Err("The target answers with too long a line") } else { Ok(answers) }
    }
}

/// A request.
pub(super) fn request(words: &[&[u8]], into: &mut Vec<u8>) {
    encode_request(words.iter().copied(), into);
}

/// `CLUSTER SYNCSLOTS` with one more word.
pub(super) fn say(word: &str, into: &mut Vec<u8>) {
    request(&[b"CLUSTER", b"SYNCSLOTS", word.as_bytes()], into);
}

/// What a connection begins with where the target may want a password. Returns how many answers there will be.
pub(super) fn introduce(engine: &Engine, into: &mut Vec<u8>) -> usize {
    let settings = engine.settings();
    let (user, password) = (&settings.replication.user, &settings.replication.password);
    match () {
        () if password.is_empty() => return 0,
        () if user.is_empty() => request(&[b"AUTH", password], into),
        () => request(&[b"AUTH", user, password], into),
    }
    1
}

/// `CLUSTER SYNCSLOTS` with the name and the slots of a migration.
pub(super) fn describe(word: &str, job: &Job, names_source: bool, into: &mut Vec<u8>) {
    let (source, name) = (job.source.to_string(), job.name.to_string());
    let mut words: Vec<Vec<u8>> = vec![b"CLUSTER".into(), b"SYNCSLOTS".into(), word.as_bytes().into()];
    if names_source {
        words.extend([b"SOURCE".to_vec(), source.into_bytes()]);
    }
    words.extend([b"NAME".to_vec(), name.into_bytes(), b"SLOTSRANGE".to_vec()]);
    for range in &job.ranges {
        words.extend([range.first, range.last].map(|slot| slot.number().to_string().into_bytes()));
    }
    request(&words.iter().map(Vec::as_slice).collect::<Vec<_>>(), into);
}
