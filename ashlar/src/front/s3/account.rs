//! The account of one request: what it was about, its bytes and how long it took. It is told when the reply has been sent, or when
//! the client is gone: to the figures, and as a line of the audit log if there is one.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ashlar_object::s3::date::iso8601;
use ashlar_object::s3::{IncomingRequest, Subject};
use ashlar_wire::time::Instant;
use serde::Serialize;

use super::figures::{Ended, S3Figures};
use crate::os::audit_log::AuditLog;
use crate::os::clock;

/// The status of a request whose client went away before the reply.
const CLIENT_GONE: u16 = 499;

/// Bytes of a client's name of itself that are kept.
const AGENT_BYTES_MAX: usize = 256;

/// Who is told what requests come to.
#[derive(Clone, Default)]
pub struct Accounting {
    /// The figures for metrics.
    pub figures: Arc<S3Figures>,
    /// The audit log, if one is kept.
    pub audit: Option<Arc<AuditLog>>,
}

/// A line of the audit log.
#[derive(Debug, Serialize)]
struct Line<'a> {
    time: String,
    request_id: &'a str,
    api: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    bucket: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    access_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<IpAddr>,
    tls: bool,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    received_bytes: u64,
    sent_bytes: u64,
    reply_ms: f64,
    whole_ms: f64,
    #[serde(skip_serializing_if = "str::is_empty")]
    agent: &'a str,
}

/// What the audit log tells of a request beside its account.
struct Sender {
    now_ms: u64,
    request_id: String,
    from: Option<IpAddr>,
    is_encrypted: bool,
    agent: String,
}

/// See the head of this file.
pub(super) struct Account {
    accounting: Accounting,
    begun: Instant,
    replied: Option<Instant>,
    /// Only where an audit log is kept.
    sender: Option<Sender>,
    subject: Subject,
    status: u16,
    received: u64,
    sent: u64,
}

impl Account {
    /// A request has come.
    pub(super) fn begin(accounting: &Accounting, request: &IncomingRequest) -> Self {
        accounting.figures.begin();
        let agent = || {
            let found = request.headers.iter().find(|(name, _)| name == "user-agent");
            let mut agent = found.map(|(_, value)| value.clone()).unwrap_or_default();
            agent.truncate(agent.floor_char_boundary(AGENT_BYTES_MAX));
            agent
        };
        let sender = accounting.audit.as_ref().map(|_| Sender {
            now_ms: request.now_ms,
            request_id: request.id.clone(),
            from: request.peer,
            is_encrypted: request.is_encrypted,
            agent: agent(),
        });
        Self {
            accounting: accounting.clone(),
            begun: clock::now(),
            replied: None,
            sender,
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
        self.accounting.figures.end(&Ended { api, bucket, status, received, sent, to_reply, whole });
        let (Some(audit), Some(sender)) = (&self.accounting.audit, &self.sender) else { return };
        let ms = |span: Duration| (span.as_secs_f64() * 1e6).round() / 1e3;
        let line = Line {
            time: iso8601(sender.now_ms),
            request_id: &sender.request_id,
            api,
            bucket,
            key: &self.subject.key,
            user: self.subject.user.as_deref(),
            access_key: self.subject.access_key.as_deref(),
            from: sender.from,
            tls: sender.is_encrypted,
            status,
            error: self.subject.error,
            received_bytes: received,
            sent_bytes: sent,
            reply_ms: ms(to_reply),
            whole_ms: ms(whole),
            agent: &sender.agent,
        };
        // Text in JSON has no line breaks.
        audit.put(&serde_json::to_vec(&line).expect("our own values have text keys and no cycles"));
    }
}
