//! `ashlar kv status`: who serves which slots, who follows whom and how far behind.

use std::collections::{BTreeMap, BTreeSet};

use ashlar_kv::keyspace::slot::SLOTS;
use serde::Serialize;

use super::balance::{self, Engine};
use super::picture::{Asker, Line, Told, everybody};
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

/// The cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Status {
    slots_served: usize,
    slots_without_owner: usize,
    keys: u64,
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
    let lines: Vec<Line> = all.iter().map(|(line, told)| own(line, told)).collect();
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
    let owned: BTreeSet<u16> = lines.iter().flat_map(|line| line.slots.iter().copied()).collect();
    Status {
        slots_served: groups.iter().filter(is_served).map(|group| group.slots).sum(),
        slots_without_owner: usize::from(SLOTS) - owned.len(),
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
        address: seen.place.clone(),
        zone: figures.map(|figures| figures.zone.clone()).unwrap_or_default(),
        seat: 1 + u8::from(engine.is_second),
        state,
        keys: figures.map(|figures| figures.keys.values().sum()),
        offset: figures.map(|figures| figures.offset),
        lag: None,
        error: told.err().cloned(),
    }
}

/// The cluster for people.
pub(super) fn text(status: &Status) -> String {
    let missing = match status.slots_without_owner {
        0 => String::new(),
        count => format!("; {count} have no owner (`ashlar kv rebalance` gives them one)"),
    };
    let head = format!("{} of {} slots are served, {} keys{missing}", status.slots_served, SLOTS, status.keys);
    let mut rows = Vec::new();
    for (number, group) in status.groups.iter().enumerate() {
        rows.push(row(&(number + 1).to_string(), "primary", &group.primary, &slots(group)));
        rows.extend(group.replicas.iter().map(|replica| row("", "replica", replica, "")));
    }
    let table = table::text(
        &["group", "role", "address", "server", "seat", "zone", "state", "keys", "offset", "lag", "slots"],
        &rows,
    );
    format!("{head}\n\n{table}")
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
            Ok(Told { table, figures: Figures { is_linked: true, is_serving, offset, keys, ..Figures::default() } })
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
        let rows: Vec<Vec<&str>> = shown.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["1", "primary", "h:1", "aaaaaaaa", "1", "-", "online", "5", "100", "10", "(0-9)"]);
        assert_eq!(rows[2], ["replica", "h:2", "bbbbbbbb", "2", "-", "online", "5", "90", "10", "B"]);
        assert_eq!(rows[3][..7], ["2", "primary", "h:3", "bbbbbbbb", "1", "-", "failed"]);
    }
}
