//! A server's data directory: who the server is, which life of it this is, and what it must not forget.
//!
//! ```text
//! lock            held by the one process that uses the directory
//! identity        cluster id and server id; written once, last of all, so its presence means a complete directory
//! incarnation     counts the server's lives; raised durably before the server first speaks
//! peers           where members are, so that a restart finds the cluster again
//! bus             what the membership bus must not forget: members, epochs, votes; never replaced by an older one
//! cluster.secret  the cluster's secret, as a [`Token`]; the first server makes it
//! admin.token     opens the admin API: what changes something, and reading from other machines
//! tls.cert, .key  the server's certificate; made here, signed by itself
//! kv.settings     settings and users of the key-value engines
//! ```
//!
//! `identity`, `incarnation` and `peers` are lines of text and end with a checksum that binds the file's name. The
//! cluster id is derived from the first secret and written beside later ones, so that who joins needs nothing but that word.

mod token;

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use ashlar_bus::saved::Saved;
use ashlar_wire::id::{ClusterId, Incarnation, ServerId};
use ashlar_wire::secret::Secret;

use super::files::{self, Creation, Readers};
use super::random;
use crate::failure::Failure;
pub use token::{Token, cluster_of, secret_of};

/// Version of all the written forms here.
const FORMAT: u32 = 1;

/// How many peers a directory remembers.
pub const PEERS_MAX: usize = 4_096;

/// What may lie in a directory that has no identity yet: what an interrupted first start or a careful user left.
const NAMES: [&str; 9] =
    ["lock", "identity", "incarnation", "peers", "bus", "cluster.secret", "admin.token", "tls.cert", "tls.key"];

/// The bus's file is no longer: what it keeps for members, groups and votes at their limits.
const BUS_BYTES_MAX: u64 = 64 << 20;

/// What the opener knows that the directory may not.
#[derive(Debug, Clone, Copy, Default)]
pub struct Opening<'a> {
    /// Whether the server was told whom to join, so that it must not found a cluster of its own.
    pub joins: bool,
    /// The secret from the environment; the strongest.
    pub secret_text: Option<&'a str>,
    /// The secret's file, if it is not the directory's own.
    pub secret_file: Option<&'a Path>,
}

/// Where a server's secret comes from, and where one that replaces it has to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretPlace {
    /// The environment of the process: only whoever starts it can replace it.
    Environment,
    /// A file of the server's own, or one that servers of this machine share.
    File(PathBuf),
}

/// Cluster and server.
type Ids = (ClusterId, ServerId);

/// Where a member was.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetPeer {
    /// Who it is.
    pub server: ServerId,
    /// Where it was reached, `HOST:PORT`.
    pub address: String,
}

/// An open data directory. No other process can open it before this value is gone.
#[derive(Debug)]
pub struct DataDir {
    root: PathBuf,
    _lock: File,
    /// The cluster that the server belongs to.
    pub cluster: ClusterId,
    /// The server, for its whole life.
    pub server: ServerId,
    /// This life of the server; no earlier one had it, even if the machine lost its power since.
    pub incarnation: Incarnation,
    /// Where members were in earlier lives.
    pub peers: Vec<MetPeer>,
    /// The bus's durable state. It is the bus who says whether it is whole.
    pub bus: Vec<u8>,
    /// The cluster and its secret, or two while it is replaced.
    pub token: Token,
    /// Where that came from.
    pub secret_place: SecretPlace,
    /// Opens the admin API: what changes something, and reading from other machines.
    pub admin_token: String,
    /// The certificate, PEM.
    pub certificate_pem: String,
    /// Its key, PEM.
    pub key_pem: String,
}

/// The data directory of a server that does not run. No server can be started in it before this value is gone.
#[derive(Debug)]
pub struct StoppedDir {
    _lock: File,
    /// The cluster that the server belongs to.
    pub cluster: ClusterId,
    /// The server.
    pub server: ServerId,
    /// Its last life.
    pub incarnation: Incarnation,
    /// The bus's durable state.
    pub bus: Vec<u8>,
}

impl StoppedDir {
    /// Opens the directory of a server that has lived.
    ///
    /// # Errors
    /// There is none, it is in use, not readable or damaged. Nothing was changed. Retry safe.
    pub fn open(root: &Path) -> Result<Self, Failure> {
        let identity = read_sealed(root, "identity")?.map(|body| parse_identity(root, &body)).transpose()?;
        let (cluster, server) = identity.ok_or_else(|| {
            let what = format!("{} is not the data directory of a server that has run", root.display());
            Failure::usage(
                what,
                "give the server's own directory with --data; that of `ashlar up` has one for each server in it",
            )
        })?;
        let lock = lock(root)?;
        let incarnation = last_incarnation(root)?.ok_or_else(|| damaged(&root.join("incarnation"), "it is gone"))?;
        let bus = bus_state(root, identity, (cluster, server))?;
        Ok(Self { _lock: lock, cluster, server, incarnation, bus })
    }
}

impl DataDir {
    /// Opens the directory, or makes it, and starts the server's next life in it.
    ///
    /// # Errors
    /// The directory cannot be used: not one of ours, in use, not readable, damaged, of another cluster, or without
    /// a secret. Retry safe.
    pub fn open(root: &Path, opening: Opening<'_>) -> Result<Self, Failure> {
        make_directory(root)?;
        let lock = lock(root)?;
        let identity = read_sealed(root, "identity")?.map(|body| parse_identity(root, &body)).transpose()?;
        let peers = read_sealed(root, "peers")?.map(|body| parse_peers(root, &body)).transpose()?.unwrap_or_default();
        let (token, secret_place) = token_of(root, opening, identity.is_none())?;
        let (cluster, server) = match identity {
            Some((cluster, server)) if cluster == token.cluster => (cluster, server),
            // Nobody was met yet: the earlier secret was wrong, this one may be right.
            Some((_, server)) if opening.joins && peers.is_empty() => (token.cluster, server),
            Some((cluster, _)) => return Err(wrong_secret(root, cluster, token.cluster)),
            None => (token.cluster, ServerId::from_bytes(random::bytes())),
        };
        let bus = bus_state(root, identity, (cluster, server))?;
        let incarnation = raise_incarnation(root, identity.is_some())?;
        let admin_token = text_or_new(root, ADMIN_TOKEN, || Ok(hex(&random::bytes::<32>())))?;
        let admin_token = admin_token.trim().to_owned();
        check_admin_token(&root.join(ADMIN_TOKEN), &admin_token)?;
        let (certificate_pem, key_pem) = certificate(root)?;
        warn_of_weak_secrets(root, &token, &secret_place);
        if identity != Some((cluster, server)) {
            write_sealed(root, "identity", &format!("cluster {cluster}\nserver {server}\n"))?;
        }
        let root = root.to_owned();
        Ok(Self {
            root,
            _lock: lock,
            cluster,
            server,
            incarnation,
            peers,
            bus,
            token,
            secret_place,
            admin_token,
            certificate_pem,
            key_pem,
        })
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Remembers who was met, instead of those before; [`PEERS_MAX`] at most. Durable when this returns.
    ///
    /// # Errors
    /// The drive refused; the earlier list is still there. Retry safe.
    pub fn remember_peers(root: &Path, peers: &[MetPeer]) -> Result<(), Failure> {
        let lines: Vec<String> =
            peers.iter().take(PEERS_MAX).map(|peer| format!("peer {} {}\n", peer.server, peer.address)).collect();
        write_sealed(root, "peers", &lines.concat())
    }

    /// Keeps the bus's durable state instead of the one before. Durable when this returns.
    ///
    /// # Errors
    /// The drive refused; the earlier state is still there. Retry safe.
    pub fn keep_bus(root: &Path, state: &[u8]) -> Result<(), Failure> {
        write(&root.join("bus"), state)
    }

    /// Keeps these secrets instead of those before. Durable when this returns.
    ///
    /// # Errors
    /// They are not this server's to keep, or the drive refused; the earlier ones are still there. Retry safe.
    pub fn keep_secrets(place: &SecretPlace, token: &Token) -> Result<(), Failure> {
        match place {
            // Servers of one machine may share the file.
            SecretPlace::File(path) => {
                let text = format!("{}\n", token.text());
                files::write_whole_shared(path, text.as_bytes(), Readers::Owner)
                    .map_err(|error| cannot("write", path, &error))
            }
            SecretPlace::Environment => Err(Failure::world(
                "the secret of this server comes from the environment variable ASHLAR_SECRET",
                "put its content into cluster.secret in the data directory and start the server without the variable",
            )),
        }
    }
}

/// The file of the admin token, in a data directory.
pub const ADMIN_TOKEN: &str = "admin.token";

/// The shortest admin token that is accepted, characters. A new one has 64.
pub const ADMIN_TOKEN_LEN_MIN: usize = 32;

/// Fewer different characters than this in an admin token are no chance.
const DIFFERENT_LETTERS_MIN: usize = 8;
/// Fewer different bytes than this in a secret of 32 are no chance: by chance there are 24 or more.
const DIFFERENT_BYTES_MIN: usize = 16;

fn check_admin_token(path: &Path, token: &str) -> Result<(), Failure> {
    let letters = token.chars().count();
    if letters >= ADMIN_TOKEN_LEN_MIN
        && different(token.as_bytes()) >= DIFFERENT_LETTERS_MIN
        && !token.contains(char::is_whitespace)
    {
        return Ok(());
    }
    let what = format!(
        "the admin token in {} is too weak: it has {letters} characters; it needs {ADMIN_TOKEN_LEN_MIN} or more, by chance, without spaces",
        path.display()
    );
    Err(Failure::world(what, "remove the file, and the server makes a new token at its next start"))
}

fn different(bytes: &[u8]) -> usize {
    bytes.iter().collect::<std::collections::BTreeSet<_>>().len()
}

/// Whether a secret was not made by chance.
fn is_guessable(secret: &Secret) -> bool {
    let digits = secret.to_hex();
    digits.as_bytes().chunks(2).collect::<std::collections::BTreeSet<_>>().len() < DIFFERENT_BYTES_MIN
}

/// Tells of secrets that others of this machine can read, or that were not made by chance. The server works on: whether
/// somebody has read them, it cannot know.
fn warn_of_weak_secrets(root: &Path, token: &Token, place: &SecretPlace) {
    let own = [ADMIN_TOKEN, "tls.key"].map(|name| root.join(name));
    let shared = match place {
        SecretPlace::File(path) => Some(path.clone()),
        SecretPlace::Environment => None,
    };
    own.iter().chain(&shared).for_each(|path| files::warn_if_open(path));
    if is_guessable(token.secrets.newest()) {
        let remedy = match place {
            SecretPlace::File(_) => "run `ashlar secret rotate`",
            // No rotation replaces what comes from the environment.
            SecretPlace::Environment => {
                "stop all servers, and start them with CLUSTER.DIGITS in ASHLAR_SECRET: the cluster's id, and 64 hexadecimal digits by \
                 chance (`openssl rand -hex 32`)"
            }
        };
        tracing::warn!(remedy, cluster = %token.cluster, "the cluster's secret was not made by chance and can be guessed");
    }
}

/// Gives servers of one owner the same admin token: the one in `shared`, else that of the first directory that has one,
/// else a new one. Durable when this returns.
///
/// # Errors
/// A file cannot be read or written. Retry safe.
pub fn share_admin_token(shared: &Path, servers: &[PathBuf]) -> Result<(), Failure> {
    let own: Vec<PathBuf> = servers.iter().map(|server| server.join(ADMIN_TOKEN)).collect();
    let mut token = None;
    for path in core::iter::once(&shared.to_owned()).chain(&own) {
        token = match token {
            None => read(path)?,
            known => known,
        };
    }
    let token = token.unwrap_or_else(|| format!("{}\n", hex(&random::bytes::<32>())));
    check_admin_token(shared, token.trim())?;
    for path in core::iter::once(&shared.to_owned()).chain(&own) {
        if read(path)?.as_deref() != Some(&token) {
            let folder = path.parent().unwrap_or(path);
            files::make_directory(folder).map_err(|error| cannot("make", folder, &error))?;
            write(path, token.as_bytes())?;
        }
    }
    Ok(())
}

/// The cluster of the server that was started in a directory; none if there was no server.
///
/// # Errors
/// Its identity cannot be read, or is damaged.
pub fn cluster_in(root: &Path) -> Result<Option<ClusterId>, Failure> {
    let identity = read_sealed(root, "identity")?.map(|body| parse_identity(root, &body)).transpose()?;
    Ok(identity.map(|(cluster, _)| cluster))
}

/// Makes a cluster's secret in `path`, or leaves the one that is there.
///
/// # Errors
/// The file cannot be read, or written, or holds no secret. Retry safe.
pub fn make_secret(path: &Path) -> Result<(), Failure> {
    match read(path)? {
        Some(text) => parse_token(&text, &path.display().to_string()).map(drop),
        None => write(path, format!("{}\n", hex(&random::bytes::<32>())).as_bytes()),
    }
}

fn make_directory(root: &Path) -> Result<(), Failure> {
    let usable = |error: &io::Error| {
        let what = format!("cannot use the data directory {}: {error}", root.display());
        let remedy = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "let the user who runs ashlar read and write it, or give another one with --data"
            }
            _ => "give another directory with --data",
        };
        Failure::world(what, remedy)
    };
    files::make_directory(root).map_err(|error| usable(&error))?;
    let names = fs::read_dir(root).map_err(|error| usable(&error))?;
    let names: Vec<String> =
        names.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).take(NAMES.len() * 4).collect();
    if names.iter().any(|name| name == "identity") {
        return Ok(());
    }
    let is_ours = |name: &String| NAMES.contains(&name.trim_end_matches(".new")) || name == "lost+found";
    match names.iter().find(|name| !is_ours(name)) {
        None => Ok(()),
        Some(name) => {
            let what =
                format!("{} is not a data directory of ashlar and not empty (there is `{name}`)", root.display());
            Err(Failure::world(what, "give an empty or a new directory with --data"))
        }
    }
}

fn lock(root: &Path) -> Result<File, Failure> {
    let path = root.join("lock");
    let file = files::create(&path, Creation::Lock).map_err(|error| cannot("open", &path, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let what = format!("the data directory {} is in use by another ashlar server", root.display());
            Err(Failure::world(what, "stop that server, or give this one a directory of its own with --data"))
        }
        Err(TryLockError::Error(error)) => Err(cannot("lock", &path, &error)),
    }
}

fn token_of(root: &Path, opening: Opening<'_>, is_new: bool) -> Result<(Token, SecretPlace), Failure> {
    if let Some(text) = opening.secret_text {
        let token = parse_token(text, "the environment variable ASHLAR_SECRET")?;
        return Ok((token, SecretPlace::Environment));
    }
    let own = root.join("cluster.secret");
    let path = opening.secret_file.unwrap_or(&own);
    if let Some(text) = read(path)? {
        let token = parse_token(&text, &path.display().to_string())?;
        return Ok((token, SecretPlace::File(path.to_owned())));
    }
    if opening.secret_file.is_some() {
        return Err(Failure::world(format!("there is no secret file {}", path.display()), "correct --secret-file"));
    }
    if opening.joins {
        let what =
            format!("this server has no secret of the cluster that it shall join (looked for {})", path.display());
        let remedy = "copy the file cluster.secret from the data directory of a server of the cluster to that place, \
                      or set the environment variable ASHLAR_SECRET to its content";
        return Err(Failure::world(what, remedy));
    }
    if !is_new {
        let what = format!("the cluster's secret {} is gone", path.display());
        return Err(Failure::world(what, "copy it from another server of the cluster, or set ASHLAR_SECRET"));
    }
    make_secret(path)?;
    token_of(root, opening, false)
}

fn parse_token(text: &str, place: &str) -> Result<Token, Failure> {
    Token::parse(text).ok_or_else(|| {
        let remedy =
            "it is 64 hexadecimal digits, after the cluster's id and a point once it was replaced; copy the whole line";
        Failure::world(format!("{place} holds no cluster secret"), remedy)
    })
}

fn wrong_secret(root: &Path, cluster: ClusterId, other: ClusterId) -> Failure {
    let what = format!(
        "the data directory {} belongs to cluster {cluster}, but the secret to cluster {other}",
        root.display()
    );
    let remedy = "give this server the secret of its cluster, or a new data directory; after the secret was replaced it is \
                  the whole line of another server's cluster.secret";
    Failure::world(what, remedy)
}

/// The bus's state as an earlier life left it; that of a server that never lived, where this is the first life, or where
/// the server was never in its cluster. There is one from the beginning, so that its absence later means a loss.
fn bus_state(root: &Path, before: Option<Ids>, now: Ids) -> Result<Vec<u8>, Failure> {
    let path = root.join("bus");
    if before != Some(now) {
        let state = Saved::new(now.0, now.1).encode();
        DataDir::keep_bus(root, &state)?;
        return Ok(state);
    }
    let state = files::read_bytes(&path, BUS_BYTES_MAX).map_err(|error| cannot("read", &path, &error))?;
    state.ok_or_else(|| bus_lost(root, "it is gone"))
}

/// Why a server does not start without its memory, and what to do.
#[must_use]
pub fn bus_lost(root: &Path, reason: &str) -> Failure {
    let what = format!("{} cannot be used: {reason}", root.join("bus").display());
    let remedy = "without it this server does not know how it has voted, and could vote twice: restore the file as it was \
                  when this server last ran; or start it as a new one with an empty data directory and --join, and \
                  remove the old one with `ashlar forget`";
    Failure::world(what, remedy)
}

/// The life of the server before this one; none if there was none.
fn last_incarnation(root: &Path) -> Result<Option<Incarnation>, Failure> {
    let Some(body) = read_sealed(root, "incarnation")? else { return Ok(None) };
    let number = body.trim_end().strip_prefix("incarnation ").and_then(|number| number.parse::<u64>().ok());
    Ok(Some(Incarnation(number.ok_or_else(|| damaged(&root.join("incarnation"), "no number"))?)))
}

fn raise_incarnation(root: &Path, must_exist: bool) -> Result<Incarnation, Failure> {
    let last = match last_incarnation(root)? {
        Some(last) => last.0,
        None if must_exist => return Err(damaged(&root.join("incarnation"), "it is gone")),
        None => 0,
    };
    let next = last.checked_add(1).ok_or_else(|| damaged(&root.join("incarnation"), "the number is too great"))?;
    write_sealed(root, "incarnation", &format!("incarnation {next}\n"))?;
    Ok(Incarnation(next))
}

fn certificate(root: &Path) -> Result<(String, String), Failure> {
    if let (Some(certificate), Some(key)) = (read(&root.join("tls.cert"))?, read(&root.join("tls.key"))?) {
        return Ok((certificate, key));
    }
    let made = rcgen::generate_simple_self_signed(vec!["ashlar".to_owned()])
        .map_err(|error| Failure::world(format!("cannot make a certificate: {error}"), ""))?;
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    write(&root.join("tls.key"), key.as_bytes())?;
    write(&root.join("tls.cert"), certificate.as_bytes())?;
    Ok((certificate, key))
}

fn text_or_new(root: &Path, name: &str, make: impl FnOnce() -> Result<String, Failure>) -> Result<String, Failure> {
    let path = root.join(name);
    if let Some(text) = read(&path)? {
        return Ok(text);
    }
    let text = make()?;
    write(&path, format!("{text}\n").as_bytes())?;
    Ok(text)
}

fn parse_identity(root: &Path, body: &str) -> Result<(ClusterId, ServerId), Failure> {
    let mut lines = body.lines();
    let cluster = lines.next().and_then(|line| line.strip_prefix("cluster ")?.parse().ok());
    let server = lines.next().and_then(|line| line.strip_prefix("server ")?.parse().ok());
    match (cluster, server, lines.next()) {
        (Some(cluster), Some(server), None) => Ok((cluster, server)),
        _ => Err(damaged(&root.join("identity"), "no cluster and server")),
    }
}

fn parse_peers(root: &Path, body: &str) -> Result<Vec<MetPeer>, Failure> {
    let peers = body.lines().map(|line| {
        let (server, address) = line.strip_prefix("peer ")?.split_once(' ')?;
        Some(MetPeer { server: server.parse().ok()?, address: address.to_owned() })
    });
    peers.collect::<Option<_>>().ok_or_else(|| damaged(&root.join("peers"), "a line is no peer"))
}

/// Format line, body, checksum line.
/// The text of a file with that name, with a checksum that binds the name.
pub(super) fn seal(name: &str, body: &str) -> String {
    let sealed = format!("format {FORMAT}\n{body}");
    let check = check(name, &sealed);
    format!("{sealed}check {check}\n")
}

/// What [`seal`] was given.
///
/// # Errors
/// The text is damaged, or of a newer version.
pub(super) fn unseal<'a>(name: &str, text: &'a str) -> Result<&'a str, String> {
    let (format, _) = text.strip_prefix("format ").and_then(|rest| rest.split_once('\n')).ok_or("no format line")?;
    let number: u32 = format.parse().map_err(|_| "no format line".to_owned())?;
    if number > FORMAT {
        return Err(format!("written by a newer ashlar (format {number}; this one reads up to {FORMAT})"));
    }
    let at = text.rfind("check ").ok_or("no checksum line")?;
    let (sealed, line) = text.split_at(at);
    if line.strip_prefix("check ").map(str::trim_end) != Some(check(name, sealed).as_str()) {
        return Err("the checksum is wrong".into());
    }
    sealed.split_once('\n').map(|(_, body)| body).ok_or_else(|| "no format line".into())
}

fn check(name: &str, sealed: &str) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("ashlar data directory file, format 1");
    hasher.update(name.as_bytes()).update(b"\n").update(sealed.as_bytes());
    hex(&hasher.finalize().as_bytes()[..8])
}

fn read_sealed(root: &Path, name: &str) -> Result<Option<String>, Failure> {
    let path = root.join(name);
    let Some(text) = read(&path)? else { return Ok(None) };
    unseal(name, &text).map(|body| Some(body.to_owned())).map_err(|reason| damaged(&path, &reason))
}

fn write_sealed(root: &Path, name: &str, body: &str) -> Result<(), Failure> {
    write(&root.join(name), seal(name, body).as_bytes())
}

fn read(path: &Path) -> Result<Option<String>, Failure> {
    files::read_text(path).map_err(|error| cannot("read", path, &error))
}

fn write(path: &Path, content: &[u8]) -> Result<(), Failure> {
    files::write_whole(path, content, Readers::Owner).map_err(|error| cannot("write", path, &error))
}

fn cannot(verb: &str, path: &Path, error: &io::Error) -> Failure {
    let what = format!("cannot {verb} {}: {error}", path.display());
    Failure::world(what, "check the owner and the permissions of the data directory, and the space on its drive")
}

fn damaged(path: &Path, reason: &str) -> Failure {
    let what = format!("{} cannot be used: {reason}", path.display());
    Failure::world(what, "restore the file, or start the server as a new one with an empty data directory")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
