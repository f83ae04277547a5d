//! Listeners of the services over a drive: NBD clients of volumes, S3 clients of objects.
//!
//! They listen before anything runs, so that a port that is taken ends the start, and serve once the node has begun.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use ashlar_node::object::ObjectNode;
use ashlar_node::volume::service::VolumeService;
use ashlar_object::s3::{Credentials, KeyName, KeyService, NoKey, S3Service, S3Settings, SecretKey, User};
use ashlar_wire::secret::Secret;
use rustls::ServerConfig;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::disks::Disks;
use super::runtime::OsRuntime;
use super::sockets::{self, Listen};
use super::{clock, random};
use crate::config::Config;
use crate::failure::Failure;
use crate::front::{nbd, s3};

const NBD: Listen = Listen { port_flags: "--nbd-port (0 for none)", ..Listen::SERVER };
/// How long a server that stops answers what clients have asked for.
const ANSWERS_MAX: Duration = Duration::from_secs(10);
/// How long S3 clients wait for the keys to be known; then they are refused as long as that lasts.
const KEYS_MAX: Duration = Duration::from_secs(10);
const KEYS_LOOK: Duration = Duration::from_millis(20);
const S3: Listen = Listen { port_flags: "--s3-port (0 for none)", ..Listen::SERVER };

/// Listeners, as far as they are configured and the server has what they need.
pub(super) struct DriveFronts {
    nbd: Vec<TcpListener>,
    s3: Vec<TcpListener>,
}

impl DriveFronts {
    /// Listens: for NBD on one worker, for S3 on all of them.
    ///
    /// # Errors
    /// A port is taken, or may not be used.
    pub(super) fn listen(config: &Config, disks: Option<&Disks>, workers: usize) -> Result<Self, Failure> {
        let has_objects = disks.is_some_and(|disks| disks.objects.is_some());
        let nbd = config.nbd.filter(|_| disks.is_some()).map(|address| sockets::listen_as(address, 1, NBD));
        let s3 = config.s3.filter(|_| has_objects).map(|address| sockets::listen_as(address, workers, S3));
        Ok(Self { nbd: nbd.transpose()?.unwrap_or_default(), s3: s3.transpose()?.unwrap_or_default() })
    }

    /// Serves clients until they are told that the server stops.
    pub(super) fn serve(self, workers: &[Handle], disks: Option<&Disks>, tls: Arc<ServerConfig>) -> DriveClients {
        let (stop, stopped) = watch::channel(false);
        let mut clients = DriveClients { stop, fronts: Vec::new() };
        let Some(disks) = disks else { return clients };
        for (listener, worker) in self.nbd.into_iter().zip(workers) {
            clients.fronts.push(worker.spawn(serve_nbd(listener, disks.volumes.clone(), stopped.clone())));
        }
        let Some(objects) = disks.objects.clone() else { return clients };
        let keys = Arc::new(CatalogKeys(objects.clone()));
        let s3 = S3Service::new(objects.api(), keys.clone(), keys.clone(), S3Settings::default());
        let front = Arc::new(s3::S3Front::new(s3, Some(tls), disks.accounting.clone()));
        for (listener, worker) in self.s3.into_iter().zip(workers) {
            clients.fronts.push(worker.spawn(serve_s3(front.clone(), keys.clone(), listener, stopped.clone())));
        }
        clients
    }
}

/// Clients of disks and objects that are served.
pub(super) struct DriveClients {
    stop: watch::Sender<bool>,
    fronts: Vec<JoinHandle<()>>,
}

impl DriveClients {
    /// Takes nothing new, and waits until all that was asked is answered.
    pub(super) async fn end(mut self) {
        self.stop.send_replace(true);
        let answered = async {
            for front in &mut self.fronts {
                front.await.ok();
            }
        };
        if clock::within(ANSWERS_MAX, answered).await.is_none() {
            tracing::warn!("requests for disks or objects take longer than 10 s: they are cut");
            self.fronts.iter().for_each(JoinHandle::abort);
        }
    }
}

async fn serve_nbd(listener: TcpListener, volumes: VolumeService<OsRuntime>, stopped: watch::Receiver<bool>) {
    if let Err(error) = nbd::serve(listener, volumes, stopped).await {
        tracing::error!(%error, "NBD clients are not served");
    }
}

/// Clients that come before the keys are known wait to be accepted: a server that has just started would refuse them all.
async fn serve_s3(
    front: Arc<s3::S3Front>,
    keys: Arc<CatalogKeys>,
    listener: TcpListener,
    mut stopped: watch::Receiver<bool>,
) {
    let are_known = async {
        while !keys.are_known() {
            tokio::time::sleep(KEYS_LOOK).await;
        }
    };
    tokio::select! {
        _ = tokio::time::timeout(KEYS_MAX, are_known) => {}
        _ = stopped.wait_for(|is_stopped| *is_stopped) => {}
    }
    if let Err(error) = front.serve(listener, stopped).await {
        tracing::error!(%error, "S3 clients are not served");
    }
}

/// The cluster's root key, the keys of users, and the keys under which those of objects are wrapped.
struct CatalogKeys(ObjectNode<OsRuntime>);

impl Credentials for CatalogKeys {
    fn lookup(&self, access_key: &str) -> Option<(SecretKey, User)> {
        if let Some(root) = self.0.root_key().filter(|root| root.access_key == access_key) {
            return Some((SecretKey::new(root.secret_key), User::root()));
        }
        let found = self.0.user_key(access_key)?;
        Some((SecretKey::new(found.key.secret_key), self.0.user(&found.user)?))
    }

    fn user(&self, id: &str) -> Option<User> {
        Some(User::root()).filter(|root| root.id == id).or_else(|| self.0.user(id))
    }

    fn user_policy(&self, id: &str) -> Option<String> {
        self.0.user_policy(id)
    }

    fn session_secret(&self) -> Option<Secret> {
        self.0.wrapping_key(&KeyName::Master).ok()
    }

    fn are_known(&self) -> bool {
        self.0.is_caught_up() && self.0.are_rights_current() && self.0.root_key().is_some()
    }
}

impl KeyService for CatalogKeys {
    fn key(&self, name: &KeyName) -> Result<Secret, NoKey> {
        self.0.wrapping_key(name)
    }

    fn draw(&self) -> [u8; 32] {
        random::bytes()
    }
}
