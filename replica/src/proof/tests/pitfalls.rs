//! Pitfalls of replication, each a scenario on the world: what happens is written down, when exactly is drawn.
//!
//! Not here, because other crates own them: a snapshot cut with writes in flight (volume), repair budgets (schedule).

use alloc::vec;
use alloc::vec::Vec;

use ashlar_placement::map::GroupId;
use ashlar_placement::rule::{Extent, ExtentId};

use super::super::client::Outstanding;
use super::super::store::Store;
use super::super::world::{Event, MS};
use super::super::{Faults, Options, World};
use crate::config::Configuration;
use crate::member::Report;
use crate::planted::Planted;
use crate::request::{ClientRequest, RequestId, Room, StoreError};

/// Seeds of every scenario.
const SEEDS: u64 = 12;

fn options(seed: u64, servers: u64, planted: Option<Planted>) -> Options {
    Options { planted, clients: 4, ..Options::quiet(seed, servers) }
}

impl World {
    fn group(&self) -> GroupId {
        self.catalog.groups()[0]
    }

    fn configuration(&self) -> Configuration {
        self.catalog.configuration(self.group()).clone()
    }

    /// The server of the present primary.
    fn primary(&self) -> usize {
        self.place(self.configuration().primary)
    }

    fn place(&self, drive: ashlar_wire::id::DriveId) -> usize {
        self.servers.iter().position(|server| server.drive == drive).unwrap()
    }

    fn others(&self, than: usize) -> Vec<usize> {
        (0..self.servers.len()).filter(|number| *number != than).collect()
    }

    fn isolate(&mut self, number: usize) {
        let all = self.others(number).into_iter().chain([self.servers.len()]);
        all.collect::<Vec<_>>().into_iter().for_each(|other| self.cut(number, other));
    }

    /// The catalog begins another epoch with the same members.
    fn begin_epoch(&mut self) {
        let (group, Configuration { epoch, .. }) = (self.group(), self.configuration());
        self.schedule(self.now, Event::Report { group, report: Report::NewEpoch { epoch } });
    }

    /// What the catalog has told a server has not arrived.
    fn forget_configurations(&mut self, of: usize) {
        self.events.retain(|_, event| !matches!(event, Event::Configuration { server, .. } if *server == of));
    }

    /// A server hears of a configuration.
    fn tell(&mut self, server: usize, configuration: Configuration) {
        self.schedule(self.now, Event::Configuration { server, configuration });
    }

    /// The load goes on with extents that no drive has: those that it used are discarded.
    fn empty_drives(&mut self) {
        self.has_load = false;
        await_that(self, |world| world.clients.iter().all(|client| client.outstanding.is_empty()));
        for extent in 0..6 {
            self.discard(extent);
        }
        await_that(self, |world| world.clients.iter().all(|client| client.outstanding.is_empty()));
        self.has_load = true;
    }

    /// An extent that the first client may write.
    fn extent(&self, number: u64) -> ExtentId {
        let volume = self.clients[0].attached.first_key_value().map(|(volume, _)| *volume).unwrap();
        ExtentId { volume, extent: Extent(number) }
    }

    /// The first client discards an extent as far as the load uses it.
    fn discard(&mut self, extent: u64) {
        let extent = self.extent(extent);
        self.begin_discard(0, extent);
    }

    /// A server crashes, and its drive is an earlier state of itself afterwards.
    fn go_back(&mut self, number: usize, mut earlier: Store) {
        let group = self.group();
        self.crash(number, false);
        earlier.crash(&mut self.chance);
        self.servers[number].stores.insert(group, earlier);
        self.emptied.push((self.now, number));
    }

    fn restart(&mut self, number: usize) {
        self.start(number);
    }

    fn slow(&mut self, number: usize, span_ms: u64) {
        self.servers[number].slow_until = self.now + span_ms * MS;
    }

    fn pause(&mut self, number: usize, span_ms: u64) {
        self.servers[number].paused_until = self.now + span_ms * MS;
    }
}

/// Runs a scenario on some seeds; the first rule that is broken.
fn run(options: &Options, script: fn(&mut World)) -> Option<alloc::string::String> {
    let mut world = World::new(options);
    world.run_ms(2_500);
    let before = world.outcome();
    assert!(before.writes > 20, "the load runs: {before:?}");
    script(&mut world);
    world.heal();
    world.recover();
    world.finish();
    world.outcome().violation
}

fn check(servers: u64, script: fn(&mut World)) {
    for seed in 0..SEEDS {
        assert_eq!(run(&options(seed, servers, None), script), None, "seed {seed}");
    }
}

/// Whether a scenario made for a planted bug catches it.
pub(super) fn catch(planted: Planted) -> bool {
    let script: fn(&mut World) = match planted {
        Planted::CertifiedNotRequired => old_members_go_while_the_primary_does_not_hear_of_a_new_one,
        Planted::ForgetWritesDuringCopy => learner_filled_under_load,
        Planted::AcknowledgeBeforeDurable => power_fails_and_the_primary_is_lost,
        Planted::NoWaitForGrant => primary_taken_out_while_its_lease_holds,
        Planted::WholeByEntering => certified_learner_is_emptied_and_hears_old_configurations,
        Planted::FullCountsAsDone => drive_is_full_before_its_members_hear_of_it,
        Planted::OrderBehind => write_is_given_up_while_it_looks,
        Planted::TakeLateCopies => copy_of_an_answered_write_comes_to_a_later_epoch,
        Planted::IgnoreLives => primary_goes_back_to_an_earlier_state_in_its_epoch,
        Planted::WriteWhileMending => primary_lost_while_damaged_copies_are_replaced,
        Planted::ServeUnproven => last_copy_is_damaged_where_it_is_not_acknowledged,
        _ => return false,
    };
    let min_copies = if planted == Planted::ServeUnproven { 2 } else { 1 };
    (0..60).any(|seed| run(&Options { min_copies, ..options(seed, 3, Some(planted)) }, script).is_some())
}

/// Clients that only read know the old primary alone, and wait for it.
fn primary_paused_while_it_reads(world: &mut World) {
    let catalog = world.servers.len();
    for _ in 0..3 {
        (2..4).for_each(|client| world.cut(catalog, catalog + 1 + client));
        let primary = world.primary();
        world.slow(primary, 200);
        world.run_ms(100);
        world.pause(primary, 1_800);
        world.run_ms(2_500);
        world.heal();
        world.run_ms(3_000);
    }
}

/// Waits, a while at most.
fn await_that(world: &mut World, is_so: impl Fn(&World) -> bool) {
    for _ in 0..8_000 {
        if is_so(world) {
            return;
        }
        world.run_ms(1);
    }
}

fn old_members_go_while_the_primary_does_not_hear_of_a_new_one(world: &mut World) {
    let group = world.group();
    world.crash(2, false);
    world.run_ms(1_500);
    world.restart(2);
    let knows = |world: &World, number: usize| {
        let configuration = world.servers[number].nodes[&group].member.configuration();
        configuration.is_some_and(|configuration| configuration.epoch == world.configuration().epoch)
    };
    let is_filling = |world: &World| !world.configuration().learners.is_empty();
    await_that(world, |world| is_filling(world) && knows(world, 0) && knows(world, 1));
    let catalog = world.servers.len();
    [0, 1].into_iter().for_each(|old| {
        world.blocked.insert((catalog, old));
    });
    (0..4).for_each(|client| world.cut(catalog, catalog + 1 + client));
    await_that(world, |world| world.configuration().acting.len() == 3);
    [0, 1].into_iter().for_each(|old| world.cut(old, 2));
    world.run_ms(250);
    for old in [0, 1] {
        world.take_out(group, world.servers[old].drive);
        world.run_ms(1);
    }
    world.run_ms(1_500);
}

fn learner_filled_under_load(world: &mut World) {
    for _ in 0..3 {
        world.crash(2, false);
        world.run_ms(1_500);
        world.restart(2);
        for _ in 0..40 {
            let primary = world.primary();
            world.slow(primary, 60);
            world.run_ms(60);
        }
    }
}

/// All extents of a server's copy are damaged.
fn damage_all(world: &mut World, number: usize) {
    let group = world.group();
    for extent in 0..6 {
        let extent = world.extent(extent);
        world.damage(number, group, extent);
    }
}

fn primary_lost_while_damaged_copies_are_replaced(world: &mut World) {
    world.crash(2, false);
    await_that(world, |world| world.configuration().acting.len() == 2);
    for turn in 0..6 {
        let primary = world.primary();
        let backup = 1 - primary;
        damage_all(world, backup);
        world.slow(primary, 300);
        world.run_ms(420 + 20 * turn);
        world.crash(primary, false);
        world.run_ms(1_500);
        world.restart(primary);
        await_that(world, |world| world.configuration().acting.len() == 2);
    }
    world.restart(2);
}

/// The primary has writes that the other member does not get any more, and its drive damages them. The other one comes back.
fn last_copy_is_damaged_where_it_is_not_acknowledged(world: &mut World) {
    world.crash(2, false);
    await_that(world, |world| world.configuration().acting.len() == 2);
    let primary = world.primary();
    let other = 1 - primary;
    world.run_ms(1_500);
    world.cut(primary, other);
    world.run_ms(150);
    world.take_out(world.group(), world.servers[other].drive);
    damage_all(world, primary);
    await_that(world, |world| world.configuration().acting == [world.servers[primary].drive]);
    world.blocked.clear();
    world.run_ms(6_000);
    if world.outcome().lost > 0 {
        world.fail("what was acknowledged is lost, and another drive has it".into());
    }
}

fn power_fails_and_the_primary_is_lost(world: &mut World) {
    let primary = world.primary();
    for other in world.others(primary) {
        world.slow(other, 500);
    }
    world.run_ms(300);
    for number in 0..world.servers.len() {
        world.crash(number, number == primary);
    }
    for other in world.others(primary) {
        world.restart(other);
    }
    world.run_ms(3_000);
}

fn primary_taken_out_while_its_lease_holds(world: &mut World) {
    for _ in 0..4 {
        let primary = world.primary();
        world.isolate(primary);
        world.take_out(world.group(), world.servers[primary].drive);
        world.run_ms(1_500);
        world.heal();
        world.run_ms(4_000);
    }
}

/// A learner that the catalog has added is emptied and restarted. It hears of the epochs in which it was a learner late,
/// one after the other, and of nobody else.
fn certified_learner_is_emptied_and_hears_old_configurations(world: &mut World) {
    world.crash(2, false);
    world.run_ms(1_500);
    world.restart(2);
    await_that(world, |world| !world.configuration().learners.is_empty());
    let mut heard = vec![world.configuration()];
    world.begin_epoch();
    await_that(world, |world| world.configuration().epoch > heard[0].epoch);
    heard.push(world.configuration());
    assert!(heard.iter().all(|known| known.learners == [world.servers[2].drive]), "{heard:?}");
    let catalog = world.servers.len();
    [0, 1].into_iter().for_each(|old| {
        world.blocked.insert((catalog, old));
    });
    await_that(world, |world| world.configuration().acting.len() == 3);
    world.crash(2, true);
    world.blocked.insert((catalog, 2));
    [0, 1].into_iter().for_each(|old| world.cut(old, 2));
    world.restart(2);
    world.forget_configurations(2);
    for configuration in heard {
        world.tell(2, configuration);
        world.run_ms(30);
    }
    world.blocked.remove(&(catalog, 2));
    world.run_ms(4_000);
}

/// The drive of a primary goes back to what it was before the epoch, and its process takes the epoch up again.
fn primary_goes_back_to_an_earlier_state_in_its_epoch(world: &mut World) {
    let group = world.group();
    world.has_load = false;
    await_that(world, |world| world.clients.iter().all(|client| client.outstanding.is_empty()));
    let primary = world.primary();
    let earlier = world.servers[primary].nodes[&group].store.clone();
    let epoch = world.configuration().epoch;
    world.begin_epoch();
    await_that(world, |world| world.configuration().epoch > epoch && world.is_serving(group));
    world.has_load = true;
    world.run_ms(400);
    world.go_back(primary, earlier);
    world.restart(primary);
    world.run_ms(4_000);
}

/// A backup's drive refuses writes for want of room. It leaves, waits for room as a learner, and acts again.
fn drive_is_full_before_its_members_hear_of_it(world: &mut World) {
    let backup = world.others(world.primary())[0];
    let group = world.group();
    world.empty_drives();
    world.begin_full(backup);
    let acts = |world: &World| world.configuration().acting.contains(&world.servers[backup].drive);
    await_that(world, |world| !acts(world));
    world.tell_room(backup, Room::Low);
    await_that(world, |world| !world.configuration().learners.is_empty());
    let epoch = world.configuration().epoch;
    let before = world.outcome().writes;
    world.run_ms(3_000);
    assert_eq!(world.configuration().epoch, epoch, "a learner without room changes nothing");
    assert!(world.outcome().writes > before + 20 && world.is_serving(group), "the others go on");
    world.tell_room(backup, Room::Enough);
    await_that(world, acts);
    assert!(acts(world));
}

/// A client gives up a write that waits for what its extent has, and writes the same blocks again.
fn write_is_given_up_while_it_looks(world: &mut World) {
    let primary = world.primary();
    world.empty_drives();
    world.has_load = false;
    world.slow(primary, 2_000);
    let extent = world.extent(1);
    world.tell_room(primary, Room::Low);
    world.begin_write(0, extent, 0, 1);
    world.run_ms(3);
    world.clients[0].outstanding.clear();
    world.tell_room(primary, Room::Enough);
    world.begin_write(0, extent, 0, 1);
    world.run_ms(3_000);
    world.has_load = true;
}

/// A write is answered in one epoch, while a copy of it is on its way in the next, and another request is outstanding.
fn copy_of_an_answered_write_comes_to_a_later_epoch(world: &mut World) {
    world.has_load = false;
    await_that(world, |world| world.clients.iter().all(|client| client.outstanding.is_empty()));
    let (extent, group, epoch) = (world.extent(1), world.group(), world.configuration().epoch);
    world.begin_read(0, extent, 3, 1);
    let held = world.clients[0].outstanding.last_entry().unwrap().remove();
    let floor = RequestId(world.clients[0].next - 1);
    world.begin_write(0, extent, 0, 2);
    let (number, written) = world.clients[0].outstanding.last_key_value().map(|(id, it)| (*id, it.clone())).unwrap();
    await_that(world, |world| world.clients[0].outstanding.is_empty());
    world.begin_epoch();
    await_that(world, |world| world.configuration().epoch > epoch && world.is_serving(group));
    world.run_ms(50);
    world.clients[0].outstanding.insert(floor, Outstanding { again_at: u64::MAX, until: u64::MAX, ..held });
    world.begin_write(0, extent, 0, 1);
    await_that(world, |world| world.clients[0].outstanding.len() == 1);
    let copy = ClientRequest {
        session: world.clients[0].session,
        request: number,
        floor,
        generation: world.clients[0].attached[&extent.volume],
        epoch: world.configuration().epoch,
        extent,
        operation: written.operation,
    };
    let server = world.primary();
    world.schedule(world.now, Event::Request { server, client: 0, group, request: copy });
    world.run_ms(100);
    world.clients[0].outstanding.clear();
    world.has_load = true;
}

#[test]
fn scenarios_of_planted_bugs_are_harmless_without_them() {
    check(3, write_is_given_up_while_it_looks);
    check(3, primary_lost_while_damaged_copies_are_replaced);
    check(3, last_copy_is_damaged_where_it_is_not_acknowledged);
    check(3, copy_of_an_answered_write_comes_to_a_later_epoch);
    check(3, drive_is_full_before_its_members_hear_of_it);
    check(3, certified_learner_is_emptied_and_hears_old_configurations);
    check(3, primary_goes_back_to_an_earlier_state_in_its_epoch);
    check(3, old_members_go_while_the_primary_does_not_hear_of_a_new_one);
    check(3, learner_filled_under_load);
    check(3, power_fails_and_the_primary_is_lost);
    check(3, primary_taken_out_while_its_lease_holds);
}

#[test]
fn torn_multi_block_write_on_one_and_on_all_members() {
    check(3, |world| {
        for _ in 0..3 {
            let primary = world.primary();
            world.slow(primary, 300);
            world.run_ms(100);
            world.crash(primary, false);
            world.run_ms(1_500);
            (0..3).for_each(|number| world.crash(number, false));
            (0..3).for_each(|number| world.restart(number));
            world.run_ms(1_500);
        }
    });
}

#[test]
fn primary_paused_with_reads_under_way_says_nothing_old() {
    check(3, primary_paused_while_it_reads);
}

#[test]
fn stale_primary_after_partition_pause_and_clock_drift() {
    for seed in 0..SEEDS {
        let drifting = Options { drift_ppm: 9_900, ..options(seed, 3, None) };
        let violation = run(&drifting, |world| {
            let primary = world.primary();
            world.isolate(primary);
            world.run_ms(2_500);
            world.heal();
            world.run_ms(2_000);
            let primary = world.primary();
            world.pause(primary, 2_000);
            world.run_ms(3_000);
        });
        assert_eq!(violation, None, "seed {seed}");
    }
}

#[test]
fn value_seen_by_a_read_survives_a_second_failover() {
    check(4, |world| {
        for _ in 0..2 {
            let primary = world.primary();
            let behind = world.others(primary)[0];
            world.cut(primary, behind);
            world.run_ms(200);
            world.crash(primary, false);
            world.run_ms(1_800);
        }
    });
}

#[test]
fn overlapping_writes_and_retries_while_messages_change_their_order() {
    for seed in 0..SEEDS {
        let faults = Faults { late: 200, double: 400, loss: 100, takeover: 50, ..Faults::default() };
        let disorder = Options { faults, ..options(seed, 3, None) };
        let violation = run(&disorder, |world| {
            world.begin_faults();
            world.run_ms(5_000);
        });
        assert_eq!(violation, None, "seed {seed}");
    }
}

#[test]
fn only_a_stale_member_returns_after_all_acting_ones_crashed() {
    check(3, |world| {
        world.crash(2, false);
        world.run_ms(2_500);
        assert!(!world.configuration().acting.contains(&world.servers[2].drive));
        world.crash(0, false);
        world.crash(1, false);
        world.restart(2);
        world.run_ms(3_000);
        assert!(!world.is_serving(world.group()), "a stale member must not serve");
    });
}

#[test]
fn member_returns_with_an_earlier_state_of_its_drive() {
    check(3, |world| {
        let group = world.group();
        let behind = world.others(world.primary())[0];
        let earlier = world.servers[behind].nodes[&group].store.clone();
        world.run_ms(2_000);
        world.go_back(behind, earlier);
        world.restart(behind);
        world.run_ms(4_000);
    });
}

#[test]
fn resync_races_foreground_writes() {
    check(3, learner_filled_under_load);
}

#[test]
fn discarded_extents_do_not_come_back_with_a_member() {
    check(3, |world| {
        world.crash(1, false);
        world.run_ms(6_000);
        world.restart(1);
        world.run_ms(2_000);
    });
}

#[test]
fn failed_drive_is_taken_out_and_never_asked_again() {
    for fault in [StoreError::Failed, StoreError::Full, StoreError::Damaged] {
        for seed in 0..SEEDS {
            let mut world = World::new(&options(seed, 4, None));
            world.run_ms(2_500);
            let (primary, group) = (world.primary(), world.group());
            world.servers[primary].nodes.get_mut(&group).unwrap().store.fault = Some(fault);
            let before = world.outcome().writes;
            world.run_ms(4_000);
            assert!(world.outcome().writes > before + 50, "{fault:?}: the others go on");
            assert!(!world.configuration().acting.contains(&world.servers[primary].drive));
            let mut after = world.outcome();
            assert_eq!(after.violation.take(), None, "{fault:?}, seed {seed}");
        }
    }
}

#[test]
fn damage_is_made_whole_while_the_group_serves() {
    check(3, |world| {
        let epoch = world.configuration().epoch;
        for number in [0, 1, 2] {
            damage_all(world, number);
            let before = world.outcome().writes;
            world.run_ms(1_000);
            let group = world.group();
            assert!(world.servers[number].nodes[&group].store.damaged().is_empty(), "server {number}");
            assert!(world.outcome().writes > before, "writes go on");
        }
        assert_eq!(world.configuration().epoch, epoch, "nobody was taken out");
    });
}

#[test]
fn the_only_acting_member_gets_what_it_cannot_read_from_a_learner() {
    check(3, |world| {
        world.has_load = false;
        await_that(world, |world| world.clients.iter().all(|client| client.outstanding.is_empty()));
        world.run_ms(500);
        (1..3).for_each(|number| world.crash(number, false));
        await_that(world, |world| world.configuration().acting.len() == 1);
        damage_all(world, 0);
        (1..3).for_each(|number| world.restart(number));
        world.has_load = true;
    });
}

#[test]
fn ghost_writes_of_an_old_epoch_are_refused() {
    check(3, |world| {
        for _ in 0..3 {
            let primary = world.primary();
            world.pause(primary, 1_500);
            world.take_out(world.group(), world.servers[primary].drive);
            world.run_ms(3_000);
        }
    });
}

#[test]
fn two_members_race_to_take_over() {
    check(5, |world| {
        let primary = world.primary();
        let others = world.others(primary);
        others.iter().for_each(|other| world.cut(primary, *other));
        world.cut(others[0], others[1]);
        world.run_ms(3_000);
    });
}

#[test]
fn change_is_committed_and_nobody_hears_of_it() {
    check(3, |world| {
        let catalog = world.servers.len();
        (0..3).for_each(|number| {
            world.blocked.insert((catalog, number));
        });
        world.crash(2, false);
        world.run_ms(2_000);
        let epoch = world.configuration().epoch;
        world.run_ms(500);
        assert_eq!(world.configuration().epoch, epoch, "a report that was carried out is not carried out again");
    });
}

#[test]
fn client_with_an_old_map_is_told_the_new_one() {
    check(3, |world| {
        let catalog = world.servers.len();
        for client in 0..4 {
            world.cut(catalog, catalog + 1 + client);
        }
        let before = world.outcome().writes;
        world.take_out(world.group(), world.configuration().primary);
        world.run_ms(3_000);
        assert!(world.outcome().writes > before + 20);
    });
}

#[test]
fn single_member_with_one_copy() {
    for seed in 0..SEEDS {
        let violation = run(&options(seed, 1, None), |world| {
            let before = world.outcome().writes;
            world.crash(0, false);
            world.restart(0);
            world.run_ms(3_000);
            assert!(world.outcome().writes > before + 20);
        });
        assert_eq!(violation, None, "seed {seed}");
    }
}

#[test]
fn full_drives_refuse_what_needs_room_and_serve_the_rest() {
    for seed in 0..SEEDS {
        let violation = run(&options(seed, 3, None), |world| {
            let (epoch, group) = (world.configuration().epoch, world.group());
            world.empty_drives();
            for number in 0..3 {
                world.begin_full(number);
                world.tell_room(number, Room::Low);
            }
            world.run_ms(200);
            let before = world.outcome();
            world.run_ms(3_000);
            let after = world.outcome();
            assert!(after.no_space > before.no_space, "some writes are refused");
            assert!(after.reads > before.reads + 20 && world.is_serving(group), "reads go on");
            assert_eq!(world.configuration().epoch, epoch, "and no member leaves");
        });
        assert_eq!(violation, None, "seed {seed}");
    }
}

#[test]
fn the_last_member_is_full_before_it_hears_of_it() {
    for seed in 0..SEEDS {
        let violation = run(&options(seed, 1, None), |world| {
            world.empty_drives();
            world.begin_full(0);
            world.run_ms(1_000);
            world.tell_room(0, Room::Low);
            world.run_ms(3_000);
            assert!(world.is_serving(world.group()), "it reads and discards");
            let before = world.outcome().writes;
            world.tell_room(0, Room::Enough);
            world.run_ms(2_000);
            assert!(world.outcome().writes > before + 20, "it writes again");
        });
        assert_eq!(violation, None, "seed {seed}");
    }
}

#[test]
fn zeroes_over_nothing_leave_nothing() {
    check(3, |world| {
        world.empty_drives();
        world.has_load = false;
        let group = world.group();
        let versions = |world: &World| world.servers[0].nodes[&group].store.visible().clone();
        let before = versions(world);
        for number in 0..4 {
            world.discard(number);
        }
        world.run_ms(500);
        assert!(world.clients.iter().all(|client| client.outstanding.is_empty()), "they are answered");
        // Drives drop extents without blocks meanwhile, and nothing is written.
        assert!(versions(world).iter().all(|(id, extent)| before.get(id) == Some(extent)));
        world.has_load = true;
    });
}

#[test]
fn members_restart_without_what_was_not_durable() {
    check(3, |world| {
        for _ in 0..3 {
            (0..3).for_each(|number| world.slow(number, 150));
            world.run_ms(100);
            (0..3).for_each(|number| world.crash(number, false));
            (0..3).for_each(|number| world.restart(number));
            world.run_ms(1_500);
        }
    });
}

#[test]
fn drive_that_stalls_for_a_while_is_not_taken_out() {
    for seed in 0..SEEDS {
        let violation = run(&options(seed, 3, None), |world| {
            let epoch = world.configuration().epoch;
            (0..3).for_each(|number| world.slow(number, 2_000));
            world.run_ms(3_000);
            assert_eq!(world.configuration().epoch, epoch, "a slow drive is no reason for a new epoch");
        });
        assert_eq!(violation, None, "seed {seed}");
    }
}
