//! The HTTP half of a WebSocket: the words of the upgrade (RFC 6455, section 4). Frames are the grid's.

use ashlar_grid::seam::Lane;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};

/// What servers speak after the upgrade.
pub const PROTOCOL: &str = "ashlar.grid.v1";

/// RFC 6455, section 1.3.
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Where a lane is upgraded.
#[must_use]
pub const fn path(lane: Lane) -> &'static str {
    match lane {
        Lane::Small => "/ashlar/grid/v1",
        Lane::Bulk => "/ashlar/bulk/v1",
    }
}

/// The lane that is upgraded at `path`.
#[must_use]
pub fn lane(path: &str) -> Option<Lane> {
    [Lane::Small, Lane::Bulk].into_iter().find(|&lane| self::path(lane) == path)
}

/// A key for one dial.
#[must_use]
pub fn key() -> String {
    STANDARD.encode(super::random::bytes::<16>())
}

/// Whether a client's key is one: 16 bytes in base64.
#[must_use]
pub fn is_key(key: &str) -> bool {
    STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16)
}

/// What the server answers to `key`.
#[must_use]
pub fn accept(key: &str) -> String {
    let mut hasher = Sha1::new();
    hasher.update(key.as_bytes());
    hasher.update(KEY_SUFFIX);
    STANDARD.encode(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_of_rfc_6455() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert!(is_key("dGhlIHNhbXBsZSBub25jZQ==") && is_key(&key()));
        for wrong in ["", "abc", "AAAA"] {
            assert!(!is_key(wrong), "{wrong}");
        }
    }

    #[test]
    fn lanes_have_paths() {
        for lane_ in [Lane::Small, Lane::Bulk] {
            assert_eq!(lane(path(lane_)), Some(lane_));
        }
        assert_eq!(lane("/"), None);
    }
}
