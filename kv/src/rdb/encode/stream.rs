//! Streams to bytes: the nodes of entries, the counts, the groups with what is pending.
//!
//! A node is a listpack: counts of its entries and of removed ones, the names of its first entry behind their count, 0; then each
//! entry as flags, the id less that of the node in two parts, names with their count unless they are the node's, values, and
//! how many elements these were.

use super::{Encoder, len_of, push_length};
use crate::rdb::code::entry_flag;
use crate::rdb::listpack::Listpack;
use crate::value::stream::{Group, Node, Stream, StreamId};

/// What is written for a count that is not known.
const UNKNOWN: u64 = u64::MAX;
/// What is written for a consumer that was never active.
const NEVER_ACTIVE: i64 = -1;

impl Encoder {
    pub(super) fn stream(&mut self, stream: &Stream, out: &mut Vec<u8>) {
        let log = &stream.log;
        push_length(len_of(log.nodes()), out);
        for (base, node) in log.nodes_by_id() {
            self.text(&base.to_bytes(), out);
            self.node(base, node, out);
        }
        push_length(log.len(), out);
        push_id(log.last_id(), out);
        push_id(log.first().map(|entry| entry.id).unwrap_or_default(), out);
        push_id(log.max_deleted_id(), out);
        push_length(log.entries_added(), out);
        push_length(len_of(stream.groups.len()), out);
        for (name, group) in &stream.groups {
            self.text(name, out);
            self.group(group, out);
        }
    }

    fn node(&mut self, base: StreamId, node: &Node, out: &mut Vec<u8>) {
        let mut packed = std::mem::take(&mut self.packed);
        let mut listpack = Listpack::begin(&mut packed);
        let count = |len: usize| i64::try_from(len).expect("a length in memory is less than 2^63");
        let names = node.names();
        listpack.push(i64::from(node.len()));
        // What was removed is not there any more.
        listpack.push(0);
        listpack.push(count(names.clone().count()));
        names.for_each(|name| listpack.push(name));
        listpack.push(0);
        for entry in node.entries(base) {
            let (id, fields) = (entry.id, entry.fields);
            let (has_own_names, len) = (fields.has_own_names(), fields.len());
            listpack.push(if has_own_names { 0 } else { entry_flag::SAME_NAMES });
            listpack.push(id.ms.wrapping_sub(base.ms).cast_signed());
            listpack.push(id.seq.wrapping_sub(base.seq).cast_signed());
            if has_own_names {
                listpack.push(count(len));
            }
            for (name, value) in fields {
                if has_own_names {
                    listpack.push(name);
                }
                listpack.push(value);
            }
            listpack.push(count(if has_own_names { 2 * len + 4 } else { len + 3 }));
        }
        self.text(listpack.finish(), out);
        self.packed = packed;
    }

    fn group(&mut self, group: &Group, out: &mut Vec<u8>) {
        push_id(group.last_id(), out);
        push_length(group.entries_read().unwrap_or(UNKNOWN), out);
        push_length(len_of(group.pending_len()), out);
        for (id, pending) in group.pending(StreamId::MIN, StreamId::MAX, None) {
            out.extend_from_slice(&id.to_bytes());
            out.extend_from_slice(&pending.delivered_ms.to_le_bytes());
            push_length(pending.deliveries, out);
        }
        push_length(len_of(group.consumers().len()), out);
        for consumer in group.consumers() {
            self.text(consumer.name(), out);
            out.extend_from_slice(&consumer.seen_ms.to_le_bytes());
            if !self.is_old {
                out.extend_from_slice(&consumer.active_ms.unwrap_or(NEVER_ACTIVE).to_le_bytes());
            }
            push_length(len_of(consumer.pending().len()), out);
            consumer.pending().iter().for_each(|id| out.extend_from_slice(&id.to_bytes()));
        }
    }
}

fn push_id(id: StreamId, out: &mut Vec<u8>) {
    push_length(id.ms, out);
    push_length(id.seq, out);
}
