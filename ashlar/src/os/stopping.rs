//! Stopping in order: who asks for the end of the process, and when the end is called off.
//!
//! A signal or a client (`SHUTDOWN`) asks. What can fail is done while clients are still served: slots go to replicas, and data are saved with
//! writes held back. If data cannot be saved the stop is called off: the process goes on, `SHUTDOWN` has an error for its reply, and the log
//! says what to do. After a signal the next one is obeyed whether data can be saved or not, as `SHUTDOWN FORCE` is. A signal during an attempt
//! ends the process at once.

use std::io;
use std::time::Duration;

use ashlar_kv::Shutdown;

use super::clock;
use super::kv::Serving;
use super::signals::{self, Signals};
use crate::failure::Failure;

/// How often it is looked whether a client asks for something else.
const LOOK: Duration = Duration::from_millis(100);

/// What an attempt to stop came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// Nothing stands against the end.
    Ends,
    /// The process goes on; why, if it was not a client who called the end off.
    CalledOff(Option<Failure>),
    /// Somebody asks for an end of another kind meanwhile.
    Again,
}

/// Requests to stop, for the whole life of a process.
#[derive(Debug)]
pub(super) struct Stopping {
    signals: Signals,
    /// A signal asks for the end that is tried now, and no client.
    is_by_signal: bool,
    /// A signal was not obeyed because data could not be saved: the next one ends the process all the same.
    has_failed: bool,
}

impl Stopping {
    /// Takes over the signals. Needs a runtime.
    ///
    /// # Errors
    /// The operating system refused.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { signals: Signals::new()?, is_by_signal: false, has_failed: false })
    }

    /// Waits until somebody asks for the end. All engines know of it then. Cancel-safe.
    pub(super) async fn wanted(&mut self, serving: Option<&Serving>) -> Shutdown {
        let (name, request) = tokio::select! {
            signal = self.signals.next() => {
                let request = serving.map(|serving| serving.shutdown_on(signal)).unwrap_or_default();
                self.is_by_signal = true;
                (signal.name(), Shutdown { is_forced: request.is_forced || self.has_failed, ..request })
            }
            request = asked_by_client(serving) => {
                self.is_by_signal = false;
                ("SHUTDOWN", request)
            }
        };
        tracing::info!(signal = name, "stopping: finishing what runs; a second signal ends at once");
        if let Some(serving) = serving {
            serving.want_stop(request);
        }
        request
    }

    /// Does what comes before the end; `work` fails if data cannot be saved. It may be dropped half-way.
    pub(super) async fn attempt(
        &mut self,
        serving: Option<&Serving>,
        request: Shutdown,
        work: impl Future<Output = Result<(), Failure>>,
    ) -> Attempt {
        let result = tokio::select! {
            result = work => result,
            other = asked_otherwise(serving, request) => {
                serving.iter().for_each(|serving| serving.cancel_save());
                if other.is_some() {
                    return Attempt::Again;
                }
                tracing::warn!("the stop was called off by SHUTDOWN ABORT");
                serving.iter().for_each(|serving| serving.call_off_stop());
                return Attempt::CalledOff(None);
            }
            signal = self.signals.next() => signals::exit_at_once(signal),
        };
        let Err(failure) = result else { return Attempt::Ends };
        self.has_failed |= self.is_by_signal;
        tracing::error!(
            "cannot stop, because data would be lost: {}; the server goes on. What to do: {}, then stop it again. Another SIGTERM or SIGINT, \
             or SHUTDOWN FORCE, ends it without what is not saved",
            failure.what,
            failure.remedy
        );
        serving.iter().for_each(|serving| serving.call_off_stop());
        Attempt::CalledOff(Some(failure))
    }

    /// Nothing calls the end off any more: a signal ends the process at once.
    pub(super) fn exit_at_next(self) {
        self.signals.exit_at_next();
    }
}

/// Completes when a client asks for the end.
async fn asked_by_client(serving: Option<&Serving>) -> Shutdown {
    let Some(serving) = serving else { return core::future::pending().await };
    loop {
        if let Some(request) = serving.stop_wanted().into_iter().flatten().next() {
            return request;
        }
        clock::sleep(LOOK).await;
    }
}

/// Completes when a client asks for another end than this, or has called it off (`None`).
async fn asked_otherwise(serving: Option<&Serving>, request: Shutdown) -> Option<Shutdown> {
    let Some(serving) = serving else { return core::future::pending().await };
    loop {
        if let Some(other) = serving.stop_wanted().into_iter().find(|wanted| *wanted != Some(request)) {
            // All are told of it, so that none of them has the former request.
            other.iter().for_each(|other| serving.want_stop(*other));
            return other;
        }
        clock::sleep(LOOK).await;
    }
}
