//! Values as bytes that another server takes: DUMP and RESTORE.

use super::call::{Call, Run};
use crate::error::Error;
use crate::keyspace::{Expiry, Found, Key, Kind};
use crate::rdb::{Decoded, Encoder, Rules, Value, payload};
use crate::resp::Request;
use crate::resp::number::Decimal;
use crate::serve::removal;
use crate::settings::Events;

pub(super) const RUNS: &[(&str, Run)] = &[("dump", dump), ("restore", restore), ("restore-asking", restore)];

fn dump(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let mut encoder = Encoder::new(call.settings.compresses, call.settings.list_fill);
    match call.keys.read(key) {
        None => call.reply.null(),
        Some(found) => call.reply.bulk(&payload_of(&mut encoder, found)),
    }
    Ok(())
}

/// What is behind a key, as RESTORE takes it.
pub(crate) fn payload_of(encoder: &mut Encoder, found: Found<'_>) -> Vec<u8> {
    let value = match found.kind() {
        Kind::String => Value::String(found.record().value()),
        _ => Value::Object(found.object()),
    };
    payload::encode(encoder, value)
}

/// What RESTORE was asked beside the value.
#[derive(Debug, Clone, Copy, Default)]
struct Options {
    replaces: bool,
    is_point: bool,
    idle_s: Option<u64>,
    count: Option<u8>,
}

impl Options {
    fn read(call: &Call<'_, '_>) -> Result<Self, Error> {
        let (mut options, mut at) = (Self::default(), 4);
        while at < call.args.len() {
            let has_more = at + 1 < call.args.len();
            match () {
                () if call.args.is(at, "REPLACE") => options.replaces = true,
                () if call.args.is(at, "ABSTTL") => options.is_point = true,
                () if call.args.is(at, "IDLETIME") && has_more && options.count.is_none() => {
                    at += 1;
                    let idle_s = u64::try_from(call.integer(at)?).ok();
                    options.idle_s = Some(idle_s.ok_or(Error::new("ERR Invalid IDLETIME value, must be >= 0"))?);
                }
                () if call.args.is(at, "FREQ") && has_more && options.idle_s.is_none() => {
                    at += 1;
                    let count = u8::try_from(call.integer(at)?).ok();
                    options.count = Some(count.ok_or(Error::new("ERR Invalid FREQ value, must be >= 0 and <= 255"))?);
                }
                () => return Err(Error::SYNTAX),
            }
            at += 1;
        }
        Ok(options)
    }
}

fn restore(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let options = Options::read(call)?;
    if !options.replaces && call.keys.contains(key) {
        return Err(Error::new("BUSYKEY Target key name already exists."));
    }
    let ttl = call.integer(2)?;
    if ttl < 0 {
        return Err(Error::new("ERR Invalid TTL value, must be >= 0"));
    }
    let now_ms = call.now.unix_ms();
    let rules = Rules { hash_key: call.engine.keyspace.hash_key(), settings: call.settings, expired_ms: i64::MIN };
    let payload = call.args.get(3).expect("the arity was checked");
    let value = payload::decode_value(payload, foot_check(call), &rules)?;
    if matches!(value, Decoded::Empty) {
        return Err(BAD_DATA);
    }
    let was_there = options.replaces && call.keys.remove(key).is_some();
    let expiry = match ttl {
        0 => None,
        _ if options.is_point => Some(ttl),
        _ => Some(now_ms.saturating_add(ttl)),
    };
    let has_expired = expiry.is_some_and(|at| call.has_passed(at)) || matches!(value, Decoded::Expired);
    if has_expired {
        if was_there {
            call.changed(key, Events::GENERIC, "del");
            call.trace_as(|call| [removal(call.settings.memory.replaces_later), key.bytes].into_iter().collect());
        }
    } else {
        put(call, key, value, expiry, options);
    }
    call.reply.ok();
    Ok(())
}

/// What is asked of the foot of a payload now.
pub(super) fn foot_check(call: &Call<'_, '_>) -> payload::FootCheck {
    let ignores_sum = call.engine.switches.ignores_checksums.is_on();
    payload::FootCheck { version: call.settings.version_check, ignores_sum }
}

const BAD_DATA: Error = Error::new("ERR Bad data format");

impl From<payload::Refused> for Error {
    fn from(refused: payload::Refused) -> Self {
        match refused {
            payload::Refused::Foot => Self::new("ERR DUMP payload version or checksum are wrong"),
            payload::Refused::Foreign(number) => Self::text(format!("ERR Unsupported foreign data type: {number}")),
            payload::Refused::Damage(_) => BAD_DATA,
        }
    }
}

fn put(call: &mut Call<'_, '_>, key: Key<'_>, value: Decoded<'_>, expiry: Option<i64>, options: Options) {
    let at = expiry.map_or(Expiry::Never, Expiry::At);
    match value {
        Decoded::String(text) => call.keys.put_string(key, &text, at),
        Decoded::Object(object) => call.keys.put_object(key, object.kind(), object, at),
        Decoded::Empty | Decoded::Expired => return,
    }
    let clock = call.keys.access();
    let access = options.count.map(|count| clock.counted(count));
    if let Some(access) = access.or(options.idle_s.map(|idle_s| clock.idle_since(idle_s))) {
        call.keys.set_access(key, access);
    }
    call.changed(key, Events::GENERIC, "restore");
    if let Some(expiry) = expiry.filter(|_| !options.is_point) {
        call.trace_as(|call| with_point(call, expiry));
    }
}

/// The same request with the time at which the key expires.
fn with_point(call: &Call<'_, '_>, expiry: i64) -> Request {
    let expiry = Decimal::new(expiry);
    let words = call.args.from(0).enumerate().map(|(at, word)| if at == 2 { expiry.as_bytes() } else { word });
    words.chain([b"ABSTTL".as_slice()]).collect()
}
