//! Whom a member serves: what it has promised, which survives its process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use xxhash_rust::xxh3::xxh3_64;

use super::planted::{self, Planted};
use super::{Members, Term};
use crate::cluster::map::Name;

/// Shards that promises are remembered of.
const PROMISES_MAX: usize = 16;
/// How what is kept begins: its form.
const FORM: &str = "oaths 1";
/// How its last line begins, before the checksum of all lines before it.
const CHECK: &str = "check ";
/// Keeps promises. Durable when it returns true.
type Keep = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// What was promised in a shard, and who its members are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Promise {
    /// No earlier term is served.
    pub term: Term,
    /// Since which term the same process of the holder has had all promises, each after the other. Not remembered beyond this
    /// process: then only the last one counts.
    pub since: Term,
    /// Whose term it is.
    pub holder: Name,
    /// The members, as they were last heard of.
    pub members: Members,
}

/// All promises of a node, by shard.
#[derive(Default)]
pub struct Promises {
    promised: Mutex<BTreeMap<Name, Promise>>,
    keep: OnceLock<Keep>,
}

impl fmt::Debug for Promises {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Promises").field(&*self.lock()).finish()
    }
}

/// A later promise stands in the way, or it could not be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound(pub(crate) Term);

impl Promises {
    /// What was kept is this. Whatever changes is given to `keep` from now on, as a whole.
    ///
    /// # Errors
    /// The text is neither empty nor one that was given to `keep`: which line is wrong, from 1.
    pub fn open(&self, kept: &str, keep: Keep) -> Result<(), usize> {
        let mut promised = self.lock();
        for (number, line) in unseal(kept)? {
            let (shard, promise) = read(line).ok_or(number)?;
            promised.insert(shard, promise);
        }
        drop(promised);
        // Who opens them twice keeps them where they were kept first.
        self.keep.set(keep).ok();
        Ok(())
    }

    /// What was promised in a shard, if anything was.
    pub(crate) fn of(&self, shard: Name) -> Option<Promise> {
        self.lock().get(&shard).cloned()
    }

    /// Promises a term to its holder. Durable on return.
    ///
    /// # Errors
    /// A later one was promised, or the same to another, or it could not be kept.
    pub(crate) fn promise(&self, shard: Name, term: Term, holder: Name) -> Result<(), Bound> {
        let mut promised = self.lock();
        let before = promised.get(&shard).cloned().unwrap_or_default();
        // The same process may have been promised a later one already, which it does not serve yet. If another was promised one in
        // between, what it serves still is that other's past.
        let is_same = before.holder == holder && before.term.life == term.life;
        if is_same && before.term >= term && term >= before.since {
            return Ok(());
        }
        if before.term >= term && !planted::has(Planted::FollowEarlierTerm) {
            return Err(Bound(before.term));
        }
        let since = if is_same { before.since } else { term };
        self.put(&mut promised, shard, Promise { term, since, holder, ..before.clone() })
            .map_err(|()| Bound(before.term))
    }

    /// The shard is, or will be, in this mode: a node that was never told more begins nothing there.
    pub(crate) fn note_shard(&self, shard: Name) -> bool {
        let mut promised = self.lock();
        promised.contains_key(&shard) || self.put(&mut promised, shard, Promise::default()).is_ok()
    }

    /// The members of a shard are these. Says whether that was kept.
    pub(crate) fn note_members(&self, shard: Name, members: &Members) -> bool {
        let mut promised = self.lock();
        let before = promised.get(&shard).cloned().unwrap_or_default();
        before.members == *members
            || self.put(&mut promised, shard, Promise { members: members.clone(), ..before }).is_ok()
    }

    fn put(&self, promised: &mut BTreeMap<Name, Promise>, shard: Name, promise: Promise) -> Result<(), ()> {
        let mut changed = promised.clone();
        changed.insert(shard, promise);
        while changed.len() > PROMISES_MAX {
            let oldest = changed.iter().filter(|(name, _)| **name != shard).min_by_key(|(_, promise)| promise.term);
            let oldest = *oldest.expect("there are several").0;
            changed.remove(&oldest);
        }
        let lines: String = changed.iter().map(|(shard, promise)| write(*shard, promise)).collect();
        let text = seal(&lines);
        let text = if planted::has(Planted::ForgetPromise) { String::new() } else { text };
        if self.keep.get().is_some_and(|keep| !keep(&text)) {
            return Err(());
        }
        *promised = changed;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Promise>> {
        self.promised.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lines with their form and their checksum.
fn seal(lines: &str) -> String {
    let body = format!("{FORM}\n{lines}");
    let check = xxh3_64(body.as_bytes());
    format!("{body}{CHECK}{check:016x}\n")
}

/// The lines of what [`seal`] gave, with their numbers; none where nothing was kept.
fn unseal(kept: &str) -> Result<Vec<(usize, &str)>, usize> {
    if kept.is_empty() {
        return Ok(Vec::new());
    }
    let last = kept.lines().count();
    let whole = kept.strip_suffix('\n').ok_or(last)?;
    let (body, check) = whole.rsplit_once('\n').ok_or(1_usize)?;
    let check = check.strip_prefix(CHECK).and_then(|check| u64::from_str_radix(check, 16).ok());
    // The body ends with its last line's end.
    if check != Some(xxh3_64(&kept.as_bytes()[..=body.len()])) {
        return Err(last);
    }
    let lines: Vec<(usize, &str)> = (1..).zip(body.lines()).collect();
    if lines[0].1 == FORM { Ok(lines[1..].to_vec()) } else { Err(1) }
}

/// One line.
fn write(shard: Name, Promise { term, holder, members, .. }: &Promise) -> String {
    format!("{shard} {term} {holder} {members}\n")
}

fn read(line: &str) -> Option<(Name, Promise)> {
    let words: Vec<&str> = line.split(' ').collect();
    let [shard, term, holder, members] = words[..] else { return None };
    let term = Term::read(term)?;
    let promise = Promise { term, since: term, holder: holder.parse().ok()?, members: Members::read(members)? };
    Some((shard.parse().ok()?, promise))
}
