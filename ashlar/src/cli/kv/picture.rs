//! How a key-value cluster is, from what its engines say of themselves.

use std::collections::{BTreeMap, BTreeSet};

use ashlar_kv::keyspace::slot::SLOTS;

use super::balance::{Engine, tell_seconds};
use crate::os::kv::caller::{Caller, Reply};

/// Slots that are asked about at a time.
const ASKED_MAX: usize = 1_024;

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
            match self.text(&entry, &["CLUSTER", "NODES"]).await {
                Ok(text) => return Ok(read_table(&text)),
                Err(error) => why = error,
            }
        }
        Err(why)
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
    pub(super) slots: BTreeSet<u16>,
    leaving: Vec<(u16, String)>,
    coming: Vec<(u16, String)>,
}

pub(super) fn read_table(text: &str) -> Vec<Line> {
    text.lines().filter_map(read_line).collect()
}

fn read_line(line: &str) -> Option<Line> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, address, flags, primary, _, _, _, _, slots @ ..] = words.as_slice() else { return None };
    let flags: Vec<&str> = flags.split(',').collect();
    let mut read = Line {
        name: (*name).to_owned(),
        place: address.split('@').next().unwrap_or_default().to_owned(),
        is_own: flags.contains(&"myself"),
        has_failed: flags.contains(&"fail"),
        primary: (*primary != "-").then(|| (*primary).to_owned()),
        ..Line::default()
    };
    for word in slots {
        if let Some(open) = word.strip_prefix('[').and_then(|word| word.strip_suffix(']')) {
            let moved =
                |way: &str| open.split_once(way).and_then(|(slot, to)| Some((slot.parse().ok()?, to.to_owned())));
            read.leaving.extend(moved("->-"));
            read.coming.extend(moved("-<-"));
        } else {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            read.slots.extend(first.parse::<u16>().ok()?..=last.parse().ok()?);
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
    }
}

/// What an engine says of itself and of the others.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) table: Vec<Line>,
    pub(super) figures: Figures,
}

pub(super) async fn tell(asker: &mut Asker, place: &str) -> Result<Told, String> {
    let requests: [&[&[u8]]; 3] =
        [&[b"CLUSTER", b"NODES"], &[b"INFO", b"SERVER", b"REPLICATION", b"KEYSPACE"], &[b"CLUSTER", b"INFO"]];
    let mut texts = Vec::new();
    for reply in asker.ask_all(place, &requests).await? {
        texts.push(reply.text().map_err(|why| format!("{place}: {why}"))?);
    }
    Ok(Told { table: read_table(&texts[0]), figures: read_figures(&texts[1..].join("\n")) })
}

/// Everybody in the cluster, with what those say who answer. Engines of servers that have failed are not asked.
///
/// # Errors
/// Nobody answers who was named.
pub(super) async fn everybody(asker: &mut Asker) -> Result<Vec<(Line, Result<Told, String>)>, String> {
    let mut all = Vec::new();
    for line in asker.first_table().await? {
        let told = match line.has_failed {
            true => Err("its server has failed".to_owned()),
            false => tell(asker, &line.place).await,
        };
        all.push((line, told));
    }
    Ok(all)
}

/// Whom each engine follows and which slots it has, as one of them says.
type Shares = BTreeMap<String, (Option<String>, BTreeSet<u16>)>;

/// The whole picture, once all who live say the same.
///
/// # Errors
/// They do not yet, or one does not answer. Retry safe.
pub(super) async fn look(asker: &mut Asker, expected: Option<usize>) -> Result<Vec<Engine>, String> {
    let all = everybody(asker).await?;
    if let Some(expected) = expected.filter(|expected| all.len() < *expected) {
        return Err(format!("{} of {expected} engines know each other", all.len()));
    }
    let mut engines = Vec::new();
    let mut agreed: Option<Shares> = None;
    for (line, told) in all {
        if line.place.starts_with(':') {
            return Err(format!("{} has not been told of its cluster yet", line.place));
        }
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
            Err(why) => return Err(why),
        };
        let own = told.table.iter().find(|line| line.is_own).cloned();
        let own =
            own.filter(|own| own.name == engine.name).ok_or_else(|| format!("{} is another now", engine.place))?;
        let table: Shares = told.table.into_iter().map(|line| (line.name, (line.primary, line.slots))).collect();
        if agreed.get_or_insert_with(|| table.clone()) != &table {
            return Err("engines do not agree yet on who owns what".to_owned());
        }
        engine.strays = strays(asker, &own, &told.figures).await?;
        (engine.is_reached, engine.is_linked, engine.zone) = (true, told.figures.is_linked, told.figures.zone);
        (engine.primary, engine.slots) = (own.primary, own.slots);
        (engine.leaving, engine.coming) = (own.leaving, own.coming);
        engines.push(engine);
    }
    tell_seconds(&mut engines);
    Ok(engines)
}

/// Keys that a primary has of slots that it does not own, by slot.
async fn strays(asker: &mut Asker, own: &Line, figures: &Figures) -> Result<BTreeMap<u16, u64>, String> {
    let mut strays = BTreeMap::new();
    if own.primary.is_some() {
        return Ok(strays);
    }
    let others: Vec<(u16, String)> =
        (0..SLOTS).filter(|slot| !own.slots.contains(slot)).map(|slot| (slot, slot.to_string())).collect();
    for database in figures.keys.keys() {
        let number = database.to_string();
        let select: [&[u8]; 2] = [b"SELECT", number.as_bytes()];
        for others in others.chunks(ASKED_MAX) {
            let counts: Vec<[&[u8]; 3]> =
                others.iter().map(|(_, slot)| [&b"CLUSTER"[..], b"COUNTKEYSINSLOT", slot.as_bytes()]).collect();
            let counts = counts.iter().map(|words| &words[..]);
            let requests: Vec<&[&[u8]]> = [&select[..]].into_iter().chain(counts).chain([&SELECT_FIRST[..]]).collect();
            let replies = asker.ask_all(&own.place, &requests).await?;
            for ((slot, _), reply) in others.iter().zip(&replies[1..]) {
                if let Reply::Number(count) = reply
                    && *count > 0
                {
                    *strays.entry(*slot).or_default() += u64::try_from(*count).unwrap_or(0);
                }
            }
        }
    }
    Ok(strays)
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
            ..Line::default()
        };
        assert_eq!(lines, [own, other]);
    }

    #[test]
    fn figures_are_read() {
        let text = "# Server\r\navailability_zone:x\r\nrole:slave\r\nmaster_link_status:up\r\nslave_repl_offset:42\r\n\
                    master_repl_offset:7\r\n# Keyspace\r\ndb0:keys=3,expires=0\r\ndb2:keys=1,expires=0\r\n\n\
                    cluster_state:ok\r\n";
        let keys = [(0, 3), (2, 1)].into();
        let figures =
            Figures { zone: "x".into(), is_linked: true, is_serving: true, offset: 42, keys, ..Figures::default() };
        assert_eq!(read_figures(text), figures);
        assert_eq!(read_figures("role:master\r\nmaster_repl_offset:7\r\n").offset, 7);
    }
}
