//! How many shards a stripe has.

use core::fmt;

/// Data and parity shards of one stripe together: the field has so many points.
pub const SHARDS_MAX: usize = 256;

/// M data and K parity shards. Shards are numbered from 0, data first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Geometry {
    data: u8,
    parity: u8,
}

/// Why two numbers are no geometry. The caller's fault; a retry gives the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GeometryError {
    /// No data shard.
    NoData,
    /// No parity shard.
    NoParity,
    /// More than [`SHARDS_MAX`] shards.
    TooManyShards {
        /// Data and parity shards asked for; saturated at the greatest `usize`.
        total: usize,
    },
}

impl Geometry {
    /// `data` (M) and `parity` (K) shards: at least one of each, at most [`SHARDS_MAX`] together.
    ///
    /// # Errors
    /// If there are too few or too many.
    pub fn new(data: usize, parity: usize) -> Result<Self, GeometryError> {
        let total = data.saturating_add(parity);
        match (u8::try_from(data), u8::try_from(parity)) {
            (Ok(0), _) => Err(GeometryError::NoData),
            (_, Ok(0)) => Err(GeometryError::NoParity),
            (Ok(data), Ok(parity)) if total <= SHARDS_MAX => Ok(Self { data, parity }),
            _ => Err(GeometryError::TooManyShards { total }),
        }
    }

    /// M, the data shards: any so many shards give back all others.
    #[must_use]
    pub fn data(self) -> usize {
        usize::from(self.data)
    }

    /// K, the parity shards: so many shards may be lost.
    #[must_use]
    pub fn parity(self) -> usize {
        usize::from(self.parity)
    }

    /// M + K.
    #[must_use]
    pub fn total(self) -> usize {
        self.data() + self.parity()
    }
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.data, self.parity)
    }
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoData => f.write_str("a stripe needs at least one data shard"),
            Self::NoParity => f.write_str("a stripe needs at least one parity shard"),
            Self::TooManyShards { total } => write!(f, "{total} shards, but a stripe has at most {SHARDS_MAX}"),
        }
    }
}

impl core::error::Error for GeometryError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        for (data, parity, expected) in [
            (1, 1, Ok("1+1")),
            (12, 4, Ok("12+4")),
            (255, 1, Ok("255+1")),
            (1, 255, Ok("1+255")),
            (0, 4, Err(GeometryError::NoData)),
            (4, 0, Err(GeometryError::NoParity)),
            (0, 0, Err(GeometryError::NoData)),
            (255, 2, Err(GeometryError::TooManyShards { total: 257 })),
            (256, 0, Err(GeometryError::NoParity)),
            (256, 1, Err(GeometryError::TooManyShards { total: 257 })),
            (usize::MAX, 1, Err(GeometryError::TooManyShards { total: usize::MAX })),
        ] {
            let geometry = Geometry::new(data, parity).map(|geometry| alloc::string::ToString::to_string(&geometry));
            assert_eq!(geometry.as_deref(), expected.as_ref().map(|&text| text), "{data}+{parity}");
        }
    }
}
