//! One connection: bytes in, replies out.
//!
//! A [`Session`] owns what only its client can change. It reads requests where they lie, runs each to its end and appends the
//! reply to one buffer; the caller brings bytes and the time, and sends what the buffer holds. While a command waits, no
//! further request is read. What others leave for the client lies in its [`Mailbox`].

use std::sync::Arc;

use ashlar_wire::time::Instant;

use crate::client::{Client, Mailbox, Silence};
use crate::command::run::{self, Frame, Ready};
use crate::command::spec::Flags;
use crate::command::{Effects, transaction};
use crate::engine::Engine;
use crate::error::Error;
use crate::keyspace::Keys;
use crate::resp::{Args, Parser, Protocol, Reply, Request, RequestLimits};
use crate::settings::{LogSync, Settings};
use crate::time::Now;
use crate::waiting::Waiter;

/// One connection.
#[derive(Debug)]
pub struct Session {
    engine: Arc<Engine>,
    settings: Arc<Settings>,
    settings_version: u64,
    client: Client,
    parser: Parser,
    reply: Reply,
    effects: Effects,
    waits: Option<Waits>,
}

/// The command that waits.
#[derive(Debug)]
struct Waits {
    waiter: Waiter,
    deadline: Option<Instant>,
}

/// What to do with a connection after its requests were run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Bring more bytes.
    Read,
    /// Bring no bytes before the mailbox was woken or the time has come: a command waits.
    Wait(Option<Instant>),
    /// Send what there is, then close.
    Close,
}

impl Session {
    /// A connection that has just been made. `mailbox` is how others reach it.
    #[must_use]
    pub fn new(engine: Arc<Engine>, mailbox: Arc<Mailbox>) -> Self {
        let client = Client::new(engine.next_client(), mailbox);
        let (settings, settings_version) = (engine.settings(), engine.settings_version());
        let mut session = Self {
            engine,
            settings,
            settings_version,
            client,
            parser: Parser::default(),
            reply: Reply::default(),
            effects: Effects::default(),
            waits: None,
        };
        session.client.is_known = session.settings.password.is_empty();
        session
    }

    /// Up to where the journal must be released before the replies so far may be sent; nothing if they may be sent now.
    pub fn holds(&self) -> Option<u64> {
        self.engine.journal.holds(self.settings.log_sync == LogSync::Always)
    }

    /// Replies that wait to be sent. Whoever sends them empties it.
    pub fn replies(&mut self) -> &mut Vec<u8> {
        self.reply.buffer()
    }

    /// Runs the requests that `input` holds whole, up to one that waits. Returns how many bytes they were; what is left is to
    /// be brought again with what follows it.
    pub fn feed(&mut self, input: &[u8], now: Now) -> (usize, Next) {
        self.refresh();
        let mut taken = 0;
        while self.waits.is_none() && !self.client.is_leaving && taken < input.len() {
            let rest = &input[taken..];
            let limits = RequestLimits { word_bytes_max: self.settings.word_bytes_max, is_known: self.client.is_known };
            match self.parser.parse(rest, limits) {
                Ok(None) => break,
                Ok(Some(len)) => {
                    // The parser lends the words while the session runs them.
                    let parser = std::mem::take(&mut self.parser);
                    self.handle(parser.args(rest), now);
                    self.parser = parser;
                    taken += len;
                }
                Err(error) => {
                    self.reply.error(&format!("ERR {}", error.text()));
                    self.client.is_leaving = true;
                }
            }
        }
        (taken, self.next())
    }

    /// The mailbox was woken: takes what lies there.
    pub fn handle_mail(&mut self) -> Next {
        let mail = self.client.mailbox.take();
        self.reply.raw(&mail.bytes);
        if mail.is_served {
            self.waits = None;
        }
        self.client.is_leaving |= mail.must_leave;
        self.next()
    }

    /// Time has passed: a command may have waited long enough.
    pub fn handle_time(&mut self, now: Now) -> Next {
        let is_over = self.waits.as_ref().is_some_and(|waits| waits.deadline.is_some_and(|at| at <= now.instant));
        if is_over {
            self.give_up();
        }
        self.next()
    }

    fn next(&self) -> Next {
        match &self.waits {
            _ if self.client.is_leaving => Next::Close,
            Some(waits) => Next::Wait(waits.deadline),
            None => Next::Read,
        }
    }

    /// The waiting command replies that it found nothing, unless it is being served.
    fn give_up(&mut self) {
        let Some(waits) = self.waits.take() else { return };
        if !waits.waiter.claim() {
            // It is being tried again: its reply is on the way to the mailbox, or the next call finds it unclaimed.
            self.waits = Some(waits);
            return;
        }
        self.engine.waiting.leave(&waits.waiter);
        self.reply.null_array();
    }

    #[inline]
    fn refresh(&mut self) {
        if self.settings_version != self.engine.settings_version() {
            self.settings_version = self.engine.settings_version();
            self.settings = self.engine.settings();
        }
    }

    /// Runs one request, or keeps it for EXEC.
    fn handle(&mut self, args: Args<'_>, now: Now) {
        if args.len() == 0 {
            return;
        }
        self.refresh();
        let mark = self.reply.mark();
        if let Err(error) = self.admit_and_run(args, now) {
            self.engine.count_error(&error);
            if let Some(transaction) = &mut self.client.transaction {
                transaction.is_broken = true;
            }
            self.reply.error(error.as_str());
        }
        self.client.silence = match self.client.silence {
            Silence::Next => Silence::Now,
            Silence::Now => {
                self.reply.rewind(mark);
                Silence::Never
            }
            Silence::Always => {
                self.reply.rewind(mark);
                Silence::Always
            }
            Silence::Never => Silence::Never,
        };
    }

    fn admit_and_run(&mut self, args: Args<'_>, now: Now) -> Result<(), Error> {
        let ready = run::find(&self.engine, args)?;
        let flags = ready.spec().flags;
        if !self.client.is_known && !flags.has(Flags::NO_AUTH) {
            return Err(Error::NO_AUTH);
        }
        if flags.has(Flags::WRITE)
            && let Some(why) = self.engine.journal.refusal()
        {
            return Err(Error::text(format!("MISCONF Errors writing to the AOF file: {why}")));
        }
        let is_resp2 = self.client.protocol == Protocol::Resp2;
        if is_resp2 && !self.client.subscriptions.is_empty() && !is_for_subscribers(ready) {
            let name = ready.command.full_name();
            return Err(Error::text(format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
                 this context"
            )));
        }
        if let Some(open) = &mut self.client.transaction
            && !transaction::runs_at_once(ready.command)
        {
            if flags.has(Flags::NO_MULTI) {
                return Err(Error::new("ERR Command not allowed inside a transaction"));
            }
            open.queued.push(Request::copy(args));
            self.reply.status("QUEUED");
            return Ok(());
        }
        let engine = Arc::clone(&self.engine);
        let settings = Arc::clone(&self.settings);
        let database = self.client.database;
        let mut keys = match &self.client.transaction {
            Some(open) if transaction::is_exec(ready.command) => {
                run::lock_all(&engine, &settings, &open.queued, &self.client.watched, database, now)
            }
            _ => run::lock(&engine, &settings, ready, args, database, now),
        };
        let frame = Frame { engine: &engine, settings: &settings, now, may_wait: true };
        run::run(&frame, ready, args, &mut self.client, &mut keys, &mut self.reply, &mut self.effects);
        self.settle(&frame, args, keys);
        Ok(())
    }

    /// What follows a command: it waits, others are served, subscribers are told.
    fn settle(&mut self, frame: &Frame<'_>, args: Args<'_>, mut keys: Keys<'_>) {
        self.reply.set_protocol(self.client.protocol);
        self.client.mailbox.set_protocol(self.client.protocol);
        if let Some(mut wait) = self.effects.wait.take() {
            let who = (self.client.id, self.client.protocol, Arc::clone(&self.client.mailbox));
            let request = wait.request.take().unwrap_or_else(|| Request::copy(args));
            let waiter = frame.engine.waiting.enter(who, keys.database(), request, &wait);
            self.waits = Some(Waits { waiter, deadline: wait.deadline });
        }
        frame.engine.settle(frame.settings, &mut keys, &mut self.effects);
        drop(keys);
        let found = std::mem::take(&mut self.effects.ready);
        if !found.is_empty() {
            frame.engine.serve(found, frame.settings, frame.now);
        }
    }
}

/// Whether a client that listens may call it in RESP2, where messages and replies look alike.
fn is_for_subscribers(ready: Ready) -> bool {
    let name = ready.spec().name;
    name.ends_with("subscribe") || matches!(name, "ping" | "quit" | "reset")
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(waits) = &self.waits {
            waits.waiter.claim();
            self.engine.waiting.leave(&waits.waiter);
        }
        for (topic, name) in &self.client.subscriptions {
            self.engine.pubsub.unsubscribe(self.client.id, *topic, name);
        }
        self.engine.waiting.unwatch(self.client.id, &self.client.watched);
    }
}
