//! The drive of one life of a server: the task that owns the [`DriveHost`], as the program's thread does, over a [`Device`].

use core::future::poll_fn;
use core::task::{Poll, Waker};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use ashlar_grid::seam::{Runtime as _, Threads as _};
use ashlar_node::together;
use ashlar_node::volume::drive_host::{DriveHost, HostConfig, HostOutput};
use ashlar_node::volume::drive_port::{DriveInput, DrivePort};
use ashlar_store::config::Config;
use ashlar_store::format::{Existing, Formatting, NewDrive};
use ashlar_store::io::{Io, IoError, IoId, IoOutput};
use ashlar_store::layout::LayoutOptions;
use ashlar_store::opening::Expected;
use ashlar_store::store::Store;
use ashlar_wire::id::{DriveId, ServerId};
use ashlar_wire::time::Instant;
use core::time::Duration;

use super::{device::Device, planted};
use crate::rng::Rng;
use crate::scenarios::lock;
use crate::scenarios::node::cluster;
use crate::world::SimRuntime;

/// Bytes of a drive: room for some extents, the journal and the tables.
const DRIVE_BYTES: u64 = 40 << 20;
/// What the catalog is told, which weighs drives by it.
pub(super) const TOLD_BYTES: u64 = 4 << 30;
const LAYOUT: LayoutOptions = LayoutOptions { journal_blocks: 1_040, records_max: 64, tombstones_max: 64 };
/// Inputs that wait at most.
const INPUTS_MAX: usize = 1_024;
/// Time between two extents of the scrub: short, so that damage is found within a run.
const SCRUB_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Waiting {
    inputs: VecDeque<DriveInput>,
    completions: Vec<(IoId, Result<IoOutput, IoError>)>,
    waker: Option<Waker>,
    has_stopped: bool,
}

/// What waits for the owner.
#[derive(Debug, Clone, Default)]
pub(super) struct Inbox(Arc<Mutex<Waiting>>);

impl Inbox {
    fn wake(mut waiting: MutexGuard<'_, Waiting>) {
        let waker = waiting.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn complete(&self, id: IoId, result: Result<IoOutput, IoError>) {
        let mut waiting = lock(&self.0);
        waiting.completions.push((id, result));
        Self::wake(waiting);
    }

    /// Nothing more is taken.
    pub(super) fn stop(&self) {
        lock(&self.0).has_stopped = true;
    }

    async fn filled(&self) {
        poll_fn(|cx| {
            let mut waiting = lock(&self.0);
            if waiting.inputs.is_empty() && waiting.completions.is_empty() {
                waiting.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }
}

impl DrivePort for Inbox {
    fn send(&self, input: DriveInput) -> bool {
        let mut waiting = lock(&self.0);
        if waiting.has_stopped || waiting.inputs.len() >= INPUTS_MAX {
            return false;
        }
        waiting.inputs.push_back(input);
        Self::wake(waiting);
        true
    }
}

/// Makes an empty drive on a device.
pub(super) fn format(device: &Device, server: ServerId, drive: DriveId, rng: &mut Rng) {
    let (mut nonce, existing) = ([0; 16], Existing::Overwrite);
    rng.fill(&mut nonce);
    let new = NewDrive { cluster: cluster(), server, drive, nonce, bytes: DRIVE_BYTES, options: LAYOUT };
    let mut formatting = Formatting::new(&new, existing).expect("the sizes are this file's");
    loop {
        if let Some(formatted) = formatting.poll_ready() {
            formatted.expect("nothing goes wrong before extents are known");
            return;
        }
        let io = formatting.poll_io().expect("formatting goes on");
        let id = io.id;
        formatting.handle_io(id, device.execute(io, rng));
    }
}

/// Opens what [`format`] made.
///
/// # Errors
/// The drive was lost over a crash, in words.
pub(super) fn open(now: Instant, device: &Device, drive: DriveId, rng: &mut Rng) -> Result<DriveHost, String> {
    let expected = Expected { cluster: cluster(), drive: Some(drive), bytes: DRIVE_BYTES };
    let config = Config { scrub_interval: Some(SCRUB_INTERVAL), ..Config::default() };
    let mut opening = planted::opening(config, expected);
    let store: Store = loop {
        if let Some(opened) = opening.poll_ready(now) {
            break opened.map_err(|error| format!("a drive cannot be opened again: {error}"))?;
        }
        let io = opening.poll_io().expect("opening goes on");
        let id = io.id;
        opening.handle_io(id, device.execute(io, rng));
    };
    device.set_data(store.superblock().geometry.slot_blocks());
    let config = HostConfig { settings: planted::settings(), ..HostConfig::default() };
    Ok(DriveHost::new(now, store, config, rng.next_u64()))
}

/// The drive of one life.
pub(super) struct Owner {
    pub(super) runtime: SimRuntime,
    pub(super) device: Device,
    pub(super) host: Arc<Mutex<DriveHost>>,
    pub(super) inbox: Inbox,
    pub(super) rng: Rng,
    /// How often the owner comes late to its inbox, per million.
    pub(super) busy_ppm: u32,
}

impl Owner {
    /// Runs the drive until the life ends.
    pub(super) async fn run(mut self, outputs: impl Fn(DriveId, Vec<HostOutput>) + Send) {
        loop {
            let due = {
                let mut host = lock(&self.host);
                let begun: Vec<Io> = core::iter::from_fn(|| host.poll_io()).collect();
                // What it gives may come back through the inbox at once.
                let drive = host.drive();
                let wanted: Vec<HostOutput> = core::iter::from_fn(|| host.poll_output()).collect();
                let due = host.poll_timeout();
                drop(host);
                begun.into_iter().for_each(|io| self.begin(io));
                outputs(drive, wanted);
                due
            };
            match due {
                Some(due) => drop(together::first(self.inbox.filled(), self.runtime.sleep_until(due)).await),
                None => self.inbox.filled().await,
            }
            if self.rng.chance(self.busy_ppm) {
                let late = Duration::from_nanos(self.rng.magnitude(10_000..=50_000_000));
                self.runtime.sleep_until(self.runtime.now() + late).await;
            }
            let (inputs, completions) = {
                let mut waiting = lock(&self.inbox.0);
                (core::mem::take(&mut waiting.inputs), core::mem::take(&mut waiting.completions))
            };
            let now = self.runtime.now();
            let mut host = lock(&self.host);
            for (id, result) in completions {
                host.handle_io(now, id, result);
            }
            inputs.into_iter().for_each(|input| host.handle_input(now, input));
            if host.poll_timeout().is_some_and(|due| due <= now) {
                host.handle_timeout(now);
            }
        }
    }

    fn begin(&mut self, io: Io) {
        let id = io.id;
        let takes = Duration::from_nanos(self.device.start(io, &mut self.rng));
        let (runtime, device, inbox) = (self.runtime.clone(), self.device.clone(), self.inbox.clone());
        let mut rng = self.rng.fork("io", id.0);
        let at = runtime.now() + takes;
        runtime.clone().spawn(Box::pin(async move {
            runtime.sleep_until(at).await;
            if let Some(result) = device.complete(id, &mut rng) {
                inbox.complete(id, result);
            }
        }));
    }
}
