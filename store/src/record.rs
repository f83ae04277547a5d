//! Small named durable records: a replica's promises and membership.

use crate::error::Error;

/// Most bytes of a key.
pub const KEY_BYTES_MAX: usize = 64;
/// Most bytes of a value.
pub const VALUE_BYTES_MAX: usize = 1_024;

/// Name of a record: 1 to 64 bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Box<[u8]>);

impl Key {
    /// The name with these bytes.
    ///
    /// # Errors
    /// [`Error::BadKey`], the caller's.
    pub fn new(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.is_empty() || bytes.len() > KEY_BYTES_MAX {
            return Err(Error::BadKey);
        }
        Ok(Self(bytes.into()))
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Content of a record: up to 1 KiB.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Value(Box<[u8]>);

impl Value {
    /// The content with these bytes.
    ///
    /// # Errors
    /// [`Error::ValueTooLong`], the caller's.
    pub fn new(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLong);
        }
        Ok(Self(bytes.into()))
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
