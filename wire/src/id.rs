//! Who is who: ids of clusters, servers and their lives, drives, volumes and blobs.

use core::fmt;
use core::str::FromStr;

/// Why a text is not an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseIdError;

impl fmt::Display for ParseIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id is 32 lower-case hexadecimal digits")
    }
}

impl core::error::Error for ParseIdError {}

macro_rules! id128 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name([u8; 16]);

        impl $name {
            /// Bytes of the written form.
            pub const LEN: usize = 16;

            /// The id with these bytes.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// The bytes of the id, as written to sockets and drives.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                parse_hex(text).map(Self)
            }
        }
    };
}

id128! {
    /// One cluster, for its whole life. Servers of different clusters refuse each other.
    ClusterId
}

id128! {
    /// One server, for its whole life: kept in its data directory, stable across restarts and changes of address.
    ServerId
}

id128! {
    /// One drive, for its whole life: written into its superblock, stable when the drive moves to another server.
    DriveId
}

id128! {
    /// One volume, from its creation to its deletion. Never used again.
    VolumeId
}

id128! {
    /// One blob: an immutable shard of one object's block. Made by chance for each put, never used again.
    BlobId
}

/// One life of a server process. A greater value is a later life of the same [`ServerId`]; it is persisted and
/// raised before the server first speaks, so it needs no clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Incarnation(pub u64);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

fn parse_hex(text: &str) -> Result<[u8; 16], ParseIdError> {
    let digits = text.as_bytes();
    if digits.len() != 32 {
        return Err(ParseIdError);
    }
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
    }
    Ok(bytes)
}

fn hex_digit(digit: u8) -> Result<u8, ParseIdError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(ParseIdError),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn text_and_back() {
        let id = ServerId::from_bytes(*b"0123456789abcdef");
        assert_eq!(id.to_string(), "30313233343536373839616263646566");
        assert_eq!(id.to_string().parse(), Ok(id));
        let bytes = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10];
        assert_eq!("0123456789abcdeffedcba9876543210".parse(), Ok(ServerId::from_bytes(bytes)));
        for wrong in ["", "30", "3031323334353637383961626364656G", "3031323334353637383961626364656F"] {
            assert_eq!(wrong.parse::<ServerId>(), Err(ParseIdError), "{wrong}");
        }
    }
}
