//! A group of catalogs under faults, from start to the last check.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ashlar_placement::map::{Rack, Zone};
use ashlar_wire::id::{ClusterId, ServerId};

use super::disk::{Disk, Lie};
use super::history::{Fate, History, key_of, value_of};
use super::world::{Owner, Place, ServerHost, World};
use crate::change::Change;
use crate::raft::catalog::{Begin, Catalog, CatalogConfig, Error};
use crate::raft::recover::recover;
use crate::record::Expected;
use crate::server::{Server, ServerState};

/// A bug on purpose: the proof must see each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// Drives say that a write is durable before it is.
    NotDurable,
    /// Drives forget votes.
    NoVotes,
}

/// What a run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// Servers of the group.
    pub servers: usize,
    /// Proposals that were acknowledged.
    pub acknowledged: usize,
    /// Proposals of which it was not known in the end whether they were applied.
    pub unknown: usize,
    /// Crashes of servers.
    pub crashes: usize,
    /// Cuts of the net.
    pub cuts: usize,
    /// The last term: one more for each election.
    pub term: u64,
    /// The index up to which the last leader had a snapshot.
    pub snapshot_index: u64,
    /// Milliseconds of virtual time from healing until a leader was there that took a change.
    pub healed_ms: u64,
    /// Everything that happened, mixed into one number: equal for equal seeds.
    pub trace: u64,
}

const CLUSTER: ClusterId = ClusterId::from_bytes([7; 16]);
/// Longest virtual time after healing until everything must be well.
const HEALING_MAX: Duration = Duration::from_secs(120);

struct Group {
    world: Arc<World>,
    disks: Vec<Disk>,
    lives: Vec<u64>,
    ids: Vec<ServerId>,
    history: Arc<Mutex<History>>,
    report: Report,
}

fn id_of(place: Place) -> ServerId {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&(place as u64 + 1).to_be_bytes());
    ServerId::from_bytes(bytes)
}

const fn config() -> CatalogConfig {
    CatalogConfig {
        heartbeat: Duration::from_millis(100),
        election_min: Duration::from_millis(600),
        election_max: Duration::from_millis(1_200),
        // Few, so that snapshots and their way to others are part of most runs.
        snapshot_entries: 30,
        kept_entries: 5,
        proposal_max: Duration::from_secs(4),
        retry: Duration::from_millis(50),
    }
}

impl Group {
    fn new(seed: u64, servers: usize, planted: Option<Planted>) -> Self {
        let ids: Vec<ServerId> = (0..servers).map(id_of).collect();
        let world = World::new(seed, ids.clone());
        let lie = match planted {
            None => Lie::None,
            Some(Planted::NotDurable) => Lie::NotDurable,
            Some(Planted::NoVotes) => Lie::NoVotes,
        };
        let disks = (0..servers).map(|_| Disk::new(world.clone(), lie)).collect();
        let report = Report { servers, ..Report::default() };
        Self { world, disks, lives: vec![0; servers], ids, history: Arc::default(), report }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().expect("one thread")
    }

    fn start(&mut self, place: Place, begin: Begin) {
        self.lives[place] += 1;
        let owner = Owner { place, life: self.lives[place] };
        let host = Arc::new(ServerHost { world: self.world.clone(), owner });
        let (world, disk, id) = (self.world.clone(), Arc::new(self.disks[place].clone()), self.ids[place]);
        let start = async move {
            // A drive that lies may make a log that cannot be; the check in the end says so.
            if let Ok(catalog) = Catalog::start(host, disk, config(), CLUSTER, id, begin).await {
                world.set_catalog(owner, catalog);
            }
        };
        self.world.spawn(Some(owner), Box::pin(start));
    }

    fn crash(&mut self, place: Place) {
        self.world.kill(place);
        self.disks[place].crash();
        self.report.crashes += 1;
    }

    fn is_up(&self, place: Place) -> bool {
        self.world.catalog(place).is_some()
    }

    /// Runs a task at a server and waits for its result.
    fn at<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        place: Place,
        work: impl FnOnce(Catalog) -> F,
    ) -> Option<T> {
        let catalog = self.world.catalog(place)?;
        let result = Arc::new(Mutex::new(None));
        let (slot, work) = (result.clone(), work(catalog));
        let owner = Owner { place, life: self.lives[place] };
        let task = async move {
            let done = work.await;
            *slot.lock().expect("one thread") = Some(done);
        };
        self.world.spawn(Some(owner), Box::pin(task));
        for _ in 0..100 {
            self.world.run_for(Duration::from_millis(100));
            if let Some(done) = result.lock().expect("one thread").take() {
                return Some(done);
            }
        }
        None
    }

    /// Brings every server in and makes voters of the first `voters`.
    fn form(&mut self, voters: usize) -> Result<(), String> {
        self.start(0, Begin::First);
        (1..self.ids.len()).for_each(|place| self.start(place, Begin::Join));
        self.world.run_for(Duration::from_secs(2));
        self.grow(0, voters)
    }

    fn grow(&self, leader: Place, voters: usize) -> Result<(), String> {
        let ids = self.ids.clone();
        let formed = self.at(leader, move |catalog| async move {
            for (place, id) in ids.iter().enumerate() {
                catalog.add_learner(*id).await?;
                let (zone, rack) = (Zone(0), Rack(0));
                let (address, state) = (format!("server-{place}:1"), ServerState::Active);
                let server = Server { id: *id, address, zone, rack, release: 1, state };
                match catalog.propose(Change::AddServer(server)).await {
                    Ok(_) | Err(Error::Refused(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            catalog.change_voters(&ids[..voters].iter().copied().collect()).await
        });
        match formed {
            Some(Ok(())) => Ok(()),
            other => Err(format!("the group did not form: {other:?}")),
        }
    }

    /// Proposes at some server; what becomes of it goes into the history.
    fn propose(&self) {
        let place = self.world.below(self.ids.len() as u64);
        let place = usize::try_from(place).expect("a small number");
        let Some(catalog) = self.world.catalog(place) else { return };
        let number = {
            let mut history = self.history();
            history.fates.push(Fate::Unknown);
            history.fates.len() - 1
        };
        let (history, world) = (self.history.clone(), self.world.clone());
        let propose = async move {
            let (key, value) = (key_of(number), value_of(number));
            let fate = match catalog.propose(Change::PutRecord { key, expected: Expected::Absent, value }).await {
                Ok(applied) => Fate::Acknowledged(applied),
                Err(Error::Refused(_)) => Fate::Refused,
                Err(_) => Fate::Unknown,
            };
            if let Fate::Acknowledged(applied) = fate {
                world.note(applied.version.0);
            }
            history.lock().expect("one thread").fates[number] = fate;
        };
        self.world.spawn(Some(Owner { place, life: self.lives[place] }), Box::pin(propose));
    }

    fn observe(&self) -> Result<(), String> {
        for (place, life, catalog) in self.world.catalogs() {
            let state = catalog.state();
            self.world.note(state.version().0);
            self.history().observe(place, life, &state)?;
        }
        Ok(())
    }

    fn some_place(&self) -> Place {
        usize::try_from(self.world.below(self.ids.len() as u64)).expect("a small number")
    }

    fn fault(&mut self) {
        let place = self.some_place();
        match self.world.below(6) {
            0 | 1 if self.is_up(place) => self.crash(place),
            2 => {
                let (lost, delay_ms_max) = (self.world.below(300), 1 + self.world.below(80));
                self.world.with_net(|net| (net.lost, net.delay_ms_max) = (lost, delay_ms_max));
            }
            3 => {
                let other = self.some_place();
                let both = self.world.below(2) == 0;
                self.world.with_net(|net| {
                    net.cut.insert((place, other));
                    if both {
                        net.cut.insert((other, place));
                    }
                });
                self.report.cuts += 1;
            }
            4 => {
                // One server alone, or none.
                let all = 0..self.ids.len();
                let pairs: BTreeSet<(Place, Place)> =
                    all.filter(|other| *other != place).flat_map(|other| [(place, other), (other, place)]).collect();
                self.world.with_net(|net| net.cut = pairs);
                self.report.cuts += 1;
            }
            _ => self.world.with_net(|net| net.cut.clear()),
        }
    }

    /// Proposals and faults for `steps` steps of some hundred milliseconds.
    fn trouble(&mut self, steps: usize) -> Result<(), String> {
        for _ in 0..steps {
            for _ in 0..self.world.below(4) {
                self.propose();
            }
            if self.world.below(3) == 0 {
                self.fault();
            }
            let down = (0..self.ids.len()).find(|place| !self.is_up(*place));
            if let Some(place) = down.filter(|_| self.world.below(4) == 0) {
                // Whatever is left of a start that did not come to its end goes first.
                self.world.kill(place);
                self.start(place, Begin::Join);
            }
            self.world.run_for(Duration::from_millis(100 + self.world.below(400)));
            self.observe()?;
        }
        Ok(())
    }

    /// Mends everything, and waits until the group takes a change and all servers have it.
    fn heal(&mut self) -> Result<(), String> {
        self.world.with_net(|net| (net.lost, net.delay_ms_max) = (0, 10));
        self.world.with_net(|net| net.cut.clear());
        for place in 0..self.ids.len() {
            if !self.is_up(place) {
                self.world.kill(place);
                self.start(place, Begin::Join);
            }
        }
        let since = self.world.now();
        let deadline = since + HEALING_MAX;
        let number = self.history().fates.len();
        self.history().fates.push(Fate::Unknown);
        while self.world.now() < deadline {
            let (key, value) = (key_of(number), value_of(number));
            let change = Change::PutRecord { key, expected: Expected::Anything, value };
            let done = self.at(self.ids.len() - 1, move |catalog| async move { catalog.propose(change).await });
            self.world.run_for(Duration::from_millis(100));
            self.observe()?;
            if let Some(Ok(applied)) = done {
                self.history().fates[number] = Fate::Acknowledged(applied);
                self.report.healed_ms =
                    u64::try_from(self.world.now().saturating_since(since).as_millis()).expect("some minutes");
                return self.agree(applied.version.0);
            }
        }
        Err("no leader after healing".into())
    }

    fn agree(&mut self, version: u64) -> Result<(), String> {
        for _ in 0..600 {
            self.world.run_for(Duration::from_millis(100));
            self.observe()?;
            let states: Vec<_> = self.world.catalogs().iter().map(|(_, _, catalog)| catalog.state()).collect();
            let caught_up = states.len() == self.ids.len() && states.iter().all(|state| state.version().0 >= version);
            if caught_up && states.iter().all(|state| state.version() == states[0].version()) {
                let bytes = states[0].encode();
                if !states.iter().all(|state| state.encode() == bytes) {
                    return Err("servers have different states".into());
                }
                return self.history().check(&states[0]);
            }
        }
        Err("servers do not catch up".into())
    }

    fn finish(mut self) -> Report {
        let history = self.history();
        let acknowledged = history.count(|fate| matches!(fate, Fate::Acknowledged(_)));
        let unknown = history.count(|fate| *fate == Fate::Unknown);
        drop(history);
        (self.report.acknowledged, self.report.unknown) = (acknowledged, unknown);
        for (_, _, catalog) in self.world.catalogs() {
            let status = catalog.status();
            self.report.term = self.report.term.max(status.term);
            self.report.snapshot_index = self.report.snapshot_index.max(status.snapshot_index.unwrap_or(0));
        }
        self.report.trace = self.world.trace();
        self.report
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.world.end();
    }
}

/// One run of three to five servers, of which three or five vote, under faults; see the head of [`crate::proof`].
///
/// # Errors
/// What did not hold, in words. With a planted bug that is what should come.
pub fn run(seed: u64, planted: Option<Planted>) -> Result<Report, String> {
    let mut group = Group::new(seed, 3 + usize::try_from(seed % 3).expect("below three"), planted);
    let voters = if group.ids.len() == 5 && seed.is_multiple_of(2) { 5 } else { 3 };
    group.form(voters)?;
    group.trouble(60)?;
    group.heal()?;
    group.trouble(30)?;
    group.heal()?;
    Ok(group.finish())
}

/// One run in which the only voter is killed again and again while it writes what the others have been sent already.
///
/// # Errors
/// What did not hold, in words.
pub fn run_lost_tail(seed: u64) -> Result<Report, String> {
    let mut group = Group::new(seed, 3, None);
    group.form(1)?;
    group.world.with_net(|net| net.delay_ms_max = 1);
    for _ in 0..20 {
        (0..3).for_each(|_| group.propose());
        let ms = 1 + group.world.below(25);
        group.world.run_for(Duration::from_millis(ms));
        group.crash(0);
        group.start(0, Begin::Join);
        group.world.run_for(Duration::from_secs(3));
        group.observe()?;
    }
    group.heal()?;
    Ok(group.finish())
}

/// One run in which all servers start again at once, again and again: who has caught up shows what anybody had shown before.
///
/// # Errors
/// What did not hold, in words.
pub fn run_caught_up(seed: u64) -> Result<Report, String> {
    let mut group = Group::new(seed, 3, None);
    group.form(3)?;
    for _ in 0..10 {
        (0..3).for_each(|_| group.propose());
        let ms = 200 + group.world.below(300);
        group.world.run_for(Duration::from_millis(ms));
        let shown = (0..3).filter_map(|place| Some(group.world.catalog(place)?.state().version().0)).max();
        (0..3).for_each(|place| group.crash(place));
        (0..3).for_each(|place| group.start(place, Begin::Join));
        let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
        group.world.run_for(Duration::from_millis(10));
        for place in 0..3 {
            let (catalog, seen) = (group.world.catalog(place).ok_or("it has not begun")?, seen.clone());
            let work = async move {
                while catalog.catch_up().await.is_err() {}
                seen.lock().expect("one thread").push(catalog.state().version().0);
            };
            group.world.spawn(None, Box::pin(work));
        }
        group.world.run_for(Duration::from_secs(10));
        let seen = seen.lock().expect("one thread").clone();
        if seen.len() < 3 || seen.iter().min().copied() < shown {
            return Err(format!("after {shown:?} had been shown, those who had caught up showed {seen:?}"));
        }
    }
    group.heal()?;
    Ok(group.finish())
}

/// One run in which two of three voters are lost for good: the third goes on alone by an operator's command, takes new
/// servers in, and a server of the old group that comes back takes the new group's state.
///
/// # Errors
/// What did not hold, in words.
pub fn run_recovery(seed: u64) -> Result<Report, String> {
    let mut group = Group::new(seed, 3, None);
    group.form(3)?;
    group.trouble(20)?;
    group.heal()?;
    // So that the survivor's own drive has what it shows.
    group.world.run_for(Duration::from_secs(1));
    let before = group.world.catalog(2).ok_or("server 2 is down")?.state();
    (0..3).for_each(|place| group.crash(place));
    group.disks[0].wipe();
    let disk = group.disks[2].clone();
    let recovered: Arc<Mutex<Option<Result<u64, Error>>>> = Arc::default();
    let (slot, me) = (recovered.clone(), group.ids[2]);
    let work = async move {
        let done = recover(Arc::new(disk), CLUSTER, me, 1_000).await;
        *slot.lock().expect("one thread") = Some(done.map(|recovered| recovered.state.version().0));
    };
    group.world.spawn(None, Box::pin(work));
    group.world.run_for(Duration::from_secs(1));
    let version = match recovered.lock().expect("one thread").take() {
        Some(Ok(version)) => version,
        other => return Err(format!("not recovered: {other:?}")),
    };
    if version < before.version().0 + 1_000 {
        return Err(format!("version {version} after a jump from {}", before.version().0));
    }
    group.start(2, Begin::Join);
    group.world.run_for(Duration::from_secs(3));
    let alone = group.world.catalog(2).ok_or("the survivor is down")?;
    group.history().check(&alone.state())?;
    if alone.status().voters != [group.ids[2]] {
        return Err(format!("voters {:?}", alone.status().voters));
    }
    drop(alone);
    // Server 0 has a new drive, server 1 its old log.
    group.start(0, Begin::Join);
    group.start(1, Begin::Join);
    group.world.run_for(Duration::from_secs(1));
    group.grow(2, 3)?;
    group.trouble(20)?;
    group.heal()?;
    Ok(group.finish())
}
