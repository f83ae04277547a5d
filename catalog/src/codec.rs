//! Field codec: one description of a record serves its binary and its text form.
//!
//! A record lists its fields once for writing and once for reading ([`Fields`]). [`pack`] makes MessagePack values of
//! them, for the log and for snapshots; [`text`] makes `name=value` words, for `export` and `import`. So the two forms
//! cannot hold different facts.
//!
//! A count that is read is compared with its limit before it means anything, and sizes no allocation.

use ashlar_wire::id::{DriveId, ServerId, VolumeId};

use crate::error::FormError;

pub(crate) mod pack;
pub(crate) mod text;

/// Takes the fields of a record, in order.
pub(crate) trait Sink {
    /// A number.
    fn uint(&mut self, name: &'static str, value: u64);
    /// An id of 16 bytes.
    fn id(&mut self, name: &'static str, value: &[u8; 16]);
    /// A text.
    fn text(&mut self, name: &'static str, value: &str);
    /// Bytes.
    fn bytes(&mut self, name: &'static str, value: &[u8]);
    /// One of `words`, by its place. The binary form holds the place plus one.
    fn word(&mut self, name: &'static str, words: &'static [&'static str], place: usize);

    /// The number of items that follow.
    fn count(&mut self, name: &'static str, len: usize) {
        self.uint(name, u64::try_from(len).expect("a size of this machine fits 64 bits"));
    }
}

/// Gives the fields of a record, in order.
pub(crate) trait Source {
    /// A number.
    fn uint(&mut self, name: &'static str) -> Result<u64, FormError>;
    /// An id of 16 bytes.
    fn id(&mut self, name: &'static str) -> Result<[u8; 16], FormError>;
    /// A text of at most `max` bytes.
    fn text(&mut self, name: &'static str, max: usize) -> Result<String, FormError>;
    /// At most `max` bytes.
    fn bytes(&mut self, name: &'static str, max: usize) -> Result<Vec<u8>, FormError>;
    /// The place of one of `words`.
    fn word(&mut self, name: &'static str, words: &'static [&'static str]) -> Result<usize, FormError>;

    /// A number of 32 bits.
    fn uint32(&mut self, name: &'static str) -> Result<u32, FormError> {
        let value = self.uint(name)?;
        u32::try_from(value).map_err(|_| FormError::BadNumber { what: name, value })
    }

    /// A number of 8 bits.
    fn uint8(&mut self, name: &'static str) -> Result<u8, FormError> {
        let value = self.uint(name)?;
        u8::try_from(value).map_err(|_| FormError::BadNumber { what: name, value })
    }

    /// The number of items that follow, at most `max`.
    fn count(&mut self, name: &'static str, max: usize) -> Result<usize, FormError> {
        let count = self.uint(name)?;
        let fits = usize::try_from(count).ok().filter(|count| *count <= max);
        fits.ok_or(FormError::TooMany { what: name, count, max })
    }
}

/// A record with a written form.
pub(crate) trait Fields: Sized {
    /// Writes every field.
    fn write(&self, out: &mut impl Sink);
    /// Reads what [`Fields::write`] wrote.
    fn read(from: &mut impl Source) -> Result<Self, FormError>;
}

/// Writes a list: its length, then its items.
pub(crate) fn write_list<S: Sink, T>(out: &mut S, name: &'static str, items: &[T], mut item: impl FnMut(&mut S, &T)) {
    out.count(name, items.len());
    items.iter().for_each(|one| item(out, one));
}

/// Reads a list of at most `max` items.
pub(crate) fn read_list<S: Source, T>(
    from: &mut S,
    name: &'static str,
    max: usize,
    mut item: impl FnMut(&mut S) -> Result<T, FormError>,
) -> Result<Vec<T>, FormError> {
    let count = from.count(name, max)?;
    // Grows with what is there: the count is only announced.
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(item(from)?);
    }
    Ok(items)
}

/// Writes ids of drives.
pub(crate) fn write_drives(out: &mut impl Sink, name: &'static str, drives: &[DriveId]) {
    write_list(out, name, drives, |out, drive| out.id("drive", drive.as_bytes()));
}

/// Reads at most `max` ids of drives.
pub(crate) fn read_drives(from: &mut impl Source, name: &'static str, max: usize) -> Result<Vec<DriveId>, FormError> {
    read_list(from, name, max, |from| from.id("drive").map(DriveId::from_bytes))
}

/// Reads the id of a server.
pub(crate) fn read_server(from: &mut impl Source, name: &'static str) -> Result<ServerId, FormError> {
    from.id(name).map(ServerId::from_bytes)
}

/// Reads the id of a volume.
pub(crate) fn read_volume(from: &mut impl Source) -> Result<VolumeId, FormError> {
    from.id("volume").map(VolumeId::from_bytes)
}

/// Declares an enum whose variants are words in the text form and numbers from 1 in the binary one.
macro_rules! words {
    ($(#[$doc:meta])* $vis:vis $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl $name {
            /// Every value, in the order of its numbers.
            $vis const ALL: &[Self] = &[$(Self::$variant,)+];
            pub(crate) const WORDS: &[&str] = &[$($word,)+];

            pub(crate) fn write(self, out: &mut impl crate::codec::Sink, name: &'static str) {
                let place = Self::ALL.iter().position(|one| *one == self).expect("every variant is listed");
                out.word(name, Self::WORDS, place);
            }

            pub(crate) fn read(
                from: &mut impl crate::codec::Source,
                name: &'static str,
            ) -> Result<Self, crate::error::FormError> {
                Ok(Self::ALL[from.word(name, Self::WORDS)?])
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let place = Self::ALL.iter().position(|one| one == self).expect("every variant is listed");
                f.write_str(Self::WORDS[place])
            }
        }
    };
}

pub(crate) use words;

#[cfg(test)]
mod tests;
