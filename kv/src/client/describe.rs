//! The line that `CLIENT LIST` and `CLIENT INFO` show of a client.

use super::card::{Card, Figure, Marks};
use crate::command::spec::table::COMMANDS;

/// Replies up to here count as lying in the connection's own buffer (`obl`), what is above as a queue (`oll`, `omem`).
const OWN_OUTPUT_BYTES: u64 = 16 << 10;
/// What a connection takes without its buffers, bytes.
const BARE_BYTES: u64 = 1 << 10;

/// What it takes to watch one key, or to listen to one channel, bytes: about, as their names are not counted.
const TOPIC_BYTES: u64 = 160;
/// What it takes to know one prefix, bytes: its place in the set, as its name is not counted.
const PREFIX_BYTES: u64 = 24;
/// What it takes to keep one command for EXEC, besides its words, bytes.
const QUEUED_BYTES: u64 = 64;

/// Memory that a client takes, bytes.
pub(crate) fn memory(card: &Card) -> u64 {
    let topics = [Figure::Watched, Figure::Channels, Figure::Patterns, Figure::ShardChannels];
    let topics: u64 = topics.iter().map(|topic| card.get(*topic)).sum();
    let parts = [Figure::Input, Figure::InputFree, Figure::ArgumentBytes, Figure::QueuedBytes, Figure::OutputRoom];
    let buffers: u64 = parts.iter().map(|part| card.get(*part)).sum();
    let kept =
        topics * TOPIC_BYTES + card.get(Figure::Prefixes) * PREFIX_BYTES + card.get(Figure::Queued) * QUEUED_BYTES;
    BARE_BYTES + kept + buffers + card.mailbox.bytes() as u64
}

/// Appends one line with its end.
pub(crate) fn describe(card: &Card, now_ms: i64, out: &mut Vec<u8>) {
    let mut line = Line { card, out };
    let texts = card.texts().clone();
    let marks = card.marks();
    line.add("id", card.id.0);
    line.add("addr", &card.link.peer);
    line.add("laddr", &card.link.local);
    line.add("fd", card.link.descriptor);
    line.text("name", &texts.name);
    line.add("age", card.age_s(now_ms));
    line.add("idle", card.idle_s(now_ms));
    line.add("flags", marks.letters());
    line.add("capa", marks.capabilities());
    line.figure("db", Figure::Database);
    line.figure("sub", Figure::Channels);
    line.figure("psub", Figure::Patterns);
    line.figure("ssub", Figure::ShardChannels);
    line.one_less("multi", Figure::Queued);
    line.figure("watch", Figure::Watched);
    line.figure("qbuf", Figure::Input);
    line.figure("qbuf-free", Figure::InputFree);
    line.figure("argv-mem", Figure::ArgumentBytes);
    line.figure("multi-mem", Figure::QueuedBytes);
    line.figure("rbs", Figure::OutputRoom);
    line.figure("rbp", Figure::OutputPeak);
    line.output();
    line.add("tot-mem", memory(card));
    line.add("events", "r");
    line.add("cmd", command(card));
    line.text("user", &texts.user);
    if marks.has(Marks::TRACKING) {
        line.figure("redir", Figure::Redirect);
    } else {
        line.add("redir", -1);
    }
    line.add("resp", card.get(Figure::IsResp3) + 2);
    line.text("lib-name", &texts.library);
    line.text("lib-ver", &texts.library_version);
    line.figure("tot-net-in", Figure::BytesIn);
    line.figure("tot-net-out", Figure::BytesOut);
    line.figure("tot-cmds", Figure::Commands);
    line.end();
}

/// The name of a client's last command.
fn command(card: &Card) -> String {
    let number = card.get(Figure::Command).checked_sub(1).and_then(|number| usize::try_from(number).ok());
    number.and_then(|number| COMMANDS.get(number)).map_or_else(|| "NULL".into(), |command| command.full_name())
}

struct Line<'l> {
    card: &'l Card,
    out: &'l mut Vec<u8>,
}

impl Line<'_> {
    fn add(&mut self, name: &str, value: impl std::fmt::Display) {
        self.text(name, value.to_string().as_bytes());
    }

    fn text(&mut self, name: &str, value: &[u8]) {
        self.out.extend_from_slice(name.as_bytes());
        self.out.push(b'=');
        self.out.extend_from_slice(value);
        self.out.push(b' ');
    }

    fn figure(&mut self, name: &str, figure: Figure) {
        self.add(name, self.card.get(figure));
    }

    /// A figure that was written one higher, so that 0 could stand for none.
    fn one_less(&mut self, name: &str, figure: Figure) {
        self.add(name, i128::from(self.card.get(figure)) - 1);
    }

    /// Replies that have not left.
    fn output(&mut self) {
        let unsent = self.card.mailbox.bytes() as u64 + self.card.get(Figure::Behind);
        let queued = unsent.saturating_sub(OWN_OUTPUT_BYTES);
        self.add("obl", unsent - queued);
        self.add("oll", u64::from(queued > 0));
        self.add("omem", queued);
    }

    fn end(&mut self) {
        self.out.pop();
        self.out.push(b'\n');
    }
}
