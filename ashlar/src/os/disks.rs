//! The drives of a server, the volumes and the objects on them: from the directories to the services that the node runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ashlar_catalog::server::DriveClass;
use ashlar_node::Node;
use ashlar_node::catalog::{CatalogHandle, CatalogOptions, CatalogService, DriveHere, FIRST_SET, MISSING_MAX};
use ashlar_node::object::keys::RootKey;
use ashlar_node::object::{BlobPort, ObjectNode};
use ashlar_node::service::Service;
use ashlar_node::volume::drive_port::{DriveInput, DrivePort};
use ashlar_node::volume::service::VolumeService;
use ashlar_node::volume::space::DriveSpace;
use ashlar_placement::domains::Conflict;
use ashlar_placement::map::Shape;
use ashlar_wire::id::DriveId;

use super::audit_log::AuditLog;
use super::catalog_storage::CatalogStorage;
use super::clock;
use super::datadir::DataDir;
use super::drive::blobs::BlobHandle;
use super::drive::{DriveHandle, DriveIds, DriveThread};
use super::random;
use super::runtime::OsRuntime;
use crate::config::Config;
use crate::config::root_key::GivenKey;
use crate::failure::Failure;
use crate::front::admin::DriveServices;
use crate::front::s3::account::Accounting;

/// Where the drive lies in the data directory, if no other place is given.
const FOLDER: &str = "drive";
/// Placement groups of the first set.
const GROUPS: u32 = 64;

/// A drive that runs, and its shards of objects if it has room for them.
struct Drive {
    extents: DriveHandle,
    blobs: Option<Arc<BlobHandle>>,
}

impl Drive {
    /// Opens the drive in a directory, or makes it there.
    fn open(folder: &Path, data: &DataDir, volumes: &VolumeService<OsRuntime>, sizes: Sizes) -> Result<Self, Failure> {
        let ids =
            DriveIds { cluster: data.cluster, server: data.server, new_drive: DriveId::from_bytes(random::bytes()) };
        let outputs = {
            let volumes = volumes.clone();
            move |drive, outputs| volumes.handle_outputs(drive, outputs)
        };
        let extents = DriveThread::open_or_format(folder, ids, sizes.extents, outputs)?;
        let drive = extents.drive();
        tracing::info!(%drive, folder = %folder.display(), access = ?extents.access(), "drive opened");
        let blobs = sizes.blobs.map(|bytes| {
            let blobs = BlobHandle::open_or_format(folder, ids, drive, bytes)?;
            tracing::info!(%drive, bytes, "room for objects opened");
            Ok(Arc::new(blobs))
        });
        Ok(Self { extents, blobs: blobs.transpose()? })
    }

    fn has_failed(&self) -> bool {
        self.extents.has_failed() || self.blobs.as_ref().is_some_and(|blobs| blobs.has_failed())
    }

    /// How full it is.
    fn space(&self) -> DriveSpace {
        let objects = self.blobs.as_ref().map(|blobs| blobs.room()).unwrap_or_default();
        DriveSpace { drive: self.extents.drive(), volumes: self.extents.room(), objects, has_failed: self.has_failed() }
    }
}

/// Bytes of the two files of a drive.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    extents: u64,
    blobs: Option<u64>,
}

/// The drives, and the services over them.
pub(super) struct Disks {
    catalog: CatalogService,
    options: CatalogOptions,
    pub(super) volumes: VolumeService<OsRuntime>,
    /// Objects, if there is room for them.
    pub(super) objects: Option<ObjectNode<OsRuntime>>,
    /// Who is told what S3 requests come to.
    pub(super) accounting: Accounting,
    drives: Arc<BTreeMap<DriveId, Arc<Drive>>>,
    bytes: u64,
}

impl Disks {
    /// Opens the drives, or makes them, if the server is to have some. Of several, those that cannot be used are left out, and told of.
    ///
    /// # Errors
    /// Files cannot be used, or no drive; see [`DriveThread::open_or_format`].
    pub(super) fn open(data: &DataDir, config: &Config, root_key: Option<GivenKey>) -> Result<Option<Self>, Failure> {
        let Some(bytes) = config.drive_bytes else {
            if has_drive(data, config) {
                tracing::error!(
                    "a drive of this server is not used: start with `drive_mib` (and `object_mib`), as before"
                );
            }
            return Ok(None);
        };
        let storage = CatalogStorage::open(data.root(), data.cluster, data.server)
            .map_err(|error| Failure::world(error.to_string(), "see above"))?;
        let options = CatalogOptions { copies: config.copies, apart: config.copies_apart, pgs: GROUPS };
        let catalog = CatalogService::new(options.clone(), Arc::new(storage));
        let volumes = VolumeService::new(catalog.handle());
        let sizes = Sizes { extents: bytes, blobs: config.object_bytes };
        let drives = open_drives(data, config, |folder| Drive::open(folder, data, &volumes, sizes))?;
        let port = |drive: &Arc<Drive>| Arc::clone(drive) as Arc<dyn DrivePort>;
        volumes.set_drives(drives.iter().map(|(id, drive)| (*id, port(drive))).collect());
        let blobs = drives.iter().filter_map(|(id, drive)| Some((*id, Arc::clone(drive.blobs.as_ref()?))));
        let blobs: BTreeMap<DriveId, Arc<dyn BlobPort>> =
            blobs.map(|(id, blobs)| (id, blobs as Arc<dyn BlobPort>)).collect();
        let objects = config.object_bytes.map(|_| {
            let objects = ObjectNode::new(volumes.clone(), wall_clock_ms);
            objects.set_blobs(blobs);
            objects.set_day(config.lifecycle_day);
            if let Some(GivenKey { access_key, secret_key }) = root_key {
                objects.give_root_key(RootKey { access_key, secret_key });
            }
            objects
        });
        let accounting = Accounting { audit: audit_log(config)?, ..Accounting::default() };
        let drives = Arc::new(drives);
        let shown = Arc::clone(&drives);
        volumes.set_space(Box::new(move || shown.values().map(|drive| drive.space()).collect()));
        Ok(Some(Self { catalog, options, volumes, objects, accounting, drives, bytes }))
    }

    /// What the node runs.
    pub(super) fn services(&self) -> Vec<Box<dyn Service<OsRuntime>>> {
        let mut services: Vec<Box<dyn Service<OsRuntime>>> =
            vec![Box::new(self.catalog.clone()), Box::new(self.volumes.clone())];
        services.extend(self.objects.clone().map(|objects| -> Box<dyn Service<OsRuntime>> { Box::new(objects) }));
        services
    }

    /// What the admin API asks.
    pub(super) fn services_of_front(&self) -> DriveServices {
        DriveServices {
            volumes: self.volumes.clone(),
            objects: self.objects.clone(),
            accounting: self.accounting.clone(),
        }
    }

    /// Makes the drives known to the cluster, beside everything else.
    pub(super) fn register(&self, node: &Node<OsRuntime>) {
        use ashlar_grid::seam::Threads as _;
        for drive in self.drives.keys().copied() {
            let (catalog, bytes) = (self.catalog.handle(), self.bytes);
            node.runtime().spawn(Box::pin(async move {
                if let Err(error) = catalog.register_drive(drive, bytes, DriveClass::Ssd).await {
                    tracing::error!(%drive, %error, "the drive is not used: the catalog has not taken it");
                }
            }));
        }
        let (catalog, options) = (self.catalog.handle(), self.options.clone());
        node.runtime().spawn(Box::pin(tell_of_other_copies(catalog, options)));
        let (catalog, drives, volumes) = (self.catalog.handle(), Arc::clone(&self.drives), self.volumes.clone());
        node.runtime().spawn(Box::pin(async move {
            let look = |id| {
                let blobs = &drives.get(&id)?.blobs;
                let is_broken = volumes.is_broken(id) || blobs.as_ref().is_some_and(|blobs| blobs.has_failed());
                Some(DriveHere { is_broken, keeps_objects: blobs.is_some() })
            };
            catalog.keep_drives(look, MISSING_MAX).await;
        }));
    }

    /// Before this server stops: other servers take over what they can of its placement groups.
    pub(super) async fn depart(&self) {
        if !self.catalog.handle().depart().await {
            tracing::info!(
                "other servers go on without this one's copies of volumes and the index of objects once they miss it"
            );
        }
    }
}

/// Whether one of the places of drives has one.
fn has_drive(data: &DataDir, config: &Config) -> bool {
    let own = data.root().join(FOLDER);
    config.drives.iter().chain([&own]).any(|folder| DriveThread::is_at(folder))
}

/// Says it once if the copies of the first set are not those that this server's configuration asks for.
async fn tell_of_other_copies(catalog: CatalogHandle, options: CatalogOptions) {
    let Ok(mut state) = catalog.state().await else { return };
    let shape = loop {
        match state.set(FIRST_SET) {
            Some(set) => break set.target.shape(),
            None => match catalog.watch(state.version()).await {
                Ok(news) => state = news.state,
                Err(_) => return,
            },
        }
    };
    for (key, here, fixed) in other_copies(&options, shape) {
        tracing::warn!(
            key,
            here,
            fixed,
            "this server's setting of copies changes nothing: the cluster's was fixed when the first drives were taken"
        );
    }
}

/// The settings of copies that are not what the cluster has: their keys, what they say, and what it has.
fn other_copies(options: &CatalogOptions, shape: Shape) -> Vec<(&'static str, String, String)> {
    let on = |apart| if apart == Conflict::Drive { "drives" } else { "servers" };
    let all = [
        ("copies", options.copies.to_string(), shape.width.to_string()),
        ("copies_on", on(options.apart).to_owned(), on(shape.conflict).to_owned()),
    ];
    all.into_iter().filter(|(_, here, fixed)| here != fixed).collect()
}

impl DrivePort for Drive {
    fn send(&self, input: DriveInput) -> bool {
        self.extents.send(input).is_ok()
    }

    fn send_all(&self, inputs: Vec<DriveInput>) {
        self.extents.send_all(inputs);
    }
}

/// Opens each drive of the configuration. Directories in the data directory are made; others have to be there: that of a drive that is
/// not mounted is not.
fn open_drives(
    data: &DataDir,
    config: &Config,
    open: impl Fn(&Path) -> Result<Drive, Failure>,
) -> Result<BTreeMap<DriveId, Arc<Drive>>, Failure> {
    if config.drives.is_empty() {
        let drive = open(&data.root().join(FOLDER))?;
        return Ok(BTreeMap::from([(drive.extents.drive(), Arc::new(drive))]));
    }
    let (mut drives, mut last) = (BTreeMap::new(), None);
    for folder in &config.drives {
        match open_listed(data, folder, &drives, &open) {
            Ok(drive) => drop(drives.insert(drive.extents.drive(), Arc::new(drive))),
            Err(failure) => {
                let (what, folder) = (&failure.what, folder.display());
                tracing::error!(%folder, what, "the server runs without this drive: {}", failure.remedy);
                last = Some(failure);
            }
        }
    }
    match last {
        Some(failure) if drives.is_empty() => Err(failure),
        _ => Ok(drives),
    }
}

fn open_listed(
    data: &DataDir,
    folder: &Path,
    others: &BTreeMap<DriveId, Arc<Drive>>,
    open: impl Fn(&Path) -> Result<Drive, Failure>,
) -> Result<Drive, Failure> {
    if !folder.is_dir() && folder.parent() != Some(data.root()) {
        let what = format!("the directory {} is not there", folder.display());
        return Err(Failure::world(what, "mount its drive; if the drive is new, make the directory on it"));
    }
    let drive = open(folder)?;
    if others.contains_key(&drive.extents.drive()) {
        let what = format!("{} has the same drive as another directory: it is a copy", folder.display());
        return Err(Failure::world(what, "move it away: two copies of one drive would overwrite each other's data"));
    }
    Ok(drive)
}

fn audit_log(config: &Config) -> Result<Option<Arc<AuditLog>>, Failure> {
    let opened = config.s3_audit_log.as_ref().map(|path| {
        AuditLog::open(path).map(Arc::new).map_err(|error| {
            let what = format!("the audit log {} cannot be written: {error}", path.display());
            Failure::world(what, "let the server write there, or give another place as s3_audit_log")
        })
    });
    opened.transpose()
}

/// Milliseconds since 1970 (UTC).
fn wall_clock_ms() -> u64 {
    u64::try_from(clock::now_both().unix_us / 1_000).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_copies_that_come_too_late_are_told() {
        let shape = Shape { pgs: 4, width: 3, conflict: Conflict::Server };
        let told = |copies, apart| {
            let other = other_copies(&CatalogOptions { copies, apart, pgs: 4 }, shape).into_iter();
            other.map(|(key, here, fixed)| format!("{key} {here} {fixed}")).collect::<Vec<_>>()
        };
        assert!(told(3, Conflict::Server).is_empty());
        assert_eq!(told(2, Conflict::Server), ["copies 2 3"]);
        assert_eq!(told(2, Conflict::Drive), ["copies 2 3", "copies_on drives servers"]);
    }
}
