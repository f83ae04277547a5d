//! Slots that go to another node whole: what operators ask for, and what the two nodes say to each other.

use std::sync::Arc;

use super::super::call::{Call, Run};
use super::{cluster, slot, wait_for_order};
use crate::cluster::Cluster;
use crate::cluster::Move;
use crate::cluster::map::{Map, Name, SlotRange};
use crate::cluster::migration::job::{Job, Operation, Stage};
use crate::cluster::migration::{Import, SlotTable, span_of};
use crate::error::Error;
use crate::keyspace::Slot;
use crate::replicate::Copied;
use crate::resp::number::parse_i64;
use crate::waiting::{Goal, Wait};

pub(in crate::command) const RUNS: &[(&str, Run)] = &[
    ("cluster|cancelslotmigrations", cancel),
    ("cluster|getslotmigrations", show),
    ("cluster|migrateslots", migrate),
    ("cluster|syncslots", synchronise),
];

/// What is said of a shard whose writes a majority acknowledges.
const IN_QUORUM: Error = Error::new("ERR Slots do not migrate from or to a shard with replication-quorum");

/// The cluster, for a call that waits and is part of nothing greater.
fn apart<'c>(call: &Call<'c, '_>) -> Result<&'c Cluster, Error> {
    if !call.may_wait {
        return Err(Error::new("ERR slots cannot be taken within a transaction or a script"));
    }
    cluster(call)
}

/// Whether a migration may begin at this node.
fn check_start(call: &Call<'_, '_>) -> Result<(), Error> {
    let cluster = cluster(call)?;
    if cluster.map().own().is_replica() {
        return Err(Error::new("ERR Slot migration can only be used on primary nodes."));
    }
    if call.engine.wants_quorum() {
        return Err(IN_QUORUM);
    }
    let moves = cluster.moves.all();
    if moves.iter().any(|(_, way)| matches!(way, Move::From(_))) {
        return Err(Error::new("ERR Slots are being manually imported"));
    }
    if !moves.is_empty() {
        return Err(Error::new("ERR Slots are being manually migrated"));
    }
    Ok(())
}

/// Slots from word `at` on, which belong to one node, and where they end.
fn ranges(call: &Call<'_, '_>, map: &Map, mut at: usize) -> Result<(Vec<SlotRange>, Name, usize), Error> {
    let (mut ranges, mut owner): (Vec<SlotRange>, Option<Name>) = (Vec::new(), None);
    while call.args.get(at).is_some_and(|word| parse_i64(word).is_some()) {
        let first = slot(call, at)?;
        if call.args.len() <= at + 1 {
            return Err(Error::new("ERR No end slot for final slot range"));
        }
        let last = slot(call, at + 1)?;
        let (from, to) = (first.number(), last.number());
        let Some(range) = SlotRange::new(from, to) else {
            let text = format!("ERR Start slot number {from} is greater than end slot number {to}.");
            return Err(Error::text(text));
        };
        for number in range.numbers() {
            let found = Slot::new(number).and_then(|slot| map.owner(slot));
            let found = found.ok_or_else(|| Error::text(format!("ERR Slot {number} has no node served.")))?;
            if *owner.get_or_insert(found.name) != found.name {
                return Err(Error::new("ERR Requested slots span multiple shards"));
            }
        }
        if let Some(other) = ranges.iter().find(|other| first <= other.last && other.first <= last) {
            let (begin, end) = (other.first.number(), other.last.number());
            let text = format!("ERR Slot range {from}-{to} overlaps with previous range {begin}-{end}.");
            return Err(Error::text(text));
        }
        ranges.push(range);
        at += 2;
    }
    let owner = owner.ok_or(Error::new("ERR No slot ranges specified"))?;
    Ok((ranges, owner, at))
}

/// The node that word `at` names, which is to take slots.
fn target(call: &Call<'_, '_>, map: &Map, at: usize) -> Result<Name, Error> {
    let word = call.args.get(at).ok_or(Error::SYNTAX)?;
    let text = || String::from_utf8_lossy(word).into_owned();
    if word.len() != map.own().name.to_string().len() {
        return Err(Error::text(format!("ERR Invalid node name: {}", text())));
    }
    let found = Name::read(word).and_then(|name| map.node(name));
    let found = found.ok_or_else(|| Error::text(format!("ERR Unknown node name: {}", text())))?;
    if found.name == map.own().name {
        return Err(Error::new("ERR Target node can not be this node."));
    }
    Ok(found.name)
}

fn migrate(call: &mut Call<'_, '_>) -> Result<(), Error> {
    check_start(call)?;
    let (map, migration) = (cluster(call)?.map(), &call.engine.migration);
    let own = map.own().name;
    let (mut jobs, mut at): (Vec<Job>, usize) = (Vec::new(), 2);
    while at < call.args.len() {
        // `valkey-cli --cluster reshard` sends the end of its text with it.
        if !call.args.is(at, "SLOTSRANGE") && !call.args.is(at, "SLOTSRANGE\0") {
            return Err(Error::SYNTAX);
        }
        let (ranges, owner, next) = ranges(call, &map, at + 1)?;
        if owner != own {
            return Err(Error::new("ERR Slots are not served by this node."));
        }
        let slots = SlotTable::of(&ranges);
        let one = |slot: Slot| SlotTable::of(&[SlotRange { first: slot, last: slot }]);
        if migration.is_busy(Operation::Export, &slots) {
            let busy = ranges.iter().flat_map(|range| range.numbers()).filter_map(Slot::new);
            let busy = busy.filter(|slot| migration.is_busy(Operation::Export, &one(*slot))).map(Slot::number).next();
            return Err(Error::text(format!("ERR I am already migrating slot {}.", busy.unwrap_or_default())));
        }
        if jobs.iter().any(|job| job.slots.overlaps(&slots)) {
            return Err(Error::new("ERR Slot ranges in migrations overlap"));
        }
        if call.args.len() <= next + 1 || !call.args.is(next, "NODE") {
            return Err(Error::SYNTAX);
        }
        let target = target(call, &map, next + 1)?;
        let name = call.engine.name_migration();
        jobs.push(Job::new(Operation::Export, name, ranges, (own, target), call.now));
        at = next + 2;
    }
    jobs.into_iter().rev().for_each(|job| migration.enter(&Arc::new(job)));
    call.reply.ok();
    Ok(())
}

fn cancel(call: &mut Call<'_, '_>) -> Result<(), Error> {
    cluster(call)?;
    let jobs = call.engine.migration.jobs();
    let mut open = jobs.iter().filter(|job| job.operation == Operation::Export && !job.stage().is_over()).peekable();
    if open.peek().is_none() {
        return Err(Error::new("ERR No migrations ongoing"));
    }
    // What the target may have taken already ends as that turns out.
    for job in open {
        job.cancel(call.now);
    }
    call.engine.migration.wake();
    call.reply.ok();
    Ok(())
}

fn show(call: &mut Call<'_, '_>) -> Result<(), Error> {
    cluster(call)?;
    let jobs = call.engine.migration.jobs();
    call.reply.array(jobs.len());
    for job in jobs {
        let progress = job.progress();
        let (name, target, source) = (job.name.to_string(), job.target.to_string(), job.source.to_string());
        let range = |range: &SlotRange| format!("{}-{}", range.first.number(), range.last.number());
        let slots: Vec<String> = job.ranges.iter().map(range).collect();
        let operation = if job.operation == Operation::Import { "IMPORT" } else { "EXPORT" };
        call.reply.map(12);
        for (what, text) in [
            ("name", name.as_str()),
            ("operation", operation),
            ("slot_ranges", &slots.join(" ")),
            ("target_node", &target),
            ("source_node", &source),
        ] {
            call.reply.bulk(what.as_bytes());
            call.reply.bulk(text.as_bytes());
        }
        let times = [
            ("create_time", job.created_s),
            ("last_update_time", progress.updated_s),
            ("last_ack_time", progress.heard_s),
        ];
        for (what, number) in times {
            call.reply.bulk(what.as_bytes());
            call.reply.integer(number);
        }
        for (what, text) in [("state", progress.stage.word()), ("message", &progress.message)] {
            call.reply.bulk(what.as_bytes());
            call.reply.bulk(text.as_bytes());
        }
        // No process is forked.
        call.reply.bulk(b"cow_size");
        call.reply.integer(0);
        call.reply.bulk(b"remaining_repl_size");
        call.reply.integer(i64::try_from(progress.left_bytes).unwrap_or(i64::MAX));
    }
    Ok(())
}

/// What the other node says: see [`crate::cluster::migration`].
fn synchronise(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.args.is(2, "COPIES") {
        // The log is read before the engine is a node.
        return note_copies(call);
    }
    let cluster = cluster(call)?;
    match () {
        () if call.args.is(2, "ESTABLISH") => establish(call),
        () if call.args.is(2, "STATUS") => tell_status(call, cluster),
        () if call.args.is(2, "ACK") => {
            import(call)?;
            call.reply.ok();
            Ok(())
        }
        () if call.args.is(2, "READY") => complete(call),
        () if call.args.is(2, "TAKE") => {
            let import = import(call)?;
            apart(call)?;
            match call.engine.take_slots(&import, call.now)? {
                None => call.reply.ok(),
                Some(ticket) => wait_for_order(call, ticket),
            }
            Ok(())
        }
        () => Err(Error::SYNTAX),
    }
}

/// The import that comes over this connection, while it is under way.
fn import(call: &mut Call<'_, '_>) -> Result<Arc<Import>, Error> {
    let import = call.client.import.clone();
    let import = import.ok_or(Error::new("ERR CLUSTER SYNCSLOTS is for a connection that slots come over"))?;
    if !import.job.stage().is_under_way() {
        call.client.is_leaving = true;
        return Err(Error::text(format!("ERR The import is over: {}", import.job.progress().message)));
    }
    Ok(import)
}

/// What ESTABLISH and STATUS name: the source, the migration and its slots.
#[derive(Default)]
struct Named {
    source: Option<Name>,
    name: Option<Name>,
    ranges: Option<(Vec<SlotRange>, Name)>,
}

fn read_named(call: &Call<'_, '_>, map: &Map) -> Result<Named, Error> {
    let (mut named, mut at) = (Named::default(), 3);
    let name = |at: usize| call.args.get(at).and_then(Name::read).ok_or(Error::SYNTAX);
    while at < call.args.len() {
        match () {
            () if call.args.is(at, "SOURCE") && named.source.is_none() => named.source = Some(name(at + 1)?),
            () if call.args.is(at, "NAME") && named.name.is_none() => named.name = Some(name(at + 1)?),
            () if call.args.is(at, "SLOTSRANGE") && named.ranges.is_none() => {
                let (ranges, owner, next) = ranges(call, map, at + 1)?;
                named.ranges = Some((ranges, owner));
                at = next;
                continue;
            }
            () => return Err(Error::SYNTAX),
        }
        at += 2;
    }
    Ok(named)
}

fn establish(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let map = apart(call)?.map();
    check_start(call)?;
    let Named { source, name, ranges } = read_named(call, &map)?;
    if let Some(source) = source {
        map.node(source).ok_or(Error::new("ERR Target node does not know the source node"))?;
        if source == map.own().name {
            return Err(Error::new("ERR Source node is target node itself"));
        }
    }
    let (Some(source), Some(name), Some((ranges, owner))) = (source, name, ranges) else { return Err(Error::SYNTAX) };
    let slots = SlotTable::of(&ranges);
    if call.client.import.is_some() || call.engine.migration.is_busy(Operation::Import, &slots) {
        return Err(Error::new("ERR Slot is already being imported on the target by a different migration"));
    }
    if source != owner {
        return Err(Error::new("ERR Target node does not agree about current slot ownership"));
    }
    let job = Job::new(Operation::Import, name, ranges, (source, map.own().name), call.now);
    call.client.import = Some(call.engine.begin_import(job, call.client.id, call.now));
    call.trace(Vec::new());
    call.reply.ok();
    Ok(())
}

/// The source has sent everything. The answer comes once replicas have it too, or have taken too long.
fn complete(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let import = import(call)?;
    apart(call)?;
    let replication = &call.engine.replication;
    let (position, replicas) = (replication.end(), replication.online());
    import.note_complete(position, call.now);
    if replicas == 0 {
        call.reply.integer(0);
        return Ok(());
    }
    let replicas = i64::try_from(replicas).unwrap_or(i64::MAX);
    let deadline = Some(call.now.instant + span_of(call.engine) / 2);
    call.wait(Wait::until(Goal::Copied(Copied { position, replicas, log: None }), deadline));
    Ok(())
}

/// What has become of an import, and that it is over if its source has not given leave to take the slots.
fn tell_status(call: &mut Call<'_, '_>, cluster: &Cluster) -> Result<(), Error> {
    let map = cluster.map();
    let Named { name: Some(name), ranges: Some((ranges, _)), .. } = read_named(call, &map)? else {
        return Err(Error::SYNTAX);
    };
    let job = call.engine.migration.job(name, Operation::Import);
    if let Some(job) = &job
        && job.stage() != Stage::Granted
    {
        job.end(Stage::Failed, "The source has given up", call.now);
    }
    let owns = SlotTable::of(&ranges).slots().all(|slot| map.holds(slot));
    let word = match job.map(|job| job.stage()) {
        Some(Stage::Granted) => "pending",
        Some(Stage::Success) => "taken",
        // This process has never heard of it: what was decided before it began is in its map, if that is confirmed.
        None if !map.service().is_up => "pending",
        None if owns => "taken",
        Some(_) | None => "never",
    };
    call.reply.status(word);
    Ok(())
}

/// A primary says, or the log does, of which slots keys are copies.
fn note_copies(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let are_copies = match () {
        () if call.args.is(3, "ADD") => true,
        () if call.args.is(3, "REMOVE") => false,
        () => return Err(Error::SYNTAX),
    };
    let mut noted = Vec::new();
    for at in (4..call.args.len()).step_by(2) {
        if call.args.len() <= at + 1 {
            return Err(Error::SYNTAX);
        }
        let (first, last) = (slot(call, at)?, slot(call, at + 1)?);
        noted.push(SlotRange::new(first.number(), last.number()).ok_or(Error::SYNTAX)?);
    }
    call.engine.migration.copies.hear(&SlotTable::of(&noted), are_copies);
    call.effects.changes += 1;
    call.reply.ok();
    Ok(())
}
