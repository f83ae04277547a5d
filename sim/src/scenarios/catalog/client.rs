//! What runs on each server beside the catalog: a client that proposes, and a toy of the volume service that reports.

use core::time::Duration;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ashlar_catalog::change::{CatalogVersion, Change};
use ashlar_catalog::raft::catalog::Error;
use ashlar_catalog::record::Expected;
use ashlar_catalog::server::DriveClass;
use ashlar_catalog::state::State;
use ashlar_catalog::volume::{Generation, VolumeClass, VolumeRecord};
use ashlar_grid::seam::Runtime as _;
use ashlar_node::catalog::reports::{Report, ReportKind};
use ashlar_node::catalog::{CatalogHandle, FIRST_SET, RegisterError};
use ashlar_placement::map::GroupId;
use ashlar_placement::part::Part;
use ashlar_placement::rule::ExtentSize;
use ashlar_wire::id::{DriveId, VolumeId};

use super::ledger::{Ledger, TURN, Told, key, turn_of};
use super::lock;
use crate::rng::Rng;
use crate::scenarios::node::server_id;
use crate::world::{ServerNo, SimRuntime};

/// Bytes of every drive.
const DRIVE_BYTES: u64 = 4 << 30;
/// Proposals of every client after the healing, each tried until it is acknowledged.
pub(super) const LAST_PROPOSALS: u64 = 4;
/// How often learners are looked for.
const REPORT_EVERY: Duration = Duration::from_millis(300);
/// How often the state is compared with others.
const LOOK: Duration = Duration::from_millis(250);
/// Every so many looks, all that was acknowledged is looked for.
const THOROUGH_EVERY: u64 = 8;

/// The drive of a server.
pub(super) fn drive_id(server: ServerNo) -> DriveId {
    DriveId::from_bytes([0xd0 + server.0 as u8; 16])
}

/// What all tasks of a life share.
#[derive(Clone)]
pub(super) struct Bench {
    pub(super) runtime: SimRuntime,
    pub(super) handle: CatalogHandle,
    pub(super) ledger: Arc<Mutex<Ledger>>,
    /// All faults are over.
    pub(super) is_healed: Arc<AtomicBool>,
    /// Proposals of this life after the healing that were acknowledged.
    pub(super) last_told: Arc<AtomicU64>,
}

impl Bench {
    async fn sleep(&self, span: Duration) {
        self.runtime.sleep_until(self.runtime.now() + span).await;
    }

    fn is_healed(&self) -> bool {
        self.is_healed.load(Ordering::SeqCst)
    }

    /// Makes the drive known.
    pub(super) async fn register(self) {
        let id = drive_id(self.runtime.server());
        let done = self.handle.register_drive(id, DRIVE_BYTES, DriveClass::Ssd).await;
        if let Err(error) = done
            && error != RegisterError::Stopped(Error::Stopped)
        {
            lock(&self.ledger).wrong = Some(format!("{:?} cannot register its drive: {error}", self.runtime.server()));
        }
    }

    /// Looks at the state again and again.
    pub(super) async fn look(self) {
        let me = server_id(self.runtime.server());
        for number in 0_u64.. {
            if let Some(state) = self.handle.state_now() {
                let mut ledger = lock(&self.ledger);
                ledger.check_equal(me, &state);
                if number.is_multiple_of(THOROUGH_EVERY) {
                    ledger.check_told(me, &state);
                }
            }
            self.sleep(LOOK).await;
        }
    }

    /// Proposes until the healing, and a few times after it.
    pub(super) async fn propose(self, mut rng: Rng) {
        let Ok(mut state) = self.handle.state().await else { return };
        for number in 0_u64.. {
            let is_last = self.is_healed();
            if is_last && self.last_told.load(Ordering::SeqCst) >= LAST_PROPOSALS {
                return;
            }
            self.sleep(Duration::from_nanos(rng.magnitude(5_000_000..=500_000_000))).await;
            state = self.handle.state_now().unwrap_or(state);
            let name = format!("{}-{}-{number}", self.runtime.server().0, self.runtime.life());
            let is_told = self.propose_one(&state, name, &mut rng).await;
            if is_last && is_told {
                self.last_told.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    async fn propose_one(&self, state: &State, name: String, rng: &mut Rng) -> bool {
        let (change, told) = draw(state, name, rng);
        let done = self.handle.propose(change).await;
        let is_told = done.is_ok();
        let mut ledger = lock(&self.ledger);
        match done {
            Ok(applied) => ledger.tell(told(applied.version)),
            Err(Error::Refused(_)) => ledger.refused += 1,
            // A server that leaves in order stops its catalog.
            Err(Error::Unknown | Error::Stopped) => ledger.unknown += 1,
            Err(error) => ledger.wrong = Some(format!("{:?}: {error}", self.runtime.server())),
        }
        is_told
    }

    /// Certifies the learners of placement groups whose primary is here, and sometimes reports a member as lost.
    pub(super) async fn report(self, mut rng: Rng) {
        let own = drive_id(self.runtime.server());
        loop {
            self.sleep(REPORT_EVERY).await;
            let Some(state) = self.handle.state_now() else { continue };
            let mut reports = Vec::new();
            for (pg, config) in state.pgs_of(FIRST_SET).filter(|(_, config)| config.primary == own) {
                let report =
                    |kind, drive| Report { group: GroupId { set: FIRST_SET, pg }, epoch: config.epoch, kind, drive };
                let certified = config.learners.iter().filter(|_| rng.chance(700_000));
                reports.extend(certified.map(|drive| report(ReportKind::CaughtUp, *drive)));
                if !self.is_healed() && rng.chance(3_000) {
                    reports.extend(config.acting.last().map(|drive| report(ReportKind::Lost, *drive)));
                }
            }
            for report in reports {
                // It is said again until the epoch is another.
                let _ = self.handle.report(report).await;
            }
        }
    }
}

/// A change, and what is known if it is acknowledged at a version.
fn draw(state: &State, name: String, rng: &mut Rng) -> (Change, Box<dyn FnOnce(CatalogVersion) -> Told + Send>) {
    match rng.below(100) {
        0..25 => {
            let (number, expected) = turn_of(state)
                .map_or((1, Expected::Absent), |(number, revision)| (number + 1, Expected::Revision(revision)));
            let value = number.to_be_bytes().to_vec();
            (
                Change::PutRecord { key: key(TURN), expected, value },
                Box::new(move |version| Told::Turn { number, version }),
            )
        }
        25..40 if state.set(FIRST_SET).is_some() => {
            let mut id = [0; 16];
            rng.fill(&mut id);
            let volume = VolumeRecord {
                id: VolumeId::from_bytes(id),
                name: name.clone(),
                class: VolumeClass::Standard,
                extent_size: ExtentSize::DEFAULT,
                size_bytes: 3 << 20,
                parts: vec![Part { set: FIRST_SET, extents: 3 }],
                generation: Generation::default(),
                attached: None,
            };
            (Change::CreateVolume(volume), Box::new(move |version| Told::Volume { name, version }))
        }
        _ => {
            let value = name.clone().into_bytes();
            let change = Change::PutRecord { key: key(&name), expected: Expected::Absent, value };
            (change, Box::new(move |version| Told::Record { name, version }))
        }
    }
}
