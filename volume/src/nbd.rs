//! NBD server protocol as a value: the server side of one connection, fixed newstyle.
//!
//! [`Session`] takes the bytes of a client in any pieces, asks its owner for exports and for IO ([`Request`]), takes
//! answers in any order and gives bytes for the client. Payloads are never copied on the way out: what
//! [`Session::poll_transmit`] lists are slices of the buffers that the owner handed in.
//!
//! The owner's loop: give received bytes to [`Session::handle_bytes`] while [`Session::wants_bytes`]; run what
//! [`Session::poll_request`] gives; answer with [`Session::handle_reply`]; write what [`Session::poll_transmit`] lists and
//! say how much left ([`Session::handle_transmitted`]); close the connection when [`Session::is_finished`].
//!
//! Spoken: simple, structured and extended replies, `base:allocation`, information about exports with block sizes, every
//! command but resize. TLS itself is the owner's; the session decides when it starts and forgets what was negotiated
//! before. Not spoken: oldstyle negotiation, metadata contexts other than `base:allocation`, block status with payload.
//!
//! In reading order: [`protocol`] (numbers of the protocol), [`limits`], [`export`] (what is served), [`request`] (questions
//! to the owner and answers), `option` (options as bytes), `header` (requests as bytes, and what is wrong with them),
//! `output` (bytes to the client), [`session`].
//!
//! Follows the NBD specification (`proto.md`, with its extension for extended headers). Where that leaves a choice, the
//! comments say which was taken.

pub mod export;
mod header;
pub mod limits;
mod option;
mod output;
pub mod protocol;
mod reply;
pub mod request;
pub mod session;

pub use export::{BlockSizes, Export, ExportName, Features};
pub use limits::Limits;
pub use protocol::ErrorCode;
pub use request::{Io, IoRequest, Purpose, Reply, Request, RequestId, Span};
pub use session::{End, Session, TlsPolicy};
