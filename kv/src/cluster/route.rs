//! Whether a call may run at this node, and what its client is told if not.
//!
//! A request is judged twice: [`admit`] looks at the map alone, before any key is locked; [`confirm`] again once they are, and at
//! the keys themselves where their slot is on its way to another node. The rules, and their order, are those of Valkey.

use ashlar_wire::time::Instant;

use super::map::{Map, Name};
use super::{Cluster, Move};
use crate::client::{Client, Link};
use crate::command::run::{self, Ready};
use crate::command::spec::Flags;
use crate::command::spec::keys::{keys_of, routes_of};
use crate::command::transaction;
use crate::engine::Engine;
use crate::error::Error;
use crate::keyspace::{Key, Keys, Slot};
use crate::resp::Args;
use crate::resp::number::parse_i64;
use crate::settings::{Settings, parameter};

/// Why a call does not run here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Astray {
    /// Its keys are in several slots.
    CrossSlot,
    /// Some of its keys are here and others elsewhere, or nobody knows.
    Unstable,
    /// Nobody owns the slot.
    Unserved,
    /// The cluster serves nothing.
    Down,
    /// The cluster serves only what reads.
    DownForWrites,
    /// Another node owns the slot.
    Moved(Slot),
    /// This key of the slot may be at the node that it is on its way to.
    Asked(Slot, Name),
}

impl Astray {
    /// What the client at `link` is told.
    pub(crate) fn error(self, map: &Map, link: &Link, settings: &Settings) -> Error {
        let (word, slot, node) = match self {
            Self::CrossSlot => return Error::new("CROSSSLOT Keys in request don't hash to the same slot"),
            Self::Unstable => return Error::new("TRYAGAIN Multiple keys request during rehashing of slot"),
            Self::Unserved => return Error::new("CLUSTERDOWN Hash slot not served"),
            Self::Down => return Error::new("CLUSTERDOWN The cluster is down"),
            Self::DownForWrites => {
                return Error::new("CLUSTERDOWN The cluster is down and only accepts read commands");
            }
            Self::Moved(slot) => ("MOVED", slot, map.owner(slot)),
            Self::Asked(slot, name) => ("ASK", slot, map.node(name)),
        };
        let Some(node) = node else { return Error::new("CLUSTERDOWN Hash slot not served") };
        let endpoint = Endpoint::of(settings).unwrap_or_unknown(node);
        let port = if link.is_tls { node.place.tls_port } else { node.place.port };
        Error::text(format!("{word} {} {endpoint}:{port}", slot.number()))
    }
}

/// What clients are told as the place of a node (`cluster-preferred-endpoint-type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// Its address.
    Address,
    /// The name of its machine.
    Hostname,
    /// Nothing: clients take that which they are connected to.
    Unknown,
}

impl Endpoint {
    pub(crate) fn of(settings: &Settings) -> Self {
        let text = parameter::find(b"cluster-preferred-endpoint-type").map(|found| found.show(settings));
        match text.as_deref() {
            Some(b"hostname") => Self::Hostname,
            Some(b"unknown-endpoint") => Self::Unknown,
            _ => Self::Address,
        }
    }

    /// What stands for a node, if anything does.
    pub(crate) fn text(self, node: &super::map::Node) -> Option<&str> {
        match self {
            Self::Address => Some(&node.place.host),
            Self::Hostname if node.place.hostname.is_empty() => Some("?"),
            Self::Hostname => Some(&node.place.hostname),
            Self::Unknown => None,
        }
    }

    fn unwrap_or_unknown(self, node: &super::map::Node) -> &str {
        self.text(node).unwrap_or_default()
    }
}

/// What decides where a call, or a transaction, runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) slot: Slot,
    /// It may change something.
    writes: bool,
    /// It is about shard channels and not about keys.
    is_about_channels: bool,
    /// It moves keys between nodes.
    migrates: bool,
    /// It is meant for a slot that is coming.
    is_asking: bool,
}

/// The slot that a call is about, if it is about any.
///
/// # Errors
/// It is about several.
fn slot_of(ready: Ready, args: Args<'_>, hint: Option<Key<'_>>) -> Result<Option<Slot>, Astray> {
    let (mut slot, mut is_one) = (None, true);
    routes_of(ready.spec(), args, &mut |at| {
        let word = &args[at];
        let own = hint.filter(|hint| std::ptr::eq(hint.bytes, word)).map_or_else(|| Slot::of(word), |hint| hint.slot);
        is_one &= slot.is_none_or(|slot| slot == own);
        slot = Some(own);
    });
    if is_one { Ok(slot) } else { Err(Astray::CrossSlot) }
}

impl Question {
    /// That of a call; none if it is about no slot. `hint` is what seems to be its key.
    ///
    /// # Errors
    /// It is about several slots.
    pub(crate) fn of_call(ready: Ready, args: Args<'_>, hint: Option<Key<'_>>) -> Result<Option<Self>, Astray> {
        let flags = ready.spec().flags;
        Ok(slot_of(ready, args, hint)?.map(|slot| Self {
            slot,
            writes: flags.has(Flags::WRITE),
            is_about_channels: flags.has(Flags::PUBSUB),
            migrates: ready.spec().name == "migrate",
            is_asking: flags.has(Flags::ASKING),
        }))
    }

    /// That of several calls which run together.
    ///
    /// # Errors
    /// They are about several slots.
    pub(crate) fn of_calls<'a>(calls: impl Iterator<Item = (Ready, Args<'a>)>) -> Result<Option<Self>, Astray> {
        let mut whole: Option<Self> = None;
        for (ready, args) in calls {
            let Some(part) = Self::of_call(ready, args, None)? else { continue };
            let sum = whole.get_or_insert(part);
            if sum.slot != part.slot {
                return Err(Astray::CrossSlot);
            }
            sum.writes |= part.writes;
            sum.is_about_channels |= part.is_about_channels;
            sum.is_asking |= part.is_asking;
            sum.migrates &= part.migrates;
        }
        Ok(whole)
    }
}

/// A request: its command, its words and what seems to be its key.
pub(crate) type Asked<'a> = (Ready, Args<'a>, Option<Key<'a>>);

/// The calls that a request runs: those that wait for EXEC, or the one that it is.
fn calls<'a>(
    engine: &'a Engine,
    client: &'a Client,
    (ready, args, _): Asked<'a>,
) -> impl Iterator<Item = (Ready, Args<'a>)> {
    let open = client.transaction.as_ref().filter(|_| transaction::is_exec(ready.command));
    let queued = open.map_or(&[][..], |open| &open.queued);
    // What cannot be found now will fail when it is run.
    let queued = queued.iter().filter_map(|request| Some((run::find(engine, request.args()).ok()?, request.args())));
    queued.chain(open.is_none().then_some((ready, args)))
}

/// What decides where a request runs.
fn question(engine: &Engine, client: &Client, asked: Asked<'_>) -> Result<Option<Question>, Astray> {
    let (ready, args, hint) = asked;
    if transaction::is_exec(ready.command) {
        Question::of_calls(calls(engine, client, asked))
    } else {
        Question::of_call(ready, args, hint)
    }
}

/// Lets a request of a client through, or says why not.
///
/// # Errors
/// It does not run here: as the client is told.
#[inline]
pub(crate) fn admit(
    engine: &Engine,
    cluster: &Cluster,
    settings: &Settings,
    client: &mut Client,
    asked: Asked<'_>,
    now: Instant,
) -> Result<(), Error> {
    if !client.sight.is_fresh(cluster) {
        client.sight.look(cluster);
        client.forget_foreign_channels();
    }
    let sight = std::mem::take(&mut client.sight);
    let map = sight.map();
    let done = question(engine, client, asked).and_then(|question| {
        client.slot = question.map(|question| question.slot);
        client.crosses_slots = false;
        if question.is_some_and(|question| comes_here(client, question)) {
            return Ok(());
        }
        let Some(question) = question else { return Ok(()) };
        if now >= cluster.control.serves_until() {
            judge_without_service(settings, question)?;
        }
        judge(cluster, map, settings, client, question)
    });
    let done = done.map_err(|astray| {
        awaited(engine, map, astray).unwrap_or_else(|| astray.error(map, &client.card.link, settings))
    });
    client.sight = sight;
    done
}

/// What a client is told of a slot that this node is about to serve, once it has taken its shard over. Its map names the former primary, which may
/// have heard of this node, and would send the client back.
#[cold]
fn awaited(engine: &Engine, map: &Map, astray: Astray) -> Option<Error> {
    let Astray::Moved(slot) = astray else { return None };
    let is_own = map.owner(slot).is_some_and(|owner| owner.shard == map.own().shard);
    let why = engine.take_over_waits_for().filter(|_| is_own)?;
    Some(Error::text(format!("CLUSTERDOWN Hash slot not served: this node has yet to take it over, and {why}")))
}

/// Until when a request that was not let through waits, if it does: the slot is about to come here, and its owner would send it back.
pub(crate) fn expected_until(
    engine: &Engine,
    cluster: &Cluster,
    settings: &Settings,
    client: &Client,
    asked: Asked<'_>,
    now: Instant,
) -> Option<Instant> {
    let question = question(engine, client, asked).ok().flatten()?;
    let map = client.sight.map();
    let Err(Astray::Moved(slot)) = judge(cluster, map, settings, client, question) else { return None };
    engine.migration.hold.expected_until(map.owner(slot)?.name, now)
}

/// Looks again once the keys of a request are locked that was let through: whether the map is still the same, and at the keys
/// themselves if their slot is on its way.
///
/// # Errors
/// It does not run here: as the client is told.
#[inline]
pub(crate) fn confirm(
    engine: &Engine,
    cluster: &Cluster,
    settings: &Settings,
    client: &mut Client,
    asked: Asked<'_>,
    keys: &mut Keys<'_>,
    now: Instant,
) -> Result<(), Error> {
    if !client.sight.is_fresh(cluster) || client.import.is_some() {
        admit(engine, cluster, settings, client, asked, now)?;
    }
    if !cluster.moves.is_any() {
        return Ok(());
    }
    let looked = question(engine, client, asked)
        .and_then(|question| question.map_or(Ok(()), |found| look(cluster, found, keys, calls(engine, client, asked))));
    looked.map_err(|astray| astray.error(client.sight.map(), &client.card.link, settings))
}

/// Whether a call is about a slot that comes over its client's connection.
fn comes_here(client: &Client, question: Question) -> bool {
    let import = client.import.as_ref();
    import.is_some_and(|import| import.job.stage().is_under_way() && import.job.slots.has(question.slot))
}

/// Whether the cluster as a whole lets a call run.
fn judge_service(map: &Map, settings: &Settings, question: Question) -> Result<(), Astray> {
    if map.service().is_up { Ok(()) } else { judge_without_service(settings, question) }
}

/// The same where it is known that there is no service.
#[cold]
fn judge_without_service(settings: &Settings, question: Question) -> Result<(), Astray> {
    let allows = |name: &[u8]| parameter::find(name).is_some_and(|found| found.show(settings) == b"yes");
    if question.is_about_channels {
        return if allows(b"cluster-allow-pubsubshard-when-down") { Ok(()) } else { Err(Astray::Down) };
    }
    match allows(b"cluster-allow-reads-when-down") {
        false => Err(Astray::Down),
        true if question.writes => Err(Astray::DownForWrites),
        true => Ok(()),
    }
}

/// Whether a call may run here as far as the map tells.
///
/// # Errors
/// It may not: why, or where it may.
#[inline]
pub(crate) fn judge(
    cluster: &Cluster,
    map: &Map,
    settings: &Settings,
    client: &Client,
    question: Question,
) -> Result<(), Astray> {
    let slot = question.slot;
    if map.holds(slot) && map.service().is_up {
        return Ok(());
    }
    if map.owner(slot).is_none() {
        return Err(Astray::Unserved);
    }
    judge_service(map, settings, question)?;
    if map.holds(slot) {
        return Ok(());
    }
    let (is_replica, is_reader) = (map.own().is_replica(), client.wishes.readonly);
    if matches!(cluster.moves.of(slot), Some(Move::From(_))) && (!is_replica || is_reader) {
        let is_meant = client.is_asking || question.is_asking || question.migrates && !is_replica;
        if is_meant {
            return Ok(());
        }
    }
    let may_read = is_reader || question.is_about_channels;
    if is_replica && map.serves(slot) && may_read && !question.writes { Ok(()) } else { Err(Astray::Moved(slot)) }
}

/// Whether a command that waits for a key may go on waiting here.
///
/// # Errors
/// It may not: why, or where it may.
pub(super) fn of_waiting(cluster: &Cluster, map: &Map, slot: Slot, reads: bool) -> Result<(), Astray> {
    if !map.service().is_up {
        return Err(Astray::Down);
    }
    if map.owner(slot).is_none() {
        return Err(Astray::Unserved);
    }
    let is_here = map.holds(slot) || map.serves(slot) && reads || cluster.moves.of(slot).is_some();
    if is_here { Ok(()) } else { Err(Astray::Moved(slot)) }
}

/// Keys of calls that are here, and those that are not.
#[derive(Debug, Default)]
struct Tally<'a> {
    first: Option<&'a [u8]>,
    are_several: bool,
    here: usize,
    missing: usize,
}

/// Whether calls may run whose slot is on its way, now that their keys are locked. Of other slots nothing is looked at.
///
/// # Errors
/// Some of their keys are elsewhere, or nobody could tell.
pub(crate) fn look<'a>(
    cluster: &Cluster,
    question: Question,
    keys: &mut Keys<'_>,
    calls: impl Iterator<Item = (Ready, Args<'a>)>,
) -> Result<(), Astray> {
    let Some(way) = cluster.moves.of(question.slot) else { return Ok(()) };
    if question.is_about_channels || question.migrates {
        return Ok(());
    }
    let (mut tally, database) = (Tally::default(), keys.database());
    let mut is_vague = false;
    for (ready, args) in calls {
        is_vague |= leaves_its_database(ready, args, keys.database());
        // A call whose keys cannot be told has none.
        let _ = keys_of(ready.spec(), args, &mut |at, _| {
            let word = args.get(at).expect("it was found there");
            tally.are_several |= tally.first.is_some_and(|first| first != word);
            tally.first = Some(tally.first.unwrap_or(word));
            let is_here = keys.peek(keys.key(word)).is_some();
            tally.here += usize::from(is_here);
            tally.missing += usize::from(!is_here);
        });
        if ready.spec().name == "select"
            && let Some(number) = args.get(1).and_then(parse_i64).and_then(|number| usize::try_from(number).ok())
            && number < keys.databases()
        {
            keys.select(number);
        }
    }
    keys.select(database);
    match way {
        _ if is_vague => Err(Astray::Unstable),
        Move::To(_) if tally.missing > 0 && tally.here > 0 => Err(Astray::Unstable),
        Move::To(name) if tally.missing > 0 => Err(Astray::Asked(question.slot, name)),
        Move::From(_) if tally.are_several && tally.missing > 0 => Err(Astray::Unstable),
        Move::To(_) | Move::From(_) => Ok(()),
    }
}

/// Whether a call puts a key into another database: nobody knows whether it is there already, or gone again.
fn leaves_its_database(ready: Ready, args: Args<'_>, database: usize) -> bool {
    match ready.spec().name {
        "move" => true,
        // Its options come in any order.
        "copy" => (4..args.len()).any(|at| {
            let other = |number: i64| usize::try_from(number) != Ok(database);
            args.is(at - 1, "DB") && parse_i64(&args[at]).is_none_or(other)
        }),
        _ => false,
    }
}
