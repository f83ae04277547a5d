//! `ashlar kv rebalance`: looks at the cluster, does what is to be done next, and looks again, until nothing is left to do.

use std::time::Duration;

use ashlar_kv::cluster::map::SlotRange;
use ashlar_kv::keyspace::slot::SLOTS;

use super::balance::{self, Engine, Step};
use super::picture::{Asker, SELECT_FIRST, look};
use crate::failure::Failure;
use crate::os::clock;
use crate::os::kv::caller::Reply;

/// How long engines may take to agree, or to do what they were told.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Failed batches in a row before it is given up.
const FAILURES_MAX: u32 = 5;
/// Batches in all.
const BATCHES_MAX: usize = 64;
/// Keys that go at a time.
const KEYS_MAX: &str = "100";
/// How long a primary may take for them, milliseconds.
const MIGRATE_MS: &str = "10000";
/// Slots that move between two words about it.
const MOVES_TOLD: usize = 512;

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
        let engines = agreed(asker, expected).await?;
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

/// The picture, once all agree about it.
async fn agreed(asker: &mut Asker, expected: Option<usize>) -> Result<Vec<Engine>, Failure> {
    let deadline = clock::now() + PATIENCE;
    loop {
        let why = match look(asker, expected).await {
            Ok(engines) => return Ok(engines),
            Err(why) => why,
        };
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
        match step {
            Step::Claim { engine, slots } => claim(asker, &engines[*engine], slots, say).await?,
            Step::GiveBack { replica } => give_back(asker, &engines[*replica], say).await?,
            Step::Follow { replica, primary } => {
                follow(asker, &engines[*replica], &engines[*primary], say).await?;
            }
            Step::Settle { slot, engine } => {
                say(&format!("slot {slot} stays where it is"));
                let slot = slot.to_string();
                asker.text(&engines[*engine].place, &["CLUSTER", "SETSLOT", &slot, "STABLE"]).await?;
            }
            Step::Move { slot, from, to } => {
                if moved == 0 {
                    say(&format!("moving {moves} slots"));
                }
                keys += move_slot(asker, *slot, &engines[*from], &engines[*to]).await?;
                moved += 1;
                if moved % MOVES_TOLD == 0 || moved == moves {
                    say(&format!("moved {moved} of {moves} slots, {keys} keys"));
                }
            }
        }
    }
    // Replicas that were told to follow take their copies side by side.
    for step in steps {
        if let Step::Follow { replica, .. } = step {
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

async fn claim(asker: &mut Asker, engine: &Engine, slots: &[u16], say: &mut dyn FnMut(&str)) -> Result<(), String> {
    say(&format!("{} takes {} slots that nobody owns", engine.place, slots.len()));
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

async fn give_back(asker: &mut Asker, engine: &Engine, say: &mut dyn FnMut(&str)) -> Result<(), String> {
    say(&format!("{} becomes primary again", engine.place));
    asker.text(&engine.place, &["CLUSTER", "FAILOVER"]).await?;
    let is_primary = async |asker: &mut Asker| {
        let table = asker.text(&engine.place, &["CLUSTER", "NODES"]).await?;
        Ok(super::picture::read_table(&table).iter().any(|line| line.is_own && line.primary.is_none()))
    };
    until(&format!("{} to be primary", engine.place), is_primary, asker).await
}

async fn follow(
    asker: &mut Asker,
    replica: &Engine,
    primary: &Engine,
    say: &mut dyn FnMut(&str),
) -> Result<(), String> {
    say(&format!("{} follows {}", replica.place, primary.place));
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
}
