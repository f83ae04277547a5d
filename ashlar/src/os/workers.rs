//! Worker threads: one single-threaded runtime each. A connection lives and dies on one of them.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use ashlar_grid::seam::Lane;
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

use super::spin::Place;
use super::wakes::{Counts, List};
use super::{process, runtime, spin, wakes};

/// How much a bulk worker steps back behind the others, in steps of `nice`: a tenth of their share where both want all.
const BULK_NICENESS: i32 = 10;

/// The running workers. They stop when this is dropped or told so.
#[derive(Debug)]
pub struct Workers {
    /// Where to spawn, one per worker.
    pub handles: Vec<Handle>,
    /// Where bulk connections live, as many: threads of their own, so that long copies hold up no small call.
    pub bulk: Vec<Handle>,
    /// Of the first kind: who was woken from elsewhere.
    lists: Vec<Arc<List>>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts `count` workers of each kind with nothing to do yet.
    ///
    /// # Errors
    /// The operating system gives no more threads or descriptors.
    pub fn start(count: usize) -> io::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let mut threads = Vec::with_capacity(2 * count);
        let places = Place::all(count);
        let lists: Vec<Arc<List>> = (0..count).map(|_| Arc::default()).collect();
        let mut kind = |lane, name: &str| {
            let (started, starting) = mpsc::channel();
            for (index, (place, list)) in places.iter().zip(&lists).enumerate() {
                let (started, stopped) = (started.clone(), stopped.clone());
                let own = (place.clone(), list.clone());
                let body = move || work(lane, own, &started, stopped);
                threads.push(thread::Builder::new().name(format!("{name}-{index}")).spawn(body)?);
            }
            drop(started);
            starting.iter().take(count).collect::<io::Result<Vec<Handle>>>()
        };
        let handles = kind(Lane::Small, "worker")?;
        let bulk = kind(Lane::Bulk, "bulk")?;
        Ok(Self { handles, bulk, lists, stop, threads })
    }

    /// How often tasks of these workers were woken from elsewhere.
    #[must_use]
    pub fn wakes(&self) -> Counts {
        self.lists.iter().map(|list| list.counts()).fold(Counts::default(), core::ops::Add::add)
    }

    /// Ends every worker; what runs on them is dropped at its next wait.
    pub fn stop(self) {
        self.stop.send_replace(true);
        for thread in self.threads {
            // A worker that panicked has ended the process already.
            thread.join().ok();
        }
    }
}

/// The life of one worker.
fn work(
    lane: Lane,
    (place, list): (Place, Arc<List>),
    started: &mpsc::Sender<io::Result<Handle>>,
    mut stopped: watch::Receiver<bool>,
) {
    runtime::become_worker(lane);
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(started.send(Err(error))),
    };
    match lane {
        Lane::Small => {
            wakes::join(list);
            drop(runtime.spawn(spin::stay_awake(place)));
        }
        Lane::Bulk => process::step_back(BULK_NICENESS),
    }
    drop(started.send(Ok(runtime.handle().clone())));
    // An error means that the sender is gone: time to stop as well.
    runtime.block_on(async { stopped.wait_for(|&stop| stop).await.map(drop).unwrap_or_default() });
    runtime.shutdown_background();
    wakes::leave();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_stay_on_their_worker() {
        let workers = Workers::start(2).unwrap();
        let (sender, receiver) = mpsc::channel();
        for handle in &workers.handles {
            let sender = sender.clone();
            handle.spawn(async move {
                let name = || thread::current().name().map(str::to_owned);
                let inner = tokio::spawn(async move { name() }).await.unwrap();
                sender.send((name(), inner)).unwrap();
            });
        }
        drop(sender);
        let mut names: Vec<_> = receiver.iter().inspect(|(outer, inner)| assert_eq!(outer, inner)).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 2);
        workers.stop();
    }
}
