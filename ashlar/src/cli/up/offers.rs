//! What `ashlar up` offers beside its servers: a volume to try, the address and key for S3 clients, and all of it as JSON.

use std::time::Duration;

use ashlar_node::status::ServerStatus;
use serde::Serialize;

use super::{Arguments, Place};
use crate::cli::{note, s3, volume};
use crate::front::admin::objects::KeyView;
use crate::os::http::Target;
use crate::os::{clock, datadir, files};

/// The volume that is made at the first start, and its size.
const DEMO: (&str, u64) = ("demo", 1 << 30);
/// How long the catalog may take to know all drives.
const DRIVES_MAX: Duration = Duration::from_secs(30);
/// How often it is asked.
const LOOK: Duration = Duration::from_millis(50);

/// What can be used.
#[derive(Default)]
pub(super) struct Offers {
    /// The volume, as a URI.
    nbd: Option<String>,
    s3: Option<S3Offer>,
}

/// How S3 clients connect.
#[derive(Clone, Serialize)]
struct S3Offer {
    endpoint: String,
    #[serde(flatten)]
    key: KeyView,
}

/// Makes what people can try, unless it is there. That something is amiss ends nothing: it is told.
pub(super) async fn prepare(arguments: &Arguments, places: &[Place]) -> Offers {
    let Some(token) = files::read_text(&arguments.data.join(datadir::ADMIN_TOKEN)).ok().flatten() else {
        return Offers::default();
    };
    let target =
        Target { address: places[0].address.clone(), token: Some(token.trim().to_owned()), ..Target::default() };
    let nbd = match &places[0].nbd {
        Some(place) => demo(&target, place).await,
        None => None,
    };
    let s3 = match &places[0].s3 {
        Some(place) => key(&target, place).await,
        None => None,
    };
    Offers { nbd, s3 }
}

async fn demo(target: &Target, place: &str) -> Option<String> {
    let (name, bytes) = DEMO;
    let deadline = clock::now() + DRIVES_MAX;
    loop {
        let known = volume::volumes(target).await;
        if known.is_ok_and(|volumes| volumes.iter().any(|volume| volume.name == name)) {
            return Some(format!("nbd://{place}/{name}"));
        }
        // It is refused until all drives are known.
        let created = volume::create(target, name, bytes).await;
        if let Err(failure) = created
            && clock::now() >= deadline
        {
            note(&format!("ashlar: no volume was made: {failure}"));
            return None;
        }
        clock::sleep(LOOK).await;
    }
}

async fn key(target: &Target, place: &str) -> Option<S3Offer> {
    let deadline = clock::now() + DRIVES_MAX;
    loop {
        match s3::key(target).await {
            Ok(key) => return Some(S3Offer { endpoint: format!("http://{place}"), key }),
            Err(failure) if clock::now() >= deadline => {
                note(&format!("ashlar: S3 cannot be used: {failure}"));
                return None;
            }
            Err(_) => clock::sleep(LOOK).await,
        }
    }
}

impl Offers {
    /// For people; nothing where nothing is offered.
    pub(super) fn text(&self) -> Option<String> {
        let mut text = String::new();
        if let Some(uri) = &self.nbd {
            text += &format!("A volume with three copies: {uri} (for instance nbdcopy, qemu-io, fio)\n");
        }
        if let Some(S3Offer { endpoint, key }) = &self.s3 {
            text += &format!(
                "S3, erasure-coded over the servers:\n  \
                 export AWS_ENDPOINT_URL={endpoint} AWS_DEFAULT_REGION=us-east-1\n  \
                 export AWS_ACCESS_KEY_ID={} AWS_SECRET_ACCESS_KEY={}\n  \
                 aws s3 mb s3://photos\n",
                key.access_key, key.secret_key
            );
        }
        (!text.is_empty()).then_some(text)
    }

    /// For scripts: one object, which says that everything is ready.
    pub(super) fn json(&self, places: &[Place], statuses: &[ServerStatus]) -> String {
        #[derive(Serialize)]
        struct Server<'a> {
            id: &'a str,
            address: &'a str,
            pid: u32,
            data: String,
        }
        #[derive(Serialize)]
        struct Ready<'a> {
            servers: Vec<Server<'a>>,
            kv: Vec<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            nbd: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            s3: Option<&'a S3Offer>,
        }
        let server = |(place, status): (&'_ Place, &'_ ServerStatus)| (place.pid, status.server.clone());
        let ids: Vec<(u32, String)> = places.iter().zip(statuses).map(server).collect();
        let servers = places.iter().zip(&ids).map(|(place, (pid, id))| Server {
            id,
            address: &place.address,
            pid: *pid,
            data: place.data.display().to_string(),
        });
        let ready = Ready {
            servers: servers.collect(),
            kv: places.iter().filter_map(|place| place.kv.as_ref().map(|[first, _]| first.as_str())).collect(),
            nbd: self.nbd.as_deref(),
            s3: self.s3.as_ref(),
        };
        serde_json::to_string(&ready).expect("our own values have text keys and no cycles")
    }
}
