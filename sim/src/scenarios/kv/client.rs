//! Clients of the engines: what each asks for and what it was told, and the operator who makes the cluster.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_kv::cluster::map::{Map, Name};
use ashlar_kv::keyspace::Slot;
use ashlar_kv::replicate::quorum::Term;
use ashlar_node::together;

use super::connection::Pipe;
use super::engine::{PORT, SimEngines};
use crate::history::{Action, NEVER, OPERATIONS_MAX, Operation};
use crate::rng::Rng;
use crate::world::{Control, ServerNo};

/// How long a client waits for a reply.
const REPLY_MAX: Duration = Duration::from_secs(4);
/// Pause of a client that was refused, or found nobody.
const PAUSE: Duration = Duration::from_millis(50);
/// How often in a row a client goes where an engine sends it.
const REDIRECTIONS_MAX: u32 = 16;
/// How often the operator looks whether something is left to do.
const OPERATOR_LOOK: Duration = Duration::from_millis(300);
/// How long the operator waits for a reply.
const ORDER_MAX: Duration = Duration::from_secs(6);

/// What all clients know and tell.
#[derive(Default)]
pub(super) struct Shared {
    /// The lives that clients can connect to.
    pub(super) lives: BTreeMap<ServerNo, SimEngines>,
    /// For each shard the histories of its keys; the last one is that of the key in use.
    pub(super) histories: Vec<Vec<Vec<Operation>>>,
    values: u64,
    /// Operations that clients were told of, and writes that they were not told of.
    pub(super) told: u64,
    pub(super) untold: u64,
    /// The operator has done everything.
    pub(super) is_set_up: bool,
    /// Shards in which something was written since everything healed.
    pub(super) served: Vec<bool>,
    /// Which life of which engine has served each term of a shard.
    pub(super) terms: BTreeMap<(Name, Term), (Name, u32)>,
    /// What nobody may see.
    pub(super) wrong: Option<String>,
    pub(super) is_healed: bool,
    pub(super) is_over: bool,
}

impl Shared {
    /// Notes that this life of an engine serves a term, which is one life's alone: what members have promised it for counts for no other.
    pub(super) fn note_term(&mut self, shard: Name, term: Term, life: (Name, u32)) {
        let holder = *self.terms.entry((shard, term)).or_insert(life);
        if holder != life {
            self.wrong = Some(format!("term {term} of {shard} is served by {life:?}, and was by {holder:?}"));
        }
    }
}

/// See [`Shared`].
pub(super) type SharedState = Arc<Mutex<Shared>>;

pub(super) fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A key of a shard, which no other history has.
pub(super) fn key_of(shard: usize, history: usize, slots: (u16, u16)) -> String {
    let names = (0..).map(|number| format!("k{shard}-{history}-{number}"));
    let is_inside = |name: &String| (slots.0..=slots.1).contains(&Slot::of(name.as_bytes()).number());
    names.into_iter().find(is_inside).expect("some name has a slot of the shard")
}

/// The slots of each of so many shards.
pub(super) fn ranges(shards: usize) -> Vec<(u16, u16)> {
    let bound = |shard: usize| (16_384 * shard / shards) as u16;
    (0..shards).map(|shard| (bound(shard), bound(shard + 1) - 1)).collect()
}

/// What a reply says.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Done,
    /// What a read gave; 0 for nothing.
    Value(u64),
    /// It was not run; another engine may have the slot.
    Refused(Option<(ServerNo, usize)>),
}

/// The first reply in these bytes, if it is whole.
fn parse(bytes: &[u8]) -> Option<Reply> {
    let text = core::str::from_utf8(bytes).ok()?;
    let (line, rest) = text.split_once("\r\n")?;
    if line.starts_with('+') {
        return Some(Reply::Done);
    }
    if let Some(error) = line.strip_prefix('-') {
        let place = error.strip_prefix("MOVED ").and_then(|moved| moved.split_once(' ')).and_then(|(_, to)| place(to));
        return Some(Reply::Refused(place));
    }
    if line == "$-1" {
        return Some(Reply::Value(0));
    }
    let (value, _) = rest.split_once("\r\n")?;
    value.parse().ok().map(Reply::Value)
}

/// The engine at `sN:PORT`.
fn place(text: &str) -> Option<(ServerNo, usize)> {
    let (host, port) = text.split_once(':')?;
    let number = port.parse::<u16>().ok()?.checked_sub(PORT)?;
    Some((ServerNo(host.strip_prefix('s')?.parse().ok()?), usize::from(number)))
}

/// Sends a request and waits for its reply.
async fn ask(control: &Control, pipe: &Pipe, request: &str, span: Duration) -> Option<Reply> {
    pipe.send(request.as_bytes());
    let answered = async {
        let mut heard = Vec::new();
        while let Some(bytes) = pipe.receive().await {
            heard.extend_from_slice(&bytes);
            if let Some(reply) = parse(&heard) {
                return Some(reply);
            }
        }
        None
    };
    together::first(answered, control.sleep(span)).await.flatten()
}

/// A client, until the load ends. It works with one shard for a while, then with another.
pub(super) async fn client(control: Control, shared: SharedState, number: u64, slots: Vec<(u16, u16)>) {
    let mut rng = control.rng("client", number);
    let writes = rng.pick(&[200_000, 500_000, 900_000]);
    let (mut next, mut shard, mut redirections) = (None, 0, 0);
    while !lock(&shared).is_over {
        // Engines of a shard that nobody can serve may each name another: the client goes on with some shard.
        if next.is_none() || redirections == REDIRECTIONS_MAX {
            (next, shard, redirections) = (None, rng.below(slots.len() as u64) as usize, 0);
        }
        redirections += 1;
        let Some(pipe) = connect(&shared, next.take(), number, &mut rng) else {
            control.sleep(PAUSE).await;
            continue;
        };
        loop {
            let (history, action) = choose(&shared, shard, writes, &mut rng);
            let key = key_of(shard, history, slots[shard]);
            let request = match action {
                Action::Write(value) => format!("SET {key} {value}\r\n"),
                Action::Read(_) => format!("GET {key}\r\n"),
            };
            let begin = control.now_ns();
            let reply = ask(&control, &pipe, &request, REPLY_MAX).await;
            note(&shared, (shard, history), action, begin, control.now_ns(), reply.as_ref());
            // Once everything is healed each shard is to be written to soon, however slow the links are.
            let goes_on = rng.chance(if lock(&shared).is_healed { 500_000 } else { 50_000 });
            match reply {
                Some(Reply::Done | Reply::Value(_)) if !goes_on => redirections = 0,
                Some(Reply::Refused(place)) => {
                    next = place;
                    let pause = if place.is_some() { Duration::from_millis(1) } else { PAUSE };
                    control.sleep(pause).await;
                    break;
                }
                _ => break,
            }
            if lock(&shared).is_over {
                break;
            }
            control.sleep(Duration::from_nanos(rng.magnitude(100_000..=50_000_000))).await;
        }
        pipe.close();
    }
}

fn connect(shared: &SharedState, wanted: Option<(ServerNo, usize)>, client: u64, rng: &mut Rng) -> Option<Arc<Pipe>> {
    let shared = lock(shared);
    let (server, number) = match wanted.filter(|(server, _)| shared.lives.contains_key(server)) {
        Some(place) => place,
        None => {
            let at = rng.below(shared.lives.len().max(1) as u64) as usize;
            (*shared.lives.keys().nth(at)?, rng.below(2) as usize)
        }
    };
    let life = shared.lives.get(&server)?.clone();
    drop(shared);
    Some(life.connect(number.min(1), format!("client-{client}")))
}

/// What a client does next with a shard: to which key.
fn choose(shared: &SharedState, shard: usize, writes: u32, rng: &mut Rng) -> (usize, Action) {
    let mut shared = lock(shared);
    // Others may be about to enter one operation each.
    let is_full = shared.histories[shard].last().is_none_or(|last| last.len() + 8 >= OPERATIONS_MAX);
    if is_full {
        shared.histories[shard].push(Vec::new());
    }
    let history = shared.histories[shard].len() - 1;
    let action = if rng.chance(writes) {
        shared.values += 1;
        Action::Write(shared.values)
    } else {
        Action::Read(0)
    };
    (history, action)
}

/// Writes down what has come of an operation.
fn note(
    shared: &SharedState,
    (shard, history): (usize, usize),
    action: Action,
    begin: u64,
    end: u64,
    reply: Option<&Reply>,
) {
    let mut shared = lock(shared);
    let operation = match (action, reply) {
        (_, Some(Reply::Refused(_))) | (Action::Read(_), None | Some(Reply::Done)) => return,
        // It may have been done, or be done later.
        (Action::Write(_), None) => {
            shared.untold += 1;
            Operation { action, begin, end: NEVER, is_attempt: false, seen: None }
        }
        (Action::Write(_), Some(_)) => Operation { action, begin, end, is_attempt: false, seen: None },
        (Action::Read(_), Some(Reply::Value(value))) => {
            Operation { action: Action::Read(*value), begin, end, is_attempt: false, seen: None }
        }
    };
    if operation.end != NEVER {
        shared.told += 1;
        if matches!(action, Action::Write(_)) {
            shared.served[shard] = true;
        }
    }
    shared.histories[shard][history].push(operation);
}

/// An engine, the shard that it is to belong to, and whether it is to be the first primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) server: ServerNo,
    pub(super) number: usize,
    pub(super) shard: usize,
    is_primary: bool,
}

/// Which engine is to be of which shard, for so many copies each.
pub(super) fn arrange(servers: u32, copies: usize) -> (usize, Vec<Wanted>) {
    // The last server has its choice first: it must not be left with the shard of its own first engine.
    let first = (0..servers).map(|server| (ServerNo(server), 0));
    let second = (0..servers).rev().map(|server| (ServerNo(server), 1));
    let engines: Vec<(ServerNo, usize)> = first.chain(second).collect();
    let shards = engines.len() / copies;
    let mut wanted: Vec<Wanted> = Vec::new();
    for (place, (server, number)) in engines.into_iter().enumerate() {
        let count = |shard: usize| wanted.iter().filter(|one| one.shard == shard).count();
        let has = |shard: usize| wanted.iter().any(|one| one.shard == shard && one.server == server);
        let shard = if place < shards {
            Some(place)
        } else {
            (0..shards).filter(|shard| !has(*shard)).min_by_key(|shard| count(*shard))
        };
        if let Some(shard) = shard {
            wanted.push(Wanted { server, number, shard, is_primary: place < shards });
        }
    }
    (shards, wanted)
}

/// What a world's operator is asked for.
pub(super) struct Plan {
    pub(super) wanted: Vec<Wanted>,
    /// The slots of each shard.
    pub(super) slots: Vec<(u16, u16)>,
    /// An order that is answered is done: what was claimed is served. Where a majority is asked first it may not be yet.
    pub(super) checks_claims: bool,
    /// Replicas are told to take over from time to time, while faults strike.
    pub(super) is_restless: bool,
}

/// Makes the cluster: claims slots, and says who follows whom, until that has been so at one time. Whoever is restless goes on.
pub(super) async fn operate(control: Control, shared: SharedState, plan: Plan) {
    loop {
        let mut is_done = true;
        for one in &plan.wanted {
            let Some(order) = order_for(&shared, *one, &plan) else { continue };
            is_done = false;
            let reply = tell(&control, &shared, *one, &order).await;
            if reply == Some(Reply::Done) && one.is_primary && plan.checks_claims {
                check_claim(&shared, *one, &order, plan.slots[one.shard]);
            }
        }
        let is_over = {
            let mut known = lock(&shared);
            known.is_set_up |= is_done;
            if known.wrong.is_some() {
                control.finish();
            }
            known.is_set_up || known.is_over
        };
        if is_over {
            break;
        }
        control.sleep(OPERATOR_LOOK).await;
    }
    if plan.is_restless {
        change_primaries(&control, &shared, &plan.wanted).await;
    }
}

/// Tells an engine something; its reply.
async fn tell(control: &Control, shared: &SharedState, one: Wanted, order: &str) -> Option<Reply> {
    let life = lock(shared).lives.get(&one.server).cloned()?;
    let pipe = life.connect(one.number, "operator".to_owned());
    let reply = ask(control, &pipe, order, ORDER_MAX).await;
    pipe.close();
    reply
}

/// An engine has answered that slots are its own: it sends nobody away for want of an owner.
fn check_claim(shared: &SharedState, one: Wanted, order: &str, (first, _): (u16, u16)) {
    let mut shared = lock(shared);
    let Some(life) = shared.lives.get(&one.server) else { return };
    let is_owned = |map: &Map| Slot::new(first).is_some_and(|slot| map.owner(slot).is_some());
    if life.engines[one.number].engine.map().is_some_and(|map| !is_owned(&map)) {
        shared.wrong = Some(format!("{order:?} was answered, and slot {first} has no owner at {one:?}"));
    }
}

/// Replicas take over by agreement, one after another, until everything heals.
async fn change_primaries(control: &Control, shared: &SharedState, wanted: &[Wanted]) {
    let mut rng = control.rng("operator", 0);
    loop {
        control.sleep(Duration::from_nanos(rng.magnitude(100_000_000..=4_000_000_000))).await;
        if lock(shared).is_healed || lock(shared).is_over {
            return;
        }
        let one = wanted[rng.below(wanted.len() as u64) as usize];
        tell(control, shared, one, "CLUSTER FAILOVER\r\n").await;
    }
}

/// What an engine is to be told, if it is not as it is to be. Whoever was elected meanwhile stays.
fn order_for(shared: &SharedState, one: Wanted, Plan { wanted, slots, .. }: &Plan) -> Option<String> {
    let shared = lock(shared);
    let engine_of = |wanted: Wanted| Some(&shared.lives.get(&wanted.server)?.engines[wanted.number].engine);
    // One that is away is told when it is back.
    let Some(map) = engine_of(one).and_then(|engine| engine.map()) else { return Some("PING\r\n".to_owned()) };
    if one.is_primary {
        let (first, last) = slots[one.shard];
        // The claimant's own map does not show slots that it has to take over first.
        let maps = shared.lives.values().flat_map(|life| &life.engines).filter_map(|one| one.engine.map());
        let is_owned =
            |slot: u16| Slot::new(slot).is_some_and(|slot| maps.clone().any(|map| map.owner(slot).is_some()));
        return (!is_owned(first)).then(|| format!("CLUSTER ADDSLOTSRANGE {first} {last}\r\n"));
    }
    if map.own().primary.is_some() || !map.own().slots.is_empty() {
        return None;
    }
    let leader = wanted.iter().find(|other| other.shard == one.shard && other.is_primary)?;
    // Who was to lead may follow by now whoever was elected since.
    let name =
        engine_of(*leader).and_then(|engine| engine.map()).map(|map| map.own().primary.unwrap_or(map.own().name));
    name.map_or_else(|| Some("PING\r\n".to_owned()), |name| Some(format!("CLUSTER REPLICATE {name}\r\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_a_shard_are_on_different_servers() {
        for (servers, copies) in [(3, 2), (3, 3), (4, 3), (5, 3), (7, 2), (9, 3)] {
            let (shards, wanted) = arrange(servers, copies);
            assert_eq!(shards, servers as usize * 2 / copies);
            for shard in 0..shards {
                let of_shard: Vec<&Wanted> = wanted.iter().filter(|one| one.shard == shard).collect();
                let mut on: Vec<ServerNo> = of_shard.iter().map(|one| one.server).collect();
                on.sort();
                on.dedup();
                assert!(on.len() == of_shard.len() && on.len() >= copies, "{servers} {copies}: {of_shard:?}");
                assert_eq!(of_shard.iter().filter(|one| one.is_primary).count(), 1);
            }
        }
    }

    #[test]
    fn replies_are_read() {
        assert_eq!(parse(b"+OK\r\n"), Some(Reply::Done));
        assert_eq!(parse(b"$2\r\n17\r\n"), Some(Reply::Value(17)));
        assert_eq!(parse(b"$2\r\n17"), None);
        assert_eq!(parse(b"$-1\r\n"), Some(Reply::Value(0)));
        assert_eq!(parse(b"-MOVED 7 s2:6380\r\n"), Some(Reply::Refused(Some((ServerNo(2), 1)))));
        assert_eq!(parse(b"-CLUSTERDOWN x\r\n"), Some(Reply::Refused(None)));
    }
}
