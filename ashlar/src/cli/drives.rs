//! `ashlar drives`: lists the cluster's drives with how full they are, shows whether all copies are there, and removes a drive.

use super::asking::{Asked, ask, no_server, remove, short};
use super::{no_runtime, say, table};
use crate::failure::Failure;
use crate::front::admin::drives::{DriveView, LeavingDrive, RoomView};
use crate::front::admin::groups::GroupView;
use crate::os;

/// Drives of the cluster's servers.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Drives of all servers, and how full they are
    List(List),
    /// Placement groups that do not have all their copies, and which drives hold those that there are
    Groups(List),
    /// Empty a drive and take it out of the cluster; its server's log says when it is empty
    Remove(Remove),
}

#[derive(Debug, clap::Args)]
struct List {
    /// Print one JSON array and nothing else
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Debug, clap::Args)]
struct Remove {
    /// Its id, or the beginning of it, as `ashlar drives list` shows it
    #[arg(value_name = "ID")]
    id: String,
    /// It is lost: give it up at once, and make what was on it anew elsewhere
    #[arg(long)]
    lost: bool,
    #[command(flatten)]
    asked: Asked,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::List(arguments) => list(arguments),
        Command::Groups(arguments) => groups(arguments),
        Command::Remove(arguments) => give_up(arguments),
    }
}

fn list(arguments: &List) -> Result<(), Failure> {
    let target = arguments.asked.target()?;
    let body = os::block_on(ask(&target, "/v1/drives")).map_err(|error| no_runtime(&error))??;
    let drives: Vec<DriveView> = serde_json::from_slice(&body).map_err(|error| no_server(&target, &error))?;
    if arguments.json {
        say(&serde_json::to_string(&drives).expect("our own values have text keys and no cycles"));
        return Ok(());
    }
    let rows: Vec<Vec<String>> = drives.iter().map(row).collect();
    say(&table::text(&["drive", "server", "state", "free for volumes", "free for objects"], &rows));
    Ok(())
}

/// A drive for people. What the cluster does with it and what its server says of it are one word.
fn row(drive: &DriveView) -> Vec<String> {
    let state = match (drive.state.as_str(), drive.works) {
        ("active", None) => "no answer",
        ("active" | "draining", Some(false)) => "broken",
        (state, _) => state,
    };
    let room = |room: Option<RoomView>| {
        room.map_or_else(
            || "-".to_owned(),
            |room| format!("{} of {}", table::bytes(room.free), table::bytes(room.bytes)),
        )
    };
    vec![short(Some(&drive.id)), drive.address.clone(), state.to_owned(), room(drive.volumes), room(drive.objects)]
}

fn groups(arguments: &List) -> Result<(), Failure> {
    let target = arguments.asked.target()?;
    let body = os::block_on(ask(&target, "/v1/groups")).map_err(|error| no_runtime(&error))??;
    let groups: Vec<GroupView> = serde_json::from_slice(&body).map_err(|error| no_server(&target, &error))?;
    if arguments.json {
        say(&serde_json::to_string(&groups).expect("our own values have text keys and no cycles"));
    } else {
        say(&overview(&groups));
    }
    Ok(())
}

/// Placement groups for people: how many have all copies, and those that do not.
fn overview(groups: &[GroupView]) -> String {
    let amiss: Vec<&GroupView> = groups.iter().filter(|group| !group.whole).collect();
    let whole = groups.len() - amiss.len();
    let sum = format!("{whole} of {} placement groups have all copies", groups.len());
    if amiss.is_empty() {
        return sum;
    }
    let ids = |drives: &[String]| drives.iter().map(|id| short(Some(id))).collect::<Vec<_>>().join(" ");
    let row = |group: &&GroupView| {
        let copies = format!("{} of {}", group.acting.len(), group.copies);
        let of = if group.index { " (index)" } else { "" };
        vec![format!("{}/{}{of}", group.set, group.group), copies, ids(&group.acting), ids(&group.learners)]
    };
    let rows: Vec<Vec<String>> = amiss.iter().map(row).collect();
    format!("{sum}\n{}", table::text(&["set/group", "copies", "at drives", "being filled"], &rows))
}

fn give_up(arguments: &Remove) -> Result<(), Failure> {
    if arguments.id.is_empty() || !arguments.id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Failure::usage("a drive's id has hexadecimal digits", "see `ashlar drives list`"));
    }
    let target = arguments.asked.target_to_change()?;
    let query = if arguments.lost { "?force" } else { "" };
    let path = format!("/v1/drives/{}{query}", arguments.id.to_ascii_lowercase());
    let body = os::block_on(remove(&target, &path)).map_err(|error| no_runtime(&error))??;
    let LeavingDrive { leaving, without_spare } =
        serde_json::from_slice(&body).map_err(|error| no_server(&target, &error))?;
    say(&if arguments.lost {
        format!("given up: {leaving}; what was on it is made anew on other drives")
    } else {
        format!("being emptied: {leaving}; its server's log says when it is empty")
    });
    if let Some(others) = without_spare {
        say(&format!(
            "objects that have a shard on each of the {others} other drives keep theirs here until another drive joins; with --lost this one goes, and they are one shard short"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_without_all_copies_are_shown() {
        let group = |group, acting: &[&str], learners: &[&str], whole| GroupView {
            set: 0,
            index: group > 7,
            group,
            epoch: 1,
            primary: "11111111aa".to_owned(),
            acting: acting.iter().copied().map(str::to_owned).collect(),
            learners: learners.iter().copied().map(str::to_owned).collect(),
            previous: Vec::new(),
            copies: 3,
            whole,
        };
        let [one, two, three] = ["11111111aa", "22222222aa", "33333333aa"];
        let mut groups = vec![group(0, &[one, two, three], &[], true)];
        assert_eq!(overview(&groups), "1 of 1 placement groups have all copies");
        groups.push(group(7, &[one, two], &[three], false));
        let overview = overview(&groups);
        assert!(overview.starts_with("1 of 2 placement groups have all copies\n"), "{overview}");
        let line = overview.lines().last().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(line, "0/7 2 of 3 11111111 22222222 33333333");
        groups.push(group(8, &[one], &[], false));
        assert!(super::overview(&groups).contains("0/8 (index)"));
    }

    #[test]
    fn a_drive_is_shown_as_the_cluster_and_its_server_see_it() {
        let mut drive = DriveView {
            id: "0123456789abcdef0123456789abcdef".to_owned(),
            server: "1".repeat(32),
            address: "10.0.0.1:7800".to_owned(),
            class: "ssd".to_owned(),
            state: "active".to_owned(),
            works: Some(true),
            volumes: Some(RoomView { bytes: 4 << 30, free: 1 << 30 }),
            objects: None,
        };
        assert_eq!(row(&drive)[1..], ["10.0.0.1:7800", "active", "1.0 GiB of 4.0 GiB", "-"]);
        drive.works = Some(false);
        assert_eq!(row(&drive)[2], "broken");
        (drive.works, drive.volumes) = (None, None);
        assert_eq!(row(&drive)[2..], ["no answer", "-", "-"]);
        drive.state = "failed".to_owned();
        assert_eq!(row(&drive)[2], "failed", "nobody expects an answer of a drive that was given up");
    }
}
