//! The drive of a server, the volumes and the objects on it: from the directory to the services that the node runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ashlar_catalog::server::DriveClass;
use ashlar_node::Node;
use ashlar_node::catalog::{CatalogOptions, CatalogService, MISSING_MAX};
use ashlar_node::object::{BlobPort, ObjectNode};
use ashlar_node::service::Service;
use ashlar_node::volume::drive_port::DrivePort;
use ashlar_node::volume::service::{SpaceReader, VolumeService};
use ashlar_node::volume::space::DriveSpace;
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
use crate::failure::Failure;
use crate::front::admin::DriveServices;
use crate::front::s3::account::Accounting;

/// Where the drive lies in the data directory.
const FOLDER: &str = "drive";
/// Placement groups of the first set.
const GROUPS: u32 = 64;

/// The drive and the services over it.
pub(super) struct Disks {
    catalog: CatalogService,
    pub(super) volumes: VolumeService<OsRuntime>,
    /// Objects, if there is room for them.
    pub(super) objects: Option<ObjectNode<OsRuntime>>,
    /// Who is told what S3 requests come to.
    pub(super) accounting: Accounting,
    drive: Arc<DriveHandle>,
    bytes: u64,
}

impl Disks {
    /// Opens the drive, or makes it.
    ///
    /// # Errors
    /// Files cannot be used; see [`DriveThread::open_or_format`].
    pub(super) fn open(data: &DataDir, bytes: u64, config: &Config) -> Result<Self, Failure> {
        let storage = CatalogStorage::open(data.root(), data.cluster, data.server)
            .map_err(|error| Failure::world(error.to_string(), "see above"))?;
        let options = CatalogOptions { pgs: GROUPS, ..CatalogOptions::default() };
        let catalog = CatalogService::new(options, Arc::new(storage));
        let volumes = VolumeService::new(catalog.handle());
        let ids =
            DriveIds { cluster: data.cluster, server: data.server, new_drive: DriveId::from_bytes(random::bytes()) };
        let outputs = {
            let volumes = volumes.clone();
            move |drive, output| volumes.handle_output(drive, output)
        };
        let drive = Arc::new(DriveThread::open_or_format(&data.root().join(FOLDER), ids, bytes, outputs)?);
        let port: Arc<dyn DrivePort> = Arc::clone(&drive) as Arc<dyn DrivePort>;
        volumes.set_drives(BTreeMap::from([(drive.drive(), port)]));
        tracing::info!(drive = %drive.drive(), bytes, access = ?drive.access(), "drive opened");
        let blobs = config.object_bytes.map(|bytes| {
            let blobs = BlobHandle::open_or_format(&data.root().join(FOLDER), ids, drive.drive(), bytes)?;
            tracing::info!(drive = %drive.drive(), bytes, "room for objects opened");
            Ok(Arc::new(blobs))
        });
        let blobs = blobs.transpose()?;
        let objects = blobs.clone().map(|blobs| {
            let objects = ObjectNode::new(volumes.clone(), wall_clock_ms);
            objects.set_blobs(BTreeMap::from([(drive.drive(), blobs as Arc<dyn BlobPort>)]));
            objects.set_day(config.lifecycle_day);
            objects
        });
        let accounting = Accounting { audit: audit_log(config)?, ..Accounting::default() };
        volumes.set_space(space(Arc::clone(&drive), blobs));
        Ok(Self { catalog, volumes, objects, accounting, drive, bytes })
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

    /// Makes the drive known to the cluster, beside everything else.
    pub(super) fn register(&self, node: &Node<OsRuntime>) {
        use ashlar_grid::seam::Runtime as _;
        let (catalog, drive, bytes) = (self.catalog.handle(), self.drive.drive(), self.bytes);
        let volumes = self.volumes.clone();
        node.runtime().spawn(Box::pin(async move {
            if let Err(error) = catalog.register_drive(drive, bytes, DriveClass::Ssd).await {
                tracing::error!(%drive, %error, "the drive is not used: the catalog has not taken it");
            }
            catalog.keep_drives(&BTreeSet::from([drive]), |drive| volumes.is_broken(drive), MISSING_MAX).await;
        }));
    }
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

/// Looks how full the drive is.
fn space(drive: Arc<DriveHandle>, blobs: Option<Arc<BlobHandle>>) -> SpaceReader {
    Box::new(move || {
        let objects = blobs.as_ref().map(|blobs| (blobs.room(), blobs.has_failed()));
        let (objects, has_lost_objects) = objects.unwrap_or_default();
        let has_failed = drive.has_failed() || has_lost_objects;
        vec![DriveSpace { drive: drive.drive(), volumes: drive.room(), objects, has_failed }]
    })
}

/// Milliseconds since 1970 (UTC).
fn wall_clock_ms() -> u64 {
    u64::try_from(clock::now_both().unix_us / 1_000).unwrap_or_default()
}
