//! The account of one request: what it was about, its bytes and how long it took. It is told when the reply has been sent, or when
//! the client is gone.

use std::sync::Arc;

use ashlar_object::s3::Subject;
use ashlar_wire::time::Instant;

use super::figures::{Ended, S3Figures};
use crate::os::clock;

/// The status of a request whose client went away before the reply.
const CLIENT_GONE: u16 = 499;

/// See the head of this file.
pub(super) struct Account {
    figures: Arc<S3Figures>,
    begun: Instant,
    replied: Option<Instant>,
    subject: Subject,
    status: u16,
    received: u64,
    sent: u64,
}

impl Account {
    /// A request has come.
    pub(super) fn begin(figures: &Arc<S3Figures>) -> Self {
        figures.begin();
        Self {
            figures: Arc::clone(figures),
            begun: clock::now(),
            replied: None,
            subject: Subject::default(),
            status: CLIENT_GONE,
            received: 0,
            sent: 0,
        }
    }

    /// The service has answered.
    pub(super) fn note_reply(&mut self, subject: Subject, status: u16, received: u64) {
        (self.subject, self.status, self.received) = (subject, status, received);
        self.replied = Some(clock::now());
    }

    /// Bytes of the reply's body are on their way.
    pub(super) fn note_sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let now = clock::now();
        let to_reply = self.replied.unwrap_or(now).saturating_since(self.begun);
        let (api, bucket, whole) = (self.subject.api(), &*self.subject.bucket, now.saturating_since(self.begun));
        let Self { status, received, sent, .. } = *self;
        self.figures.end(&Ended { api, bucket, status, received, sent, to_reply, whole });
    }
}
