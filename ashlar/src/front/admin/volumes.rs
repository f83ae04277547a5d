//! Volumes in the admin API.
//!
//! | request | what it does |
//! |---|---|
//! | `GET /v1/volumes` | lists volumes |
//! | `GET /v1/volumes/NAME` | shows one |
//! | `PUT /v1/volumes/NAME?bytes=N` | creates one |
//! | `PUT /v1/volumes/NAME/size?bytes=N` | makes it larger |
//! | `DELETE /v1/volumes/NAME` | deletes it, if it is not attached |
//! | `DELETE /v1/volumes/NAME/attachment?force` | takes it from the server that it is attached to |

use core::time::Duration;

use ashlar_catalog::change::Change;
use ashlar_catalog::error::RefusalKind;
use ashlar_catalog::raft::catalog::Error;
use ashlar_catalog::state::State;
use ashlar_catalog::volume::{VOLUME_NAME_BYTES_MAX, VolumeClass, VolumeRecord};
use ashlar_node::volume::service::{AttachError, VolumeService};
use ashlar_placement::part::Part;
use ashlar_placement::rule::ExtentSize;
use ashlar_wire::id::VolumeId;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::routes::{insists, json, refuse};
use super::{Front, catalog};
use crate::os::runtime::OsRuntime;
use crate::os::{clock, random};

/// A volume, as the admin API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeView {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: String,
    /// Its size.
    pub bytes: u64,
    /// The server that it is attached to, if it is to one.
    pub attached: Option<String>,
    /// How often it was attached.
    pub generation: u64,
    /// Bytes of its extents, each of which lies in one placement group.
    pub extent_bytes: u64,
    /// Sets of drives in which its extents lie, in their order.
    pub sets: Vec<u32>,
}

impl From<&VolumeRecord> for VolumeView {
    fn from(volume: &VolumeRecord) -> Self {
        Self {
            name: volume.name.clone(),
            id: volume.id.to_string(),
            bytes: volume.size_bytes,
            attached: volume.attached.map(|server| server.to_string()),
            generation: volume.generation.0,
            extent_bytes: volume.extent_size.bytes(),
            sets: volume.parts.iter().map(|part| part.set.0).collect(),
        }
    }
}

/// Most bytes of a volume: what all clients can address. 1 EiB.
pub(crate) const VOLUME_BYTES_MAX: u64 = 1 << 60;
/// How long the catalog is waited for: whoever asks waits a little longer.
const CHANGE_MAX: Duration = Duration::from_secs(8);
/// Sizes are multiples of it.
const SIZE_UNIT: u64 = 4_096;

type Volumes = VolumeService<OsRuntime>;
type Answer = Response<Full<Bytes>>;

/// What is wrong with the name of a volume, for people; nothing if it can be one.
pub(crate) fn wrong_name(name: &str) -> Option<&'static str> {
    let is_name = !name.is_empty()
        && name.len() <= VOLUME_NAME_BYTES_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let is_path = matches!(name, "." | "..");
    let text = "a volume's name has letters, digits, `-`, `_` and `.`, up to 255 of them, and is not `.` or `..`";
    (!is_name || is_path).then_some(text)
}

/// What is wrong with a size in bytes, for people; nothing if a volume can have it.
pub(crate) fn wrong_size(bytes: u64) -> Option<&'static str> {
    match bytes {
        0 => Some("a volume has at least 4 KiB"),
        _ if bytes > VOLUME_BYTES_MAX => Some("a volume has up to 1 EiB: make several"),
        _ if !bytes.is_multiple_of(SIZE_UNIT) => {
            Some("the size of a volume is a multiple of 4 KiB (4096): round it up")
        }
        _ => None,
    }
}

fn size_in(query: Option<&str>) -> Result<u64, Box<Answer>> {
    let bytes = query.and_then(|query| query.strip_prefix("bytes=")).and_then(|bytes| bytes.parse::<u64>().ok());
    let wrong = bytes.map_or(Some("give ?bytes=N, a number below 2^64"), wrong_size);
    match (bytes, wrong) {
        (Some(bytes), None) => Ok(bytes),
        (_, wrong) => Err(Box::new(refuse(StatusCode::BAD_REQUEST, "malformed_size", wrong.unwrap_or_default()))),
    }
}

fn services(front: &Front) -> Result<&Volumes, Box<Answer>> {
    let volumes = front.drives.as_ref().map(|drives| &drives.volumes);
    let text = "this server has no drive: start it with --drive-mib, or ask a server that has one";
    volumes.ok_or_else(|| Box::new(refuse(StatusCode::CONFLICT, "no_volumes", text)))
}

/// Lists all volumes.
pub(super) async fn list(front: &Front) -> Answer {
    let listed = async {
        let volumes = services(front).map_err(|refusal| *refusal)?;
        let state = catalog::state(volumes.catalog()).await?;
        Ok(json(StatusCode::OK, &state.volumes().map(VolumeView::from).collect::<Vec<_>>()))
    };
    listed.await.unwrap_or_else(|refusal| refusal)
}

/// The volumes, for a request about one of this name.
fn services_for<'a>(front: &'a Front, name: &str) -> Result<&'a Volumes, Box<Answer>> {
    match wrong_name(name) {
        Some(text) => Err(Box::new(refuse(StatusCode::BAD_REQUEST, "malformed_name", text))),
        None => services(front),
    }
}

/// Either is an answer.
fn either(answer: Result<Answer, Answer>) -> Answer {
    answer.unwrap_or_else(|refusal| refusal)
}

/// Shows one volume.
pub(super) async fn show(front: &Front, name: &str) -> Answer {
    match services_for(front, name) {
        Ok(volumes) => {
            either(known(volumes, name).await.map(|record| json(StatusCode::OK, &VolumeView::from(&record))))
        }
        Err(refusal) => *refusal,
    }
}

/// Creates one of the size that the query says.
pub(super) async fn create(front: &Front, name: &str, query: Option<&str>) -> Answer {
    match services_for(front, name).and_then(|volumes| Ok((volumes, size_in(query)?))) {
        Ok((volumes, bytes)) => either(make(volumes, name, bytes).await),
        Err(refusal) => *refusal,
    }
}

/// Makes one larger: the query says how large.
pub(super) async fn resize(front: &Front, name: &str, query: Option<&str>) -> Answer {
    match services_for(front, name).and_then(|volumes| Ok((volumes, size_in(query)?))) {
        Ok((volumes, bytes)) => either(enlarge(volumes, name, bytes).await),
        Err(refusal) => *refusal,
    }
}

/// Deletes one that is not attached.
pub(super) async fn delete(front: &Front, name: &str) -> Answer {
    match services_for(front, name) {
        Ok(volumes) => either(remove(volumes, name).await),
        Err(refusal) => *refusal,
    }
}

/// Takes one from the server that it is attached to.
pub(super) async fn detach(front: &Front, name: &str, query: Option<&str>) -> Answer {
    match services_for(front, name) {
        Ok(volumes) => either(take_away(volumes, name, query).await),
        Err(refusal) => *refusal,
    }
}

async fn known(volumes: &Volumes, name: &str) -> Result<VolumeRecord, Answer> {
    volumes.named(name).await.map_err(|error| match error {
        AttachError::Catalog(error) => unavailable(&error),
        _ => unknown(name),
    })
}

async fn make(volumes: &Volumes, name: &str, bytes: u64) -> Result<Answer, Answer> {
    let state = volumes.catalog().state().await.map_err(|error| unavailable(&error))?;
    let Some(record) = record(&state, name, bytes) else {
        let text = "there is no set of drives yet: volumes can be created once as many servers have a drive (with `copies_on` drives: as many drives are there) as there are to be copies";
        return Err(refuse(StatusCode::CONFLICT, "no_drives", text));
    };
    let view = VolumeView::from(&record);
    propose(volumes, name, Change::CreateVolume(record)).await?;
    Ok(json(StatusCode::OK, &view))
}

async fn remove(volumes: &Volumes, name: &str) -> Result<Answer, Answer> {
    let record = known(volumes, name).await?;
    propose(volumes, name, Change::DeleteVolume(record.id)).await?;
    tracing::info!(name, volume = %record.id, "volume deleted");
    Ok(json(StatusCode::OK, &VolumeView::from(&record)))
}

async fn enlarge(volumes: &Volumes, name: &str, bytes: u64) -> Result<Answer, Answer> {
    let mut record = known(volumes, name).await?;
    if bytes < record.size_bytes {
        let text = format!(
            "volume {name} has {} bytes, and no volume is made smaller: create a smaller one and copy what it needs",
            record.size_bytes
        );
        return Err(refuse(StatusCode::CONFLICT, "smaller", &text));
    }
    if bytes > record.size_bytes {
        let expected_bytes = record.size_bytes;
        grow(&mut record, bytes);
        let (id, parts) = (record.id, record.parts.clone());
        propose(volumes, name, Change::ResizeVolume { id, expected_bytes, size_bytes: bytes, parts }).await?;
    }
    Ok(json(StatusCode::OK, &VolumeView::from(&record)))
}

/// A record of a greater size: further extents lie in the set of the last ones.
fn grow(record: &mut VolumeRecord, bytes: u64) {
    let before: u64 = record.parts.iter().map(|part| part.extents).sum();
    let added = bytes.div_ceil(record.extent_size.bytes()) - before;
    record.parts.last_mut().expect("a volume has a part").extents += added;
    record.size_bytes = bytes;
}

async fn take_away(volumes: &Volumes, name: &str, query: Option<&str>) -> Result<Answer, Answer> {
    if insists(query) != Some(true) {
        let text = "a volume is detached when its last client disconnects; ?force (`ashlar volume detach NAME --force`) takes it \
                    from its clients, whose further writes fail";
        return Err(refuse(StatusCode::CONFLICT, "not_forced", text));
    }
    let before = known(volumes, name).await?;
    let generation = before.generation.0;
    match volumes.take_away(name).await {
        Ok(()) => {
            tracing::info!(name, volume = %before.id, generation, "volume taken from its server");
            Ok(json(StatusCode::OK, &VolumeView { attached: None, ..VolumeView::from(&before) }))
        }
        Err(AttachError::Unknown) => Err(unknown(name)),
        Err(AttachError::Catalog(error)) => Err(refusal_of(name, error)),
        Err(error) => Err(refuse(StatusCode::SERVICE_UNAVAILABLE, "not_detached", &format!("volume {name}: {error}"))),
    }
}

async fn propose(volumes: &Volumes, name: &str, change: Change) -> Result<(), Answer> {
    match clock::within(CHANGE_MAX, volumes.catalog().propose(change)).await {
        Some(done) => done.map(drop).map_err(|error| refusal_of(name, error)),
        None => {
            let text = format!(
                "the catalog has not taken the change within {} s, and may still: `ashlar catalog status` says whether it has a leader and which of its voters are there",
                CHANGE_MAX.as_secs()
            );
            Err(refuse(StatusCode::SERVICE_UNAVAILABLE, "catalog_slow", &text))
        }
    }
}

/// What the catalog's refusal of a change means to whoever asked for it.
fn refusal_of(name: &str, error: Error) -> Answer {
    let Error::Refused(refused) = error else { return unavailable(&error) };
    let (word, text) = match refused.kind {
        RefusalKind::Exists => ("exists", "a volume of this name exists".to_owned()),
        RefusalKind::Unknown => return unknown(name),
        RefusalKind::InUse => {
            let text = "is attached: disconnect its clients (`ashlar volume list` says at which server), or take it from them with `ashlar volume detach --force`";
            ("attached", format!("volume {name} {text}"))
        }
        RefusalKind::Stale => ("stale", format!("volume {name} has changed meanwhile: run the same command again")),
        _ => ("refused", Error::Refused(refused).to_string()),
    };
    refuse(StatusCode::CONFLICT, word, &text)
}

fn unknown(name: &str) -> Answer {
    let text = format!("there is no volume {name}: `ashlar volume list` shows those that there are");
    refuse(StatusCode::NOT_FOUND, "unknown_volume", &text)
}

/// A new volume in the first set.
fn record(state: &State, name: &str, bytes: u64) -> Option<VolumeRecord> {
    let set = state.sets().next()?.id;
    let extent_size = ExtentSize::DEFAULT;
    Some(VolumeRecord {
        id: VolumeId::from_bytes(random::bytes()),
        name: name.to_owned(),
        class: VolumeClass::Ssd,
        extent_size,
        size_bytes: bytes,
        parts: vec![Part { set, extents: bytes.div_ceil(extent_size.bytes()) }],
        generation: ashlar_catalog::volume::Generation(0),
        attached: None,
    })
}

fn unavailable(error: &Error) -> Answer {
    refuse(StatusCode::SERVICE_UNAVAILABLE, "catalog_unavailable", &format!("the catalog cannot be asked: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sizes() {
        for name in ["a", "A-b_c.9", "..a", &"x".repeat(255)] {
            assert_eq!(wrong_name(name), None, "{name}");
        }
        for name in ["", ".", "..", "a b", "a%20b", "a\u{e9}", "a\0", "a\n", &"x".repeat(256)] {
            assert!(wrong_name(name).is_some(), "{name}");
        }
        for (bytes, is_right) in [
            (0, false),
            (1, false),
            (4_095, false),
            (4_096, true),
            (1 << 60, true),
            ((1 << 60) + 4_096, false),
            (u64::MAX, false),
        ] {
            assert_eq!(wrong_size(bytes).is_none(), is_right, "{bytes}");
            assert_eq!(size_in(Some(&format!("bytes={bytes}"))).is_ok(), is_right, "{bytes}");
        }
        for query in
            [None, Some(""), Some("bytes="), Some("bytes=-1"), Some("size=4096"), Some("bytes=99999999999999999999")]
        {
            assert_eq!(size_in(query).map_err(|answer| answer.status()), Err(StatusCode::BAD_REQUEST), "{query:?}");
        }
    }

    #[test]
    fn a_volume_grows_by_whole_extents() {
        let part = |set, extents| Part { set: ashlar_placement::map::SetId(set), extents };
        let mut record = VolumeRecord {
            id: VolumeId::from_bytes([1; 16]),
            name: "a".into(),
            class: VolumeClass::Ssd,
            extent_size: ExtentSize::DEFAULT,
            size_bytes: (5 << 20) - 4_096,
            parts: vec![part(1, 2), part(2, 3)],
            generation: ashlar_catalog::volume::Generation(0),
            attached: None,
        };
        grow(&mut record, 5 << 20);
        assert_eq!((record.size_bytes, &record.parts[..]), (5 << 20, &[part(1, 2), part(2, 3)][..]));
        grow(&mut record, (5 << 20) + 4_096);
        assert_eq!(record.parts, [part(1, 2), part(2, 4)]);
        assert!(record.placed().is_ok());
    }
}
