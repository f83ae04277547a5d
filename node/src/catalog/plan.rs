//! What the catalog should say next, given what it says and who is there: pure functions.
//!
//! Each plan looks at the state as a whole, not at what has just happened, so a new leader goes on where the last one
//! stopped, and whatever was done already is not planned again.

use core::time::Duration;
use std::collections::BTreeSet;

use ashlar_catalog::change::Change;
use ashlar_catalog::plan::departure::plan_departure;
use ashlar_catalog::plan::drives::{plan_given_up, plan_release};
use ashlar_catalog::plan::failure::{plan_failure, plan_learners, plan_settled};
use ashlar_catalog::plan::placement::{plan_set, plan_target};
use ashlar_catalog::raft::catalog::CatalogStatus;
use ashlar_catalog::server::{Drive, DriveClass, DriveState, Server, ServerState};
use ashlar_catalog::set::{Copies, PG_STEPS_MAX, PgConfig, PgStep};
use ashlar_catalog::state::State;
use ashlar_placement::domains::Conflict;
use ashlar_placement::map::{GroupId, Rack, SetId, Shape, Zone};
use ashlar_wire::id::{DriveId, ServerId};
use ashlar_wire::time::Instant;

use super::CatalogOptions;
use super::context::Members;
use super::reports::{LOST_HOLD, LOST_HOLD_WITHOUT_WRITES, Reports};

/// The set that is made by itself, of the first drives.
pub const FIRST_SET: SetId = SetId(0);
/// After the bus has declared a failure, for so long the server is waited for before its members leave acting lists.
pub const FAILURE_GRACE: Duration = Duration::from_secs(3);
/// For so long a server must be alive before its drives are filled.
pub const RETURN_GRACE: Duration = Duration::from_secs(1);
/// For so long a server must be alive, or gone, before voters are changed because of it.
pub const VOTERS_GRACE: Duration = Duration::from_secs(3);
/// Placement groups that are filled at a time.
pub const FILLING_MAX: usize = 256;
/// Changes of one kind in one round.
const CHANGES_MAX: usize = 32;

/// What a plan looks at.
pub(super) struct Scene<'a> {
    pub(super) state: &'a State,
    pub(super) members: &'a Members,
    pub(super) now: Instant,
}

/// A change, and what is told once it is made.
pub(super) type Due = (Change, String);

impl Scene<'_> {
    fn alive(&self) -> BTreeSet<ServerId> {
        self.members.alive_for(Duration::ZERO, self.now)
    }

    /// The servers whose members have to leave: gone for long enough, or given up.
    fn failed(&self) -> BTreeSet<ServerId> {
        let is_failed = |server: &&Server| {
            server.state == ServerState::Dead || self.members.is_gone_for(server.id, FAILURE_GRACE, self.now)
        };
        self.state.servers().filter(is_failed).map(|server| server.id).collect()
    }

    /// Members of the bus that the catalog does not know, and that are alive.
    pub(super) fn unknown(&self) -> Vec<ServerId> {
        let alive = self.alive().into_iter();
        alive.filter(|id| self.state.server(*id).is_none()).take(CHANGES_MAX).collect()
    }

    /// The change that makes a member of the bus known.
    pub(super) fn add_server(&self, id: ServerId, release: u32) -> Option<Due> {
        let seen = self.members.seen.get(&id)?;
        // Racks are not told: each zone is one.
        let (zone, rack) = (Zone(seen.zone), Rack(seen.zone));
        let address = seen.address.clone();
        let server = Server { id, address, zone, rack, release, state: ServerState::Joining };
        Some((Change::AddServer(server), format!("server {id} is known to the catalog")))
    }

    /// Servers that have another address, that are given up, or that are back after they were given up.
    pub(super) fn update_servers(&self) -> Vec<Due> {
        self.state.servers().filter_map(|server| self.update_server(server)).take(CHANGES_MAX).collect()
    }

    fn update_server(&self, server: &Server) -> Option<Due> {
        let id = server.id;
        if self.members.forgotten.contains(&id) {
            let state = ServerState::Dead;
            let told = format!("server {id} is given up: it was forgotten");
            return (server.state != state).then_some((Change::SetServerState { id, state }, told));
        }
        let seen = self.members.seen.get(&id).filter(|seen| seen.is_alive)?;
        if server.state == ServerState::Dead {
            let state = ServerState::Joining;
            return Some((Change::SetServerState { id, state }, format!("server {id} is back")));
        }
        let (address, release) = (seen.address.clone(), server.release);
        let told = format!("server {id} has moved to {address}");
        (server.address != address).then_some((Change::UpdateServer { id, address, release }, told))
    }

    /// Servers that get the log and may hold data and vote from now on.
    pub(super) fn activate(&self, with_log: &BTreeSet<ServerId>) -> Vec<Due> {
        let is_due = |server: &&Server| server.state == ServerState::Joining && with_log.contains(&server.id);
        let due = self.state.servers().filter(is_due).map(|server| {
            let (id, state) = (server.id, ServerState::Active);
            (Change::SetServerState { id, state }, format!("server {id} is active"))
        });
        due.take(CHANGES_MAX).collect()
    }

    /// Servers that do not get the log and should: those that are not given up and are alive.
    pub(super) fn without_log(&self, with_log: &BTreeSet<ServerId>) -> Vec<ServerId> {
        let alive = self.alive();
        let is_due = |server: &&Server| {
            server.state != ServerState::Dead && alive.contains(&server.id) && !with_log.contains(&server.id)
        };
        self.state.servers().filter(is_due).map(|server| server.id).take(CHANGES_MAX).collect()
    }

    /// Servers that are given up, hold nothing, do not vote, and can be removed for good.
    pub(super) fn removable(&self, voters: &[ServerId]) -> Vec<ServerId> {
        let is_removable = |server: &&Server| {
            let holds = self.state.drives().any(|drive| drive.server == server.id);
            let attached = self.state.volumes().any(|volume| volume.attached == Some(server.id));
            let votes = voters.contains(&server.id) || self.state.voters().contains(&server.id);
            server.state == ServerState::Dead && !holds && !attached && !votes
        };
        self.state.servers().filter(is_removable).map(|server| server.id).take(CHANGES_MAX).collect()
    }

    /// The voters that there should be; none if those of now are right, or if the change would put a majority at risk:
    /// more than half of the old and of the new ones must be alive, and so must all that are new.
    pub(super) fn voters(&self, status: &CatalogStatus, with_log: &BTreeSet<ServerId>) -> Option<BTreeSet<ServerId>> {
        let alive = self.members.alive_for(VOTERS_GRACE, self.now);
        let is_unclear = |id: &ServerId| {
            !alive.contains(id)
                && self.members.seen.contains_key(id)
                && !self.members.is_gone_for(*id, VOTERS_GRACE, self.now)
        };
        let servers = self.state.servers().filter(|server| server.state == ServerState::Active);
        if servers.map(|server| server.id).any(|id| is_unclear(&id)) {
            return None;
        }
        let planned: BTreeSet<ServerId> =
            ashlar_catalog::plan::voters::plan_voters(self.state, &alive).into_iter().collect();
        let old: BTreeSet<ServerId> = status.voters.iter().copied().collect();
        let is_majority_alive = |of: &BTreeSet<ServerId>| 2 * of.intersection(&alive).count() > of.len();
        let mut new = planned.difference(&old);
        let is_safe = is_majority_alive(&old)
            && is_majority_alive(&planned)
            && new.all(|id| alive.contains(id) && with_log.contains(id));
        // A leader that failed half-way leaves the old and the new voters together.
        ((planned != old || status.is_changing_voters) && is_safe).then_some(planned)
    }

    /// The first set, once there are enough drives on distinct servers; later its next map, when drives have come, gone
    /// or changed and nothing is being filled.
    pub(super) fn first_set(&self, options: &CatalogOptions) -> Option<Due> {
        let alive = self.members.alive_for(RETURN_GRACE, self.now);
        let is_free = |drive: &&Drive, class| {
            let active = self.state.server(drive.server).is_some_and(|server| server.state == ServerState::Active);
            let fits = drive.class == class && drive.set.is_none() && drive.state == DriveState::Active;
            fits && active && alive.contains(&drive.server)
        };
        let free = |class| self.state.drives().filter(|drive| is_free(drive, class)).collect::<Vec<&Drive>>();
        if let Some(set) = self.state.set(FIRST_SET) {
            if self.filling() > 0 {
                return None;
            }
            let added: Vec<DriveId> = free(set.class).iter().map(|drive| drive.id).collect();
            // With too few drives left there is no other map; data stay where they are.
            let change = plan_target(self.state, FIRST_SET, &added).ok()??;
            return Some((change, format!("set 0 has another map, with {} new drives", added.len())));
        }
        let copies = options.copies;
        [DriveClass::Nvme, DriveClass::Ssd, DriveClass::Hdd].into_iter().find_map(|class| {
            let drives = free(class);
            let servers: BTreeSet<ServerId> = drives.iter().map(|drive| drive.server).collect();
            let places = if options.apart == Conflict::Drive { drives.len() } else { servers.len() };
            if places < usize::from(copies) {
                return None;
            }
            let ids: Vec<DriveId> = drives.iter().map(|drive| drive.id).collect();
            let shape = Shape { pgs: options.pgs, width: copies, conflict: options.apart };
            let needed = Copies { write_min: copies.div_ceil(2), acting_min: 1 };
            let change = plan_set(self.state, FIRST_SET, shape, class, needed, &ids).ok()?;
            Some((change, format!("set 0 keeps {copies} copies on {} drives", ids.len())))
        })
    }

    /// Placement groups go on without servers that have failed and drives that are given up.
    pub(super) fn failures(&self) -> Vec<Due> {
        let failed = self.failed();
        let is_gone = |drive: &Drive| drive.state == DriveState::Failed || drive.state.is_away();
        if failed.is_empty() && !self.state.drives().any(|drive| drive.set.is_some() && is_gone(drive)) {
            return Vec::new();
        }
        told(plan_failure(self.state, &failed), "placement groups go on without servers and drives that are gone")
    }

    /// Placement groups go on without servers that are about to stop.
    pub(super) fn departures(&self, departing: &BTreeSet<ServerId>) -> Vec<Due> {
        if departing.is_empty() {
            return Vec::new();
        }
        let steps = plan_departure(self.state, departing, &self.alive());
        told(batches(&steps), "placement groups go on without servers that are about to stop")
    }

    /// Drives of servers that are given up are given up too, and drives that hold nothing of their set leave it.
    pub(super) fn drives(&self) -> Vec<Due> {
        let changes = [plan_given_up(self.state), plan_release(self.state)].concat();
        let tell = |change: Change| {
            let told = match &change {
                Change::ReleaseDrive(drive) => format!("no placement group has drive {drive} any more"),
                Change::SetDriveState { id, .. } => format!("drive {id} is given up with its server"),
                _ => String::from("a drive has changed"),
            };
            (change, told)
        };
        changes.into_iter().take(CHANGES_MAX).map(tell).collect()
    }

    /// Drives that should hold data and do not are filled, but for those that were lost a moment ago and those of servers that are
    /// about to stop.
    pub(super) fn fillings(&self, reports: &Reports, departing: &BTreeSet<ServerId>) -> Vec<Due> {
        let alive = self.members.alive_for(RETURN_GRACE, self.now);
        let dead = |id: &ServerId| self.state.server(*id).is_none_or(|server| server.state != ServerState::Active);
        let alive: BTreeSet<ServerId> = alive.into_iter().filter(|id| !dead(id) && !departing.contains(id)).collect();
        let steps_max = FILLING_MAX.saturating_sub(self.filling());
        let planned = plan_learners(self.state, &alive, steps_max).into_iter().flat_map(|change| match change {
            Change::ConfigurePgs(steps) => steps,
            _ => Vec::new(),
        });
        let steps = planned.filter_map(|mut step| {
            let group = step.group;
            let PgConfig { acting, learners: before, .. } = self.state.pg(group)?;
            let write_min = usize::from(self.state.set(group.set)?.copies.write_min);
            let hold = if acting.len() < write_min { LOST_HOLD_WITHOUT_WRITES } else { LOST_HOLD };
            let is_held = |drive| reports.is_held(group, drive, hold, self.now);
            step.learners.retain(|drive| before.contains(drive) || !is_held(*drive));
            (step.learners != before).then_some(step)
        });
        told(batches(&steps.collect::<Vec<_>>()), "placement groups fill further drives")
    }

    /// Placement groups that have all their drives forget those that they had before.
    pub(super) fn settled(&self) -> Vec<Due> {
        let alive = self.members.alive_for(RETURN_GRACE, self.now);
        told(plan_settled(self.state, &alive), "placement groups are whole without drives that they had before")
    }

    /// Placement groups that fill a drive.
    fn filling(&self) -> usize {
        let failed = self.failed();
        let groups = self.state.sets().flat_map(|set| self.state.pgs_of(set.id));
        groups.filter(|(_, config)| fills(self.state, config, &failed)).count()
    }

    /// Whether a placement group's step is still due.
    pub(super) fn is_due(&self, step: &PgStep) -> bool {
        let group: GroupId = step.group;
        self.state.pg(group).is_some_and(|config| config.epoch == step.expected)
    }
}

/// Whether a placement group fills a drive. One of which no acting member is there does not, however long it waits: the others do not
/// wait for it.
pub(crate) fn fills(state: &State, config: &PgConfig, failed: &BTreeSet<ServerId>) -> bool {
    let is_there = |drive: &Drive| {
        let is_dead = state.server(drive.server).is_none_or(|server| server.state == ServerState::Dead);
        drive.state != DriveState::Failed && !drive.state.is_away() && !is_dead && !failed.contains(&drive.server)
    };
    !config.learners.is_empty() && config.acting.iter().any(|drive| state.drive(*drive).is_some_and(is_there))
}

fn told(changes: Vec<Change>, what: &str) -> Vec<Due> {
    let with_count = |change: Change| {
        let count = if let Change::ConfigurePgs(steps) = &change { steps.len() } else { 0 };
        (change, format!("{count} {what}"))
    };
    changes.into_iter().take(CHANGES_MAX).map(with_count).collect()
}

/// Changes of as many placement groups each as one change may have.
pub(super) fn batches(steps: &[PgStep]) -> Vec<Change> {
    steps.chunks(PG_STEPS_MAX).map(|steps| Change::ConfigurePgs(steps.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use ashlar_catalog::change::{Command, ProposalId};
    use ashlar_catalog::set::Settled;
    use ashlar_placement::map::PgId;
    use ashlar_wire::id::ClusterId;

    use super::super::context::Seen;
    use super::super::reports::{Report, ReportKind};
    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000_000_000);
    static NOBODY: BTreeSet<ServerId> = BTreeSet::new();

    fn server(number: u8) -> ServerId {
        ServerId::from_bytes([number; 16])
    }

    fn drive(number: u8) -> DriveId {
        DriveId::from_bytes([number; 16])
    }

    fn apply(state: &mut State, change: Change) {
        let id = ProposalId(u128::from(state.version().0 + 1).to_be_bytes());
        state.apply(&Command { id, seen: state.version(), change }).unwrap();
    }

    /// Three servers with a drive each, and one placement group on all of them.
    fn state() -> State {
        let mut state = State::new(ClusterId::from_bytes([1; 16]));
        for number in 1..=3 {
            let (id, address, (zone, rack)) = (server(number), format!("{number}:1"), (Zone(0), Rack(0)));
            apply(
                &mut state,
                Change::AddServer(Server { id, address, zone, rack, release: 1, state: ServerState::Active }),
            );
            let (class, size_bytes, active) = (DriveClass::Ssd, 1 << 40, DriveState::Active);
            apply(
                &mut state,
                Change::AddDrive(Drive { id: drive(number), server: id, class, size_bytes, state: active, set: None }),
            );
        }
        let (members, options) = (members(), CatalogOptions { pgs: 1, ..CatalogOptions::default() });
        let (set, _) = Scene { state: &state, members: &members, now: NOW }.first_set(&options).unwrap();
        apply(&mut state, set);
        state
    }

    #[test]
    fn copies_lie_on_drives_of_one_server_only_where_that_is_asked_for() {
        let mut state = State::new(ClusterId::from_bytes([1; 16]));
        let (id, address, (zone, rack)) = (server(1), "1:1".to_owned(), (Zone(0), Rack(0)));
        apply(
            &mut state,
            Change::AddServer(Server { id, address, zone, rack, release: 1, state: ServerState::Active }),
        );
        let first_set = |state: &State, apart, copies| {
            let options = CatalogOptions { copies, apart, pgs: 4 };
            let (change, _) = Scene { state, members: &members(), now: NOW }.first_set(&options)?;
            let Change::CreateSet { map, .. } = change else { panic!("{change:?}") };
            Some((map.drives().len(), map.shape()))
        };
        for number in 1..=4 {
            let add = |apart, copies| first_set(&state, apart, copies).map(|(drives, _)| drives);
            let drives = usize::from(number) - 1;
            assert_eq!(add(Conflict::Drive, 3), (drives >= 3).then_some(drives));
            assert_eq!(add(Conflict::Server, 1), (drives >= 1).then_some(drives));
            assert_eq!(add(Conflict::Server, 2), None, "with {drives} drives of one server");
            let (class, size_bytes, active) = (DriveClass::Ssd, 1 << 40, DriveState::Active);
            let drive = Drive { id: drive(number), server: id, class, size_bytes, state: active, set: None };
            apply(&mut state, Change::AddDrive(drive));
        }
        let (_, shape) = first_set(&state, Conflict::Drive, 3).unwrap();
        assert_eq!((shape.width, shape.conflict, shape.pgs), (3, Conflict::Drive, 4));
    }

    fn members() -> Members {
        let seen = |number| {
            let seen = Seen { address: format!("{number}:1"), zone: 0, is_alive: true, since: Instant::from_nanos(0) };
            (server(number), seen)
        };
        Members { seen: (1..=3).map(seen).collect(), ..Members::default() }
    }

    fn alive() -> BTreeSet<ServerId> {
        (1..=4).map(server).collect()
    }

    #[test]
    fn a_server_that_is_about_to_stop_leaves_and_is_not_filled() {
        let (mut state, members) = (state(), members());
        let one = BTreeSet::from([server(2)]);
        let departures =
            |state: &State, departing| Scene { state, members: &members, now: NOW }.departures(departing).pop();
        assert_eq!(departures(&state, &NOBODY), None);
        while let Some((change, _)) = departures(&state, &one) {
            apply(&mut state, change);
        }
        assert!(state.pgs_of(FIRST_SET).all(|(_, config)| config.acting.len() == 2));
        let fillings = |departing| {
            Scene { state: &state, members: &members, now: NOW }.fillings(&Reports::default(), departing).len()
        };
        assert_eq!((fillings(&one), fillings(&NOBODY)), (0, 1));
    }

    /// The seconds after which members that the primary has lost are filled again.
    fn filled_after(lost_count: usize) -> Option<u64> {
        let (mut state, members, mut reports) = (state(), members(), Reports::default());
        let group = GroupId { set: FIRST_SET, pg: PgId(0) };
        let PgConfig { epoch, acting, primary, .. } = state.pg(group).unwrap();
        let from = state.drive(primary).unwrap().server;
        let backups = acting.iter().copied().filter(|drive| *drive != primary);
        for drive in backups.take(lost_count) {
            reports.handle_report(&state, from, Report { group, epoch, kind: ReportKind::Lost, drive }).unwrap();
        }
        let steps = reports.plan_steps(&state, &alive(), NOW, 8);
        apply(&mut state, Change::ConfigurePgs(steps));
        assert_eq!(state.pg(group).unwrap().acting.len(), 3 - lost_count);
        (0..60).find(|after| {
            let now = NOW + Duration::from_secs(*after);
            !Scene { state: &state, members: &members, now }.fillings(&reports, &NOBODY).is_empty()
        })
    }

    #[test]
    fn a_group_whose_members_all_lack_something_asks_those_that_it_had_before() {
        let (mut state, mut reports) = (state(), Reports::default());
        let group = GroupId { set: FIRST_SET, pg: PgId(0) };
        let founders = state.pg(group).unwrap().acting;
        let step = |state: &State, acting: &[DriveId], learners: &[DriveId]| PgStep {
            group,
            expected: state.pg(group).unwrap().epoch,
            acting: acting.to_vec(),
            primary: acting[0],
            learners: learners.to_vec(),
            certified: Vec::new(),
            settled: Settled::No,
        };
        let mut says = |state: &State, kinds: &[ReportKind]| {
            let PgConfig { epoch, acting, .. } = state.pg(group).unwrap();
            for drive in acting {
                let from = state.drive(drive).unwrap().server;
                for kind in kinds {
                    reports.handle_report(state, from, Report { group, epoch, kind: *kind, drive }).unwrap();
                }
            }
            reports.plan_steps(state, &alive(), NOW, 8)
        };
        let (lost, both) = ([ReportKind::Lost], [ReportKind::Restarted, ReportKind::Lost]);
        assert_eq!(says(&state, &lost), [], "all are there");
        assert_eq!(says(&state, &both), [step(&state, &founders, &[])], "in another epoch they compare what they have");
        let alone = step(&state, &founders[..1], &[]);
        apply(&mut state, Change::ConfigurePgs(vec![alone]));
        assert_eq!(says(&state, &both), [step(&state, &founders[..1], &founders[1..])]);
        // A drive that came later, and is being filled already.
        let (id, size_bytes, set) = (server(4), 1 << 40, None);
        let later = Server { id, address: "4:1".into(), ..state.server(server(1)).unwrap().clone() };
        apply(&mut state, Change::AddServer(later));
        let (class, active) = (DriveClass::Ssd, DriveState::Active);
        apply(&mut state, Change::AddDrive(Drive { id: drive(4), server: id, class, size_bytes, state: active, set }));
        let target = plan_target(&state, FIRST_SET, &[drive(4)]).unwrap().unwrap();
        apply(&mut state, target);
        let learning = step(&state, &founders[..1], &[drive(4), founders[1]]);
        apply(&mut state, Change::ConfigurePgs(vec![learning]));
        let expected = [founders[1], founders[2], drive(4)];
        assert_eq!(says(&state, &lost), [step(&state, &founders[..1], &expected)]);
    }

    #[test]
    fn a_group_whose_only_copy_is_given_up_keeps_no_other_from_another_map() {
        let mut state = state();
        let group = GroupId { set: FIRST_SET, pg: PgId(0) };
        let PgConfig { epoch: expected, acting, .. } = state.pg(group).unwrap();
        let (only, learner) = (acting[0], acting[1]);
        let (certified, settled) = (Vec::new(), Settled::No);
        let step =
            PgStep { group, expected, acting: vec![only], primary: only, learners: vec![learner], certified, settled };
        apply(&mut state, Change::ConfigurePgs(vec![step]));
        let (id, size_bytes, set) = (server(4), 1 << 40, None);
        let later = Server { id, address: "4:1".into(), ..state.server(server(1)).unwrap().clone() };
        apply(&mut state, Change::AddServer(later));
        let (class, active) = (DriveClass::Ssd, DriveState::Active);
        apply(&mut state, Change::AddDrive(Drive { id: drive(4), server: id, class, size_bytes, state: active, set }));
        let mut members = members();
        let seen = members.seen[&server(2)].clone();
        members.seen.insert(server(4), seen);
        let options = CatalogOptions { pgs: 1, ..CatalogOptions::default() };
        let next_map = |state: &State| Scene { state, members: &members, now: NOW }.first_set(&options);
        assert_eq!(next_map(&state), None, "it is being filled");
        apply(&mut state, Change::SetDriveState { id: only, state: DriveState::Failed });
        assert!(matches!(next_map(&state), Some((Change::SetTarget { .. }, _))));
        let fillings = Scene { state: &state, members: &members, now: NOW }.fillings(&Reports::default(), &NOBODY);
        let [(Change::ConfigurePgs(steps), _)] = &fillings[..] else { panic!("{fillings:?}") };
        assert_eq!((&steps[0].acting[..], &steps[0].learners[..]), (&[only][..], &[][..]), "it keeps no drive waiting");
        let step = fillings[0].0.clone();
        apply(&mut state, step);
        assert_eq!(Scene { state: &state, members: &members, now: NOW }.fillings(&Reports::default(), &NOBODY), []);
    }

    #[test]
    fn a_group_that_cannot_write_waits_less_for_members_that_were_lost() {
        assert_eq!(filled_after(1), Some(LOST_HOLD.as_secs()), "the others write on meanwhile");
        assert_eq!(filled_after(2), Some(LOST_HOLD_WITHOUT_WRITES.as_secs()));
    }
}
