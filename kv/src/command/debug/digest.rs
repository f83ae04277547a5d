//! A digest of what keys hold, so that tests can tell whether two states are the same.
//!
//! It does not depend on how a value is kept, nor on the order of members of sets and hashes.

use sha1::{Digest as _, Sha1};

use crate::keyspace::{Kind, Record};
use crate::memory::packed::Digits;
use crate::rdb::Value;
use crate::value::object::Object;
use crate::value::score::write_score;
use crate::value::stream::StreamId;

/// A sum that bytes are put into.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sum([u8; 20]);

impl Sum {
    /// In any order.
    fn add(&mut self, bytes: &[u8]) {
        let hash: [u8; 20] = Sha1::digest(bytes).into();
        self.0.iter_mut().zip(hash).for_each(|(sum, byte)| *sum ^= byte);
    }

    /// In this order.
    fn append(&mut self, bytes: &[u8]) {
        self.add(bytes);
        self.0 = Sha1::digest(self.0).into();
    }

    /// Some that belong together, in any order with others.
    fn add_together(&mut self, parts: &[&[u8]]) {
        let mut sum = Self::default();
        parts.iter().for_each(|part| sum.append(part));
        self.add(&sum.0);
    }

    /// A key with all that belongs to it.
    pub(super) fn add_entry(&mut self, record: Record<'_>, value: Value<'_>, now_ms: i64) {
        let mut sum = Self::default();
        sum.append(record.key());
        sum.put(record, value, now_ms);
        self.add(&sum.0);
    }

    /// The keys of a database follow.
    pub(super) fn begin_database(&mut self, number: usize) {
        self.append(&u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes());
    }

    /// What is behind a key, and when it expires.
    pub(super) fn put(&mut self, record: Record<'_>, value: Value<'_>, now_ms: i64) {
        let kind: u32 = match record.kind() {
            Kind::String => 0,
            Kind::List => 1,
            Kind::Set => 2,
            Kind::SortedSet => 3,
            Kind::Hash => 4,
            Kind::Stream => 6,
        };
        self.append(&kind.to_be_bytes());
        match value {
            Value::String(text) => self.append(text),
            Value::Object(object) => self.put_object(object, now_ms),
        }
        if record.expiry().is_some() {
            self.add(b"!!expire!!");
        }
    }

    fn put_object(&mut self, object: &Object, now_ms: i64) {
        let (mut one, mut two) = (Digits::default(), Digits::default());
        match object {
            Object::List(list) => list.iter().for_each(|element| self.append(element.bytes(&mut one))),
            Object::Set(set) => set.iter().for_each(|member| self.add(member.bytes(&mut one))),
            Object::SortedSet(set) => set.iter().for_each(|entry| {
                let mut score = Vec::new();
                write_score(entry.score, &mut score);
                self.add_together(&[entry.member.bytes(&mut one), &score]);
            }),
            Object::Hash(hash) => hash.iter(now_ms).for_each(|field| {
                self.add_together(&[field.name.bytes(&mut one), field.value.bytes(&mut two)]);
            }),
            Object::Stream(stream) => stream.log.range(StreamId::MIN, StreamId::MAX).for_each(|entry| {
                self.append(format!("{}.{}", entry.id.ms, entry.id.seq).as_bytes());
                for (name, value) in entry.fields {
                    self.append(name.bytes(&mut one));
                    self.append(value.bytes(&mut two));
                }
            }),
        }
    }

    /// As people compare it.
    pub(super) fn text(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
