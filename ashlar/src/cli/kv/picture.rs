//! How a key-value cluster is, from what its engines say of themselves.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use ashlar_kv::keyspace::slot::SLOTS;

use super::balance::{Engine, tell_seconds};
use super::rebalance::LOOK;
use crate::os::clock;
use crate::os::kv::caller::{Caller, Reply};
use ashlar_node::together;

/// Slots that are asked about at a time.
const ASKED_MAX: usize = 1_024;
/// How long an engine may take to connect and to describe itself: longer than any healthy one needs, short enough to wait for.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(2);

/// What to do where an engine lets nobody in who says no password, or another one; nothing if that is not the trouble.
pub(super) fn closed_remedy(why: &str) -> Option<&'static str> {
    let is_closed = ["NOAUTH", "WRONGPASS"].iter().any(|code| why.contains(code));
    let is_far = why.contains("DENIED ");
    if is_closed {
        return Some("give the engines' password in ASHLAR_KV_PASSWORD, or its file with --password-file");
    }
    is_far.then_some(
        "run this on the engine's own machine, or set a password first (`ashlar kv password` there): without one an engine lets \
         nobody in from elsewhere",
    )
}

/// Whom to ask, and connections to them.
#[derive(Debug)]
pub(crate) struct Asker {
    /// Engines of which one is enough to find the others, `HOST:PORT`.
    entries: Vec<String>,
    password: Option<String>,
    callers: BTreeMap<String, Caller>,
}

impl Asker {
    pub(crate) fn new(entries: Vec<String>, password: Option<String>) -> Self {
        Self { entries, password, callers: BTreeMap::new() }
    }

    /// Engines of which one is enough to find the others.
    pub(super) fn entries(&self) -> &[String] {
        &self.entries
    }

    /// The password of the engines, if they have one.
    pub(super) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Asks an engine several things.
    pub(super) async fn ask_all(&mut self, place: &str, requests: &[&[&[u8]]]) -> Result<Vec<Reply>, String> {
        let mut caller = match self.callers.remove(place) {
            Some(caller) => caller,
            None => Caller::connect(place, self.password()).await?,
        };
        let replies = caller.ask_all(requests).await.map_err(|why| format!("{place}: {why}"))?;
        self.callers.insert(place.to_owned(), caller);
        Ok(replies)
    }

    /// Asks an engine one thing.
    pub(super) async fn ask(&mut self, place: &str, words: &[&str]) -> Result<Reply, String> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut replies = self.ask_all(place, &[&words]).await?;
        replies.pop().ok_or_else(|| format!("{place}: no reply came"))
    }

    /// The same, for a text.
    pub(super) async fn text(&mut self, place: &str, words: &[&str]) -> Result<String, String> {
        self.ask(place, words).await?.text().map_err(|why| format!("{place}: {why}"))
    }

    /// The table of nodes, of the first engine that has one.
    async fn first_table(&mut self) -> Result<Vec<Line>, String> {
        let mut why = "nobody was named who could be asked".to_owned();
        for entry in self.entries.clone() {
            let text = clock::within(ANSWER_MAX, self.text(&entry, &["CLUSTER", "NODES"])).await;
            match text.unwrap_or_else(|| Err(too_late(&entry))) {
                Ok(text) => return Ok(read_table(&text)),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// What each of these engines says of itself and of the others, in their order: all are asked at once, and each has two seconds.
    async fn tell_all(&mut self, places: Vec<String>) -> Vec<Result<Told, String>> {
        let calls = places.iter().map(|place| {
            let (place, password, caller) = (place.clone(), self.password.clone(), self.callers.remove(place));
            let call = async move {
                let told = clock::within(ANSWER_MAX, tell(caller, &place, password.as_deref())).await;
                told.unwrap_or_else(|| Err(too_late(&place)))
            };
            Box::pin(call) as _
        });
        let told = together::all(calls.collect()).await;
        let kept = places.into_iter().zip(told).map(|(place, told)| {
            let (told, caller) = told?;
            self.callers.insert(place, caller);
            Ok(told)
        });
        kept.collect()
    }
}

/// A line of `CLUSTER NODES`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Line {
    pub(super) name: String,
    /// `HOST:PORT`; the host is empty as long as the engine has not been told of its cluster.
    pub(super) place: String,
    pub(super) is_own: bool,
    /// The bus has found that its server failed.
    pub(super) has_failed: bool,
    pub(super) primary: Option<String>,
    /// The epoch of its claim: of two claims of a slot the one with the greater epoch holds.
    pub(super) epoch: u64,
    pub(super) slots: BTreeSet<u16>,
    leaving: Vec<(u16, String)>,
    coming: Vec<(u16, String)>,
}

impl Line {
    /// Why nobody can connect to this engine yet; nothing if its address is whole.
    pub(super) fn unreachable(&self) -> Option<String> {
        match self.place.rsplit_once(':') {
            Some((host, "0")) => {
                Some(format!("{host}: an engine there has no port for plain TCP, or its port is not known yet"))
            }
            Some(("", port)) => Some(format!("the engine at port {port} has not been told of its cluster yet")),
            _ => None,
        }
    }

    /// Where clients reach it, for people: a port that is not known is a dash.
    pub(super) fn shown_place(&self) -> String {
        self.place.strip_suffix(":0").map_or_else(|| self.place.clone(), |host| format!("{host}:-"))
    }
}

pub(super) fn read_table(text: &str) -> Vec<Line> {
    text.lines().filter_map(read_line).collect()
}

fn read_line(line: &str) -> Option<Line> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, address, flags, primary, _, _, epoch, _, slots @ ..] = words.as_slice() else { return None };
    let flags: Vec<&str> = flags.split(',').collect();
    let mut read = Line {
        name: (*name).to_owned(),
        place: address.split('@').next().unwrap_or_default().to_owned(),
        is_own: flags.contains(&"myself"),
        has_failed: flags.contains(&"fail"),
        primary: (*primary != "-").then(|| (*primary).to_owned()),
        epoch: epoch.parse().ok()?,
        ..Line::default()
    };
    for word in slots {
        if let Some(open) = word.strip_prefix('[').and_then(|word| word.strip_suffix(']')) {
            let moved =
                |way: &str| open.split_once(way).and_then(|(slot, to)| Some((slot.parse().ok()?, to.to_owned())));
            read.leaving.extend(moved("->-"));
            read.coming.extend(moved("-<-"));
        } else {
            read.slots.extend(read_range(word)?);
        }
    }
    Some(read)
}

/// What an engine's `INFO` and `CLUSTER INFO` say of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Figures {
    pub(super) zone: String,
    pub(super) is_linked: bool,
    /// A copy of the primary's data is on its way.
    pub(super) is_syncing: bool,
    /// It answers for slots, and not `CLUSTERDOWN`.
    pub(super) is_serving: bool,
    /// How far its data go, in its group's stream.
    pub(super) offset: u64,
    /// Keys, by database.
    pub(super) keys: BTreeMap<u32, u64>,
    /// Slots of which it has copies of keys: a migration brings them, or has left them behind.
    pub(super) copies: BTreeSet<u16>,
    /// Copies of diverged data that it keeps aside.
    pub(super) diverged: u64,
    /// Why it cannot keep diverged data aside, so that it does not follow its primary.
    pub(super) diverged_refused: String,
}

pub(super) fn read_figures(text: &str) -> Figures {
    let fields: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
    let field = |name: &str| fields.get(name).copied().unwrap_or_default();
    let name = if field("role") == "slave" { "slave_repl_offset" } else { "master_repl_offset" };
    let keys = fields.iter().filter_map(|(name, value)| {
        let count = value.strip_prefix("keys=")?.split(',').next()?;
        Some((name.strip_prefix("db")?.parse().ok()?, count.parse().ok()?))
    });
    Figures {
        zone: field("availability_zone").to_owned(),
        is_linked: field("master_link_status") == "up",
        is_syncing: field("master_sync_in_progress") == "1",
        is_serving: field("cluster_state") == "ok",
        offset: field(name).parse().unwrap_or(0),
        keys: keys.collect(),
        copies: field("cluster_slots_copies").split(' ').filter_map(read_range).flatten().collect(),
        diverged: field("diverged_copies").parse().unwrap_or(0),
        diverged_refused: field("diverged_copy_refused").to_owned(),
    }
}

/// `FIRST-LAST`, or one number.
fn read_range(word: &str) -> Option<core::ops::RangeInclusive<u16>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

/// What an engine says of itself and of the others.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) table: Vec<Line>,
    pub(super) figures: Figures,
    /// Migrations of slots, the newest first.
    pub(super) migrations: Vec<Migration>,
    /// A majority of copies acknowledges its writes, or is to (`replication-quorum`).
    pub(super) is_quorum: bool,
}

/// A migration of slots, as `CLUSTER GETSLOTMIGRATIONS` tells of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Migration {
    pub(super) name: String,
    /// Slots leave the engine that tells of it.
    pub(super) is_export: bool,
    /// As they were asked for: `0-99 200-299`.
    pub(super) ranges: String,
    pub(super) state: String,
    pub(super) message: String,
}

impl Migration {
    /// Nothing is left to do for it.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state.as_str(), "success" | "failed" | "cancelled")
    }
}

/// The migrations of a reply; none if the engine knows of no such thing.
pub(super) fn read_migrations(reply: &Reply) -> Vec<Migration> {
    let Reply::List(items) = reply else { return Vec::new() };
    items.iter().map(read_migration).collect()
}

fn read_migration(reply: &Reply) -> Migration {
    let fields = if let Reply::List(fields) = reply { fields.as_slice() } else { &[] };
    let field = |name: &str| {
        let mut pairs = fields.chunks_exact(2);
        let found = pairs.find(|pair| matches!(&pair[0], Reply::Text(text) if text == name.as_bytes()));
        found.and_then(|pair| pair[1].clone().text().ok()).unwrap_or_default()
    };
    Migration {
        name: field("name"),
        is_export: field("operation") == "EXPORT",
        ranges: field("slot_ranges"),
        state: field("state"),
        message: field("message"),
    }
}

fn too_late(place: &str) -> String {
    format!("{place}: no answer within {} s", ANSWER_MAX.as_secs())
}

/// Asks one engine about itself and the others, over this connection or a new one.
async fn tell(caller: Option<Caller>, place: &str, password: Option<&str>) -> Result<(Told, Caller), String> {
    let requests: [&[&[u8]]; 5] = [
        &[b"CLUSTER", b"NODES"],
        &[b"INFO", b"SERVER", b"REPLICATION", b"KEYSPACE"],
        &[b"CLUSTER", b"INFO"],
        &[b"CLUSTER", b"GETSLOTMIGRATIONS"],
        &[b"CONFIG", b"GET", b"replication-quorum"],
    ];
    let mut caller = match caller {
        Some(caller) => caller,
        None => Caller::connect(place, password).await?,
    };
    let replies = caller.ask_all(&requests).await.map_err(|why| format!("{place}: {why}"))?;
    let [table, figures, service, migrations, quorum] =
        <[Reply; 5]>::try_from(replies).map_err(|_| format!("{place}: not all replies came"))?;
    let text = |reply: Reply| reply.text().map_err(|why| format!("{place}: {why}"));
    let figures = read_figures(&[text(figures)?, text(service)?].join("\n"));
    let is_quorum = matches!(quorum, Reply::List(pair) if pair.get(1) == Some(&Reply::Text(b"yes".to_vec())));
    let migrations = read_migrations(&migrations);
    Ok((Told { table: read_table(&text(table)?), figures, migrations, is_quorum }, caller))
}

/// The table of nodes, read again for as long as engines may take to answer if it has engines whose addresses are not known yet.
async fn table(asker: &mut Asker) -> Result<Vec<Line>, String> {
    let deadline = clock::now() + ANSWER_MAX;
    loop {
        let table = asker.first_table().await?;
        if table.iter().all(|line| line.has_failed || line.unreachable().is_none()) || clock::now() >= deadline {
            return Ok(table);
        }
        clock::sleep(LOOK).await;
    }
}

/// Everybody in the cluster, with what those say who answer. Engines of servers that have failed are not asked.
///
/// # Errors
/// Nobody answers who was named.
pub(super) async fn everybody(asker: &mut Asker) -> Result<Vec<(Line, Result<Told, String>)>, String> {
    let table = table(asker).await?;
    let why_not =
        |line: &Line| if line.has_failed { Some("its server has failed".to_owned()) } else { line.unreachable() };
    let asked = table.iter().filter(|line| why_not(line).is_none()).map(|line| line.place.clone()).collect();
    let mut told = asker.tell_all(asked).await.into_iter();
    let all = table.into_iter().map(|line| {
        let told = why_not(&line).map_or_else(|| told.next().expect("each that is asked has a result"), Err);
        (line, told)
    });
    Ok(all.collect())
}

/// The slots of each engine, by name, each slot at one engine only.
///
/// Engines are not asked at the same instant, so while slots move two may both say that they own one, or neither. Of two claims that with
/// the greater epoch holds, whoever tells of it. What an engine says of itself holds against what others say of it in the same epoch: it
/// may have given slots up since.
pub(super) fn owned(all: &[(Line, Result<Told, String>)]) -> BTreeMap<String, BTreeSet<u16>> {
    let tables = || all.iter().filter_map(|(_, told)| told.as_ref().ok()).map(|told| &told.table);
    let own: BTreeMap<&str, u64> =
        tables().flatten().filter(|line| line.is_own).map(|line| (line.name.as_str(), line.epoch)).collect();
    let mut holders: Vec<Option<(u64, &str)>> = vec![None; usize::from(SLOTS)];
    for line in tables().flatten().chain(all.iter().map(|(line, _)| line)) {
        if !line.is_own && own.get(line.name.as_str()).is_some_and(|epoch| line.epoch <= *epoch) {
            continue;
        }
        for slot in &line.slots {
            if let Some(holder) = holders.get_mut(usize::from(*slot)) {
                *holder = (*holder).max(Some((line.epoch, line.name.as_str())));
            }
        }
    }
    let mut owned: BTreeMap<String, BTreeSet<u16>> = BTreeMap::new();
    for (slot, (_, name)) in (0..SLOTS).zip(holders).filter_map(|(slot, holder)| Some((slot, holder?))) {
        owned.entry(name.to_owned()).or_default().insert(slot);
    }
    owned
}

/// Whom each engine follows and which slots it has, as one of them says.
type Shares = BTreeMap<String, (Option<String>, BTreeSet<u16>)>;

/// Why there is no whole picture of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotYet {
    pub(super) why: String,
    /// Slots are on their way, or keys that they left behind are being removed: there is a picture once that is over.
    pub(super) is_moving: bool,
}

impl From<String> for NotYet {
    fn from(why: String) -> Self {
        Self { why, is_moving: false }
    }
}

/// The whole picture, once all who live say the same and nothing moves. Engines are in the order of their addresses.
///
/// # Errors
/// They do not yet, or one does not answer. Retry safe.
pub(super) async fn look(asker: &mut Asker, expected: Option<usize>) -> Result<Vec<Engine>, NotYet> {
    let all = everybody(asker).await?;
    if let Some(expected) = expected.filter(|expected| all.len() < *expected) {
        return Err(format!("{} of {expected} engines know each other", all.len()).into());
    }
    if let Some(why) = moving(&all) {
        return Err(NotYet { why, is_moving: true });
    }
    let mut engines = Vec::new();
    let mut agreed: Option<Shares> = None;
    for (line, told) in all {
        let mut engine = Engine {
            name: line.name,
            place: line.place,
            primary: line.primary,
            slots: line.slots,
            ..Engine::default()
        };
        let told = match told {
            Ok(told) => told,
            Err(_) if line.has_failed => {
                engines.push(engine);
                continue;
            }
            Err(why) => return Err(why.into()),
        };
        let own = told.table.iter().find(|line| line.is_own).cloned();
        let own =
            own.filter(|own| own.name == engine.name).ok_or_else(|| format!("{} is another now", engine.place))?;
        let table: Shares = told.table.into_iter().map(|line| (line.name, (line.primary, line.slots))).collect();
        if agreed.get_or_insert_with(|| table.clone()) != &table {
            return Err("engines do not agree yet on who owns what".to_owned().into());
        }
        engine.strays = strays(asker, &own, &told.figures).await?;
        (engine.is_reached, engine.is_linked, engine.zone) = (true, told.figures.is_linked, told.figures.zone);
        (engine.primary, engine.slots, engine.is_quorum) = (own.primary, own.slots, told.is_quorum);
        (engine.leaving, engine.coming) = (own.leaving, own.coming);
        engines.push(engine);
    }
    engines.sort_by_cached_key(|engine| order(&engine.place));
    tell_seconds(&mut engines);
    Ok(engines)
}

/// What moves by itself, if something does: migrations that somebody began, and keys that they left behind.
fn moving(all: &[(Line, Result<Told, String>)]) -> Option<String> {
    let told = all.iter().filter_map(|(line, told)| Some((line, told.as_ref().ok()?)));
    for (line, told) in told {
        let under_way = told.migrations.iter().filter(|migration| migration.is_export && !migration.is_over()).count();
        if under_way > 0 {
            return Some(format!("{}: {under_way} migrations of slots are under way", line.place));
        }
        if !told.figures.copies.is_empty() && told.table.iter().any(|line| line.is_own && line.primary.is_none()) {
            let count = told.figures.copies.len();
            return Some(format!("{}: keys of {count} slots that have moved are being removed", line.place));
        }
    }
    None
}

/// Addresses in the order in which people count them: by IP or name, then by port.
fn order(place: &str) -> (Option<core::net::IpAddr>, String, u16) {
    let (host, port) = place.rsplit_once(':').unwrap_or((place, ""));
    (host.trim_matches(['[', ']']).parse().ok(), host.to_owned(), port.parse().unwrap_or(0))
}

/// Keys that a primary has of slots that it does not own, by slot.
async fn strays(asker: &mut Asker, own: &Line, figures: &Figures) -> Result<BTreeMap<u16, u64>, String> {
    if own.primary.is_some() {
        return Ok(BTreeMap::new());
    }
    let others: Vec<u16> = (0..SLOTS).filter(|slot| !own.slots.contains(slot)).collect();
    count_keys(asker, &own.place, figures.keys.keys(), &others).await
}

/// How many keys an engine has in each of these slots, in these databases; slots without any are left out.
pub(super) async fn count_keys(
    asker: &mut Asker,
    place: &str,
    databases: impl Iterator<Item = &u32>,
    slots: &[u16],
) -> Result<BTreeMap<u16, u64>, String> {
    let mut counted = BTreeMap::new();
    let slots: Vec<(u16, String)> = slots.iter().map(|slot| (*slot, slot.to_string())).collect();
    for database in databases {
        let number = database.to_string();
        let select: [&[u8]; 2] = [b"SELECT", number.as_bytes()];
        for slots in slots.chunks(ASKED_MAX) {
            let counts: Vec<[&[u8]; 3]> =
                slots.iter().map(|(_, slot)| [&b"CLUSTER"[..], b"COUNTKEYSINSLOT", slot.as_bytes()]).collect();
            let counts = counts.iter().map(|words| &words[..]);
            let requests: Vec<&[&[u8]]> = [&select[..]].into_iter().chain(counts).chain([&SELECT_FIRST[..]]).collect();
            let replies = asker.ask_all(place, &requests).await?;
            for ((slot, _), reply) in slots.iter().zip(&replies[1..]) {
                if let Reply::Number(count) = reply
                    && *count > 0
                {
                    *counted.entry(*slot).or_default() += u64::try_from(*count).unwrap_or(0);
                }
            }
        }
    }
    Ok(counted)
}

/// Connections are kept at the first database.
pub(super) const SELECT_FIRST: [&[u8]; 2] = [b"SELECT", b"0"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read() {
        let text = "aa 127.0.0.1:6379@7800,host myself,master - 0 0 3 connected 0-2 7 [7->-bb] [9-<-bb]\n\
                    bb 127.0.0.1:6479@7801 slave,fail aa 0 0 3 disconnected\nnonsense\n";
        let lines = read_table(text);
        let own = Line {
            name: "aa".into(),
            place: "127.0.0.1:6379".into(),
            is_own: true,
            epoch: 3,
            slots: [0, 1, 2, 7].into(),
            leaving: vec![(7, "bb".into())],
            coming: vec![(9, "bb".into())],
            ..Line::default()
        };
        let other = Line {
            name: "bb".into(),
            place: "127.0.0.1:6479".into(),
            has_failed: true,
            primary: Some("aa".into()),
            epoch: 3,
            ..Line::default()
        };
        assert_eq!(lines, [own, other]);
    }

    #[test]
    fn an_address_without_a_port_is_no_place_to_connect_to() {
        let line = |place: &str| Line { place: place.into(), ..Line::default() };
        let why = line("10.77.0.3:0").unreachable().unwrap();
        assert!(why.contains("its port is not known yet") && !why.contains(":0"), "{why}");
        assert_eq!(line("10.77.0.3:0").shown_place(), "10.77.0.3:-");
        assert!(line(":6379").unreachable().is_some());
        for whole in ["10.77.0.3:6379", "[::1]:6380", "one:10"] {
            assert_eq!((line(whole).unreachable(), line(whole).shown_place()), (None, whole.to_owned()));
        }
    }

    #[test]
    fn figures_are_read() {
        let text = "# Server\r\navailability_zone:x\r\nrole:slave\r\nmaster_link_status:up\r\nslave_repl_offset:42\r\n\
                    master_repl_offset:7\r\n# Keyspace\r\ndb0:keys=3,expires=0\r\ndb2:keys=1,expires=0\r\n\n\
                    cluster_state:ok\r\ncluster_slots_copies:7 9-10\r\n";
        let (keys, copies) = ([(0, 3), (2, 1)].into(), [7, 9, 10].into());
        let figures = Figures {
            zone: "x".into(),
            is_linked: true,
            is_serving: true,
            offset: 42,
            keys,
            copies,
            ..Figures::default()
        };
        assert_eq!(read_figures(text), figures);
        assert_eq!(read_figures("role:master\r\nmaster_repl_offset:7\r\n").offset, 7);
    }

    #[test]
    fn migrations_are_read() {
        let text = |text: &str| Reply::Text(text.as_bytes().to_vec());
        let words =
            ["name", "n", "operation", "EXPORT", "slot_ranges", "0-9 12-12", "state", "failed", "message", "why"];
        let reply = Reply::List(vec![Reply::List(words.map(text).to_vec())]);
        let migration = Migration {
            name: "n".into(),
            is_export: true,
            ranges: "0-9 12-12".into(),
            state: "failed".into(),
            message: "why".into(),
        };
        assert!(migration.is_over());
        assert_eq!(read_migrations(&reply), [migration]);
        assert_eq!(read_migrations(&Reply::Refused("ERR unknown".into())), []);
    }

    #[test]
    fn addresses_are_ordered_as_numbers() {
        let mut places = ["10.0.0.10:6379", "10.0.0.9:16379", "10.0.0.9:6380", "[::1]:1", "10.0.0.9:6379"];
        places.sort_by_key(|place| order(place));
        assert_eq!(places, ["10.0.0.9:6379", "10.0.0.9:6380", "10.0.0.9:16379", "10.0.0.10:6379", "[::1]:1"]);
    }
}
