//! Files: a head, facts, libraries, databases of keys, an end with the checksum.

use super::code::{VERSION, VERSION_REDIS_7, VERSION_VALKEY, opcode};
use super::crc::Crc;
use super::encode::{Attributes, Encoder, Value, len_of, push_length};

/// What a file says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// `REDIS0010`, for replicas that do not say what they read: Redis 7.0 reads nothing newer.
    Redis10,
    /// `REDIS0011`, which everything reads.
    Redis11,
    /// `VALKEY080`, for hashes with fields that expire.
    Valkey80,
}

/// A fact about a file, which readers that do not know it pass over: its name and what it is.
pub(crate) type Fact<'a> = (&'a str, &'a [u8]);

/// Writes a file. The order of calls is that of the file; [`Writer::take`] may come between any two.
#[derive(Debug)]
pub(crate) struct Writer {
    encoder: Encoder,
    crc: Crc,
    out: Vec<u8>,
}

impl Writer {
    /// Begins a file.
    pub(crate) fn begin(version: Version, encoder: Encoder, facts: &[Fact<'_>]) -> Self {
        let head = match version {
            Version::Redis10 => format!("REDIS{VERSION_REDIS_7:04}"),
            Version::Redis11 => format!("REDIS{VERSION:04}"),
            Version::Valkey80 => format!("VALKEY{VERSION_VALKEY:03}"),
        };
        let mut writer = Self { encoder, crc: Crc::new(), out: head.into_bytes() };
        for (name, fact) in facts {
            writer.out.push(opcode::FACT);
            writer.encoder.text(name.as_bytes(), &mut writer.out);
            writer.encoder.text(fact, &mut writer.out);
        }
        writer
    }

    /// A library of functions: its text.
    pub(crate) fn library(&mut self, text: &[u8]) {
        self.out.push(opcode::LIBRARY);
        self.encoder.text(text, &mut self.out);
    }

    /// The keys that follow are in this database, which has so many, and so many that expire. The counts are advice.
    pub(crate) fn database(&mut self, number: usize, keys: usize, expiring: usize) {
        self.out.push(opcode::DATABASE);
        push_length(len_of(number), &mut self.out);
        self.out.push(opcode::SIZES);
        push_length(len_of(keys), &mut self.out);
        push_length(len_of(expiring), &mut self.out);
    }

    /// The keys that follow are in this database.
    pub(crate) fn select(&mut self, number: usize) {
        self.out.push(opcode::DATABASE);
        push_length(len_of(number), &mut self.out);
    }

    /// Keys that an encoder has written.
    pub(crate) fn entries(&mut self, encoded: &[u8]) {
        self.out.extend_from_slice(encoded);
    }

    /// A key.
    pub(crate) fn entry(&mut self, key: &[u8], attributes: Attributes, value: Value<'_>) {
        self.encoder.entry(key, attributes, value, &mut self.out);
    }

    /// What was written since it was last taken.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.crc.update(&self.out);
        std::mem::take(&mut self.out)
    }

    /// Ends the file; what was not yet taken.
    pub(crate) fn end(mut self) -> Vec<u8> {
        self.out.push(opcode::END);
        let mut last = self.take();
        last.extend_from_slice(&self.crc.sum().to_le_bytes());
        last
    }
}
