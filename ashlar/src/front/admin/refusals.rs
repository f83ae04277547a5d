//! Refused requests of the admin listener: counted, and logged at most once a second.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ashlar_wire::time::Instant;

use super::metrics::{Kind, Page, Source, Telling};

/// A refusal of the same kind is logged again after this span, with the number of all so far.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// Why a request or connection was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// A wrong admin token.
    Token,
    /// A `Host` header that names another server.
    Host,
    /// Too many connections, in all or from one address.
    Connections,
}

impl Why {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Token, "token"), (Self::Host, "host"), (Self::Connections, "connections")];
}

/// Counts since the start.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    counts: [AtomicU64; Why::ALL.len()],
    logged: Mutex<[Option<Instant>; Why::ALL.len()]>,
}

impl Refusals {
    /// Counts one; the number of all so far if this one should be logged.
    pub(super) fn note(&self, why: Why, now: Instant) -> Option<u64> {
        let count = self.counts[why as usize].fetch_add(1, Ordering::Relaxed) + 1;
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let last = &mut logged[why as usize];
        let is_due = last.is_none_or(|last| now >= last + LOG_EVERY);
        is_due.then(|| {
            *last = Some(now);
            count
        })
    }

    /// Counts and logs a wrong admin token from `from`.
    pub(super) fn note_token(&self, from: IpAddr, now: Instant) {
        if let Some(total) = self.note(Why::Token, now) {
            tracing::warn!(%from, total, "a wrong admin token was given");
        }
    }
}

impl Source for Refusals {
    fn tell<'a>(&'a self, page: &'a mut Page) -> Telling<'a> {
        let name = "ashlar_admin_refused_total";
        page.metric(name, Kind::Counter, "Refused requests and connections of the HTTP listener.");
        for (why, reason) in Why::ALL {
            page.sample(name, &[("reason", reason)], self.counts[why as usize].load(Ordering::Relaxed));
        }
        Box::pin(core::future::ready(()))
    }
}

#[cfg(test)]
mod tests {
    use core::task::{Context, Waker};

    use super::*;

    #[test]
    fn every_refusal_is_counted_and_some_are_logged() {
        let refusals = Refusals::default();
        let start = Instant::ORIGIN + LOG_EVERY;
        assert_eq!(refusals.note(Why::Token, start), Some(1));
        assert_eq!(refusals.note(Why::Token, start), None);
        assert_eq!(refusals.note(Why::Host, start), Some(1), "each kind for itself");
        assert_eq!(refusals.note(Why::Token, start + LOG_EVERY), Some(3));
        let mut page = Page::default();
        let mut context = Context::from_waker(Waker::noop());
        assert!(refusals.tell(&mut page).as_mut().poll(&mut context).is_ready());
        let text = page.into_text();
        assert!(text.contains("ashlar_admin_refused_total{reason=\"token\"} 3\n"));
        assert!(text.contains("ashlar_admin_refused_total{reason=\"connections\"} 0\n"));
    }
}
