//! `ashlar kv rebalance`: looks at the cluster, does what is to be done next, and looks again, until nothing is left to do.

use std::time::Duration;

use ashlar_kv::cluster::map::SlotRange;
use ashlar_kv::keyspace::slot::SLOTS;

use super::balance::{self, Engine, Step};
use super::migrate::{keys_of_slots, move_whole};
use super::picture::{Asker, NotYet, SELECT_FIRST, closed_remedy, look};
use crate::cli::asking::short;
use crate::failure::Failure;
use crate::os::clock;
use crate::os::kv::caller::Reply;

/// How long engines may take to agree, or to do what they were told.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two looks.
pub(super) const LOOK: Duration = Duration::from_millis(50);
/// After how long it is told that slots are on their way by themselves.
const TELL_AFTER: Duration = Duration::from_secs(1);
/// Failed batches in a row before it is given up.
const FAILURES_MAX: u32 = 5;
/// Batches in all.
const BATCHES_MAX: usize = 64;
/// Keys that go at a time.
const KEYS_MAX: &str = "100";
/// How long a primary may take for them, milliseconds.
const MIGRATE_MS: &str = "10000";
/// Slots that move key by key between two words about it.
const MOVES_TOLD: usize = 512;
/// Runs of slots that a line names.
const RANGES_TOLD_MAX: usize = 8;

/// Makes the cluster as it should be. Says what it does with `say`. `expected` engines have to know each other before anything is done.
///
/// # Errors
/// Engines do not answer, do not agree or refuse. What was done stays; it goes on from there when it is done again.
pub(crate) async fn run(
    asker: &mut Asker,
    expected: Option<usize>,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<Engine>, Failure> {
    let mut failures = 0;
    for _ in 0..BATCHES_MAX {
        let engines = agreed(asker, expected, say).await?;
        let steps = balance::next(&engines);
        if steps.is_empty() {
            until_served(asker, &engines).await?;
            return Ok(engines);
        }
        match take(asker, &engines, &steps, say).await {
            Ok(()) => failures = 0,
            Err(why) => {
                failures += 1;
                if failures == FAILURES_MAX {
                    return Err(broken_off(&why));
                }
                say(&format!("{why}; trying again"));
                clock::sleep(LOOK * 10 * failures).await;
            }
        }
    }
    Err(broken_off("there is no end to it"))
}

fn broken_off(why: &str) -> Failure {
    Failure::world(
        format!("the cluster is not as it should be yet: {why}"),
        "look at `ashlar kv status` and run `ashlar kv rebalance` again: it goes on where it was",
    )
}

/// What [`run`] would do now, in the words in which it tells of it. Nothing is changed.
///
/// # Errors
/// Engines do not answer or do not agree.
pub(super) async fn plan(asker: &mut Asker, say: &mut dyn FnMut(&str)) -> Result<Vec<String>, Failure> {
    let now = agreed(asker, None, say).await?;
    let (mut engines, mut lines) = (now.clone(), Vec::new());
    for _ in 0..BATCHES_MAX {
        let steps = balance::next(&engines);
        for step in &steps {
            let Some(mut line) = told_once(&engines, &steps, step) else { continue };
            if let Step::Migrate { slots, .. } = step {
                let keys = count(asker, &now, slots).await.map_err(|why| broken_off(&why))?;
                line += &format!(", {keys} keys");
            }
            lines.push(line);
        }
        if steps.is_empty() {
            return Ok(lines);
        }
        balance::apply(&mut engines, &steps);
    }
    Err(broken_off("there is no end to it"))
}

/// How many keys these slots have at those who own them now.
async fn count(asker: &mut Asker, engines: &[Engine], slots: &[u16]) -> Result<u64, String> {
    let mut keys = 0;
    for engine in engines.iter().filter(|engine| engine.is_reached) {
        let owned: Vec<u16> = slots.iter().copied().filter(|slot| engine.slots.contains(slot)).collect();
        if !owned.is_empty() {
            keys += keys_of_slots(asker, engine, &owned).await?.values().sum::<u64>();
        }
    }
    Ok(keys)
}

/// What is told of a step; of slots that move one by one only with the first of a batch.
fn told_once(engines: &[Engine], steps: &[Step], step: &Step) -> Option<String> {
    let place = |at: &usize| engines[*at].place.as_str();
    Some(match step {
        Step::GiveBack { replica } => {
            let name = engines[*replica].primary.as_ref();
            let primary = engines.iter().find(|engine| Some(&engine.name) == name).map_or("", |engine| &engine.place);
            format!("{}: becomes primary, and {primary} its replica", place(replica))
        }
        Step::Claim { engine, slots } => format!("{}: assigned slots {}", place(engine), told_ranges(slots)),
        Step::Follow { replica, primary } => format!("{}: replica of {}", place(replica), place(primary)),
        Step::Detach { replica } => format!("{}: follows nobody", place(replica)),
        // That is so after every start; what takes too long is an error.
        Step::Await { .. } => return None,
        Step::Settle { slot, engine } => format!("{}: slot {slot} is not on its way any more", place(engine)),
        Step::Migrate { slots, from, to } => {
            format!("{} to {}: {} slots ({})", place(from), place(to), slots.len(), told_ranges(slots))
        }
        Step::Move { .. } => {
            let moves = steps.iter().filter(|other| matches!(other, Step::Move { .. }));
            if moves.clone().next() != Some(step) {
                return None;
            }
            format!("moving {} slots key by key", moves.count())
        }
    })
}

/// Runs of slots in words, the first of them if there are many.
fn told_ranges(slots: &[u16]) -> String {
    let ranges = ranges(slots);
    let run = |(first, last): &(u16, u16)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    let told: Vec<String> = ranges.iter().take(RANGES_TOLD_MAX).map(run).collect();
    let more = if ranges.len() > RANGES_TOLD_MAX { format!(", ... ({} slots)", slots.len()) } else { String::new() };
    format!("{}{more}", told.join(", "))
}

/// What is said once nothing is left to do: of whom nobody can see to anything.
pub(super) fn end(engines: &[Engine]) -> String {
    let away: Vec<&Engine> = engines.iter().filter(|engine| !engine.is_reached).collect();
    let Some(first) = away.first() else { return "nothing is left to do".to_owned() };
    let places: Vec<&str> = away.iter().map(|engine| engine.place.as_str()).collect();
    format!(
        "nothing is left to do while {} failed; if a server is lost for good: `ashlar forget {}`, and rebalance again",
        if places.len() == 1 { format!("{} has", places[0]) } else { format!("{} have", places.join(", ")) },
        short(Some(first.server())),
    )
}

/// The picture, once all agree about it and nothing moves by itself.
async fn agreed(asker: &mut Asker, expected: Option<usize>, say: &mut dyn FnMut(&str)) -> Result<Vec<Engine>, Failure> {
    let (mut deadline, mut is_told) = (clock::now() + PATIENCE, false);
    loop {
        let NotYet { why, is_moving } = match look(asker, expected).await {
            Ok(engines) => return Ok(engines),
            Err(why) => why,
        };
        if let Some(remedy) = closed_remedy(&why) {
            return Err(Failure::world(why, remedy));
        }
        if is_moving {
            // That ends by itself, and may take as long as it likes; what is over soon is not told.
            if clock::now() + PATIENCE > deadline + TELL_AFTER && !std::mem::replace(&mut is_told, true) {
                say(&format!("{why}; waiting for the end of that"));
            }
            if is_told {
                deadline = clock::now() + PATIENCE;
            }
            clock::sleep(LOOK).await;
            continue;
        }
        if clock::now() >= deadline {
            let what = format!("no whole picture of the cluster after {} s: {why}", PATIENCE.as_secs());
            return Err(Failure::world(
                what,
                "name an engine of the cluster with --addr HOST:PORT; one that is lost for good has to be forgotten \
                 (`ashlar forget`)",
            ));
        }
        clock::sleep(LOOK).await;
    }
}

/// Waits until the cluster serves what has an owner, as all engines see it, if every slot has one that lives.
async fn until_served(asker: &mut Asker, engines: &[Engine]) -> Result<(), Failure> {
    let served: usize = engines.iter().filter(|engine| engine.is_reached).map(|engine| engine.slots.len()).sum();
    if served < usize::from(SLOTS) {
        return Ok(());
    }
    for engine in engines.iter().filter(|engine| engine.is_reached) {
        until(
            &format!("{} to serve its slots", engine.place),
            async |asker: &mut Asker| {
                let info = asker.text(&engine.place, &["CLUSTER", "INFO"]).await?;
                Ok(info.contains("cluster_state:ok"))
            },
            asker,
        )
        .await
        .map_err(|why| broken_off(&why))?;
    }
    Ok(())
}

/// Asks again until it is so.
async fn until(
    what: &str,
    is_so: impl AsyncFn(&mut Asker) -> Result<bool, String>,
    asker: &mut Asker,
) -> Result<(), String> {
    let deadline = clock::now() + PATIENCE;
    while !is_so(asker).await? {
        if clock::now() >= deadline {
            return Err(format!("waited {} s in vain for {what}", PATIENCE.as_secs()));
        }
        clock::sleep(LOOK).await;
    }
    Ok(())
}

/// Does one batch.
async fn take(asker: &mut Asker, engines: &[Engine], steps: &[Step], say: &mut dyn FnMut(&str)) -> Result<(), String> {
    let moves = steps.iter().filter(|step| matches!(step, Step::Move { .. })).count();
    let (mut moved, mut keys) = (0, 0);
    for step in steps {
        if let Some(line) = told_once(engines, steps, step) {
            say(&line);
        }
        match step {
            Step::Claim { engine, slots } => claim(asker, &engines[*engine], slots).await?,
            Step::GiveBack { replica } => give_back(asker, &engines[*replica]).await?,
            Step::Follow { replica, primary } => follow(asker, &engines[*replica], &engines[*primary]).await?,
            Step::Detach { replica } => detach(asker, &engines[*replica]).await?,
            Step::Settle { slot, engine } => {
                let slot = slot.to_string();
                asker.text(&engines[*engine].place, &["CLUSTER", "SETSLOT", &slot, "STABLE"]).await?;
            }
            // All of them side by side, below.
            Step::Migrate { .. } | Step::Await { .. } => {}
            Step::Move { slot, from, to } => {
                keys += move_slot(asker, *slot, &engines[*from], &engines[*to]).await?;
                moved += 1;
                if moved % MOVES_TOLD == 0 || moved == moves {
                    say(&format!("moved {moved} of {moves} slots, {keys} keys"));
                }
            }
        }
    }
    move_whole(asker, engines, steps, say).await?;
    // Replicas that were told to follow take their copies side by side.
    for step in steps {
        if let Step::Follow { replica, .. } | Step::Await { replica } = step {
            until_copied(asker, &engines[*replica].place).await?;
        }
    }
    Ok(())
}

/// Waits until a replica has its copy, as long as that is on its way.
async fn until_copied(asker: &mut Asker, place: &str) -> Result<(), String> {
    let mut deadline = clock::now() + PATIENCE;
    loop {
        let info = asker.text(place, &["INFO", "REPLICATION"]).await?;
        let figures = super::picture::read_figures(&info);
        if figures.is_linked {
            return Ok(());
        }
        let now = clock::now();
        if figures.is_syncing {
            deadline = now + PATIENCE;
        }
        if now >= deadline {
            return Err(format!("{place} gets no copy of its primary's data"));
        }
        clock::sleep(LOOK).await;
    }
}

async fn claim(asker: &mut Asker, engine: &Engine, slots: &[u16]) -> Result<(), String> {
    let ranges = ranges(slots);
    let words: Vec<String> = ranges.iter().flat_map(|(first, last)| [first.to_string(), last.to_string()]).collect();
    let request: Vec<&str> = ["CLUSTER", "ADDSLOTSRANGE"].into_iter().chain(words.iter().map(String::as_str)).collect();
    asker.text(&engine.place, &request).await.map(drop)
}

/// Runs of slots, from the first to the last.
pub(super) fn ranges(slots: &[u16]) -> Vec<(u16, u16)> {
    let ranges = SlotRange::gather(slots.iter().copied());
    ranges.iter().map(|range| (range.first.number(), range.last.number())).collect()
}

async fn give_back(asker: &mut Asker, engine: &Engine) -> Result<(), String> {
    asker.text(&engine.place, &["CLUSTER", "FAILOVER"]).await?;
    until_primary(asker, engine).await
}

async fn detach(asker: &mut Asker, engine: &Engine) -> Result<(), String> {
    asker.text(&engine.place, &["CLUSTER", "REPLICATE", "NO", "ONE"]).await?;
    until_primary(asker, engine).await
}

async fn until_primary(asker: &mut Asker, engine: &Engine) -> Result<(), String> {
    let is_primary = async |asker: &mut Asker| {
        let table = asker.text(&engine.place, &["CLUSTER", "NODES"]).await?;
        Ok(super::picture::read_table(&table).iter().any(|line| line.is_own && line.primary.is_none()))
    };
    until(&format!("{} to be primary", engine.place), is_primary, asker).await
}

async fn follow(asker: &mut Asker, replica: &Engine, primary: &Engine) -> Result<(), String> {
    asker.text(&replica.place, &["CLUSTER", "REPLICATE", &primary.name]).await.map(drop)
}

/// Moves a slot as `valkey-cli` does, key by key, and says how many keys that were. The source needs no word of the end: it goes on
/// sending clients after their keys until it hears from the cluster who owns the slot.
async fn move_slot(asker: &mut Asker, slot: u16, from: &Engine, to: &Engine) -> Result<usize, String> {
    let number = slot.to_string();
    asker.text(&to.place, &["CLUSTER", "SETSLOT", &number, "IMPORTING", &from.name]).await?;
    asker.text(&from.place, &["CLUSTER", "SETSLOT", &number, "MIGRATING", &to.name]).await?;
    let mut moved = 0;
    for database in databases(asker, &from.place).await? {
        loop {
            let keys = keys_of(asker, &from.place, &database, &number).await?;
            if keys.is_empty() {
                break;
            }
            moved += keys.len();
            migrate(asker, from, to, &database, &keys).await?;
        }
    }
    asker.text(&to.place, &["CLUSTER", "SETSLOT", &number, "NODE", &to.name]).await?;
    // The next slot is asked for by the same table.
    let has_left = async |asker: &mut Asker| {
        let table = asker.text(&from.place, &["CLUSTER", "NODES"]).await?;
        let table = super::picture::read_table(&table);
        Ok(table.iter().any(|line| line.is_own && !line.slots.contains(&slot)))
    };
    until(&format!("{} to hear of slot {slot}", from.place), has_left, asker).await?;
    Ok(moved)
}

/// Databases of an engine that have keys.
async fn databases(asker: &mut Asker, place: &str) -> Result<Vec<String>, String> {
    let info = asker.text(place, &["INFO", "KEYSPACE"]).await?;
    Ok(super::picture::read_figures(&info).keys.keys().map(ToString::to_string).collect())
}

async fn keys_of(asker: &mut Asker, place: &str, database: &str, slot: &str) -> Result<Vec<Vec<u8>>, String> {
    let select: [&[u8]; 2] = [b"SELECT", database.as_bytes()];
    let keys: [&[u8]; 4] = [b"CLUSTER", b"GETKEYSINSLOT", slot.as_bytes(), KEYS_MAX.as_bytes()];
    let replies = asker.ask_all(place, &[&select, &keys, &SELECT_FIRST]).await?;
    let Some(Reply::List(items)) = replies.into_iter().nth(1) else {
        return Err(format!("{place} does not name the keys of slot {slot}"));
    };
    let keys = items.into_iter().filter_map(|item| match item {
        Reply::Text(key) => Some(key),
        _ => None,
    });
    Ok(keys.collect())
}

async fn migrate(
    asker: &mut Asker,
    from: &Engine,
    to: &Engine,
    database: &str,
    keys: &[Vec<u8>],
) -> Result<(), String> {
    let (host, port) = to.place.rsplit_once(':').ok_or("a place has a port")?;
    let password = asker.password().map(str::to_owned);
    let select: [&[u8]; 2] = [b"SELECT", database.as_bytes()];
    let head = ["MIGRATE", host, port, "", database, MIGRATE_MS, "REPLACE"];
    let mut words: Vec<&[u8]> = head.iter().map(|word| word.as_bytes()).collect();
    if let Some(password) = &password {
        words.extend([&b"AUTH"[..], password.as_bytes()]);
    }
    words.push(b"KEYS");
    words.extend(keys.iter().map(Vec::as_slice));
    let replies = asker.ask_all(&from.place, &[&select, &words, &SELECT_FIRST]).await?;
    let reply = replies.into_iter().nth(1).ok_or("no reply came")?;
    reply.text().map(drop).map_err(|why| format!("{}: {why}", from.place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_make_runs() {
        assert_eq!(ranges(&[]), []);
        assert_eq!(ranges(&[0, 1, 2, 7, 9, 10]), [(0, 2), (7, 7), (9, 10)]);
    }

    #[test]
    fn steps_are_told_in_plain_words() {
        let engine = |place: &str, primary: Option<&str>| Engine {
            name: place.into(),
            place: place.into(),
            primary: primary.map(str::to_owned),
            ..Engine::default()
        };
        let engines = [engine("h:1", None), engine("h:2", Some("h:1"))];
        let steps = [
            Step::Claim { engine: 0, slots: (0..5_462).collect() },
            Step::Follow { replica: 1, primary: 0 },
            Step::GiveBack { replica: 1 },
            Step::Detach { replica: 1 },
            Step::Migrate { slots: vec![0, 1, 9], from: 0, to: 1 },
            Step::Move { slot: 3, from: 0, to: 1 },
            Step::Move { slot: 4, from: 0, to: 1 },
        ];
        let told: Vec<String> = steps.iter().filter_map(|step| told_once(&engines, &steps, step)).collect();
        let expected = [
            "h:1: assigned slots 0-5461",
            "h:2: replica of h:1",
            "h:2: becomes primary, and h:1 its replica",
            "h:2: follows nobody",
            "h:1 to h:2: 3 slots (0-1, 9)",
            "moving 2 slots key by key",
        ];
        assert_eq!(told, expected);
        let odd: Vec<u16> = (0..20).map(|number| 2 * number).collect();
        assert_eq!(told_ranges(&odd), "0, 2, 4, 6, 8, 10, 12, 14, ... (20 slots)");
    }
}
