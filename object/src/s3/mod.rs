//! S3: the protocol between clients and the object service, without sockets and HTTP libraries.
//!
//! An edge hands in the head of a request and its body as a stream of buffers ([`S3Service::handle`]) and gets a [`Response`].
//! The clock and the name of the request come in as values.
//!
//! Invariants
//! - One gate: no operation runs for a request that [`authenticate::authenticate`] has not proved, and none that `access`
//!   does not allow.
//! - What a sender promised about a body (length, SHA-256, MD5, checksum, signatures of chunks) is compared before the
//!   object service learns that the body has ended. A body that is not as promised is not stored.
//! - What is not there is refused with `NotImplemented`, never taken for something else.
//! - Nothing is held of a body beyond the buffer in hand, but for documents, which are bounded ([`xml`]).
//!
//! Deliberately absent: keys of a KMS, transitions to other storage classes.
//!
//! In reading order: [`encoding`], [`date`] (texts), [`head`], [`error`], [`route`] (what is asked), [`signature`],
//! [`authenticate`] (who asks), [`policy`], [`acl`], `ownership`, `access` (who may), [`cors`], [`chunked`], [`checksum`], [`body`] (bytes that come in), [`form`], [`form_policy`], [`xml`], [`document`],
//! [`condition`], [`metadata`] (what is read and written), [`encryption`], [`lifecycle`] (when objects end), [`response`], [`subject`] (for metrics and logs), [`service`] (the whole); then the operations:
//! `bucket`, `list`, `object`, `post`, `delete` (many side by side: `concurrent`), `copy`, `upload`,
//! `versions`, `lock`, `tagging`, `configuration`; beside these the token service, `sts` and `session`; and beside requests: [`expire`].
//!
//! Follows the AWS S3 API reference. Departs from it in that a request may name any region.

mod access;
pub mod acl;
pub mod authenticate;
pub mod body;
mod bucket;
pub mod checksum;
pub mod chunked;
mod concurrent;
pub mod condition;
mod configuration;
mod copy;
pub mod cors;
pub mod date;
mod delete;
pub mod document;
pub mod encoding;
pub mod encryption;
pub mod error;
pub mod expire;
pub mod form;
pub mod form_policy;
pub mod head;
pub mod lifecycle;
mod list;
mod lock;
pub mod metadata;
mod object;
mod ownership;
pub mod policy;
mod post;
mod public_access;
pub mod response;
pub mod route;
pub mod service;
mod session;
pub mod signature;
mod sts;
pub mod subject;
mod tagging;
mod upload;
mod versions;
pub mod xml;

pub use authenticate::{Credentials, RootCredentials, SecretKey, User};
pub use encryption::{KeyName, KeyService, NoKey};
pub use error::{Code, S3Error};
pub use head::Method;
pub use response::{Response, ResponseBody};
pub use service::{IncomingRequest, S3Service, S3Settings};
pub use subject::Subject;

#[cfg(test)]
mod tests;
