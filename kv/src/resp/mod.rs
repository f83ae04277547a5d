//! RESP, versions 2 and 3: requests are read where they lie, replies are appended to one buffer.

pub(crate) mod number;
pub(crate) mod parse;
pub(crate) mod reply;

pub(crate) use parse::{Args, Parser, Request, RequestLimits};
pub(crate) use reply::{Later, Mark, Protocol, Reply};
