//! Ranges of a volume that writes have to themselves: overlapping writes run one after the other, in the order of their coming.
//!
//! A primary relies on that a client has one write outstanding per block (see `ashlar_replica::request::ClientRequest`), and a
//! write that does not cover whole blocks reads them first. Waiting writers are few (as many as a client has in flight), so the
//! table is a list.

use core::future::Future;
use core::ops::Range;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
struct Entry {
    number: u64,
    range: Range<u64>,
    /// Who waits for it to be the first of its range.
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// In the order of their coming; the first of those that overlap is the one that runs.
    entries: VecDeque<Entry>,
}

impl Table {
    /// Whether nothing that came before the entry overlaps it.
    fn is_first(&self, number: u64) -> bool {
        let at = self
            .entries
            .iter()
            .position(|entry| entry.number == number)
            .expect("it is in the list until it is dropped");
        let range = &self.entries[at].range;
        let overlaps = |other: &Entry| other.range.start < range.end && range.start < other.range.end;
        !self.entries.iter().take(at).any(overlaps)
    }
}

/// The ranges of one volume.
#[derive(Debug, Clone, Default)]
pub(super) struct Ranges(Arc<Mutex<Table>>);

impl Ranges {
    /// Waits until no earlier holder overlaps `range`. It is given back when the result is dropped.
    pub(super) async fn hold(&self, range: Range<u64>) -> Held {
        let number = {
            let mut table = self.lock();
            table.next += 1;
            let number = table.next;
            table.entries.push_back(Entry { number, range, waker: None });
            number
        };
        // From here on the entry goes whatever becomes of the future.
        let held = Held { ranges: self.clone(), number };
        Turn(&held).await;
        held
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Turn<'a>(&'a Held);

impl Future for Turn<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Held { ranges, number } = self.0;
        let mut table = ranges.lock();
        if table.is_first(*number) {
            return Poll::Ready(());
        }
        let entry = table.entries.iter_mut().find(|entry| entry.number == *number);
        entry.expect("it is in the list until it is dropped").waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// A range that is held.
#[derive(Debug)]
pub(super) struct Held {
    ranges: Ranges,
    number: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut table = self.ranges.lock();
        let number = self.number;
        let at = table.entries.iter().position(|entry| entry.number == number).expect("it goes only here");
        let range = table.entries.remove(at).map(|entry| entry.range).unwrap_or_default();
        let waits = |entry: &&mut Entry| entry.range.start < range.end && range.start < entry.range.end;
        let wakers: Vec<Waker> =
            table.entries.iter_mut().filter(waits).filter_map(|entry| entry.waker.take()).collect();
        drop(table);
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use core::pin::pin;

    use super::*;

    #[test]
    fn overlapping_ranges_take_turns_and_others_do_not_wait() {
        let ranges = Ranges::default();
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(first) = pin!(ranges.hold(0..8)).poll(&mut cx) else { panic!("it is the first") };
        let mut second = pin!(ranges.hold(4..12));
        let mut third = pin!(ranges.hold(10..20));
        assert!(second.as_mut().poll(&mut cx).is_pending());
        assert!(third.as_mut().poll(&mut cx).is_pending(), "it came after one that it overlaps");
        assert!(pin!(ranges.hold(20..21)).poll(&mut cx).is_ready(), "it overlaps nothing");
        drop(first);
        let Poll::Ready(second) = second.as_mut().poll(&mut cx) else { panic!("nothing overlaps it any more") };
        assert!(third.as_mut().poll(&mut cx).is_pending());
        drop(second);
        assert!(third.as_mut().poll(&mut cx).is_ready());
        assert_eq!(ranges.lock().entries.len(), 0, "what is dropped is gone");
    }
}
