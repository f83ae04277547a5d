//! What S3 requests come to, for metrics: by operation and status, by bucket, their bytes, and how long they took.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bounds of the histograms of spans: from 1 ms to 1 min.
pub const SPAN_BOUNDS: [Duration; 13] = [
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2_500),
    Duration::from_secs(10),
    Duration::from_secs(60),
];

/// Buckets that have figures of their own. What others come to is told together, as the bucket `*`, which no bucket can be called.
pub const BUCKETS_MAX: usize = 1_000;

/// The figures of all other buckets.
pub const OTHER_BUCKETS: &str = "*";

/// A request that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended<'a> {
    /// S3's name of the operation.
    pub api: &'static str,
    /// The bucket; empty where there is none.
    pub bucket: &'a str,
    /// The HTTP status.
    pub status: u16,
    /// Bytes of its body that were read.
    pub received: u64,
    /// Bytes of the reply's body that were handed out.
    pub sent: u64,
    /// From its head to the head of the reply.
    pub to_reply: Duration,
    /// From its head to the end of the reply's body.
    pub whole: Duration,
}

/// Requests of one operation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApiFigures {
    /// How many, by HTTP status.
    pub by_status: BTreeMap<u16, u64>,
    /// How long they took together, to the end of the reply.
    pub spans: Duration,
    /// How many of them took no longer than each of [`SPAN_BOUNDS`].
    pub within: [u64; SPAN_BOUNDS.len()],
    /// How long the heads of the replies took together.
    pub to_reply: Duration,
}

impl ApiFigures {
    /// All requests.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.by_status.values().sum()
    }
}

/// Requests about one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BucketFigures {
    /// How many.
    pub requests: u64,
    /// How many of them were answered with a status of 400 or more.
    pub errors: u64,
    /// Bytes of their bodies.
    pub received: u64,
    /// Bytes of the replies' bodies.
    pub sent: u64,
}

/// The figures as of one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct S3Numbers {
    /// By operation.
    pub apis: BTreeMap<&'static str, ApiFigures>,
    /// By bucket.
    pub buckets: BTreeMap<String, BucketFigures>,
}

/// The figures of a server since its start.
#[derive(Debug, Default)]
pub struct S3Figures {
    numbers: Mutex<S3Numbers>,
    in_flight: AtomicUsize,
}

impl S3Figures {
    /// A request has begun.
    pub fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// A request has ended that was begun.
    pub fn end(&self, ended: &Ended<'_>) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        let S3Numbers { apis, buckets } = &mut *self.lock();
        let api = apis.entry(ended.api).or_default();
        *api.by_status.entry(ended.status).or_default() += 1;
        api.spans += ended.whole;
        api.to_reply += ended.to_reply;
        for (count, bound) in api.within.iter_mut().zip(SPAN_BOUNDS) {
            *count += u64::from(ended.whole <= bound);
        }
        if ended.bucket.is_empty() {
            return;
        }
        let is_error = ended.status >= 400;
        // A stranger may ask for any name; only one that something was done with gets figures of its own.
        let is_known = buckets.contains_key(ended.bucket) || !is_error && buckets.len() < BUCKETS_MAX;
        let name = if is_known { ended.bucket } else { OTHER_BUCKETS };
        if !buckets.contains_key(name) {
            buckets.insert(name.to_owned(), BucketFigures::default());
        }
        let Some(bucket) = buckets.get_mut(name) else { return };
        bucket.requests += 1;
        bucket.errors += u64::from(is_error);
        bucket.received += ended.received;
        bucket.sent += ended.sent;
    }

    /// Requests that have begun and not ended.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// All of them, as of now.
    #[must_use]
    pub fn numbers(&self) -> S3Numbers {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, S3Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(bucket: &str, status: u16) -> Ended<'_> {
        let (to_reply, whole) = (Duration::from_millis(2), Duration::from_millis(3));
        Ended { api: "GetObject", bucket, status, received: 1, sent: 10, to_reply, whole }
    }

    #[test]
    fn requests_are_counted_by_operation_and_bucket() {
        let figures = S3Figures::default();
        for one in [ended("a", 200), ended("a", 404), ended("", 200)] {
            figures.begin();
            figures.end(&one);
        }
        figures.begin();
        let S3Numbers { apis, buckets } = figures.numbers();
        let api = &apis["GetObject"];
        assert_eq!((api.requests(), &api.by_status), (3, &BTreeMap::from([(200, 2), (404, 1)])));
        assert_eq!((api.spans, api.to_reply), (Duration::from_millis(9), Duration::from_millis(6)));
        assert_eq!((api.within[0], api.within[2]), (0, 3));
        let of_a = BucketFigures { requests: 2, errors: 1, received: 2, sent: 20 };
        assert_eq!((buckets, figures.in_flight()), (BTreeMap::from([("a".to_owned(), of_a)]), 1));
    }

    #[test]
    fn names_that_strangers_make_up_share_their_figures() {
        let figures = S3Figures::default();
        for number in 0..=BUCKETS_MAX {
            figures.begin();
            figures.end(&ended(&format!("nobody-{number}"), 403));
        }
        assert_eq!(figures.numbers().buckets.keys().collect::<Vec<_>>(), [OTHER_BUCKETS]);
        for number in 0..2 * BUCKETS_MAX {
            figures.begin();
            figures.end(&ended(&format!("some-{number}"), 200));
        }
        assert_eq!(figures.numbers().buckets.len(), BUCKETS_MAX);
    }
}
