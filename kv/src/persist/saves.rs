//! Which snapshots are wanted, being taken, and were taken.
//!
//! Commands and save points ask; one thread of the process takes one snapshot at a time and says how it went.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::snapshot::Purpose;

/// Seconds before a dump that failed is tried again by itself.
const RETRY_S: i64 = 5;

/// Snapshots of one engine.
#[derive(Debug, Default)]
pub struct Saves {
    /// Whether a thread takes them at all.
    is_served: AtomicBool,
    state: Mutex<State>,
    /// A snapshot has ended.
    ended: Condvar,
    /// The last dump failed.
    has_failed: AtomicBool,
}

/// Data that is read from files again, while nobody is served: `DEBUG LOADAOF` and `DEBUG RELOAD`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// From the append log.
    Log,
    /// From a dump.
    Dump {
        /// Which is written before.
        is_saved: bool,
        /// What is there is forgotten.
        is_flushed: bool,
        /// What is there is replaced; it is an error otherwise.
        merges: bool,
    },
}

/// How far a load is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Loading {
    Wanted(Load),
    Running,
    Ended(Result<(), String>),
}

/// How far the last save before the end of the process is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FinalSave {
    /// With a dump, or only of the log.
    Wanted {
        has_dump: bool,
    },
    Running,
    Ended(Result<(), String>),
}

/// What is known of snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// A dump is wanted next.
    pub wants_dump: bool,
    /// A new base of the log is wanted next.
    pub wants_base: bool,
    /// What is being taken, and since when, Unix seconds.
    pub running: Option<(Purpose, i64)>,
    /// Whether it is to be given up.
    pub is_cancelled: bool,
    /// Of dumps.
    pub dumps: Record,
    /// Of bases.
    pub bases: Record,
    /// Changes that there had been when the last dump was begun, and when that is running was.
    pub changes_at_dump: (u64, u64),
    /// Bytes of the log that a restart would run, and of its base.
    pub log_bytes: (u64, u64),
    /// When the engine had its data, Unix seconds: counts as a dump.
    pub loaded_s: i64,
    load: Option<Loading>,
    final_save: Option<FinalSave>,
    /// Changes that there had been when the dump of the last save was begun.
    final_dump: Option<u64>,
}

impl State {
    fn want(&mut self, purpose: Purpose) {
        match purpose {
            Purpose::Dump => self.wants_dump = true,
            Purpose::LogBase => self.wants_base = true,
            // Replicas say so themselves.
            Purpose::Replicas => {}
        }
    }

    /// Whether one is being taken, or is wanted next.
    pub(crate) fn is_pending(&self, purpose: Purpose) -> bool {
        let is_wanted = if purpose == Purpose::Dump { self.wants_dump } else { self.wants_base };
        is_wanted || self.running.is_some_and(|(running, _)| running == purpose)
    }
}

/// How snapshots of one purpose went.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// Those that succeeded.
    pub count: u64,
    /// When the last of them ended, Unix seconds; 0 for never.
    pub ended_s: i64,
    /// How long the last one took, that ended either way.
    pub took_s: Option<i64>,
    /// When one failed last, unless one has succeeded since.
    pub failed_s: Option<i64>,
}

/// After so many seconds, if there were so many changes, a dump is due (`save`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavePoint {
    /// Since the last dump.
    pub seconds: i64,
    /// At least.
    pub changes: u64,
}

impl SavePoint {
    /// Those in a text such as `3600 1 300 100`, if it is one.
    #[must_use]
    pub fn read(text: &str) -> Option<Vec<Self>> {
        let numbers: Option<Vec<i64>> = text.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
        let pairs = numbers?;
        let point = |pair: &[i64]| match *pair {
            [seconds, changes] if seconds > 0 => Some(Self { seconds, changes: u64::try_from(changes).ok()? }),
            _ => None,
        };
        pairs.chunks(2).map(point).collect()
    }

    /// As a text.
    #[must_use]
    pub fn show(points: &[Self]) -> String {
        let words: Vec<String> = points.iter().map(|point| format!("{} {}", point.seconds, point.changes)).collect();
        words.join(" ")
    }
}

impl Saves {
    /// A thread takes snapshots from now on.
    pub fn serve(&self, now_s: i64) {
        self.state().loaded_s = now_s;
        self.is_served.store(true, Ordering::Release);
    }

    /// Whether a thread takes snapshots.
    pub fn is_served(&self) -> bool {
        self.is_served.load(Ordering::Acquire)
    }

    /// No thread takes snapshots any more: nobody waits for one.
    pub fn leave(&self) {
        let state = self.state();
        self.is_served.store(false, Ordering::Release);
        drop(state);
        self.ended.notify_all();
    }

    /// What is known now.
    pub fn get(&self) -> State {
        self.state().clone()
    }

    /// Asks for one.
    pub(crate) fn want(&self, purpose: Purpose) {
        self.state().want(purpose);
    }

    /// Asks for a snapshot and waits for its end. Says whether it is on files: everything that had been changed before the call.
    pub fn take_and_wait(&self, purpose: Purpose) -> bool {
        let mut state = self.state();
        state.want(purpose);
        // One that is being taken already may not have everything: what is wanted is only begun after it.
        while state.is_pending(purpose) && self.is_served() {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let record = if purpose == Purpose::Dump { &state.dumps } else { &state.bases };
        !state.is_pending(purpose) && record.failed_s.is_none()
    }

    /// Has data read from files again, and waits for that. The caller holds no keys.
    ///
    /// # Errors
    /// Why data is missing now, in words.
    pub(crate) fn load_and_wait(&self, load: Load) -> Result<(), String> {
        let mut state = self.state();
        if state.load.is_some() {
            return Err("somebody else loads".to_owned());
        }
        state.load = Some(Loading::Wanted(load));
        loop {
            match state.load.take() {
                Some(Loading::Ended(result)) => return result,
                _ if !self.is_served() => return Err("the engine stops".to_owned()),
                other => state.load = other,
            }
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What is to be read from files again, if anything. It counts as begun.
    pub fn next_load(&self) -> Option<Load> {
        let mut state = self.state();
        let Some(Loading::Wanted(load)) = state.load else { return None };
        state.load = Some(Loading::Running);
        Some(load)
    }

    /// What was begun has ended.
    pub fn end_load(&self, result: Result<(), String>) {
        self.state().load = Some(Loading::Ended(result));
        self.ended.notify_all();
    }

    /// Has everything saved that must outlast the process, and waits for that: a dump if `has_dump`, and the log. What is being taken is
    /// given up for it. To be called with writes held back.
    ///
    /// # Errors
    /// Something is not on files, in words. Nothing else has changed, and it is safe to retry.
    pub fn save_finally(&self, has_dump: bool) -> Result<(), String> {
        let stops = || "the engine stops".to_owned();
        let mut state = self.state();
        // One that was called off may not have ended.
        while state.final_save.is_some() {
            if !self.is_served() {
                return Err(stops());
            }
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_cancelled |= state.running.is_some();
        (state.final_save, state.final_dump) = (Some(FinalSave::Wanted { has_dump }), None);
        loop {
            if let Some(FinalSave::Ended(result)) = &state.final_save {
                let result = result.clone();
                state.final_save = None;
                self.ended.notify_all();
                return result;
            }
            if !self.is_served() {
                return Err(stops());
            }
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The last save that is wanted, if any, and whether with a dump. It counts as begun.
    pub fn next_final(&self) -> Option<bool> {
        let mut state = self.state();
        let Some(FinalSave::Wanted { has_dump }) = state.final_save else { return None };
        state.final_save = Some(FinalSave::Running);
        state.is_cancelled = false;
        Some(has_dump)
    }

    /// The last save that was begun has ended.
    pub fn end_final(&self, result: Result<(), String>) {
        self.state().final_save = Some(FinalSave::Ended(result));
        self.ended.notify_all();
    }

    /// Gives the last save up: the process goes on, or does not wait for it.
    pub fn cancel_final(&self) {
        let mut state = self.state();
        match state.final_save {
            Some(FinalSave::Wanted { .. }) => state.final_save = Some(FinalSave::Ended(Err("called off".to_owned()))),
            Some(FinalSave::Running) => state.is_cancelled = true,
            Some(FinalSave::Ended(_)) | None => {}
        }
        drop(state);
        self.ended.notify_all();
    }

    /// Whether everything else that is being taken is to be given up for the last save.
    pub fn is_final_wanted(&self) -> bool {
        matches!(self.state().final_save, Some(FinalSave::Wanted { .. }))
    }

    /// The dump of the last save is being taken, after so many changes, until [`Saves::end`].
    pub fn begin_final_dump(&self, now_s: i64, changes: u64) {
        let mut state = self.state();
        state.changes_at_dump.1 = changes;
        state.running = Some((Purpose::Dump, now_s));
    }

    /// The dump of the last save is on files; it was begun after so many changes.
    pub fn note_final_dump(&self, changes: u64) {
        self.state().final_dump = Some(changes);
    }

    /// Whether the dump of the last save has all of so many changes.
    pub fn has_final_dump(&self, changes: u64) -> bool {
        self.state().final_dump == Some(changes)
    }

    /// Something else than was asked for is being taken, until [`Saves::end_other`].
    pub fn begin_other(&self, purpose: Purpose, now_s: i64) {
        let mut state = self.state();
        (state.running, state.is_cancelled) = (Some((purpose, now_s)), false);
    }

    /// It has ended.
    pub fn end_other(&self) {
        self.state().running = None;
        self.ended.notify_all();
    }

    /// Whether a base that failed may be tried again by itself.
    pub fn may_take_base(&self, now_s: i64) -> bool {
        self.state().bases.failed_s.is_none_or(|at| now_s - at >= RETRY_S)
    }

    /// Asks for a new base of the log.
    pub fn want_base(&self) {
        self.want(Purpose::LogBase);
    }

    /// Whether the last dump that was taken failed.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Gives up the dump that is being taken or wanted. Says whether there was one.
    pub(crate) fn cancel_dump(&self) -> bool {
        let mut state = self.state();
        let is_running = matches!(state.running, Some((Purpose::Dump, _)));
        state.is_cancelled |= is_running;
        std::mem::take(&mut state.wants_dump) || is_running
    }

    /// Gives up the snapshot that is being taken, and the dump that is wanted.
    pub(crate) fn cancel(&self) {
        let mut state = self.state();
        state.is_cancelled |= state.running.is_some();
        state.wants_dump = false;
    }

    /// Whether the snapshot that is being taken is to be given up.
    pub fn is_cancelled(&self) -> bool {
        self.state().is_cancelled
    }

    /// What to take now, if anything: what was asked for, what a save point wants after so many changes in all, or a new base
    /// when the log has grown by `growth` percent and is `bytes_min` long. It counts as begun.
    pub fn next(&self, now_s: i64, changes: u64, points: &[SavePoint], growth: u64, bytes_min: u64) -> Option<Purpose> {
        let mut state = self.state();
        let dump_is_due = {
            let since_s = now_s - state.dumps.ended_s.max(state.loaded_s);
            let changed = changes.saturating_sub(state.changes_at_dump.0);
            let may_retry = state.dumps.failed_s.is_none_or(|at| now_s - at >= RETRY_S);
            may_retry && points.iter().any(|point| changed >= point.changes && since_s >= point.seconds)
        };
        let (log, base) = state.log_bytes;
        let has_grown = growth > 0 && log >= bytes_min && log >= base.saturating_mul(growth) / 100;
        let base_is_due = has_grown && state.bases.failed_s.is_none_or(|at| now_s - at >= RETRY_S);
        let purpose = if std::mem::take(&mut state.wants_base) || base_is_due {
            Purpose::LogBase
        } else if std::mem::take(&mut state.wants_dump) || dump_is_due {
            state.changes_at_dump.1 = changes;
            Purpose::Dump
        } else {
            return None;
        };
        (state.running, state.is_cancelled) = (Some((purpose, now_s)), false);
        Some(purpose)
    }

    /// The one that was begun has ended.
    pub fn end(&self, is_done: bool, now_s: i64) {
        let mut state = self.state();
        let Some((purpose, since_s)) = state.running.take() else { return };
        let is_dump = purpose == Purpose::Dump;
        if is_dump && is_done {
            state.changes_at_dump.0 = state.changes_at_dump.1;
        }
        // That the process could not end is known to whoever asked for that: clients go on writing.
        let is_final = state.final_save == Some(FinalSave::Running);
        if is_dump && !state.is_cancelled && (is_done || !is_final) {
            self.has_failed.store(!is_done, Ordering::Relaxed);
        }
        let record = if is_dump { &mut state.dumps } else { &mut state.bases };
        record.took_s = Some(now_s - since_s);
        if is_done {
            (record.count, record.ended_s, record.failed_s) = (record.count + 1, now_s, None);
        } else {
            record.failed_s = Some(now_s);
        }
        drop(state);
        self.ended.notify_all();
    }

    /// How long the log is: bytes that a restart would run, and bytes of its base.
    pub fn note_log(&self, since_base: u64, base: u64) {
        self.state().log_bytes = (since_base, base);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due() {
        let saves = Saves::default();
        let points = SavePoint::read("3600 1 300 100").unwrap();
        assert_eq!(SavePoint::show(&points), "3600 1 300 100");
        assert_eq!(SavePoint::read(""), Some(Vec::new()));
        for wrong in ["1", "a b", "0 1", "1 -1", "1 1 1"] {
            assert_eq!(SavePoint::read(wrong), None, "{wrong}");
        }
        assert_eq!(points, [SavePoint { seconds: 3_600, changes: 1 }, SavePoint { seconds: 300, changes: 100 }]);
        saves.serve(1_000);
        let next = |now_s, changes| saves.next(now_s, changes, &points, 100, 1 << 20);
        assert_eq!(next(1_299, 100), None);
        assert_eq!(next(1_300, 99), None);
        assert_eq!(next(1_300, 100), Some(Purpose::Dump));
        saves.end(false, 1_301);
        assert_eq!(next(1_305, 100), None, "not at once after a failure");
        assert_eq!(next(1_306, 100), Some(Purpose::Dump));
        saves.end(true, 1_310);
        assert_eq!(next(4_909, 101), None);
        assert_eq!(next(4_910, 100), None, "nothing has changed");
        assert_eq!(next(4_910, 101), Some(Purpose::Dump));
        saves.end(true, 4_910);
        saves.note_log(1 << 20, 1 << 21);
        assert_eq!(next(4_911, 101), None);
        saves.note_log(1 << 21, 1 << 21);
        assert_eq!(next(4_911, 101), Some(Purpose::LogBase));
        saves.end(true, 4_912);
        saves.note_log(5, 1 << 21);
        saves.want(Purpose::Dump);
        saves.want(Purpose::LogBase);
        assert_eq!(
            (next(4_913, 0), next(4_913, 0), next(4_913, 0)),
            (Some(Purpose::LogBase), Some(Purpose::Dump), None)
        );
        assert!(saves.cancel_dump() && saves.is_cancelled());
        assert_eq!((saves.get().dumps.count, saves.get().bases.count), (2, 1));
    }

    /// What the thread that takes snapshots finds to do next.
    fn found<T>(find: impl Fn() -> Option<T>) -> T {
        let mut tries = (0..10_000_000).map(|_| {
            std::thread::yield_now();
            find()
        });
        tries.find_map(|found| found).expect("it comes within so many looks")
    }

    /// What a thread that waits was told.
    fn told<T>(waits: std::thread::ScopedJoinHandle<'_, T>) -> T {
        found(|| waits.is_finished().then_some(()));
        waits.join().unwrap()
    }

    /// Lets those go that still wait when a test is over, whatever it came to: it would wait for them for ever.
    struct Left<'a>(&'a Saves);

    impl Drop for Left<'_> {
        fn drop(&mut self) {
            self.0.leave();
        }
    }

    #[test]
    fn who_waits_for_a_snapshot_is_told_what_became_of_it() {
        let saves = Saves::default();
        saves.serve(1_000);
        let next = || saves.next(1_000, 0, &[], 100, 1 << 20);
        std::thread::scope(|scope| {
            let _left_at_the_end = Left(&saves);
            for is_on_files in [true, false, true] {
                let waits = scope.spawn(|| saves.take_and_wait(Purpose::Dump));
                assert_eq!(found(next), Purpose::Dump);
                saves.end(is_on_files, 1_001);
                assert_eq!(told(waits), is_on_files);
            }
            // One that was begun before may not have everything.
            saves.want(Purpose::LogBase);
            assert_eq!(next(), Some(Purpose::LogBase));
            let waits = scope.spawn(|| saves.take_and_wait(Purpose::LogBase));
            found(|| saves.get().wants_base.then_some(()));
            saves.end(false, 1_002);
            assert_eq!(found(next), Purpose::LogBase);
            assert!(!waits.is_finished());
            saves.end(true, 1_003);
            assert!(told(waits));
            let waits = scope.spawn(|| saves.take_and_wait(Purpose::Dump));
            assert_eq!(found(next), Purpose::Dump);
            saves.leave();
            assert!(!told(waits), "nobody takes it any more");
        });
    }

    #[test]
    fn who_waits_for_data_is_told_what_became_of_them() {
        let saves = Saves::default();
        saves.serve(1_000);
        std::thread::scope(|scope| {
            let _left_at_the_end = Left(&saves);
            for result in [Ok(()), Err("no such file".to_owned())] {
                let waits = scope.spawn(|| saves.load_and_wait(Load::Log));
                assert_eq!(found(|| saves.next_load()), Load::Log);
                assert_eq!(saves.next_load(), None, "it has begun");
                assert!(saves.load_and_wait(Load::Log).unwrap_err().contains("somebody else"));
                saves.end_load(result.clone());
                assert_eq!(told(waits), result);
            }
            let waits = scope.spawn(|| saves.load_and_wait(Load::Log));
            assert_eq!(found(|| saves.next_load()), Load::Log);
            saves.leave();
            assert!(told(waits).unwrap_err().contains("stops"));
        });
    }

    #[test]
    fn how_snapshots_went_is_known() {
        let saves = Saves::default();
        assert!(!saves.is_served());
        saves.serve(1_000);
        assert!(saves.is_served() && saves.get().loaded_s == 1_000);
        let take = |purpose, is_done, now_s| {
            saves.want(purpose);
            assert!(saves.get().is_pending(purpose));
            assert_eq!(saves.next(now_s, 7, &[], 0, 0), Some(purpose));
            let state = saves.get();
            assert_eq!((state.running, state.is_pending(purpose)), (Some((purpose, now_s)), true));
            saves.end(is_done, now_s + 3);
            assert!(!saves.get().is_pending(purpose));
            saves.get()
        };
        let failed = |at: i64| Record { count: 0, ended_s: 0, took_s: Some(3), failed_s: Some(at) };
        let done = |at: i64| Record { count: 1, ended_s: at, took_s: Some(3), failed_s: None };
        let state = take(Purpose::Dump, false, 2_000);
        assert_eq!((&state.dumps, state.changes_at_dump, saves.has_failed()), (&failed(2_003), (0, 7), true));
        let state = take(Purpose::Dump, true, 2_010);
        assert_eq!((&state.dumps, state.changes_at_dump, saves.has_failed()), (&done(2_013), (7, 7), false));
        let state = take(Purpose::LogBase, false, 2_020);
        assert_eq!((&state.bases, &state.dumps, saves.has_failed()), (&failed(2_023), &done(2_013), false));
        assert_eq!([2_027, 2_028].map(|now_s| saves.may_take_base(now_s)), [false, true]);
        let state = take(Purpose::LogBase, true, 2_024);
        assert!(saves.may_take_base(2_024));
        assert_eq!(state.bases, done(2_027));
        saves.end(false, 9_000);
        assert_eq!(saves.get(), state, "nothing was being taken");
    }

    #[test]
    fn a_base_is_due_when_the_log_has_grown_so_much_and_is_so_long() {
        let is_due = |growth, bytes_min, log, base, failed_s| {
            let saves = Saves::default();
            saves.note_log(log, base);
            saves.state().bases.failed_s = failed_s;
            saves.next(100, 0, &[], growth, bytes_min) == Some(Purpose::LogBase)
        };
        for (growth, bytes_min, log, base, expected) in [
            (0, 0, 500, 0, false),
            (100, 10, 9, 9, false),
            (100, 10, 10, 10, true),
            (50, 1, 49, 100, false),
            (50, 1, 50, 100, true),
            (200, 1, 199, 100, false),
            (200, 1, 200, 100, true),
            (1, 1, u64::MAX, u64::MAX / 2, true),
        ] {
            assert_eq!(is_due(growth, bytes_min, log, base, None), expected, "{growth} % of {base}, {log} bytes");
        }
        assert_eq!([94, 95, 96].map(|at| is_due(100, 1, 2, 1, Some(at))), [true, true, false], "not at once again");
    }

    #[test]
    fn who_calls_snapshots_off_gives_up_what_is_meant_and_nothing_else() {
        let saves = Saves::default();
        saves.serve(1_000);
        let next = || saves.next(1_000, 0, &[], 0, 0);
        saves.cancel();
        assert!(!saves.is_cancelled() && !saves.cancel_dump(), "there is none");
        saves.want(Purpose::Dump);
        assert!(saves.cancel_dump() && !saves.is_cancelled() && next().is_none(), "it was only wanted");
        saves.want_base();
        assert_eq!(next(), Some(Purpose::LogBase));
        assert!(!saves.cancel_dump() && !saves.is_cancelled(), "a base is no dump");
        saves.want(Purpose::Dump);
        saves.cancel();
        assert!(saves.is_cancelled() && !saves.get().wants_dump);
        saves.end(false, 1_001);
        saves.want(Purpose::Dump);
        assert_eq!(next(), Some(Purpose::Dump));
        assert!(!saves.is_cancelled(), "that was another one");
        assert!(saves.cancel_dump() && saves.is_cancelled());
        saves.end(false, 1_002);
        assert!(!saves.has_failed(), "whoever called it off knows");
        // What replicas get is asked for elsewhere.
        saves.want(Purpose::Replicas);
        assert_eq!(next(), None);
        saves.begin_other(Purpose::Replicas, 1_003);
        assert_eq!((saves.get().running, saves.is_cancelled()), (Some((Purpose::Replicas, 1_003)), false));
        saves.cancel();
        assert!(saves.is_cancelled());
        let before = saves.get();
        saves.end_other();
        assert_eq!(saves.get(), State { running: None, ..before });
    }

    #[test]
    fn the_last_save_takes_the_place_of_all_others() {
        let saves = Saves::default();
        saves.serve(1_000);
        saves.want(Purpose::LogBase);
        assert_eq!(saves.next(1_000, 0, &[], 0, 0), Some(Purpose::LogBase));
        let wanted = || saves.is_final_wanted().then_some(());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| saves.save_finally(true));
            found(wanted);
            assert!(saves.is_cancelled(), "the base is given up");
            saves.end(false, 1_001);
            assert_eq!((saves.next_final(), saves.next_final()), (Some(true), None), "it has begun");
            assert!(!saves.is_final_wanted() && !saves.is_cancelled());
            saves.begin_final_dump(1_002, 42);
            let state = saves.get();
            assert_eq!((state.running, state.changes_at_dump), (Some((Purpose::Dump, 1_002)), (0, 42)));
            saves.end(true, 1_003);
            saves.note_final_dump(42);
            assert!(saves.has_final_dump(42) && !saves.has_final_dump(43));
            saves.end_final(Ok(()));
            assert_eq!(waits.join().unwrap(), Ok(()));

            let waits = scope.spawn(|| saves.save_finally(false));
            assert!(!found(|| saves.next_final()), "only the log");
            assert!(!saves.has_final_dump(42), "changes may have come since");
            let second = scope.spawn(|| saves.save_finally(true));
            saves.begin_final_dump(1_004, 43);
            saves.end(false, 1_005);
            assert!(!saves.has_failed(), "the process goes on, and its clients go on writing");
            assert_eq!(saves.next_final(), None, "one after the other");
            saves.end_final(Err("no room".to_owned()));
            assert_eq!(waits.join().unwrap(), Err("no room".to_owned()));
            assert!(found(|| saves.next_final()));
            saves.cancel_final();
            assert!(saves.is_cancelled() && !second.is_finished(), "it has to end by itself");
            saves.end_final(Err("it was called off".to_owned()));
            assert!(second.join().unwrap().is_err());

            let waits = scope.spawn(|| saves.save_finally(true));
            found(wanted);
            saves.cancel_final();
            assert_eq!(waits.join().unwrap(), Err("called off".to_owned()));
            assert_eq!(saves.next_final(), None);
            saves.cancel_final();
            let waits = scope.spawn(|| saves.save_finally(true));
            found(wanted);
            saves.leave();
            assert!(waits.join().unwrap().unwrap_err().contains("stops"));
            assert!(saves.save_finally(true).unwrap_err().contains("stops"), "the last one has not ended");
            assert!(saves.load_and_wait(Load::Log).unwrap_err().contains("stops"));
        });
    }
}
