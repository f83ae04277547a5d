//! Commands of the log, run again.
//!
//! Each runs at the time at which it ran first, on the data that it met then, so it does the same. Nothing is appended to the
//! journal meanwhile, and nobody is connected.

use std::sync::Arc;

use super::journal::{Unit, decode_batch};
use crate::acl::User;
use crate::client::card::Card;
use crate::client::{Client, Link, Mailbox};
use crate::command::Effects;
use crate::command::run::{self, Frame};
use crate::engine::Engine;
use crate::resp::{Args, Parser, Protocol, Reply, RequestLimits};
use crate::settings::Settings;
use crate::time::Now;

/// Words of a refused command that are shown, and bytes of each.
const WORDS_MAX: usize = 3;
const WORD_BYTES_MAX: usize = 64;

/// Runs what recovery finds.
#[derive(Debug)]
pub struct Replay {
    engine: Arc<Engine>,
    settings: Arc<Settings>,
    client: Client,
    parser: Parser,
    reply: Reply,
    effects: Effects,
}

impl Replay {
    /// Into this engine, which nobody else uses yet.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        let mailbox = Arc::new(Mailbox::new(Box::new(|| {})));
        let mut client = Client::again(
            Arc::new(Card::new(engine.clients.next_id(), Link::nowhere(), 0, mailbox)),
            User::superuser(),
        );
        client.is_known = true;
        Self {
            settings: engine.settings().without_client_limits(),
            engine,
            client,
            parser: Parser::default(),
            reply: Reply::new(Protocol::Resp2),
            effects: Effects::default(),
        }
    }

    /// Runs a batch. `now` is the present time; each command sees that at which it ran first.
    ///
    /// # Errors
    /// It holds something that is no command of this program, or that is refused now: in words.
    pub fn handle_batch(&mut self, batch: &[u8], now: Now) -> Result<(), String> {
        let units = decode_batch(batch).ok_or("a batch is not made of units")?;
        units.iter().try_for_each(|unit| self.handle_unit(*unit, now))
    }

    fn handle_unit(&mut self, unit: Unit<'_>, now: Now) -> Result<(), String> {
        if unit.database >= self.engine.keyspace.databases() {
            return Err(format!("a command is for database {}: `databases` must be greater", unit.database));
        }
        let now = Now { unix_us: unit.unix_ms.saturating_mul(1_000), ..now };
        let mut rest = unit.commands;
        while !rest.is_empty() {
            let limits = RequestLimits { word_bytes_max: i64::from(u32::MAX), is_known: true };
            let len = self.parser.parse(rest, limits).map_err(|error| error.text())?;
            let len = len.ok_or("a command is cut off")?;
            let parser = std::mem::take(&mut self.parser);
            self.client.database = unit.database;
            let done = self.run(parser.args(rest), now);
            self.parser = parser;
            done?;
            rest = &rest[len..];
        }
        Ok(())
    }

    fn run(&mut self, args: Args<'_>, now: Now) -> Result<(), String> {
        let Self { engine, settings, client, reply, effects, .. } = self;
        let ready = run::find(engine, args).map_err(|error| error.as_str().to_owned())?;
        let keys = run::lock(engine, settings, ready, (args, None), client.database, now);
        let mut keys = keys.ok_or("a script runs beside the log")?;
        let frame = Frame { engine, settings, now, may_wait: false, is_script: false };
        run::run(&frame, ready, args, client, &mut keys, reply, effects);
        engine.settle(settings, &mut keys, effects);
        let refused = reply.buffer().strip_prefix(b"-").map(|text| String::from_utf8_lossy(text).trim_end().to_owned());
        reply.buffer().clear();
        refused.map_or(Ok(()), |why| Err(format!("{} is refused now: {why}", show(args))))
    }
}

/// A command for people: what it is, and on what.
fn show(args: Args<'_>) -> String {
    let word = |at: usize| {
        args.get(at).map(|word| String::from_utf8_lossy(&word[..word.len().min(WORD_BYTES_MAX)]).into_owned())
    };
    let words: Vec<String> = (0..WORDS_MAX).map_while(word).collect();
    format!("{:?}", words.join(" "))
}
