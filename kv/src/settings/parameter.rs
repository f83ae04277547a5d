//! Settings by the names that Valkey gives them: `CONFIG GET`, `CONFIG SET`, and configuration files.

use super::memory::Share;
use super::{Events, LogSync, Settings};
use crate::keyspace::Policy;
use crate::persist::saves::SavePoint;
use crate::resp::number::parse_i64;
use crate::value::list::Fill;

/// One setting.
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    /// An older name.
    pub(crate) alias: &'static str,
    pub(crate) show: fn(&Settings) -> String,
    /// Changes it, or tells why not.
    pub(crate) set: fn(&mut Settings, &[u8]) -> Result<(), String>,
}

/// The parameter of a name or alias, in any case.
pub(crate) fn find(name: &[u8]) -> Option<&'static Parameter> {
    let is_it = |known: &str| !known.is_empty() && known.as_bytes().eq_ignore_ascii_case(name);
    PARAMETERS.iter().find(|parameter| is_it(parameter.name) || is_it(parameter.alias))
}

/// Whether what a parameter is set to is not to be shown.
pub(crate) fn is_secret(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"requirepass")
}

/// A number within bounds, or why not.
fn number<T: TryFrom<i64>>(text: &[u8], min: i64, max: i64) -> Result<T, String> {
    let value = parse_i64(text).ok_or("argument couldn't be parsed into an integer")?;
    if value < min || value > max {
        return Err(format!("argument must be between {min} and {max} inclusive"));
    }
    T::try_from(value).map_err(|_| "argument is too large".to_owned())
}

/// A number of bytes, with a unit if there is one.
fn bytes(text: &[u8]) -> Result<i64, String> {
    const UNITS: [(&str, i64); 7] = [
        ("kb", 1 << 10),
        ("mb", 1 << 20),
        ("gb", 1 << 30),
        ("k", 1_000),
        ("m", 1_000_000),
        ("g", 1_000_000_000),
        ("b", 1),
    ];
    let invalid = || "argument must be a memory value".to_owned();
    let text = std::str::from_utf8(text).map_err(|_| invalid())?.to_ascii_lowercase();
    let (digits, unit) =
        UNITS.iter().find_map(|(unit, size)| Some((text.strip_suffix(unit)?, *size))).unwrap_or((text.as_str(), 1));
    parse_i64(digits.as_bytes())
        .filter(|value| *value >= 0)
        .and_then(|value| value.checked_mul(unit))
        .ok_or_else(invalid)
}

/// `yes` or `no`.
fn yes_or_no(text: &[u8]) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_slice() {
        b"yes" => Ok(true),
        b"no" => Ok(false),
        _ => Err("argument must be 'yes' or 'no'".to_owned()),
    }
}

/// The name of something in a directory.
fn file_name(text: &[u8], what: &str) -> Result<String, String> {
    let name = String::from_utf8(text.to_vec()).map_err(|error| error.to_string())?;
    if name.contains('/') || name.is_empty() {
        return Err(format!("{what} can't be a path, just a filename"));
    }
    Ok(name)
}

/// A parameter that is switched on and off in a place of the settings.
macro_rules! switch {
    ($name:literal, $($place:ident).+) => {
        Parameter {
            name: $name,
            alias: "",
            show: |settings| if settings.$($place).+ { "yes" } else { "no" }.to_owned(),
            set: |settings, text| {
                settings.$($place).+ = yes_or_no(text)?;
                Ok(())
            },
        }
    };
}

/// A parameter that is a number in a place of the settings.
macro_rules! numeric {
    ($name:literal, $alias:literal, $($place:ident).+, $min:expr, $max:expr) => {
        Parameter {
            name: $name,
            alias: $alias,
            show: |settings| settings.$($place).+.to_string(),
            set: |settings, text| {
                settings.$($place).+ = number(text, $min, $max)?;
                Ok(())
            },
        }
    };
}

const LONG: i64 = i64::MAX;
/// The longest word that may be allowed.
const WORD_BYTES_MAX: i64 = (1 << 31) - 1_024;

/// All of them, by name.
pub(crate) static PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "acl-pubsub-default",
        alias: "",
        show: |settings| if settings.acl_all_channels { "allchannels" } else { "resetchannels" }.to_owned(),
        set: |settings, text| {
            settings.acl_all_channels = match text.to_ascii_lowercase().as_slice() {
                b"allchannels" => true,
                b"resetchannels" => false,
                _ => return Err("argument(s) must be one of the following: allchannels, resetchannels".to_owned()),
            };
            Ok(())
        },
    },
    numeric!("acllog-max-len", "", acl_log_max, 0, LONG),
    switch!("aof-load-truncated", files.takes_torn_log),
    Parameter {
        name: "appenddirname",
        alias: "",
        show: |settings| settings.files.log_folder.clone(),
        set: |settings, text| {
            settings.files.log_folder = file_name(text, "appenddirname")?;
            Ok(())
        },
    },
    Parameter {
        name: "appendfsync",
        alias: "",
        show: |settings| settings.log_sync.name().to_owned(),
        set: |settings, text| {
            settings.log_sync =
                LogSync::from_name(text).ok_or("argument(s) must be one of the following: everysec, always, no")?;
            Ok(())
        },
    },
    switch!("appendonly", files.is_log_on),
    Parameter {
        name: "auto-aof-rewrite-min-size",
        alias: "",
        show: |settings| settings.files.growth_bytes_min.to_string(),
        set: |settings, text| {
            settings.files.growth_bytes_min = u64::try_from(bytes(text)?).map_err(|error| error.to_string())?;
            Ok(())
        },
    },
    numeric!("auto-aof-rewrite-percentage", "", files.growth_percent, 0, i64::from(i32::MAX)),
    Parameter {
        name: "client-output-buffer-limit",
        alias: "",
        show: |settings| settings.clients.output.show(),
        set: |settings, text| {
            settings.clients.output.read(text, |text| bytes(text).ok().and_then(|size| u64::try_from(size).ok()))
        },
    },
    Parameter {
        name: "client-query-buffer-limit",
        alias: "",
        show: |settings| settings.clients.input_bytes_max.to_string(),
        set: |settings, text| {
            let max = bytes(text)?;
            let max = usize::try_from(max).ok().filter(|max| *max >= 1 << 20);
            settings.clients.input_bytes_max =
                max.ok_or_else(|| format!("argument must be between {} and {LONG} inclusive", 1 << 20))?;
            Ok(())
        },
    },
    Parameter {
        name: "dbfilename",
        alias: "",
        show: |settings| settings.files.dump_name.clone(),
        set: |settings, text| {
            settings.files.dump_name = file_name(text, "dbfilename")?;
            Ok(())
        },
    },
    Parameter {
        name: "dir",
        alias: "",
        show: |settings| settings.files.directory.clone(),
        set: |settings, text| {
            settings.files.directory = String::from_utf8(text.to_vec()).map_err(|error| error.to_string())?;
            Ok(())
        },
    },
    numeric!("hash-max-listpack-entries", "hash-max-ziplist-entries", hash.listpack_entries_max, 0, LONG),
    numeric!("hash-max-listpack-value", "hash-max-ziplist-value", hash.listpack_value_bytes_max, 0, LONG),
    numeric!("lfu-decay-time", "", lfu_decay_minutes, 0, i64::from(i32::MAX)),
    numeric!("lfu-log-factor", "", lfu_growth, 0, i64::from(i32::MAX)),
    Parameter {
        name: "list-max-listpack-size",
        alias: "list-max-ziplist-size",
        show: |settings| settings.list_fill.0.to_string(),
        set: |settings, text| {
            settings.list_fill = Fill(number(text, i64::from(i32::MIN), i64::from(i32::MAX))?);
            Ok(())
        },
    },
    numeric!("maxclients", "", clients.clients_max, 1, i64::from(u32::MAX)),
    Parameter {
        name: "maxmemory",
        alias: "",
        show: |settings| settings.memory_bytes_max.to_string(),
        set: |settings, text| {
            settings.memory_bytes_max = u64::try_from(bytes(text)?).map_err(|error| error.to_string())?;
            Ok(())
        },
    },
    Parameter {
        name: "maxmemory-clients",
        alias: "",
        show: |settings| settings.memory.clients.show(),
        set: |settings, text| {
            let share = Share::read(text, |text| bytes(text).ok().and_then(|size| u64::try_from(size).ok()));
            settings.memory.clients = share.ok_or("argument must be a memory or percent value")?;
            Ok(())
        },
    },
    numeric!("maxmemory-eviction-tenacity", "", memory.tenacity, 0, 100),
    Parameter {
        name: "maxmemory-policy",
        alias: "",
        show: |settings| settings.policy.name().to_owned(),
        set: |settings, text| {
            settings.policy = Policy::from_name(text).ok_or(
                "argument(s) must be one of the following: volatile-lru, \
                 volatile-lfu, volatile-random, volatile-ttl, allkeys-lru, allkeys-lfu, allkeys-random, noeviction",
            )?;
            Ok(())
        },
    },
    numeric!("maxmemory-samples", "", memory.samples, 1, 64),
    Parameter {
        name: "notify-keyspace-events",
        alias: "",
        show: |settings| settings.events.letters(),
        set: |settings, text| {
            settings.events =
                Events::from_letters(text).ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")?;
            Ok(())
        },
    },
    Parameter {
        name: "proto-max-bulk-len",
        alias: "",
        show: |settings| settings.word_bytes_max.to_string(),
        set: |settings, text| {
            let max = bytes(text)?;
            // A key and a value of that length lie in one record, whose length has 32 bits.
            if !(1 << 20..=WORD_BYTES_MAX).contains(&max) {
                return Err(format!("argument must be between {} and {WORD_BYTES_MAX} inclusive", 1 << 20));
            }
            settings.word_bytes_max = max;
            Ok(())
        },
    },
    Parameter {
        name: "requirepass",
        alias: "",
        show: |settings| String::from_utf8_lossy(&settings.password).into_owned(),
        set: |settings, text| {
            settings.password = text.to_vec();
            settings.password_changes += 1;
            Ok(())
        },
    },
    Parameter {
        name: "save",
        alias: "",
        show: |settings| SavePoint::show(&settings.files.save_points),
        set: |settings, text| {
            let text = String::from_utf8_lossy(text);
            settings.files.save_points = SavePoint::read(&text).ok_or("Invalid save parameters")?;
            Ok(())
        },
    },
    numeric!("set-max-intset-entries", "", set.intset_entries_max, 0, LONG),
    numeric!("set-max-listpack-entries", "", set.listpack_entries_max, 0, LONG),
    numeric!("set-max-listpack-value", "", set.listpack_value_bytes_max, 0, LONG),
    switch!("stop-writes-on-bgsave-error", files.stops_after_failure),
    numeric!("stream-node-max-bytes", "", stream.bytes_max, 0, LONG),
    numeric!("stream-node-max-entries", "", stream.entries_max, 0, i64::from(u32::MAX)),
    numeric!("tcp-keepalive", "", clients.keepalive_s, 0, i64::from(i32::MAX)),
    numeric!("timeout", "", clients.idle_s_max, 0, i64::from(i32::MAX)),
    numeric!("tracking-table-max-keys", "", tracking_keys_max, 0, LONG),
    numeric!("zset-max-listpack-entries", "zset-max-ziplist-entries", sorted_set.listpack_entries_max, 0, LONG),
    numeric!("zset-max-listpack-value", "zset-max-ziplist-value", sorted_set.listpack_value_bytes_max, 0, LONG),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_shown() {
        let mut settings = Settings::default();
        assert!(PARAMETERS.is_sorted_by_key(|parameter| parameter.name));
        for parameter in PARAMETERS {
            let shown = (parameter.show)(&settings);
            (parameter.set)(&mut settings, shown.as_bytes())
                .unwrap_or_else(|error| panic!("{}: {error}", parameter.name));
            assert_eq!((parameter.show)(&settings), shown, "{}", parameter.name);
            assert!(std::ptr::eq(find(parameter.name.to_uppercase().as_bytes()).unwrap(), parameter));
        }
    }

    #[test]
    fn sizes_have_units() {
        for (text, expected) in [("0", 0), ("100mb", 100 << 20), ("3K", 3_000), ("2gB", 2 << 30), ("7b", 7)] {
            assert_eq!(bytes(text.as_bytes()), Ok(expected), "{text}");
        }
        for text in ["", "mb", "-1", "1tb", "1 mb", "9223372036854775807gb"] {
            assert!(bytes(text.as_bytes()).is_err(), "{text}");
        }
    }
}
