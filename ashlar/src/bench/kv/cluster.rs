//! What a load knows of the servers that it loads: where they are, and which keys are theirs.
//!
//! A cluster is asked once, before anything is sent. Whoever becomes the owner of a slot later is not followed.

use ashlar_kv::keyspace::slot::{SLOTS, Slot};

use super::login::Login;
use super::request::{Keys, key};
use crate::failure::Failure;
use crate::os::kv::caller::{Caller, Reply};
use crate::os::poll::Target;

/// A server that is loaded: the only one, or a primary of a cluster.
#[derive(Debug, Clone)]
pub struct Primary {
    /// Where it is.
    pub target: Target,
    /// The keys that it is loaded with.
    pub keys: Keys,
}

/// Who owns the slots from the first to the last number.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Share {
    first: u16,
    last: u16,
    /// `HOST:PORT`.
    place: String,
}

/// All primaries of the cluster that the server at `address` is in, each with those of the first `keys` keys whose slots it owns.
///
/// # Errors
/// It does not answer or is in no cluster, a slot has no owner, or a primary owns none of the keys.
pub async fn primaries(address: &str, login: &Login, keys: u32) -> Result<Vec<Primary>, Failure> {
    let refused = |why: String| {
        Failure::world(
            format!("{address} does not tell its cluster: {why}"),
            "check the address, and give --user and the password with --password-file or ASHLAR_KV_PASSWORD",
        )
    };
    let reply = ask(address, login).await.map_err(refused)?;
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let shares = match reply {
        // An engine without a cluster calls the question itself wrong (ERR); others may not be asked it now, or not by us.
        Reply::Refused(why) if !why.starts_with("ERR") => return Err(refused(why)),
        reply => read(&reply, host).ok_or_else(|| {
            Failure::usage(
                format!("{address} is no node of a cluster"),
                "give the address of one with --addr, or leave --cluster out to load this server only",
            )
        })?,
    };
    let primaries = spread(&shares, keys).map_err(|slots| {
        Failure::world(
            format!("{address} knows no owner of {} slots, the first is {}", slots.len(), slots[0]),
            "give each slot an owner (CLUSTER ADDSLOTSRANGE), or wait until all nodes have met",
        )
    })?;
    match primaries.iter().find(|primary| primary.keys.count() == 0) {
        None => Ok(primaries),
        Some(primary) => Err(Failure::usage(
            format!("{} owns the slot of none of the {keys} keys", primary.target),
            "choose more with --keys",
        )),
    }
}

async fn ask(address: &str, login: &Login) -> Result<Reply, String> {
    let mut caller = Caller::connect(address, None).await?;
    if let Some(password) = &login.password {
        let words = [Some("AUTH"), login.user.as_deref(), Some(password)];
        let words: Vec<&[u8]> = words.into_iter().flatten().map(str::as_bytes).collect();
        caller.ask(&words).await?.text()?;
    }
    caller.ask(&[b"CLUSTER", b"SLOTS"]).await
}

/// The reply to `CLUSTER SLOTS`; a node that has not been told its host is where `host` is.
fn read(reply: &Reply, host: &str) -> Option<Vec<Share>> {
    let Reply::List(entries) = reply else { return None };
    let share = |entry: &Reply| {
        let Reply::List(entry) = entry else { return None };
        let [Reply::Number(first), Reply::Number(last), Reply::List(primary), ..] = &entry[..] else { return None };
        let [named, Reply::Number(port), ..] = &primary[..] else { return None };
        let host = match named {
            Reply::Text(named) if !named.is_empty() && named != b"?" => std::str::from_utf8(named).ok()?,
            _ => host,
        };
        let number = |number: i64| u16::try_from(number).ok().filter(|number| *number < SLOTS);
        Some(Share { first: number(*first)?, last: number(*last)?, place: format!("{host}:{port}") })
    };
    entries.iter().map(share).collect()
}

/// Gives each primary the keys of its slots; the slots that nobody owns, if there are any.
fn spread(shares: &[Share], keys: u32) -> Result<Vec<Primary>, Vec<u16>> {
    let mut places: Vec<&str> = Vec::new();
    let mut owners = vec![None; usize::from(SLOTS)];
    for share in shares {
        let known = places.iter().position(|place| *place == share.place);
        let owner = known.unwrap_or_else(|| {
            places.push(&share.place);
            places.len() - 1
        });
        (share.first..=share.last).for_each(|slot| owners[usize::from(slot)] = Some(owner));
    }
    let orphans: Vec<u16> = (0..SLOTS).filter(|slot| owners[usize::from(*slot)].is_none()).collect();
    if !orphans.is_empty() {
        return Err(orphans);
    }
    let mut lists = vec![Vec::new(); places.len()];
    for number in 0..keys {
        if let Some(owner) = owners[Slot::of(key(number).as_bytes()).index()] {
            lists[owner].push(number);
        }
    }
    let primary = |(place, list): (&str, Vec<u32>)| Primary {
        target: Target::Tcp(place.to_owned()),
        keys: Keys::Listed(list.into()),
    };
    Ok(places.into_iter().zip(lists).map(primary).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(first: u16, last: u16, place: &str) -> Share {
        Share { first, last, place: place.to_owned() }
    }

    #[test]
    fn every_key_is_one_primarys() {
        let shares = [share(0, 99, "a:1"), share(100, 9_000, "b:1"), share(9_001, 16_383, "a:1")];
        let primaries = spread(&shares, 3_000).unwrap();
        assert_eq!(primaries.iter().map(|primary| primary.target.to_string()).collect::<Vec<_>>(), ["a:1", "b:1"]);
        let mut seen = vec![0; 3_000];
        for primary in &primaries {
            for at in 0..primary.keys.count() {
                let number = primary.keys.at(at);
                seen[number] += 1;
                let slot = Slot::of(format!("key:{number:012}").as_bytes()).number();
                let place = primary.target.to_string();
                let is_own = |share: &Share| share.place == place && (share.first..=share.last).contains(&slot);
                assert!(shares.iter().any(is_own), "{number} of slot {slot} at {place}");
            }
        }
        assert_eq!(seen, [1; 3_000]);
        assert_eq!(spread(&[share(3, 16_382, "a:1")], 10).unwrap_err(), [0, 1, 2, 16_383]);
    }

    #[test]
    fn replies_of_nodes_are_read() {
        let text = |text: &str| Reply::Text(text.into());
        let node = |host: Reply| Reply::List(vec![host, Reply::Number(7), text("id"), Reply::List(Vec::new())]);
        let entry = |first, last, host| {
            Reply::List(vec![Reply::Number(first), Reply::Number(last), node(host), node(text("replica"))])
        };
        let reply = Reply::List(vec![entry(0, 5, text("a")), entry(6, 6, text("")), entry(7, 16_383, Reply::Nothing)]);
        let shares = [share(0, 5, "a:7"), share(6, 6, "here:7"), share(7, 16_383, "here:7")];
        assert_eq!(read(&reply, "here"), Some(shares.into()));
        assert_eq!(read(&Reply::List(vec![entry(0, 16_384, text("a"))]), "here"), None);
        assert_eq!(read(&Reply::Refused("ERR This instance has cluster support disabled".into()), "here"), None);
    }
}
