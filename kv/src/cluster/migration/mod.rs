//! Slots that go to another node whole: `CLUSTER MIGRATESLOTS`.
//!
//! The *source* owns the slots. A thread of its process ([`Migrator`]) connects to the *target* as a client does, sends all keys of
//! the slots, then what is written to them meanwhile, and hands the slots over when nothing is left. Clients of both see
//! nothing but redirections.
//!
//! In reading order: `table` (a set of slots), `job` (a migration as clients see it), `tap` (what is to be sent), `hold` (writes
//! that wait), `export` and `link` (the source's side), `import` (the target's), `copies` (keys that are only copies),
//! `migrator` (what the thread does). The commands are `command::cluster::migration`.
//!
//! The conversation. The source sends requests, and only those marked with `>` are answered:
//!
//! ```text
//! > AUTH [user] password                                    if primaryauth is set
//! > CLUSTER SYNCSLOTS ESTABLISH SOURCE node NAME job SLOTSRANGE first last ...
//!   SELECT, RESTORE, DEL, and what commands wrote
//! > CLUSTER SYNCSLOTS ACK                                   after each piece; the next follows the answer
//! > CLUSTER SYNCSLOTS READY                                 writes are held, all is sent: do your replicas have it?
//! > CLUSTER SYNCSLOTS TAKE                                  the slots may be taken now
//! > CLUSTER SYNCSLOTS STATUS NAME job SLOTSRANGE ...        on another connection: what became of that?
//! ```
//!
//! Why no write is lost. There is one moment at which both could believe to own a slot: after TAKE.
//! - From before READY until it is known what has become of TAKE, the source holds writes to the slots, without any limit of time. What the
//!   target has then is all there is, and its replicas have it too.
//! - Leave is short. The target notes when it answers READY; TAKE must come, and the ballot be won and stored, within a part of
//!   `cluster-node-timeout` from then, as its own monotonic clock counts. The bus drops the ballot then. So a target that was
//!   stopped, or a packet that was late, takes nothing afterwards.
//! - An answer to TAKE is final: the slots were taken, or never will be. Without one the source asks STATUS on another
//!   connection; the target calls an import off whose TAKE it has not begun before it says so. A target that was restarted knows
//!   by its confirmed map: no ballot survives a restart, and a claim that was stored before is in that map.
//! - Before the source goes on it renews its own claim by a ballot: after a refusal, or when the target has failed, or says nothing for
//!   longer than it may be silent. Voters who know of a claim of the target's refuse that; once it is won the renewed claim is greater
//!   than whatever the target may have stored, and a target that comes back hears of it before its map is confirmed.
//! - A replica of the source can be elected only after `cluster-node-timeout` of silence, which is longer than leave lasts; one that is to
//!   take over by agreement waits, because the source does not say that its writes have ended. A source that is restarted
//!   serves nothing for as long as leave may last (`node::keyvalue::office`), and before it takes writes to slots that its log says it may
//!   have given, or one that was promoted does, its claim is renewed: the target may have died with a claim that nobody has heard of. A
//!   voter lets nobody renew a claim in an epoch that is not greater than all that it has voted in.
//!
//! Shards whose writes a majority acknowledges (`replicate::quorum`) neither give slots this way nor take them: READY asks the replicas that
//! are there, not a majority of the members, and who takes slots serves a new term, which has to be sealed first. Both ends refuse,
//! and a shard enters that mode only when no slots are on their way.
//!
//! Copies. Keys at the target before it owns their slots, and at the source after it does not, are copies. Both note that for
//! the slots (`copies`), in their logs and for their replicas, before there are any: the target at ESTABLISH, the source before
//! TAKE. A primary whose map is confirmed removes the keys of noted slots that another node owns, and the note of those that it
//! owns itself; it touches no slot of a migration that is under way. So whoever is restarted or promoted at any step ends with what is
//! its own. Keys that came by MIGRATE, of which there is one only, are never noted.

mod copies;
mod export;
mod hold;
mod import;
pub(crate) mod job;
mod link;
mod migrator;
mod table;
mod tap;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use self::copies::Copies;
pub(crate) use self::hold::Hold;
pub(crate) use self::import::{Import, span_of};
use self::job::{Job, Operation, Stage};
pub use self::migrator::{Migrator, Step};
pub(crate) use self::table::SlotTable;
pub(crate) use self::tap::Tap;
use super::map::{Name, SlotRange};
use crate::client::ClientId;
use crate::engine::Engine;
use crate::keyspace::Slot;
use crate::notify::Notify;
use crate::persist::journal::{Readers, Written};
use crate::time::Now;

/// What a migration ends with when data are flushed at either end.
const FLUSHED: &str = "Data was flushed";

/// What a node knows of migrations.
#[derive(Debug, Default)]
pub(crate) struct Migration {
    pub(crate) tap: Tap,
    pub(crate) hold: Hold,
    pub(crate) copies: Copies,
    known: Mutex<Known>,
    /// There is something to do.
    news: Notify,
}

#[derive(Debug, Default)]
struct Known {
    /// The newest first.
    jobs: VecDeque<Arc<Job>>,
    /// Imports that are under way.
    imports: Vec<Arc<Import>>,
}

impl Migration {
    /// Whether somebody wants to know what commands do.
    #[inline]
    pub(crate) fn is_listening(&self) -> bool {
        self.tap.is_open()
    }

    /// All migrations that are remembered, the newest first.
    pub(crate) fn jobs(&self) -> Vec<Arc<Job>> {
        self.known().jobs.iter().cloned().collect()
    }

    /// The one of this name.
    pub(crate) fn job(&self, name: Name, operation: Operation) -> Option<Arc<Job>> {
        self.known().jobs.iter().find(|job| job.name == name && job.operation == operation).cloned()
    }

    /// Whether some of these slots are on their way that way.
    pub(crate) fn is_busy(&self, operation: Operation, slots: &SlotTable) -> bool {
        let known = self.known();
        let mut same = known.jobs.iter().filter(|job| job.operation == operation && !job.stage().is_over());
        same.any(|job| job.slots.overlaps(slots))
    }

    /// Whether slots are on their way, or copies of them are left to be dropped.
    pub(crate) fn is_going_on(&self) -> bool {
        let known = self.known();
        self.copies.is_any() || !known.imports.is_empty() || known.jobs.iter().any(|job| !job.stage().is_over())
    }

    /// Whether a slot may change hands by one that is under way.
    fn has_under_way(&self, slot: Slot) -> bool {
        self.known().jobs.iter().any(|job| job.stage().is_under_way() && job.slots.has(slot))
    }

    /// One more.
    pub(crate) fn enter(&self, job: &Arc<Job>) {
        self.known().jobs.push_front(Arc::clone(job));
        self.news.notify();
    }

    /// Something has changed that the thread may have waited for.
    pub(crate) fn wake(&self) {
        self.news.notify();
    }

    /// Forgets those that are over, the oldest first, until so many are left.
    fn trim(&self, jobs_max: usize) {
        let jobs = &mut self.known().jobs;
        let mut at = jobs.len();
        while jobs.len() > jobs_max && at > 0 {
            at -= 1;
            if jobs[at].stage().is_over() {
                jobs.remove(at);
            }
        }
    }

    fn imports(&self) -> Vec<Arc<Import>> {
        self.known().imports.clone()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// A name that no other migration has.
    pub(crate) fn name_migration(&self) -> Name {
        let mut bytes = [0; 20];
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.draw().to_le_bytes()[..part.len()]);
        }
        Name::new(bytes)
    }

    /// An import begins, over this client's connection.
    pub(crate) fn begin_import(&self, job: Job, client: ClientId, now: Now) -> Arc<Import> {
        let (job, migration) = (Arc::new(job), &self.migration);
        // Whoever tidies passes by what a migration has, and would take a note back that it found alone.
        migration.enter(&job);
        self.note_copies(&job.slots, true, now);
        // What an earlier one may have left.
        for slot in job.slots.slots() {
            while !self.drop_keys(slot, false, true, now) {}
        }
        let import = Arc::new(Import::new(job, client, now));
        migration.known().imports.push(Arc::clone(&import));
        import
    }

    /// The connection of an import is gone.
    pub(crate) fn end_import(&self, import: &Import, now: Now) {
        import.job.end(
            Stage::Failed,
            "Connection lost to source. Check CLUSTER GETSLOTMIGRATIONS on the source node for more information.",
            now,
        );
        self.migration.known().imports.retain(|other| !std::ptr::eq(&**other, import));
        self.migration.wake();
    }

    /// Tells of what commands did, if slots leave. The keys must still be locked.
    pub(crate) fn tell_migration(&self, written: &Written) {
        if self.migration.tap.is_open() {
            self.migration.tap.listen(self, written);
        }
    }

    /// All data went away: nothing of a migration is of use.
    pub(crate) fn end_migrations_flushed(&self, now: Now) {
        for job in self.migration.jobs() {
            // What may be taken already is decided elsewhere.
            if job.stage() != Stage::Granted {
                job.end(Stage::Failed, FLUSHED, now);
            }
        }
        self.migration.wake();
    }

    /// Notes that keys of slots are copies unless this node owns them, or that they are not, here, in the log and for replicas.
    pub(crate) fn note_copies(&self, slots: &SlotTable, are_copies: bool, now: Now) {
        self.migration.copies.change(slots, are_copies);
        let mut words: Vec<Vec<u8>> = [&b"CLUSTER"[..], b"SYNCSLOTS", b"COPIES"].map(<[u8]>::to_vec).into();
        words.push(if are_copies { b"ADD".to_vec() } else { b"REMOVE".to_vec() });
        for SlotRange { first, last } in slots.ranges() {
            words.extend([first, last].map(|slot| slot.number().to_string().into_bytes()));
        }
        let mut written = Written::default();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        written.push_for(Readers::All, 0, words.into_iter());
        self.append(&written, false, now.unix_ms());
    }

    /// What was noted of these slots is over, but for those that a migration has meanwhile: none begins before that is noted.
    fn end_copies(&self, mut slots: SlotTable, now: Now) {
        let known = self.migration.known();
        known.jobs.iter().filter(|job| job.stage().is_under_way()).for_each(|job| slots.remove(&job.slots));
        if !slots.is_empty() {
            self.note_copies(&slots, false, now);
        }
    }

    /// Slots whose keys are shown to nobody.
    pub(crate) fn hidden(&self) -> Vec<Slot> {
        let map = if self.migration.copies.is_any() { self.map() } else { None };
        let Some(map) = map else { return Vec::new() };
        self.migration.copies.table().slots().filter(|slot| !map.serves(*slot)).collect()
    }

    /// Whether a shard has slots whose keys are shown to nobody: what becomes of those the source says.
    pub(crate) fn hides_in_shard(&self, number: usize) -> bool {
        self.migration.copies.is_any() && self.hidden().into_iter().any(|slot| self.keyspace.shard_of(slot) == number)
    }

    /// Whether slots may still change hands by a migration from or to this node.
    pub(crate) fn is_moving_slots(&self) -> bool {
        self.migration.known().jobs.iter().any(|job| job.stage().is_under_way())
    }

    /// Whether it may be that another has taken slots of this node, or soon will: until that is known nobody may follow it as if
    /// its writes had ended.
    #[must_use]
    pub fn is_giving_slots(&self) -> bool {
        let jobs = self.migration.jobs();
        jobs.iter().any(|job| job.operation == Operation::Export && job.stage() == Stage::Granted)
    }
}
