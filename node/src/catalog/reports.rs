//! Reports of placement groups' members, and what follows from them: at the leader, in memory.
//!
//! A report is not durable. Whoever makes it makes it again until the configuration has another epoch, so a leader that
//! fails forgets nothing for long. It counts at the epoch that it names only: what it says may be wrong a change later.

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use ashlar_catalog::plan::failure::{plan_promotion, plan_witnesses};
use ashlar_catalog::set::{PgConfig, PgStep, Settled};
use ashlar_catalog::state::State;
use ashlar_placement::map::GroupId;
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, ServerId};
use ashlar_wire::time::Instant;

/// Reports that wait to be worked off.
pub const REPORTS_MAX: usize = 4_096;
/// Members that are remembered as lost.
const LOST_MAX: usize = 4_096;
/// For so long a member that was lost is not filled again: a drive that fails again and again must not keep its placement
/// group busy.
pub const LOST_HOLD: Duration = Duration::from_secs(10);
/// The same for a placement group with fewer acting members than its writes need. It waits for one of them: after a short cut of the
/// network, a primary that lost sight of both backups may have had them taken out although they are well.
pub const LOST_HOLD_WITHOUT_WRITES: Duration = Duration::from_secs(1);

/// What a report says about a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportKind {
    /// A learner has everything that was acknowledged, as the primary vouches.
    CaughtUp,
    /// A member does not do its part: it is silent, or its drive has failed.
    Lost,
    /// A member was restarted: it takes part again only in another epoch, with the same members.
    Restarted,
}

/// What a member of a placement group tells the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// The placement group.
    pub group: GroupId,
    /// The epoch at which this is true.
    pub epoch: Epoch,
    /// What it says.
    pub kind: ReportKind,
    /// About which drive.
    pub drive: DriveId,
}

/// Why a report was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportError {
    // The caller's; no retry helps.
    /// The placement group is at another epoch.
    Stale,
    /// The drive is no such member, or the server holds no member that may say so.
    NotEntitled,

    // Ours. Safe to retry.
    /// Too many reports wait.
    Busy,
    /// No leader was reached in time.
    NoLeader,
}

impl ReportError {
    /// What travels in a refusal.
    pub(super) const fn code(self) -> u32 {
        match self {
            Self::Stale => 10,
            Self::NotEntitled => 11,
            Self::Busy => 12,
            Self::NoLeader => 13,
        }
    }

    /// The error of a refusal. What is not known is something that a retry may help against.
    pub(super) const fn from_code(code: u32) -> Self {
        match code {
            10 => Self::Stale,
            11 => Self::NotEntitled,
            12 => Self::Busy,
            _ => Self::NoLeader,
        }
    }
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stale => "the placement group is at another epoch",
            Self::NotEntitled => "the drive is no such member, or the server may not report this",
            Self::Busy => "too many reports wait",
            Self::NoLeader => "no leader of the catalog was reached",
        })
    }
}

impl core::error::Error for ReportError {}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// By placement group and drive, and whether it is [`ReportKind::Restarted`]: that may come beside another one.
    waiting: BTreeMap<(GroupId, DriveId, bool), Report>,
    /// When members were lost, those of the last [`LOST_HOLD`].
    lost: BTreeMap<(GroupId, DriveId), Instant>,
}

impl Reports {
    /// Takes a report of a server. Of several about one drive the latest counts, beside the latest that it was restarted.
    pub(super) fn handle_report(&mut self, state: &State, from: ServerId, report: Report) -> Result<(), ReportError> {
        let config = state.pg(report.group).ok_or(ReportError::NotEntitled)?;
        if config.epoch != report.epoch {
            return Err(ReportError::Stale);
        }
        let holds = |drive: &DriveId| state.drive(*drive).is_some_and(|drive| drive.server == from);
        // Of two members that report each other, the first one counts.
        let is_accused = |drive: &DriveId| {
            self.waiting.get(&(report.group, *drive, false)).is_some_and(|other| other.kind == ReportKind::Lost)
        };
        let is_entitled = match report.kind {
            ReportKind::CaughtUp => holds(&config.primary) && config.learners.contains(&report.drive),
            ReportKind::Restarted => holds(&report.drive) && config.is_member(report.drive),
            ReportKind::Lost => {
                let speaks = config.acting.iter().any(|drive| holds(drive) && !is_accused(drive));
                config.is_member(report.drive) && (speaks || holds(&report.drive))
            }
        };
        if !is_entitled {
            return Err(ReportError::NotEntitled);
        }
        let key = (report.group, report.drive, report.kind == ReportKind::Restarted);
        if self.waiting.len() >= REPORTS_MAX && !self.waiting.contains_key(&key) {
            return Err(ReportError::Busy);
        }
        self.waiting.insert(key, report);
        Ok(())
    }

    /// Takes the reports that wait, and plans at most `steps_max` steps from them, while these servers are there. Reports that
    /// are stale are dropped, those that found no room wait on.
    pub(super) fn plan_steps(
        &mut self,
        state: &State,
        alive: &BTreeSet<ServerId>,
        now: Instant,
        steps_max: usize,
    ) -> Vec<PgStep> {
        self.lost.retain(|_, at| *at + LOST_HOLD > now);
        let mut steps = Vec::new();
        let groups: BTreeSet<GroupId> = self.waiting.keys().map(|(group, ..)| *group).collect();
        for group in groups.into_iter().take(steps_max) {
            let about = |(of, ..): &(GroupId, DriveId, bool)| *of == group;
            let keys: Vec<_> = self.waiting.keys().filter(|key| about(key)).copied().collect();
            let reports: Vec<Report> = keys.iter().filter_map(|key| self.waiting.remove(key)).collect();
            let Some(config) = state.pg(group) else { continue };
            let says = |kind| reports.iter().filter(move |report| report.kind == kind && report.epoch == config.epoch);
            let lost: Vec<DriveId> = says(ReportKind::Lost).map(|report| report.drive).collect();
            let certified: Vec<DriveId> = says(ReportKind::CaughtUp).map(|report| report.drive).collect();
            // Any other epoch will do for members that were restarted.
            let again = says(ReportKind::Restarted).next().map(|_| plan_again(group, &config));
            if lost.is_empty() {
                let promotion = plan_promotion(state, group, &certified).filter(|_| !certified.is_empty());
                steps.extend(promotion.or(again));
            } else if let Some(step) = plan_loss(state, group, &config, &lost) {
                self.hold(group, &lost, now);
                steps.push(step);
            } else {
                // All that act have lost something, or nobody ever had anything: others can tell.
                steps.extend(plan_witnesses(state, group, alive).or(again));
            }
        }
        steps
    }

    fn hold(&mut self, group: GroupId, lost: &[DriveId], now: Instant) {
        for drive in lost {
            if self.lost.len() < LOST_MAX {
                self.lost.insert((group, *drive), now);
            }
        }
    }

    /// Whether a drive was lost by this placement group less than `hold` ago.
    pub(super) fn is_held(&self, group: GroupId, drive: DriveId, hold: Duration, now: Instant) -> bool {
        self.lost.get(&(group, drive)).is_some_and(|at| *at + hold > now)
    }

    /// Forgets everything: another server leads.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Another epoch with the same members.
fn plan_again(group: GroupId, config: &PgConfig) -> PgStep {
    let PgConfig { epoch: expected, acting, primary, learners, .. } = config.clone();
    PgStep { group, expected, acting, primary, learners, certified: Vec::new(), settled: Settled::No }
}

/// The step that takes these drives out of a placement group; none if too few members would be left.
fn plan_loss(state: &State, group: GroupId, config: &PgConfig, lost: &[DriveId]) -> Option<PgStep> {
    let without = |drives: &[DriveId]| drives.iter().filter(|drive| !lost.contains(drive)).copied().collect::<Vec<_>>();
    let (acting, learners) = (without(&config.acting), without(&config.learners));
    let acting_min = usize::from(state.set(group.set)?.copies.acting_min).max(1);
    if acting.len() < acting_min && acting.len() < config.acting.len() {
        return None;
    }
    let primary = if acting.contains(&config.primary) { config.primary } else { *acting.first()? };
    let (certified, settled) = (Vec::new(), Settled::No);
    Some(PgStep { group, expected: config.epoch, acting, primary, learners, certified, settled })
}
