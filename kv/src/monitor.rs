//! MONITOR: who sees every command.
//!
//! A command is shown after it has run, before its keys are free; one that only runs others before it does. Nobody sees
//! commands of administrators, nor words that are secret. While nobody watches, a command costs one relaxed load.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::client::{Client, ClientId, Mailbox};
use crate::command::redact;
use crate::command::spec::table::Command;
use crate::resp::Args;
use crate::time::Now;

/// Who watches.
#[derive(Debug, Default)]
pub(crate) struct Monitors {
    /// How many do: nearly always none, and then nobody locks.
    count: AtomicUsize,
    mailboxes: Mutex<BTreeMap<ClientId, Arc<Mailbox>>>,
}

impl Monitors {
    /// Whether anybody watches.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// A client watches from now on.
    pub(crate) fn begin(&self, client: ClientId, mailbox: &Arc<Mailbox>) {
        let mut mailboxes = self.mailboxes();
        mailboxes.insert(client, Arc::clone(mailbox));
        self.count.store(mailboxes.len(), Ordering::Relaxed);
    }

    /// A client watches no more.
    pub(crate) fn end(&self, client: ClientId) {
        let mut mailboxes = self.mailboxes();
        mailboxes.remove(&client);
        self.count.store(mailboxes.len(), Ordering::Relaxed);
    }

    /// Shows a call.
    pub(crate) fn show(&self, client: &Client, command: &Command, args: Args<'_>, is_script: bool, now: Now) {
        let link = &client.card.link;
        let (kind, source) = match (is_script, link.is_unix) {
            (true, _) => ("", "lua"),
            // A path has no port, whatever CLIENT LIST shows.
            (false, true) => ("unix:", link.peer.strip_suffix(":0").unwrap_or(&link.peer)),
            (false, false) => ("", &*link.peer),
        };
        let (seconds, micros) = (now.unix_us.div_euclid(1_000_000), now.unix_us.rem_euclid(1_000_000));
        let mut line = format!("+{seconds}.{micros:06} [{} {kind}{source}]", client.database).into_bytes();
        for (at, word) in args.from(0).enumerate() {
            line.push(b' ');
            if redact::is_secret(command, args, at) {
                line.extend_from_slice(b"\"(redacted)\"");
            } else {
                quote(word, &mut line);
            }
        }
        line.extend_from_slice(b"\r\n");
        self.mailboxes().values().for_each(|mailbox| mailbox.put(&line));
    }

    fn mailboxes(&self) -> MutexGuard<'_, BTreeMap<ClientId, Arc<Mailbox>>> {
        self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A word in quotes, with `\` before what would end it or cannot be seen.
fn quote(word: &[u8], line: &mut Vec<u8>) {
    line.push(b'"');
    for byte in word {
        match byte {
            b'\\' | b'"' => line.extend_from_slice(&[b'\\', *byte]),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            7 => line.extend_from_slice(b"\\a"),
            8 => line.extend_from_slice(b"\\b"),
            b' '..=b'~' => line.push(*byte),
            _ => line.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    line.push(b'"');
}
