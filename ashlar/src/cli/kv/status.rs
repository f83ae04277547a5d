//! `ashlar kv status`: who serves which slots, who follows whom and how far behind.

use std::collections::BTreeMap;

use ashlar_kv::keyspace::slot::SLOTS;
use serde::Serialize;

use super::balance::{self, Engine};
use super::picture::{Asker, Line, Told, everybody, owned};
use super::rebalance::ranges;
use crate::cli::asking::short;
use crate::cli::table;

/// Runs of slots that are shown of one primary.
const RANGES_SHOWN_MAX: usize = 4;

/// How an engine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// A primary that serves, or a replica that is up to date with its primary's stream.
    Online,
    /// It has no slots and follows nobody.
    Idle,
    /// A primary with slots that it does not serve: it answers `CLUSTERDOWN`.
    Down,
    /// A replica without a connection to its primary, or one that is getting its copy.
    Syncing,
    /// It does not answer.
    Silent,
    /// The cluster has found that its server failed.
    Failed,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Idle => "idle",
            Self::Down => "down",
            Self::Syncing => "syncing",
            Self::Silent => "no answer",
            Self::Failed => "failed",
        }
    }
}

/// One engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Member {
    node: String,
    server: String,
    address: String,
    zone: String,
    /// Which of its server's engines it is: 1 or 2.
    seat: u8,
    state: State,
    keys: Option<u64>,
    /// How far its data go in the group's stream.
    offset: Option<u64>,
    /// Bytes of the stream that it has not got yet; of replicas only.
    lag: Option<u64>,
    /// Copies of data that a new primary may have lacked, kept aside.
    diverged_copies: u64,
    /// Why such data cannot be kept aside: the engine does not follow its primary.
    diverged_copy_refused: Option<String>,
    error: Option<String>,
}

/// One replica group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Group {
    slots: usize,
    ranges: Vec<(u16, u16)>,
    primary: Member,
    replicas: Vec<Member>,
}

impl Group {
    /// Whether a replica has what the primary has.
    fn has_copy(&self) -> bool {
        self.replicas.iter().any(|replica| replica.state == State::Online)
    }
}

/// Migrations of slots from this engine to others that are under way.
fn exports(told: &Told) -> usize {
    told.migrations.iter().filter(|migration| migration.is_export && !migration.is_over()).count()
}

/// A server of which an engine does not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Silent {
    server: String,
    /// The cluster has found that it failed: it was not asked.
    has_failed: bool,
    /// The engines that do not answer, and why.
    engines: Vec<(String, String)>,
}

/// The cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Status {
    slots_served: usize,
    slots_without_owner: usize,
    keys: u64,
    /// Groups with slots of which no replica has everything.
    groups_without_copy: usize,
    /// Migrations of slots that are under way.
    migrations: usize,
    /// The servers of which an engine does not answer.
    silent: Vec<Silent>,
    groups: Vec<Group>,
}

/// Asks everybody.
///
/// # Errors
/// Nobody answers who was named.
pub(super) async fn ask(asker: &mut Asker) -> Result<Status, String> {
    Ok(status(&everybody(asker).await?))
}

fn status(all: &[(Line, Result<Told, String>)]) -> Status {
    let mut engines: Vec<Engine> =
        all.iter().map(|(line, _)| Engine { name: line.name.clone(), ..Engine::default() }).collect();
    balance::tell_seconds(&mut engines);
    // Who answers knows itself best.
    let own = |line: &Line, told: &Result<Told, String>| {
        let own = told.as_ref().ok().and_then(|told| told.table.iter().find(|line| line.is_own).cloned());
        own.unwrap_or_else(|| line.clone())
    };
    let mut owned = owned(all);
    let mut lines: Vec<Line> = all.iter().map(|(line, told)| own(line, told)).collect();
    lines.iter_mut().for_each(|line| line.slots = owned.remove(&line.name).unwrap_or_default());
    let members = (0..all.len()).map(|at| member(&all[at].0, &lines[at], all[at].1.as_ref(), &engines[at]));
    let members: BTreeMap<String, Member> = members.map(|member| (member.node.clone(), member)).collect();
    let mut groups: Vec<Group> = Vec::new();
    for (line, primary) in lines.iter().filter_map(|line| Some((line, members.get(&line.name)?))) {
        let is_followed = lines.iter().any(|line| line.primary.as_ref() == Some(&primary.node));
        // Whoever follows somebody who is not there is shown by itself.
        if line.primary.as_ref().is_some_and(|name| members.contains_key(name)) && !is_followed {
            continue;
        }
        let replicas = lines.iter().filter(|other| other.primary.as_ref() == Some(&primary.node));
        let replicas = replicas.filter_map(|line| members.get(&line.name)).map(|replica| Member {
            lag: primary.offset.zip(replica.offset).map(|(all, has)| all.saturating_sub(has)),
            ..replica.clone()
        });
        let slots: Vec<u16> = line.slots.iter().copied().collect();
        let (ranges, replicas) = (ranges(&slots), replicas.collect());
        groups.push(Group { slots: slots.len(), ranges, primary: primary.clone(), replicas });
    }
    groups.sort_by_key(|group| (group.ranges.is_empty(), group.ranges.first().copied(), group.primary.address.clone()));
    let is_served = |group: &&Group| group.primary.state == State::Online;
    let assigned: usize = lines.iter().map(|line| line.slots.len()).sum();
    Status {
        slots_served: groups.iter().filter(is_served).map(|group| group.slots).sum(),
        slots_without_owner: usize::from(SLOTS) - assigned,
        groups_without_copy: groups.iter().filter(|group| group.slots > 0 && !group.has_copy()).count(),
        migrations: all.iter().filter_map(|(_, told)| told.as_ref().ok()).map(exports).sum(),
        silent: silent(members.values()),
        keys: groups.iter().filter_map(|group| group.primary.keys).sum(),
        groups,
    }
}

fn member(seen: &Line, own: &Line, told: Result<&Told, &String>, engine: &Engine) -> Member {
    let figures = told.ok().map(|told| &told.figures);
    let state = match figures {
        None if seen.has_failed => State::Failed,
        None => State::Silent,
        Some(_) if own.primary.is_none() && own.slots.is_empty() => State::Idle,
        Some(figures) if own.primary.is_none() && !figures.is_serving => State::Down,
        Some(figures) if own.primary.is_some() && !figures.is_linked => State::Syncing,
        Some(_) => State::Online,
    };
    Member {
        node: seen.name.clone(),
        server: engine.server().to_owned(),
        address: seen.shown_place(),
        zone: figures.map(|figures| figures.zone.clone()).unwrap_or_default(),
        seat: 1 + u8::from(engine.is_second),
        state,
        keys: figures.map(|figures| figures.keys.values().sum()),
        offset: figures.map(|figures| figures.offset),
        lag: None,
        diverged_copies: figures.map_or(0, |figures| figures.diverged),
        diverged_copy_refused: figures.map(|figures| figures.diverged_refused.clone()).filter(|why| !why.is_empty()),
        error: told.err().cloned(),
    }
}

/// The servers of these engines that do not answer.
fn silent<'m>(members: impl Iterator<Item = &'m Member>) -> Vec<Silent> {
    let mut silent: BTreeMap<&str, Silent> = BTreeMap::new();
    for (member, why) in members.filter_map(|member| Some((member, member.error.as_ref()?))) {
        let entry = silent.entry(&member.server).or_insert_with(|| Silent {
            server: member.server.clone(),
            has_failed: member.state == State::Failed,
            engines: Vec::new(),
        });
        entry.engines.push((member.address.clone(), why.clone()));
    }
    silent.into_values().collect()
}

/// The cluster for people.
pub(super) fn text(status: &Status) -> String {
    let missing = match status.slots_without_owner {
        0 => String::new(),
        count => format!("; {count} have no owner (`ashlar kv rebalance` gives them one)"),
    };
    let mut head = format!("{} of {} slots are served, {} keys{missing}", status.slots_served, SLOTS, status.keys);
    if status.groups_without_copy > 0 {
        let groups = status.groups.iter().filter(|group| group.slots > 0).count();
        head += &format!("\n{} of {groups} groups have no second copy", status.groups_without_copy);
    }
    if status.migrations > 0 {
        head += &format!("\n{} migrations of slots are under way", status.migrations);
    }
    for Silent { server, has_failed, engines } in &status.silent {
        let how = if *has_failed { "has failed" } else { "does not answer" };
        let why = engines.iter().map(|(address, why)| if *has_failed { address.as_str() } else { why.as_str() });
        head += &format!("\nserver {} {how}: {}", short(Some(server)), why.collect::<Vec<_>>().join("; "));
    }
    let mut rows = Vec::new();
    for (number, group) in status.groups.iter().enumerate() {
        rows.push(row(&(number + 1).to_string(), "primary", &group.primary, &slots(group)));
        rows.extend(group.replicas.iter().map(|replica| row("", "replica", replica, "")));
    }
    let table = table::text(
        &["group", "role", "address", "server", "seat", "zone", "state", "keys", "offset", "lag", "slots"],
        &rows,
    );
    format!("{head}\n\n{table}{}", diverged(status))
}

/// Data that were kept aside, or could not be: nobody looks for them without being told.
fn diverged(status: &Status) -> String {
    let members = status.groups.iter().flat_map(|group| core::iter::once(&group.primary).chain(&group.replicas));
    let mut lines = String::new();
    for member in members {
        if member.diverged_copies > 0 {
            let (address, count) = (&member.address, member.diverged_copies);
            lines += &format!(
                "\n{address} keeps {count} diverged copies: data that a new primary may have lacked (diverged-*.rdb in its directory; \
                 `INFO replication` names them)"
            );
        }
        if let Some(why) = &member.diverged_copy_refused {
            lines += &format!(
                "\n{} does not follow its primary: its diverged data cannot be kept aside ({why}); make room, or set \
                 `diverged-copies-max 0` there to give them up",
                member.address
            );
        }
    }
    lines
}

fn slots(group: &Group) -> String {
    if group.slots == 0 {
        return "0".into();
    }
    let run = |(first, last): &(u16, u16)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    let shown: Vec<String> = group.ranges.iter().take(RANGES_SHOWN_MAX).map(run).collect();
    let more = if group.ranges.len() > RANGES_SHOWN_MAX { ", ..." } else { "" };
    format!("{} ({}{more})", group.slots, shown.join(", "))
}

fn row(group: &str, role: &str, member: &Member, slots: &str) -> Vec<String> {
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let zone = if member.zone.is_empty() { "-" } else { &member.zone };
    [
        group,
        role,
        &member.address,
        &short(Some(&member.server)),
        &member.seat.to_string(),
        zone,
        member.state.name(),
        &number(member.keys),
        &number(member.offset),
        &member.lag.map_or_else(String::new, table::bytes),
        slots,
    ]
    .map(str::to_owned)
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::super::picture::{Figures, read_table};
    use super::*;

    #[test]
    fn groups_are_told_with_their_replicas() {
        let (a, b) = ("a".repeat(32) + "00000000", "b".repeat(32) + "00000001");
        let own = "b".repeat(32) + "00000000";
        let text = format!(
            "{a} h:1@9 master - 0 0 1 connected 0-9\n{b} h:2@9 slave {a} 0 0 1 connected\n\
             {own} h:3@9 master,fail - 0 0 2 disconnected 10-16383\n"
        );
        let told = |name: &str, offset, is_serving| {
            let mut table = read_table(&text);
            table.iter_mut().for_each(|line| line.is_own = line.name == *name);
            let keys = [(0, 5)].into();
            let figures = Figures { is_linked: true, is_serving, offset, keys, ..Figures::default() };
            Ok(Told { table, figures, migrations: Vec::new(), is_quorum: false })
        };
        let status_if = |is_serving| {
            let answers = [told(&a, 100, is_serving), told(&b, 90, true), Err("its server has failed".to_owned())];
            status(&read_table(&text).into_iter().zip(answers).collect::<Vec<_>>())
        };
        let down = status_if(false);
        assert_eq!((down.slots_served, down.slots_without_owner, down.groups[0].primary.state), (0, 0, State::Down));
        let status = status_if(true);
        assert_eq!((status.slots_served, status.slots_without_owner, status.keys), (10, 0, 5));
        let shown = super::text(&status);
        assert_eq!(shown.lines().nth(1), Some("1 of 2 groups have no second copy"));
        assert_eq!(shown.lines().nth(2), Some("server bbbbbbbb has failed: h:3"));
        let rows: Vec<Vec<&str>> = shown.lines().skip(4).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["1", "primary", "h:1", "aaaaaaaa", "1", "-", "online", "5", "100", "10", "(0-9)"]);
        assert_eq!(rows[2], ["replica", "h:2", "bbbbbbbb", "2", "-", "online", "5", "90", "10", "B"]);
        assert_eq!(rows[3][..7], ["2", "primary", "h:3", "bbbbbbbb", "1", "-", "failed"]);
    }

    #[test]
    fn a_slot_that_moves_counts_once() {
        let (a, b) = ("a".repeat(32) + "00000000", "b".repeat(32) + "00000000");
        // What each says when it is asked: who owns slots 0 and 1, by epochs.
        let table = |own: &str, [of_a, of_b]: [&str; 2], [epoch_a, epoch_b]: [u64; 2]| {
            let text = format!(
                "{a} h:1@9 master - 0 0 {epoch_a} connected {of_a}\n{b} h:2@9 master - 0 0 {epoch_b} connected {of_b}\n"
            );
            let mut table = read_table(&text);
            table.iter_mut().for_each(|line| line.is_own = line.name == own);
            table
        };
        let told = |table: &[Line]| {
            let figures = Figures { is_serving: true, ..Figures::default() };
            Ok(Told { table: table.to_vec(), figures, migrations: Vec::new(), is_quorum: false })
        };
        let before = |own: &str| table(own, ["0-8192", "8193-16383"], [1, 2]);
        let after = |own: &str| table(own, ["1-8192", "0 8193-16383"], [1, 3]);
        let given_up = |own: &str| table(own, ["1-8192", "8193-16383"], [1, 2]);
        // (what the first says, what the second says, slots of both, slots without an owner)
        let cases = [
            (before(&a), before(&b), [8_193, 8_191], 0),
            (before(&a), after(&b), [8_192, 8_192], 0),
            (after(&a), before(&b), [8_192, 8_192], 0),
            (given_up(&a), before(&b), [8_192, 8_191], 1),
        ];
        for (first, second, counts, free) in cases {
            let lines = table("nobody", ["0-8192", "8193-16383"], [1, 2]);
            let all: Vec<_> = lines.into_iter().zip([told(&first), told(&second)]).collect();
            let status = status(&all);
            let mut shown = status.groups.clone();
            shown.sort_by_key(|group| group.primary.address.clone());
            assert_eq!(shown.iter().map(|group| group.slots).collect::<Vec<_>>(), counts);
            assert_eq!((status.slots_served, status.slots_without_owner), (16_384 - free, free));
        }
    }

    #[test]
    fn silent_engines_are_told_by_server() {
        let a = "a".repeat(32);
        let text =
            format!("{a}00000000 h:1@9 master - 0 0 1 connected 0-9\n{a}00000001 h:2@9 master - 0 0 0 connected\n");
        let why = |place: &str| Err(format!("{place}: no answer within 2 s"));
        let all: Vec<_> = read_table(&text).into_iter().zip([why("h:1"), why("h:2")]).collect();
        let shown = super::text(&status(&all));
        let line = "server aaaaaaaa does not answer: h:1: no answer within 2 s; h:2: no answer within 2 s";
        assert_eq!(shown.lines().nth(2), Some(line));
    }
}
