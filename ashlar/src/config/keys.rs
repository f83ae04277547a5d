//! Every configuration key, defined once: the table from which the file, the environment, the flags, `--help`, the
//! reference page and validation are made.

use core::net::{IpAddr, SocketAddr};
use core::str::FromStr as _;

use tracing_subscriber::filter::{LevelFilter, Targets};

/// Where a value comes from when nobody gave one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    /// This text, read like one from the environment.
    Fixed(&'static str),
    /// Worked out from something else; the text says from what.
    Computed(&'static str),
    /// A server needs it from its user.
    Required,
}

/// What a key's value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file or directory.
    Path,
    /// Several directories.
    Paths,
    /// `IP:PORT` of this machine.
    Listen,
    /// `IP` of this machine.
    Address,
    /// `HOST:PORT` as others see it.
    Peer,
    /// Several `HOST:PORT`.
    Peers,
    /// A whole number, both bounds allowed.
    Number {
        /// The least.
        min: u64,
        /// The greatest.
        max: u64,
    },
    /// Letters, digits, `-`, `_` and `.`, up to 64 of them.
    Name,
    /// `on` or `off`.
    Switch,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A level, or levels per module: `info,ashlar_node=debug`.
    Levels,
}

impl Kind {
    /// How help and the reference page call such a value.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Path => "PATH".into(),
            Self::Paths => "PATH,...".into(),
            Self::Listen => "IP:PORT".into(),
            Self::Address => "IP".into(),
            Self::Peer => "HOST:PORT".into(),
            Self::Peers => "HOST:PORT,...".into(),
            Self::Number { min, max } => format!("{min}..{max}"),
            Self::Name => "NAME".into(),
            Self::Switch => "on|off".into(),
            Self::Choice(words) => words.join("|"),
            Self::Levels => "LEVELS".into(),
        }
    }
}

/// One value of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Paths, addresses, words.
    Text(String),
    /// Lists of addresses, and of paths.
    Texts(Vec<String>),
    /// Counts, ports, seconds.
    Number(u64),
    /// Switches.
    Switch(bool),
}

impl core::fmt::Display for Value {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Texts(texts) => f.write_str(&texts.join(",")),
            Self::Number(number) => write!(f, "{number}"),
            Self::Switch(is_on) => f.write_str(if *is_on { "on" } else { "off" }),
        }
    }
}

/// One key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// In the file; the flag is the same with `-` for `_`, the environment variable `ASHLAR_` and capitals.
    pub name: &'static str,
    /// What its value may be.
    pub kind: Kind,
    /// Where its value comes from otherwise.
    pub fallback: Fallback,
    /// One sentence, as `--help` shows it.
    pub help: &'static str,
    /// What the reference page adds.
    pub details: &'static str,
}

impl Kind {
    /// Whether it has several values.
    #[must_use]
    pub const fn is_list(self) -> bool {
        matches!(self, Self::Peers | Self::Paths)
    }
}

impl Key {
    /// The flag without its two dashes.
    #[must_use]
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// The environment variable.
    #[must_use]
    pub fn environment(&self) -> String {
        format!("ASHLAR_{}", self.name.to_ascii_uppercase())
    }

    /// Reads the text form: the environment's and the flags'.
    ///
    /// # Errors
    /// What such a value has to be, in words.
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        let value = match self.kind {
            Kind::Peers | Kind::Paths => Value::Texts(text.split(',').map(|part| part.trim().to_owned()).collect()),
            Kind::Number { .. } => {
                Value::Number(text.parse().map_err(|_| format!("a whole number {}", self.kind.name()))?)
            }
            Kind::Switch => match text {
                "on" => Value::Switch(true),
                "off" => Value::Switch(false),
                _ => return Err("on or off".into()),
            },
            _ => Value::Text(text.to_owned()),
        };
        self.validate(&value)?;
        Ok(value)
    }

    /// Checks a value of the right type.
    ///
    /// # Errors
    /// What such a value has to be, in words.
    pub fn validate(&self, value: &Value) -> Result<(), String> {
        let expected = |is_right: bool, expected: &str| if is_right { Ok(()) } else { Err(expected.to_owned()) };
        match (self.kind, value) {
            (Kind::Path, Value::Text(text)) => expected(!text.is_empty(), "a path"),
            (Kind::Paths, Value::Texts(texts)) => {
                expected(texts.iter().all(|text| !text.is_empty()), "paths with commas between them")
            }
            (Kind::Listen, Value::Text(text)) => {
                expected(SocketAddr::from_str(text).is_ok(), "IP:PORT, for instance 0.0.0.0:7800 or [::]:7800")
            }
            (Kind::Address, Value::Text(text)) => {
                expected(IpAddr::from_str(text).is_ok(), "an IP address, for instance 0.0.0.0 or ::1")
            }
            (Kind::Peer, Value::Text(text)) => expected(is_peer(text), "HOST:PORT, for instance host1:7800"),
            (Kind::Peers, Value::Texts(texts)) => {
                expected(texts.iter().all(|text| is_peer(text)), "HOST:PORT, several with commas between them")
            }
            (Kind::Number { min, max }, Value::Number(number)) => {
                expected((min..=max).contains(number), &format!("a whole number {}", self.kind.name()))
            }
            (Kind::Name, Value::Text(text)) => expected(is_name(text), "1 to 64 letters, digits, -, _ or ."),
            (Kind::Switch, Value::Switch(_)) => Ok(()),
            (Kind::Choice(words), Value::Text(text)) => expected(words.contains(&text.as_str()), &words.join(" or ")),
            (Kind::Levels, Value::Text(text)) => expected(
                are_levels(text),
                "error, warn, info, debug or trace, or these per module, as in info,ashlar_node=debug",
            ),
            (kind, _) => Err(kind.name()),
        }
    }
}

/// A place that a command's flag names.
///
/// # Errors
/// It cannot be `HOST:PORT`.
pub(crate) fn place(text: &str) -> Result<String, &'static str> {
    if is_peer(text) { Ok(text.to_owned()) } else { Err("expected HOST:PORT, for instance host1:7800") }
}

/// Whether the text can be `HOST:PORT`; whether such a host exists shows at the first connection.
fn is_peer(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_v6 = host.starts_with('[') && host.ends_with(']');
    let is_host = !host.is_empty() && (is_v6 || !host.contains([':', '/', ' ', '@']));
    is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

fn is_name(text: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    (1..=64).contains(&text.len()) && text.chars().all(is_letter)
}

/// The filter itself would take a word that is no level for a module's name and log all of it.
fn are_levels(text: &str) -> bool {
    let are_known = text.split(',').all(|part| {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
        !level.is_empty() && LevelFilter::from_str(level.trim()).is_ok()
    });
    are_known && Targets::from_str(text).is_ok()
}

/// The key of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Every key of a server, in the order of the reference page.
pub const KEYS: &[Key] = &[
    Key {
        name: "data",
        kind: Kind::Path,
        fallback: Fallback::Required,
        help: "Directory that holds everything this server keeps",
        details: "Made at the first start. One server at a time: a second one on the same directory is refused.",
    },
    Key {
        name: "listen",
        kind: Kind::Listen,
        fallback: Fallback::Computed("127.0.0.1 and the port of `port_base`"),
        help: "Address to accept connections on",
        details: "One port carries the grid, bulk data, health, metrics and the admin API. Port 0 takes any free one.",
    },
    Key {
        name: "advertise",
        kind: Kind::Peer,
        fallback: Fallback::Computed("the address of `listen`"),
        help: "Address under which the other servers reach this one",
        details: "Needed when `listen` is 0.0.0.0 or [::], or when there is address translation in between.",
    },
    Key {
        name: "join",
        kind: Kind::Peers,
        fallback: Fallback::Computed("none: the first server of a cluster"),
        help: "Servers of the cluster to join; one that answers is enough",
        details: "The rest of the cluster is learned from it. Only the first start needs this; later ones remember.",
    },
    Key {
        name: "join_timeout_s",
        kind: Kind::Number { min: 0, max: 86_400 },
        fallback: Fallback::Fixed("30"),
        help: "Seconds after which a server that never was in the cluster gives up joining; 0 is never",
        details: "A server that has been in the cluster before never gives up.",
    },
    Key {
        name: "port_base",
        kind: Kind::Number { min: 1, max: 65_000 },
        fallback: Fallback::Fixed("7800"),
        help: "First port; moves all ports that are not given themselves",
        details: "",
    },
    Key {
        name: "kv_port",
        kind: Kind::Number { min: 0, max: 65_535 },
        fallback: Fallback::Fixed("6379"),
        help: "Port for Redis and Valkey clients; 0 for none",
        details: "The server's first key-value engine is behind it, a primary as a rule: it serves a part of the cluster's slots once `ashlar kv rebalance` has given it one. Its log lies in `kv` in the data directory. `port_base` does not move this port.",
    },
    Key {
        name: "kv_replica_port",
        kind: Kind::Number { min: 0, max: 65_535 },
        fallback: Fallback::Computed("the port of `kv_port`, plus 100"),
        help: "Port of this server's second key-value engine, a replica of another server's; 0 for none",
        details: "It keeps what the first engine of another server has, and takes over if that server is lost. Its log lies in `kv-replica` in the data directory. Without `kv_port` there is none; a server that has none keeps no replica for others. No two options may ask for the same port: where another one has this, give one of them another.",
    },
    Key {
        name: "kv_bind",
        kind: Kind::Address,
        fallback: Fallback::Computed("the IP of `listen`"),
        help: "Address of this machine for Redis and Valkey clients",
        details: "Clients and other servers' engines are told to come to it, or to the host of `advertise` where it is not given or stands for all addresses: so it has to be one that other machines reach if `listen` is. As long as the default user has no password, only connections from this machine itself (127.0.0.1, ::1) are let in: set one with `ashlar kv password` or `kv_password_file` where others are to connect.",
    },
    Key {
        name: "kv_password_file",
        kind: Kind::Path,
        fallback: Fallback::Computed("none: only this machine itself is let in"),
        help: "File whose first line is the password of the key-value engines from the first start on",
        details: "It holds until another one is set (`ashlar kv password`, `CONFIG SET requirepass`, `ACL SETUSER default`), which lasts \
                  in the data directory; the file is not looked at any more then. A password is never an argument.",
    },
    Key {
        name: "kv_tls_port",
        kind: Kind::Number { min: 0, max: 65_535 },
        fallback: Fallback::Fixed("0"),
        help: "Port for Redis and Valkey clients under TLS; 0 for none",
        details: "Beside `kv_port`, at the same address. Needs `kv_tls_cert` and `kv_tls_key`.",
    },
    Key {
        name: "kv_replica_tls_port",
        kind: Kind::Number { min: 0, max: 65_535 },
        fallback: Fallback::Computed("the port of `kv_tls_port`, plus 100"),
        help: "The same for this server's second key-value engine",
        details: "Clients that came under TLS are sent from one engine to another under TLS, so both engines of all servers need it.",
    },
    Key {
        name: "kv_tls_cert",
        kind: Kind::Path,
        fallback: Fallback::Computed("none"),
        help: "Certificate for clients under TLS and those behind it, PEM",
        details: "",
    },
    Key {
        name: "kv_tls_key",
        kind: Kind::Path,
        fallback: Fallback::Computed("none"),
        help: "Key of the certificate, PEM, not encrypted",
        details: "",
    },
    Key {
        name: "kv_tls_ca",
        kind: Kind::Path,
        fallback: Fallback::Computed("none"),
        help: "Authorities that sign clients' certificates, PEM",
        details: "Needed unless `kv_tls_auth_clients` is no.",
    },
    Key {
        name: "kv_tls_auth_clients",
        kind: Kind::Choice(&["yes", "optional", "no"]),
        fallback: Fallback::Fixed("yes"),
        help: "Whether clients under TLS have to show a certificate",
        details: "yes: one that an authority of `kv_tls_ca` has signed. optional: such a one or none. no: none is asked for.",
    },
    Key {
        name: "drive_mib",
        kind: Kind::Number { min: 0, max: 16_777_216 },
        fallback: Fallback::Fixed("0"),
        help: "Size of each of this server's drives for volumes, in MiB; 0 for no drive",
        details: "A drive is a directory (`drives`); its file is written whole at the first start, so that space is there when it is needed. Its size is fixed once it is made, and 1024 MiB at least. Volumes can be created once as many servers as a volume has copies (`copies`) have a drive, or with `copies_on` drives once there are as many drives. All servers of a cluster should have one, or none of them.",
    },
    Key {
        name: "drives",
        kind: Kind::Paths,
        fallback: Fallback::Computed("`drive` in the data directory"),
        help: "Directories of this server's drives, each of `drive_mib` and `object_mib`",
        details: "One directory for each of the machine's drives, made by you, below its mount point: while a drive is not mounted its directory is not there, and the server runs without it rather than write to another one. (One that lies in the data directory itself is made by the server.) A drive whose directory cannot be used is logged and left out, as long as another one can be used. Drives may be added with a restart, and taken out after `ashlar drives remove`. A server that had its drive in the data directory names that directory too.",
    },
    Key {
        name: "copies",
        kind: Kind::Number { min: 1, max: 3 },
        fallback: Fallback::Fixed("3"),
        help: "Copies of each volume, and of the index of objects at least",
        details: "Fixed once the first drives are taken, which is when there are as many that `copies_on` allows: then volumes and objects can be. With 1 a drive that is lost takes volumes with it. Objects lie on all drives and have parity shards by their number, whatever this is. All servers of a cluster should have the same.",
    },
    Key {
        name: "copies_on",
        kind: Kind::Choice(&["servers", "drives"]),
        fallback: Fallback::Fixed("servers"),
        help: "What no two copies share",
        details: "servers: copies lie on different servers, and any server may fail. drives: on different drives, also of one server: for a machine with several drives that stays alone. Fixed once the first drives are taken: servers that join later get copies, too, but a server that fails may have had all copies of something. All servers of a cluster should have the same.",
    },
    Key {
        name: "object_mib",
        kind: Kind::Number { min: 0, max: 16_777_216 },
        fallback: Fallback::Fixed("0"),
        help: "Space for objects on each of this server's drives, in MiB; 0 for none",
        details: "Needs a drive (`drive_mib`). The space is a file beside the one for volumes, written whole at the first start, and 257 MiB at least. Its size is fixed once it is made. All servers of a cluster should have it, or none of them.",
    },
    Key {
        name: "s3_port",
        kind: Kind::Number { min: 0, max: 65_535 },
        fallback: Fallback::Fixed("0"),
        help: "Port for S3 clients, at the address of `listen`; 0 for none",
        details: "Needs space for objects (`object_mib`). Every request is signed; `ashlar s3 key` prints the key that the cluster has made. Plain HTTP and TLS are answered at the same port.",
    },
    Key {
        name: "s3_audit_log",
        kind: Kind::Path,
        fallback: Fallback::Computed("none"),
        help: "File to which one line of JSON is appended for each S3 request",
        details: "Who asked for what, from where, and what came of it; never bodies, secrets or signatures. The file may be moved away at any time, as logrotate does without `copytruncate`: a new one is begun at the same path. Lines are lost rather than that a request waits for a slow or full drive; `ashlar_s3_audit_lost_total` counts them.",
    },
    Key {
        name: "lifecycle_day_s",
        kind: Kind::Number { min: 1, max: 86_400 },
        fallback: Fallback::Fixed("86400"),
        help: "Length of a day in lifecycle rules of buckets, in seconds; another one is for tests",
        details: "Objects end when the day is over on which they are due: with the usual length at midnight (UTC), with another one at once. They are looked at once an hour, or once in such a day if that is shorter. `x-amz-expiration` tells days of the usual length. All servers of a cluster should have the same.",
    },
    Key {
        name: "nbd_port",
        kind: Kind::Number { min: 0, max: 65_535 },
        fallback: Fallback::Fixed("0"),
        help: "Port at 127.0.0.1 for NBD clients of volumes; 0 for none",
        details: "Needs a drive (`drive_mib`). NBD has no passwords, so only clients on this machine itself can connect.",
    },
    Key {
        name: "tls",
        kind: Kind::Switch,
        fallback: Fallback::Fixed("on"),
        help: "Encrypt what servers say to each other; off leaves checksums only",
        details: "All servers of a cluster need the same setting. Both settings prove to each other that they hold the cluster's secret.",
    },
    Key {
        name: "secret_file",
        kind: Kind::Path,
        fallback: Fallback::Computed("`cluster.secret` in the data directory"),
        help: "File with the cluster's secret, 64 hexadecimal digits",
        details: "The first server makes it; give its content to each server that joins. The environment variable ASHLAR_SECRET is stronger. A secret is never an argument, because arguments can be seen by every user of a machine.",
    },
    Key {
        name: "zone",
        kind: Kind::Name,
        fallback: Fallback::Computed("none"),
        help: "What this server may be lost together with: a room, a rack, an availability zone",
        details: "Any name, the same for all servers in one place. Voters are spread over zones.",
    },
    Key {
        name: "member_timeout_ms",
        kind: Kind::Number { min: 500, max: 600_000 },
        fallback: Fallback::Fixed("15000"),
        help: "Milliseconds of silence after which a server is suspected",
        details: "A server has failed when a majority of the voters suspects it. Give all servers of a cluster the same value.",
    },
    Key {
        name: "voters_max",
        kind: Kind::Number { min: 1, max: 101 },
        fallback: Fallback::Fixed("101"),
        help: "How many servers vote at most on who has failed",
        details: "Give all servers of a cluster the same value. An odd number is used; a majority of the voters has to be in reach for anything to be decided. With few voters in a large cluster the loss of many servers at once may take that majority along.",
    },
    Key {
        name: "workers",
        kind: Kind::Number { min: 1, max: 1_024 },
        fallback: Fallback::Computed("one per core"),
        help: "Threads that serve connections",
        details: "",
    },
    Key {
        name: "log",
        kind: Kind::Levels,
        fallback: Fallback::Fixed("info"),
        help: "How much to log: error, warn, info, debug, trace, or levels per module",
        details: "For instance `info,ashlar_node=debug`. Of `openraft` errors only, unless it is named.",
    },
    Key {
        name: "log_format",
        kind: Kind::Choice(&["text", "json"]),
        fallback: Fallback::Fixed("text"),
        help: "How log lines look on standard error",
        details: "",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(key: &str, text: &str, is_right: bool) {
        let key = find(key).expect("the test names a key of the table");
        assert_eq!(key.parse(text).is_ok(), is_right, "{} = {text}", key.name);
    }

    #[test]
    fn table_is_sound() {
        for (index, key) in KEYS.iter().enumerate() {
            assert_eq!(find(key.name), Some(&KEYS[index]), "{} is there twice", key.name);
            if let Fallback::Fixed(text) = key.fallback {
                let value = key.parse(text).expect("a fallback is a right value");
                assert_eq!(value.to_string(), text, "{}", key.name);
            }
            assert!(!key.help.is_empty() && !key.help.ends_with('.'), "{}", key.name);
        }
    }

    #[test]
    fn values() {
        for right in ["127.0.0.1:7800", "[::1]:0", "0.0.0.0:1"] {
            check("listen", right, true);
        }
        for wrong in ["", "7800", "localhost:7800", "127.0.0.1", "127.0.0.1:65536"] {
            check("listen", wrong, false);
        }
        for (text, is_right) in [("127.0.0.1", true), ("::", true), ("localhost", false), ("127.0.0.1:1", false)] {
            check("kv_bind", text, is_right);
        }
        for (text, is_right) in [("0", true), ("65535", true), ("65536", false)] {
            check("kv_port", text, is_right);
        }
        for right in ["host1:7800", "10.0.0.1:1", "[::1]:7800", "a:1,b:2"] {
            check("join", right, true);
        }
        for wrong in ["", "host1", "host1:", ":7800", "host1:0", "http://host1:7800", "a:1,,b:2", "::1:7800"] {
            check("join", wrong, false);
        }
        for (text, is_right) in [("on", true), ("off", true), ("true", false), ("", false)] {
            check("tls", text, is_right);
        }
        for (text, is_right) in
            [("1", true), ("1024", true), ("0", false), ("1025", false), ("-1", false), ("x", false)]
        {
            check("workers", text, is_right);
        }
        for (text, is_right) in [("rack-1.b", true), ("", false), ("a b", false), ("zürich", false)] {
            check("zone", text, is_right);
        }
        for (text, is_right) in [("info", true), ("warn,ashlar_node=debug", true), ("loud", false), ("", false)] {
            check("log", text, is_right);
        }
        for (text, is_right) in [("text", true), ("json", true), ("xml", false)] {
            check("log_format", text, is_right);
        }
    }
}
