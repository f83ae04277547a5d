//! Guests: each has a volume, attaches it at one server after another, and reads and writes it there. Some delete it and make another.

use core::ops::Range;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use ashlar_catalog::change::Change;
use ashlar_catalog::raft::catalog::Error as CatalogError;
use ashlar_catalog::volume::{Generation, VolumeClass, VolumeRecord};
use ashlar_grid::seam::{Runtime as _, Threads as _};
use ashlar_node::catalog::FIRST_SET;
use ashlar_node::together;
use ashlar_node::volume::attachment::{Attachment, Failure};
use ashlar_node::volume::service::{AttachError, VolumeService};
use ashlar_placement::part::Part;
use ashlar_placement::rule::ExtentSize;
use ashlar_volume::Error as VolumeError;
use ashlar_volume::initiator::{Op, Space};
use ashlar_wire::id::{ServerId, VolumeId};
use bytes::Bytes;

use super::load::{Birth, Load};
use super::oracle::{Begun, Oracle, UNIT_BYTES, UNITS};
use crate::rng::Rng;
use crate::scenarios::lock;
use crate::scenarios::node::server_id;
use crate::world::{Control, ServerNo, SimRuntime};

/// Volumes, each with a guest.
const VOLUMES: u8 = 2;
/// Extents of a volume.
const EXTENTS: u64 = 6;
/// Requests of a guest at a time.
const DEPTH: usize = 5;
/// Requests of one turn at a volume, each of those at a time.
const TURN: u64 = 30;
/// Volumes that a guest deletes: drives note each, in tables that are small here, until all drives have heard of it.
const DELETIONS_MAX: u64 = 24;
/// Requests of a round after the healing.
const LAST: u64 = 6;
/// How long a volume may stay attached at a server that runs and where no guest is, once nothing goes wrong any more.
const LEFT_MAX: Duration = Duration::from_secs(30);
/// How long a guest waits for an answer before it looks whether the volume is still its own.
const PATIENCE: Duration = Duration::from_secs(400);

/// What all lives know of one guest.
#[derive(Debug, Default)]
pub(super) struct Guest {
    /// What was done with the volume that it uses.
    pub(super) oracle: Oracle,
    volume: Option<VolumeId>,
    /// That volume is about to be deleted: who waits for an answer may get what is not its content.
    is_deleting: bool,
    /// Volumes that it used before.
    gone: BTreeSet<VolumeId>,
    /// The server and the life where the volume is used.
    pub(super) place: Option<(u32, u32)>,
    /// Since when it was attached at a server that runs and where the guest is not.
    left_since: Option<u64>,
    /// Rounds after the healing that were done: everything was written and read again.
    pub(super) rounds: u64,
    /// How often it came to another server.
    pub(super) moves: u64,
    pub(super) taken_away: u64,
    deleted: u64,
    pub(super) wrong: Option<String>,
}

/// What guests and the case share.
#[derive(Debug, Default)]
pub(super) struct Guests {
    pub(super) guests: Vec<Arc<Mutex<Guest>>>,
    /// The servers that run, with their lives.
    alive: BTreeSet<(u32, u32)>,
    /// Rounds after the healing that are asked for; 0 before it.
    pub(super) round: u64,
}

/// A guest at one life of a server.
pub(super) struct Visit {
    pub(super) control: Control,
    pub(super) runtime: SimRuntime,
    pub(super) volumes: VolumeService<SimRuntime>,
    pub(super) guests: Arc<Mutex<Guests>>,
    pub(super) guest: Arc<Mutex<Guest>>,
    pub(super) number: u8,
    /// How often a guest takes its volume from a server that still has it, per million looks.
    pub(super) takes_ppm: u32,
    /// How often a guest that leaves its volume deletes it, per million.
    pub(super) deletes_ppm: u32,
    pub(super) rng: Rng,
}

fn name(number: u8) -> String {
    format!("volume-{number}")
}

impl Guest {
    /// Comes to a volume that was attached for it. False if it has used another one since.
    fn enter(&mut self, volume: VolumeId) -> bool {
        if self.gone.contains(&volume) {
            return false;
        }
        (self.is_deleting, self.left_since) = (false, None);
        if let Some(former) = self.volume.replace(volume).filter(|former| *former != volume) {
            if let Err(wrong) = self.oracle.check() {
                self.wrong.get_or_insert(wrong);
            }
            self.gone.insert(former);
            self.oracle = self.oracle.next_volume();
        }
        true
    }

    /// Whether what is read there is the content of the volume that it uses.
    fn uses(&self, volume: VolumeId) -> bool {
        self.volume == Some(volume) && !self.is_deleting
    }
}

impl Visit {
    fn place(&self) -> (u32, u32) {
        (self.runtime.server().0, self.runtime.life())
    }

    fn round(&self) -> u64 {
        lock(&self.guests).round
    }

    fn now(&self) -> u64 {
        self.control.now_ns()
    }

    fn fail(&self, what: impl Into<String>) {
        lock(&self.guest).wrong.get_or_insert(what.into());
        self.control.finish();
    }

    async fn pause(&mut self, longest: Duration) {
        let span = self.rng.magnitude(1_000_000..=longest.as_nanos() as u64);
        self.runtime.sleep_until(self.runtime.now() + Duration::from_nanos(span)).await;
    }

    /// Uses the volume here whenever nobody else does, until the life ends.
    pub(super) async fn run(mut self) {
        self.create().await;
        loop {
            self.pause(Duration::from_millis(800)).await;
            let is_healed = self.round() > 0;
            let comes = match lock(&self.guest).place {
                None => true,
                Some(place) => place != self.place() && !is_healed && self.rng.chance(self.takes_ppm),
            };
            if comes {
                self.come().await;
            }
        }
    }

    /// Makes the volume, if nobody has.
    async fn create(&mut self) {
        let mut id = [0x70 + self.number; 16];
        id[1..9].copy_from_slice(&self.rng.below(u64::MAX).to_be_bytes());
        loop {
            let catalog = self.volumes.catalog().clone();
            let Ok(state) = catalog.state().await else { return };
            if state.volume_named(&name(self.number)).is_some() {
                return;
            }
            if state.set(FIRST_SET).is_some() {
                let volume = VolumeRecord {
                    id: VolumeId::from_bytes(id),
                    name: name(self.number),
                    class: VolumeClass::Standard,
                    extent_size: ExtentSize::DEFAULT,
                    size_bytes: EXTENTS << 20,
                    parts: vec![Part { set: FIRST_SET, extents: EXTENTS }],
                    generation: Generation::default(),
                    attached: None,
                };
                // Another server may have made it meanwhile.
                drop(catalog.propose(Change::CreateVolume(volume)).await);
            }
            self.pause(Duration::from_millis(300)).await;
        }
    }

    async fn come(&mut self) {
        let attachment = match self.volumes.attach(&name(self.number)).await {
            Ok(attachment) => attachment,
            Err(AttachError::Elsewhere(owner)) if self.will_be_left(owner) => return,
            Err(AttachError::Elsewhere(_)) => return self.take_away().await,
            Err(AttachError::Damaged) => return self.fail("the record of a volume makes none"),
            // Whoever deleted it may not have been able to make another.
            Err(_) => return self.create().await,
        };
        if self.enter(attachment.volume()) {
            while self.turn(&attachment).await {}
        }
        self.leave();
        self.volumes.detach(&attachment).await;
        if self.rng.chance(self.deletes_ppm) {
            self.delete(attachment.volume()).await;
        }
    }

    /// Deletes the volume, unless it is attached again, and makes another of its name.
    async fn delete(&mut self, volume: VolumeId) {
        {
            let mut guest = lock(&self.guest);
            if guest.deleted >= DELETIONS_MAX || guest.place.is_some() || !guest.uses(volume) {
                return;
            }
            guest.is_deleting = true;
        }
        match self.volumes.catalog().clone().propose(Change::DeleteVolume(volume)).await {
            Ok(_) => lock(&self.guest).deleted += 1,
            Err(CatalogError::Refused(_)) => lock(&self.guest).is_deleting = false,
            // It may be deleted, or not.
            Err(_) => {}
        }
        self.create().await;
    }

    fn enter(&self, volume: VolumeId) -> bool {
        let mut guest = lock(&self.guest);
        let enters = guest.enter(volume);
        if enters {
            guest.place = Some(self.place());
            guest.moves += 1;
        }
        enters
    }

    fn leave(&self) {
        let mut guest = lock(&self.guest);
        guest.place = guest.place.filter(|place| *place != self.place());
    }

    /// Whether the server that has the volume has to detach it by itself: it runs, has no guest of the volume, and nothing goes wrong.
    fn will_be_left(&self, owner: ServerId) -> bool {
        let guests = lock(&self.guests);
        let runs = guests.alive.iter().any(|(server, _)| server_id(ServerNo(*server)) == owner);
        let (round, now) = (guests.round, self.now());
        drop(guests);
        let mut guest = lock(&self.guest);
        if round == 0 || !runs || guest.place.is_some() {
            guest.left_since = None;
            return false;
        }
        let since = *guest.left_since.get_or_insert(now);
        if now - since > LEFT_MAX.as_nanos() as u64 {
            guest.wrong.get_or_insert(format!("a volume without guest stays attached at {owner}, which runs"));
        }
        true
    }

    async fn take_away(&mut self) {
        let state = self.volumes.catalog().state_now();
        let known = state.and_then(|state| {
            let record = state.volume_named(&name(self.number))?;
            Some((record.id, record.generation.0))
        });
        let Some((volume, before)) = known else { return };
        if self.volumes.take_away(&name(self.number)).await.is_ok() {
            let now = self.now();
            let mut guest = lock(&self.guest);
            guest.taken_away += 1;
            // Whoever had it by this generation, or an earlier one, writes nothing more.
            if guest.volume == Some(volume) {
                guest.oracle.fence(before + 1, 0..EXTENTS, now);
            }
        }
    }

    /// Some requests at a time, and whether there are to be more of them here.
    async fn turn(&mut self, attachment: &Attachment) -> bool {
        let round = self.round();
        let is_last = round > lock(&self.guest).rounds;
        let count = match (is_last, round) {
            (true, _) => LAST,
            (false, 0) => self.rng.within(1..=TURN),
            (false, _) => 1,
        };
        let lanes = (0..self.rng.within(1..=DEPTH as u64)).map(|lane| {
            let rng = self.rng.fork("lane", lane ^ self.now());
            Box::pin(self.lane(attachment, count, rng)) as together::Pending<'_, bool>
        });
        let lanes: Vec<_> = lanes.collect();
        let late = self.runtime.sleep_until(self.runtime.now() + PATIENCE);
        let Some(went) = together::first(together::all(lanes), late).await else {
            self.fail("a request was not answered");
            return false;
        };
        if went.contains(&false) {
            return false;
        }
        if is_last {
            if !self.read_all(attachment).await {
                return false;
            }
            lock(&self.guest).rounds = round;
        }
        if round > 0 {
            // It stays where it is, unless it is to delete the volume.
            self.pause(Duration::from_millis(500)).await;
            return !self.rng.chance(self.deletes_ppm / 10);
        }
        self.rng.chance(800_000)
    }

    /// Reads everything that was ever written.
    async fn read_all(&self, attachment: &Attachment) -> bool {
        let touched = lock(&self.guest).oracle.touched();
        for units in touched {
            if !lock(&self.guest).uses(attachment.volume()) || !self.read(attachment, units).await {
                return false;
            }
        }
        true
    }

    async fn lane(&self, attachment: &Attachment, count: u64, mut rng: Rng) -> bool {
        for _ in 0..count {
            let units = choose(&mut rng);
            if !lock(&self.guest).uses(attachment.volume()) {
                return false;
            }
            if !lock(&self.guest).oracle.has_room(units.clone()) {
                continue;
            }
            let went = match rng.below(100) {
                0..45 => self.read(attachment, units).await,
                45..90 => self.write(attachment, units).await,
                _ => self.zero(attachment, units, &mut rng).await,
            };
            if !went {
                return false;
            }
            if rng.chance(300_000) {
                let span = Duration::from_nanos(rng.magnitude(10_000..=30_000_000));
                self.runtime.sleep_until(self.runtime.now() + span).await;
            }
        }
        true
    }

    async fn read(&self, attachment: &Attachment, units: Range<u64>) -> bool {
        let generation = attachment.generation().0;
        let begun = lock(&self.guest).oracle.begin_read(generation, units.clone(), self.now());
        let len = (units.end - units.start) * UNIT_BYTES;
        let read = attachment.read(units.start * UNIT_BYTES, len as u32).await;
        match read {
            Ok(data) if data.len() as u64 != len => {
                self.fail(format!("a read of {len} bytes gave {}", data.len()));
                false
            }
            Ok(data) => self.told(attachment, &begun, Ok(Some(data))),
            Err(failure) => self.told(attachment, &begun, Err(failure)),
        }
    }

    async fn write(&self, attachment: &Attachment, units: Range<u64>) -> bool {
        let generation = attachment.generation().0;
        let (begun, data) = lock(&self.guest).oracle.begin_write(generation, units.clone(), self.now());
        let written = attachment.write(units.start * UNIT_BYTES, data).await;
        self.told(attachment, &begun, written.map(|()| None))
    }

    async fn zero(&self, attachment: &Attachment, units: Range<u64>, rng: &mut Rng) -> bool {
        let generation = attachment.generation().0;
        let begun = lock(&self.guest).oracle.begin_zero(generation, units.clone(), self.now());
        let (offset, len) = (units.start * UNIT_BYTES, (units.end - units.start) * UNIT_BYTES);
        let space = rng.pick(&[Space::Release, Space::Keep]);
        let zeroed = attachment.run(Op::Zero { offset, len, space }).await;
        self.told(attachment, &begun, zeroed.map(|_| None))
    }

    /// Notes how a request ended, and says whether the guest goes on here.
    fn told(&self, attachment: &Attachment, begun: &Begun, ended: Result<Option<Bytes>, Failure>) -> bool {
        let mut guest = lock(&self.guest);
        if !guest.uses(attachment.volume()) {
            guest.oracle.untold += 1;
            return false;
        }
        let told = match ended {
            Ok(data) => guest.oracle.tell(begun, data.as_ref(), self.control.now_ns()).map(|()| true),
            // The volume was taken away, or the server stops.
            Err(Failure::Volume(VolumeError::Fenced) | Failure::Stopping) => {
                guest.oracle.untold += 1;
                Ok(false)
            }
            Err(failure) => Err(format!("a request of a guest failed: {failure:?}")),
        };
        drop(guest);
        told.unwrap_or_else(|wrong| {
            self.fail(wrong);
            false
        })
    }
}

/// Which registers a request is of: few that are used often, sometimes many, sometimes those of two extents.
fn choose(rng: &mut Rng) -> Range<u64> {
    let extent = rng.below(EXTENTS);
    let (first, count) = match rng.below(100) {
        0..70 => (rng.below(8), rng.within(1..=3)),
        70..90 => (8 + 2 * rng.below(4), 2),
        90..97 if extent + 1 < EXTENTS => (UNITS - 2 + rng.below(2), rng.within(2..=5)),
        _ => (32 + 2 * rng.below(16), rng.within(16..=96)),
    };
    extent * UNITS + first..extent * UNITS + first + count
}

/// The guests of a world, with a volume each.
pub(super) struct GuestLoad {
    guests: Arc<Mutex<Guests>>,
    takes_ppm: u32,
    deletes_ppm: u32,
}

impl GuestLoad {
    pub(super) fn new(takes_ppm: u32, deletes_ppm: u32) -> Self {
        let guests = (0..VOLUMES).map(|_| Arc::default()).collect();
        let guests = Guests { guests, alive: BTreeSet::new(), round: 0 };
        Self { guests: Arc::new(Mutex::new(guests)), takes_ppm, deletes_ppm }
    }

    fn each<T>(&self, look: impl Fn(&Guest) -> Option<T>) -> Option<T> {
        lock(&self.guests).guests.iter().find_map(|guest| look(&lock(guest)))
    }
}

impl Load for GuestLoad {
    fn begin(&mut self, birth: &Birth) {
        let Birth { control, runtime, volumes, .. } = birth;
        let rng = control.rng("guest", u64::from(runtime.server().0) << 32 | u64::from(runtime.life()));
        let mut guests = lock(&self.guests);
        guests.alive.insert((runtime.server().0, runtime.life()));
        for (number, guest) in (0..).zip(&guests.guests) {
            let visit = Visit {
                control: control.clone(),
                runtime: runtime.clone(),
                volumes: volumes.clone(),
                guests: Arc::clone(&self.guests),
                guest: Arc::clone(guest),
                number,
                takes_ppm: self.takes_ppm,
                deletes_ppm: self.deletes_ppm,
                rng: rng.fork("volume", number.into()),
            };
            runtime.spawn(Box::pin(visit.run()));
        }
    }

    fn killed(&mut self, _control: &Control, runtime: &SimRuntime) {
        let place = (runtime.server().0, runtime.life());
        let mut guests = lock(&self.guests);
        guests.alive.remove(&place);
        for guest in &guests.guests {
            let mut guest = lock(guest);
            if guest.place == Some(place) {
                guest.place = None;
            }
        }
    }

    fn ask_for_a_round(&mut self, _is_whole: bool) {
        lock(&self.guests).round += 1;
    }

    fn check_round(&self, _lives: &[&SimRuntime]) -> Result<(), String> {
        let round = lock(&self.guests).round;
        let late = |guest: &Guest| {
            let (rounds, place) = (guest.rounds, guest.place);
            (rounds < round).then(|| format!("a guest at {place:?} has done {rounds} rounds of {round}"))
        };
        self.each(late).map_or(Ok(()), Err)
    }

    fn wrong(&self) -> Option<String> {
        self.each(|guest| guest.wrong.clone())
    }

    fn check_histories(&self) -> Result<(), String> {
        self.each(|guest| guest.oracle.check().err()).map_or(Ok(()), Err)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut sums = BTreeMap::new();
        for guest in &lock(&self.guests).guests {
            let guest = lock(guest);
            let counts = [
                ("told", guest.oracle.told),
                ("untold", guest.oracle.untold),
                ("fenced", guest.oracle.fenced),
                ("moves", guest.moves),
                ("taken_away", guest.taken_away),
                ("deleted", guest.deleted),
            ];
            for (name, count) in counts {
                *sums.entry(name).or_default() += count;
            }
        }
        sums.into_iter().collect()
    }
}
