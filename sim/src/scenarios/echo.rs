//! The smallest case: every server asks every other one to echo bytes, over one connection per pair, by hand.
//!
//! It shows that the swarm itself works: that a right program passes under every fault and that wrong ones are
//! caught. Verified: a reply is the request's, whole; after the healing every pair exchanges; in the end no task and no
//! connection is left. Not verified: anything about speed.

use core::future::poll_fn;
use core::task::Poll;
use core::time::Duration;
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_grid::seam::{Lane, Runtime, Threads as _, Wire};

use crate::net::SimWire;
use crate::rng::Rng;
use crate::swarm::{Bounds, Case, Params, host};
use crate::world::{Control, ServerNo, SimRuntime};

/// A wrong program, to see whether it is caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// The client takes the first bytes of a reply for all of it.
    ShortReply,
    /// The client uses a connection again after giving up on a reply.
    StaleReply,
    /// The server waits for a silent client for ever.
    PatientServer,
    /// The client waits for a reply for ever.
    PatientClient,
}

const REPLY_WITHIN: Duration = Duration::from_secs(2);
const IDLE_WITHIN: Duration = Duration::from_secs(5);
const DIAL_WITHIN: Duration = Duration::from_secs(2);
const PAUSE_NS_MAX: u64 = 2_000_000_000;
const HEAD_BYTES: usize = 12;
const BODY_BYTES_MAX: u64 = 20_000;

#[derive(Default)]
struct Tally {
    exchanged: u64,
    failed: u64,
    wrong: Option<String>,
    healed: bool,
    over: bool,
    /// Pairs that exchanged after the healing.
    met: BTreeSet<(ServerNo, ServerNo)>,
}

/// See the head of this file.
pub struct Echo {
    control: Control,
    servers: u32,
    planted: Option<Planted>,
    tally: Arc<Mutex<Tally>>,
}

impl Echo {
    /// The case for one world.
    #[must_use]
    pub fn new(control: &Control, params: &Params, planted: Option<Planted>) -> Self {
        Self { control: control.clone(), servers: params.servers, planted, tally: Arc::default() }
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        lock(&self.tally)
    }
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Case for Echo {
    fn start(&mut self, runtime: SimRuntime) {
        runtime.spawn(Box::pin(serve(runtime.clone(), self.planted)));
        for to in (0..self.servers).map(ServerNo).filter(|to| *to != runtime.server()) {
            let client = Client {
                rng: self.control.rng(
                    "echo",
                    u64::from(runtime.server().0) << 40 | u64::from(to.0) << 32 | u64::from(runtime.life()),
                ),
                runtime: runtime.clone(),
                control: self.control.clone(),
                to,
                planted: self.planted,
                tally: Arc::clone(&self.tally),
            };
            runtime.spawn(Box::pin(client.run()));
        }
    }

    fn killed(&mut self, _server: ServerNo) {}

    fn drain(&mut self, _server: ServerNo) {}

    fn is_drained(&self, _server: ServerNo) -> bool {
        true
    }

    fn healed(&mut self) {
        self.tally().healed = true;
    }

    fn bounds(&self) -> Bounds {
        Bounds { converge_ns: 60_000_000_000, wind_down_ns: 20_000_000_000 }
    }

    fn converged(&mut self) -> Result<(), String> {
        let (met, pairs) = (self.tally().met.len() as u32, self.servers * (self.servers - 1));
        if met == pairs { Ok(()) } else { Err(format!("only {met} of {pairs} pairs exchanged after the healing")) }
    }

    fn wind_down(&mut self) {
        self.tally().over = true;
    }

    fn judge(&mut self) -> Result<(), String> {
        if let Some(wrong) = self.tally().wrong.clone() {
            return Err(wrong);
        }
        let (counts, listening) = (self.control.counts(), self.servers as usize);
        if (counts.tasks, counts.conns, counts.dials, counts.timers) == (listening, 0, 0, 0) {
            return Ok(());
        }
        Err(format!("left over beside {listening} listening tasks: {counts:?}"))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let tally = self.tally();
        vec![("exchanges", tally.exchanged), ("failed_exchanges", tally.failed)]
    }
}

/// The value of `future`, if it has one within `span`.
async fn within<T>(runtime: &SimRuntime, span: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = core::pin::pin!(future);
    let mut sleep = runtime.sleep_until(runtime.now() + span);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => sleep.as_mut().poll(cx).map(|()| None),
    })
    .await
}

async fn read_some(wire: &mut SimWire, into: &mut Vec<u8>) -> Option<()> {
    let len = poll_fn(|cx| wire.poll_read(cx, &mut |batch| into.extend_from_slice(batch))).await.ok()?;
    (len > 0).then_some(())
}

async fn write_all(wire: &mut SimWire, mut bytes: &[u8]) -> Option<()> {
    while !bytes.is_empty() {
        let len = poll_fn(|cx| wire.poll_write(cx, &[IoSlice::new(bytes)])).await.ok()?;
        bytes = &bytes[len..];
    }
    Some(())
}

async fn serve(runtime: SimRuntime, planted: Option<Planted>) {
    let addr = format!("{}:7", host(runtime.server()));
    let listener = runtime.listen(&addr).expect("a new life has its address for itself");
    loop {
        let (mut wire, _lane) = listener.accept().await;
        let own = runtime.clone();
        let patience = if planted == Some(Planted::PatientServer) { Duration::from_secs(1 << 30) } else { IDLE_WITHIN };
        runtime.spawn(Box::pin(async move {
            let mut bytes = Vec::new();
            while let Some(Some(())) = within(&own, patience, read_some(&mut wire, &mut bytes)).await {
                let batch = core::mem::take(&mut bytes);
                if within(&own, patience, write_all(&mut wire, &batch)).await.flatten().is_none() {
                    break;
                }
            }
        }));
    }
}

struct Client {
    runtime: SimRuntime,
    control: Control,
    to: ServerNo,
    rng: Rng,
    planted: Option<Planted>,
    tally: Arc<Mutex<Tally>>,
}

impl Client {
    async fn run(mut self) {
        while !lock(&self.tally).over {
            let dial = self.runtime.dial(&format!("{}:7", host(self.to)), Lane::Small);
            if let Some(Ok(wire)) = within(&self.runtime, DIAL_WITHIN, dial).await {
                self.talk(wire).await;
            }
            self.rest().await;
        }
    }

    async fn rest(&mut self) {
        let pause = Duration::from_nanos(self.rng.magnitude(1_000_000..=PAUSE_NS_MAX));
        self.runtime.sleep_until(self.runtime.now() + pause).await;
    }

    async fn talk(&mut self, mut wire: SimWire) {
        while !lock(&self.tally).over {
            let request = self.request();
            let mut reply = Vec::new();
            let patience =
                if self.planted == Some(Planted::PatientClient) { Duration::from_secs(1 << 30) } else { REPLY_WITHIN };
            let enough = if self.planted == Some(Planted::ShortReply) { 1 } else { request.len() };
            let exchange = async {
                write_all(&mut wire, &request).await?;
                while reply.len() < enough {
                    read_some(&mut wire, &mut reply).await?;
                }
                Some(())
            };
            let end = within(&self.runtime, patience, exchange).await;
            match end {
                Some(Some(())) => self.check(&request, &reply),
                None if self.planted == Some(Planted::StaleReply) => {}
                _ => return lock(&self.tally).failed += 1,
            }
            self.rest().await;
        }
    }

    fn request(&mut self) -> Vec<u8> {
        let body = self.rng.magnitude(0..=BODY_BYTES_MAX) as usize;
        let mut bytes = vec![0; HEAD_BYTES + body];
        self.rng.fill(&mut bytes);
        bytes
    }

    fn check(&self, request: &[u8], reply: &[u8]) {
        let mut tally = lock(&self.tally);
        tally.exchanged += 1;
        let from = self.runtime.server();
        if tally.healed {
            tally.met.insert((from, self.to));
        }
        if reply != request && tally.wrong.is_none() {
            let (sent, got) = (request.len(), reply.len());
            tally.wrong = Some(format!("{from:?} sent {sent} bytes to {:?} and got {got} others back", self.to));
            drop(tally);
            self.control.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios::SERVERS_MAX;
    use crate::swarm::{Class, Outcome, run_seed, shrink};

    fn outcome(seed: u64, planted: Option<Planted>) -> Outcome {
        run_seed(&Params::draw(seed, Class::OF_TCP, SERVERS_MAX), &move |control, params| {
            Box::new(Echo::new(control, params, planted))
        })
    }

    #[test]
    fn a_right_program_passes_and_each_seed_has_one_history() {
        let mut exchanges = 0;
        for seed in 0..40 {
            let run = outcome(seed, None);
            assert!(run.failure.is_none(), "{}", run.failure.unwrap());
            exchanges += run.counters[0].1;
            if seed % 8 == 0 {
                let again = outcome(seed, None);
                assert_eq!((again.event_hash, again.events), (run.event_hash, run.events), "seed {seed}");
            }
        }
        assert!(exchanges > 20_000, "{exchanges}");
    }

    #[test]
    fn wrong_programs_are_caught() {
        for planted in [Planted::ShortReply, Planted::StaleReply, Planted::PatientServer, Planted::PatientClient] {
            let caught = (0..100).find_map(|seed| outcome(seed, Some(planted)).failure);
            assert!(caught.is_some(), "{planted:?} was not caught");
        }
    }

    #[test]
    fn a_failure_is_shrunk_to_the_faults_it_needs() {
        let planted = Some(Planted::PatientClient);
        let failure = (0..100).filter_map(|seed| outcome(seed, planted).failure).find(|f| f.plan.entries.len() > 8);
        let failure = failure.expect("half-open connections are not rare");
        let before = failure.plan.entries.len();
        let shrunk = shrink(failure, &move |control, params| Box::new(Echo::new(control, params, planted)));
        assert!((1..=2).contains(&shrunk.plan.entries.len()), "{before} became\n{shrunk}");
        let text = shrunk.to_string();
        assert!(text.contains("parameters") && text.contains("last events"), "{text}");
    }
}
