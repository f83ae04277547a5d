//! One connection: bytes in, replies out.
//!
//! A [`Session`] owns what only its client can change. It reads requests where they lie, runs each to its end and appends the
//! reply to one buffer; the caller brings bytes and the time, and sends what the buffer holds. While a command waits, no
//! further request is read. What others leave for the client lies in its [`Mailbox`].

use std::sync::Arc;
use std::time::Duration;

use ashlar_wire::time::Instant;

use crate::acl::Context;
use crate::ahead::Ahead;
use crate::client::card::{Card, Figure};
use crate::client::describe;
use crate::client::registry::{self, Counts};
use crate::client::{Client, Farewell, Link, Mailbox, Rejected, Silence};
use crate::cluster::migration::job::Stage;
use crate::cluster::route;
use crate::command::run::{self, Frame, NotReady, Ready};
use crate::command::spec::Flags;
use crate::command::{Effects, transaction};
use crate::engine::Engine;
use crate::error::Error;
use crate::evict::Room;
use crate::keyspace::{Key, Keys};
use crate::replicate::quorum::Gate;
use crate::resp::{Args, Mark, Parser, Protocol, Reply, Request, RequestLimits};
use crate::script::flags::ScriptFlags;
use crate::settings::{LogSync, Settings};
use crate::statistics::slots::SlotCost;
use crate::time::Now;
use crate::unlogged::Unlogged;
use crate::waiting::{Wait, Waiter};

/// Bytes of requests that a client may have sent before it has said who it is.
const STRANGER_BYTES_MAX: usize = 1 << 20;
/// What a replica is sent lies here up to so many bytes, and then waits in the stream.
const STREAM_BYTES: usize = 64 << 10;
/// Room for replies that a connection keeps.
const OUTPUT_BYTES: usize = 128 << 10;
/// Replies that are made before other connections have their turn, bytes. One request may make more.
pub(crate) const TURN_BYTES_MAX: usize = 1 << 20;
/// Replies that the client has not taken and that further requests may add to, bytes.
pub(crate) const UNTAKEN_BYTES_MAX: usize = 16 << 20;
/// What may wait to be written to the log before a client that wants no replies must wait, bytes.
const WAITING_BYTES_MAX: u64 = 64 << 20;
/// After how long a request is read again that writes to a slot which changes hands.
const MIGRATION_LOOK: Duration = Duration::from_secs(1);
/// After how long a request is read again that a slow script has held back.
const SCRIPT_PATIENCE: Duration = Duration::from_millis(10);

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
    /// Until when the next request is held back.
    held: Option<Instant>,
    /// The last call ended because the replies of one turn were made, and may have left whole requests.
    has_more: bool,
    /// What was brought and not taken, bytes.
    left: usize,
    /// Bytes of the replies that have left.
    sent: usize,
    /// What the client took when the sum of all clients was told.
    told_bytes: u64,
    /// Something that has run since is about keys, and a majority has to have it before the reply leaves.
    is_about_keys: bool,
    /// Position of the stream that must be released before the replies leave.
    held_to: Option<u64>,
    /// Replies that tell of writes which the log does not have yet.
    unlogged: Unlogged,
    /// The connection ends, and nothing is sent any more.
    is_dropped: bool,
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
    /// Let other connections have their turn, then bring what is left: it was not looked at, because what ran made a
    /// turn of replies, about a mebibyte. While [`Session::is_untaken`], send first.
    More,
    /// Bring no bytes before the mailbox was woken or the time has come: a command waits.
    Wait(Option<Instant>),
    /// Send what there is, then close.
    Close,
    /// Close at once.
    Drop,
}

impl Session {
    /// A connection that has just been made. `mailbox` is how others reach it.
    ///
    /// # Errors
    /// It is not let in: the connection gets [`Rejected::reply`] and ends. Retry safe later.
    pub fn open(engine: Arc<Engine>, mailbox: Arc<Mailbox>, link: Link, now: Now) -> Result<Self, Rejected> {
        let card = Arc::new(Card::new(engine.clients.next_id(), link, now.unix_ms(), mailbox));
        let (settings, settings_version) = (engine.settings(), engine.settings_version());
        if settings.is_protected && engine.acl.default_user().needs_no_password && !card.link.is_near() {
            Counts::add(&engine.clients.counts.rejected);
            return Err(Rejected::Protected);
        }
        engine.clients.enter(&card, &settings.clients)?;
        registry::limit_output(&card, &settings.clients);
        let client = Client::new(card, engine.acl.default_user());
        client.publish();
        Ok(Self {
            engine,
            settings,
            settings_version,
            client,
            parser: Parser::default(),
            reply: Reply::default(),
            effects: Effects::default(),
            waits: None,
            held: None,
            has_more: false,
            left: 0,
            sent: 0,
            told_bytes: 0,
            is_about_keys: false,
            held_to: None,
            unlogged: Unlogged::default(),
            is_dropped: false,
        })
    }

    /// The position that the log must have before the replies so far may be sent; nothing if they may be sent now.
    pub fn holds(&self) -> Option<u64> {
        self.engine.journal.holds(self.waits_for_drive())
    }

    /// Whether the replies wait for the log's thread, rather than that the thread of the connection writes.
    pub fn waits_for_drive(&self) -> bool {
        self.settings.log_sync == LogSync::Always
    }

    /// Sees to it that the replies so far may be sent, which [`Session::holds`] held: writes what waits to the log. Returns
    /// whether they may. If not, the log's thread has to do something first: it is called again after that. While the log
    /// cannot be written, replies may be sent, but errors stand in place of those that tell of writes of this client which
    /// the log does not have.
    pub fn write_out(&mut self, position: u64) -> bool {
        let journal = &self.engine.journal;
        if journal.write_out(position, self.settings.log_sync) {
            return true;
        }
        if let Some(why) = journal.refusal() {
            let (is_durable, sent) = (self.waits_for_drive(), self.sent);
            if !self.engine.journal.has(self.unlogged.end(), is_durable) {
                self.is_dropped |= !self.unlogged.replace(self.reply.buffer(), sent, &why);
            }
            self.unlogged.clear();
            return true;
        }
        false
    }

    /// Whether so much was appended that the log does not have that no more may be run, even if nothing is replied.
    pub fn is_log_behind(&self) -> Option<u64> {
        let journal = &self.engine.journal;
        (journal.waiting_bytes() > WAITING_BYTES_MAX && !journal.is_refused()).then(|| journal.end())
    }

    /// Whether the replies must not be sent yet, because a majority of the copies does not have what they tell of. The mailbox is woken
    /// when they may, or when the connection is to end.
    pub fn is_held(&mut self) -> bool {
        self.held_to = self.held_to.filter(|position| self.engine.replication.released() < *position);
        self.held_to.is_some()
    }

    /// What has run has to be released before its replies leave. `before` is where the stream ended when its requests came.
    fn hold(&mut self, before: u64, now_ms: i64) {
        if std::mem::take(&mut self.is_about_keys) {
            let held_to = self.engine.replication.hold(&self.client.card, before, now_ms);
            self.held_to = self.held_to.max(held_to);
        }
    }

    /// Which of the threads serves it: what is counted goes to the counters of that one.
    #[must_use]
    pub fn on_worker(mut self, worker: usize) -> Self {
        self.client.meter.worker = worker;
        self
    }

    /// Replies that wait to be sent.
    #[must_use]
    pub fn replies(&self) -> &[u8] {
        &self.reply.bytes()[self.sent..]
    }

    /// Whether the client is so far behind with its replies that what it has sent must wait.
    #[must_use]
    pub fn is_untaken(&self) -> bool {
        self.replies().len() > UNTAKEN_BYTES_MAX
    }

    /// Lends room for replies, if there is none. Returns what is not needed.
    pub fn lend_room(&mut self, room: Vec<u8>) -> Vec<u8> {
        let own = self.reply.buffer();
        if own.capacity() > 0 {
            return room;
        }
        *own = room;
        own.clear();
        Vec::new()
    }

    /// Takes the room for replies, if none wait to be sent; else nothing.
    pub fn take_room(&mut self) -> Vec<u8> {
        if self.replies().is_empty() { std::mem::take(self.reply.buffer()) } else { Vec::new() }
    }

    /// So many bytes of the replies were sent.
    ///
    /// # Panics
    /// There are fewer.
    pub fn handle_sent(&mut self, bytes: usize) {
        // Nothing is sent before the log has what it tells.
        self.unlogged.clear();
        self.sent += bytes;
        self.client.traffic.bytes_out += bytes as u64;
        self.client.meter.bytes_out += bytes as u64;
        self.client.meter.writes += 1;
        assert!(self.sent <= self.reply.bytes().len(), "what was sent was there");
        let buffer = self.reply.buffer();
        if self.sent == buffer.len() {
            buffer.clear();
            buffer.shrink_to(OUTPUT_BYTES);
            self.sent = 0;
            if self.client.replica.is_some() {
                self.client.mailbox.nudge();
            }
        } else if self.sent > OUTPUT_BYTES && self.sent > buffer.len() / 2 {
            buffer.drain(..self.sent);
            self.sent = 0;
        }
        self.client.mailbox.set_unsent(self.replies().len());
        self.client.card.set(Figure::BytesOut, self.client.traffic.bytes_out);
    }

    /// Runs the requests that `input` holds whole, up to one that waits, or until they have made the replies of one turn. Returns
    /// how many bytes they were; what is left is to be brought again with what follows it.
    pub fn feed(&mut self, input: &[u8], now: Now) -> (usize, Next) {
        self.end_rest();
        self.refresh();
        self.release();
        if self.client.mailbox.is_waiting() {
            self.take_mail();
        }
        let fresh = (input.len() - self.left.min(input.len())) as u64;
        self.client.traffic.bytes_in += fresh;
        self.client.meter.bytes_in += fresh;
        self.client.meter.reads += 1;
        self.client.meter.begin(now.instant);
        self.client.traffic.seen_ms = now.unix_ms();
        let (mut taken, mut ahead) = (0, Ahead::default());
        let before = self.engine.replication.end();
        let turn_end = self.reply.bytes().len() + TURN_BYTES_MAX;
        self.has_more = false;
        while self.may_go_on() && taken < input.len() {
            if self.reply.bytes().len() >= turn_end {
                self.has_more = true;
                break;
            }
            let hint = ahead.handle_request(&self.engine, self.client.database, input, taken);
            let rest = &input[taken..];
            let limits = RequestLimits { word_bytes_max: self.settings.word_bytes_max, is_known: self.client.is_known };
            match self.parser.parse(rest, limits) {
                Ok(None) => break,
                Ok(Some(len)) => {
                    // The parser lends the words while the session runs them.
                    let parser = std::mem::take(&mut self.parser);
                    self.client.meter.request_bytes = len;
                    self.client.meter.has_more = taken + len < input.len();
                    self.handle(parser.args(rest), hint, now);
                    self.parser = parser;
                    taken += if self.held.is_some() { 0 } else { len };
                }
                Err(error) => {
                    self.reply.error(&format!("ERR {}", error.text()));
                    self.client.is_leaving = true;
                }
            }
        }
        self.hold(before, now.unix_ms());
        self.take_stream();
        self.left = input.len() - taken;
        self.client.meter.has_more = false;
        self.client.meter.flush(&self.engine, self.settings.logs.counts_latency);
        self.end_rest();
        self.check_buffers();
        self.show();
        (taken, self.next())
    }

    /// The engine has work, unless a replica only says how far it is.
    fn end_rest(&self) {
        if self.client.replica.is_none() {
            self.engine.rest.end();
        }
    }

    fn may_go_on(&self) -> bool {
        self.waits.is_none() && self.held.is_none() && !self.client.is_leaving && !self.is_dropped
    }

    /// Ends the connection if it sends or is sent more than it may.
    fn check_buffers(&mut self) {
        let limits = &self.settings.clients;
        let queued = self.client.transaction.as_ref().map_or(0, |open| open.bytes);
        let input_bytes_max =
            if self.client.is_known { limits.input_bytes_max } else { limits.input_bytes_max.min(STRANGER_BYTES_MAX) };
        if self.left + queued > input_bytes_max {
            Counts::add(&self.engine.clients.counts.input_overflows);
            self.is_dropped = true;
        }
        let hard = limits.output.of(self.client.class()).hard_bytes;
        if hard > 0 && self.replies().len() as u64 >= hard {
            Counts::add(&self.engine.clients.counts.output_overflows);
            self.is_dropped = true;
        }
        if self.is_dropped {
            self.engine.clients.leave(self.client.id);
        }
    }

    /// Lets others see how the client is.
    fn show(&mut self) {
        self.client.traffic.input = self.left;
        self.client.traffic.is_blocked = self.waits.is_some() || self.held.is_some();
        self.client.mailbox.set_unsent(self.replies().len());
        self.client.publish();
        registry::limit_output(&self.client.card, &self.settings.clients);
        self.limit_memory();
    }

    /// Ends clients if all of them take too much together; this one may be among them.
    fn limit_memory(&mut self) {
        self.refresh();
        if self.settings.memory.clients_bytes_max(self.settings.memory_bytes_max).is_some() {
            let bytes = describe::memory(&self.client.card);
            self.engine.clients.bytes.change(self.told_bytes, bytes);
            self.told_bytes = bytes;
            self.is_dropped |= self.engine.limit_clients(&self.settings, self.client.id);
        }
    }

    /// The mailbox was woken: takes what lies there.
    pub fn handle_mail(&mut self) -> Next {
        self.take_mail();
        self.take_stream();
        // Whoever ended a pause has only nudged.
        if !self.engine.pause.is_on() {
            self.release();
        }
        self.show();
        self.next()
    }

    /// Takes what lies in the mailbox; its bytes leave behind all replies so far.
    fn take_mail(&mut self) {
        self.take_mail_to(self.reply.mark());
    }

    /// The same; its bytes leave before the replies that were written since `mark`.
    fn take_mail_to(&mut self, mark: Mark) {
        let mail = self.client.mailbox.take();
        self.unlogged.handle_inserted(self.reply.bytes().len() - self.reply.len_since(mark), mail.bytes.len());
        self.reply.insert(mark, &mail.bytes);
        if mail.is_served {
            if self.waits.take().is_some_and(|waits| waits.waiter.goal.is_none()) && self.engine.journal.is_on() {
                self.unlogged.note_hidden(self.engine.journal.end());
            }
            self.client.traffic.commands += 1;
            // What it got was taken, and the stream tells of that already.
            self.is_about_keys |= self.engine.replication.gate() != Gate::Off;
            self.hold(u64::MAX, self.client.traffic.seen_ms);
        }
        self.client.is_leaving |= mail.is_last;
        if mail.farewell == Some(Farewell::Overflow) {
            Counts::add(&self.engine.clients.counts.output_overflows);
            self.engine.clients.leave(self.client.id);
        }
        self.is_dropped |= mail.farewell.is_some();
    }

    /// A replica is sent more, as soon as what it was sent has left.
    fn take_stream(&mut self) {
        let Some(replica) = self.client.replica.clone() else { return };
        if self.reply.bytes().len() - self.sent < STREAM_BYTES {
            let has_more = self.engine.replication.take(&replica, self.reply.buffer());
            if has_more {
                // It is looked at again after what it has sent was read.
                self.client.mailbox.nudge();
            }
        }
        self.client.is_leaving |= replica.is_done();
    }

    /// A request that was held back is read again.
    fn release(&mut self) {
        if self.held.take().is_some() {
            self.engine.pause.release(self.client.id);
            self.engine.migration.hold.leave(self.client.id);
        }
    }

    /// Time has passed: a command may have waited long enough.
    pub fn handle_time(&mut self, now: Now) -> Next {
        let is_over = self.waits.as_ref().is_some_and(|waits| waits.deadline.is_some_and(|at| at <= now.instant));
        if is_over {
            self.give_up();
        }
        if self.held.is_some_and(|until| until <= now.instant) {
            self.release();
        }
        self.show();
        self.next()
    }

    fn next(&self) -> Next {
        match (&self.waits, self.held) {
            _ if self.is_dropped => Next::Drop,
            _ if self.client.is_leaving => Next::Close,
            (Some(waits), _) => Next::Wait(waits.deadline),
            (None, Some(until)) => Next::Wait(Some(until)),
            (None, None) if self.has_more => Next::More,
            (None, None) => Next::Read,
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
        self.client.traffic.commands += 1;
        waits.waiter.reply_in_vain(&self.engine, &mut self.reply);
    }

    #[inline]
    fn refresh(&mut self) {
        if self.settings_version != self.engine.settings_version() {
            self.settings_version = self.engine.settings_version();
            self.settings = self.engine.settings();
            self.client.refresh_user(&self.engine);
        }
    }

    /// Runs one request, or keeps it for EXEC.
    fn handle(&mut self, args: Args<'_>, hint: Option<Key<'_>>, now: Now) {
        if args.len() == 0 {
            return;
        }
        self.refresh();
        let mark = self.reply.mark();
        if let Err(error) = self.admit_and_run(args, hint, now) {
            if is_http(args) {
                self.end_http(now);
                return;
            }
            self.engine.count_error(&error);
            match run::look_up(&self.engine, args) {
                Ok(Ready { command, .. }) | Err(NotReady::WrongNumber(command)) => {
                    self.client.meter.reject(command.number);
                }
                Err(_) => {}
            }
            if self.client.transaction.is_some() && args.is(0, "EXEC") {
                transaction::discard_all(&self.engine, &mut self.client);
                self.reply.error(&format!("EXECABORT Transaction discarded because of: {}", error.as_str()));
            } else {
                if let Some(transaction) = &mut self.client.transaction {
                    transaction.is_broken = true;
                }
                self.reply.error(error.as_str());
            }
        }
        if self.held.is_some() {
            return;
        }
        if self.client.replica.is_some() {
            // Nothing may come between the bytes of the stream.
            self.reply.rewind(mark);
        }
        self.answer_import(args, mark, now);
        let is_about_channels = ends_with(args.get(0), b"subscribe");
        self.client.silence = match self.client.silence {
            // That one listens, or does not any more, is no reply.
            Silence::Now if is_about_channels => Silence::Never,
            Silence::Always if is_about_channels => Silence::Always,
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
        if std::mem::take(&mut self.client.has_logged) {
            let (len, all) = (self.reply.len_since(mark), self.reply.bytes().len());
            self.unlogged.note(all - len..all, self.engine.journal.end());
        }
        if self.client.mailbox.is_waiting() {
            // Who listens no more has got all messages before it is told so.
            let is_farewell = ends_with(args.get(0), b"unsubscribe");
            self.take_mail_to(if is_farewell { mark } else { self.reply.mark() });
        }
        self.forget_caching(args);
        self.client.is_asking &= self.client.transaction.is_some() || args.is(0, "ASKING");
    }

    /// Ends a connection that speaks HTTP before the body of its request is taken for commands: a browser may have been made to send it.
    fn end_http(&mut self, now: Now) {
        self.is_dropped = true;
        self.engine.clients.leave(self.client.id);
        if self.engine.http_warning.is_due(now.instant) {
            tracing::warn!(
                client = self.client.card.link.peer,
                "an HTTP request came to the key-value port (POST or Host:): connection closed; somebody may use a browser \
                 in this network to send commands. This is told at most once a minute"
            );
        }
    }

    /// `CLIENT CACHING` is about the next command alone, or the next transaction.
    fn forget_caching(&mut self, args: Args<'_>) {
        if let Some(mode) = &mut self.client.tracking
            && self.client.transaction.is_none()
            && !args.is(0, "CLIENT")
        {
            mode.is_caching_said = false;
        }
    }

    fn admit_and_run(&mut self, args: Args<'_>, hint: Option<Key<'_>>, now: Now) -> Result<(), Error> {
        let ready = run::find(&self.engine, args)?;
        let flags = ready.spec().flags;
        self.client.traffic.last = u64::from(ready.command.number) + 1;
        if !self.client.is_known && !flags.has(Flags::NO_AUTH) {
            return Err(Error::NO_AUTH);
        }
        if self.client.transaction.is_some() && flags.has(Flags::NO_MULTI) {
            let name = ready.command.full_name();
            return Err(Error::text(format!("ERR Command '{name}' not allowed inside a transaction")));
        }
        let context = if self.client.transaction.is_some() { Context::Multi } else { Context::TopLevel };
        let permitted = self.engine.permit(&self.client, ready.command, args, context, now.unix_ms());
        permitted.map_err(|denial| denial.error(&self.client.user.name, ready.command))?;
        if let Err(error) = self.route(ready, args, hint, now) {
            if self.engine.migration.hold.is_on() && self.waits_for_slot((ready, args, hint), now) {
                return Ok(());
            }
            send_away(&self.engine, &mut self.client, &mut self.reply, ready, &error);
            return Ok(());
        }
        let open = self.client.transaction.as_ref();
        let is_writing_exec = open.is_some_and(|open| open.may_write && transaction::is_exec(ready.command));
        if flags.has(Flags::WRITE) || is_writing_exec {
            self.refuse_what_is_not_kept(now)?;
        }
        if self.engine.role.is_replica() {
            refuse_on_replica(&self.engine, &self.settings, &self.client, ready)?;
        }
        self.refuse_for_now(ready, now)?;
        self.pass_gate(ready, args)?;
        // What may run beside a script waits for no shard, and the script has them all.
        if !flags.has(Flags::ALLOW_BUSY) {
            if self.client.tracking.is_some() {
                // A limit may have been lowered since the last command.
                self.engine.limit_tracking(self.settings.tracking_keys_max);
            }
            let room = self.make_room(ready, now);
            // That a key has gone is told before the reply which it made room for.
            if self.client.silence == Silence::Never && self.client.mailbox.is_waiting() {
                self.take_mail();
            }
            room?;
        }
        if self.engine.pause.is_on() && self.is_held_back(ready, args, now) {
            return Ok(());
        }
        if self.engine.migration.hold.is_on() && waits_for_migration(&self.engine, &self.client, ready, args) {
            self.held = Some(now.instant + MIGRATION_LOOK);
            return Ok(());
        }
        if let Some(open) = &mut self.client.transaction
            && !transaction::runs_at_once(ready.command)
        {
            open.may_write |= call_may_write(&self.engine, ready, args);
            open.writes |= flags.has(Flags::WRITE);
            open.needs_present |= !flags.has(Flags::STALE);
            open.needs_memory |= flags.has(Flags::DENYOOM);
            open.bytes += args.from(0).map(<[u8]>::len).sum::<usize>();
            open.database = transaction::chosen_database(&self.engine, ready.command, args).or(open.database);
            open.queued.push(Request::copy(args));
            self.reply.status("QUEUED");
            if self.settings.logs.counts_slots
                && let Some(slot) = self.client.slot
            {
                let cost = SlotCost { bytes_in: self.client.meter.request_bytes as u64, ..SlotCost::default() };
                self.engine.statistics.slots.add(slot, cost);
            }
            return Ok(());
        }
        self.run_now(ready, args, hint, now)
    }

    /// Whether a node of a cluster runs the request.
    #[inline]
    fn route(&mut self, ready: Ready, args: Args<'_>, hint: Option<Key<'_>>, now: Now) -> Result<(), Error> {
        let Self { engine, settings, client, .. } = self;
        match engine.cluster() {
            None => Ok(()),
            Some(cluster) => route::admit(engine, cluster, settings, client, (ready, args, hint), now.instant),
        }
    }

    /// What the engine knows of the client.
    #[cfg(test)]
    pub(crate) fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Whether a request that was not let through waits, because its slot is about to come here. It is read again then.
    fn waits_for_slot(&mut self, asked: route::Asked<'_>, now: Now) -> bool {
        let Some(cluster) = self.engine.cluster() else { return false };
        let until = route::expected_until(&self.engine, cluster, &self.settings, &self.client, asked, now.instant);
        let Some(until) = until else { return false };
        self.engine.migration.hold.enter(self.client.id, &self.client.mailbox);
        // A map that has come meanwhile has woken only those who waited already.
        if !self.client.sight.is_fresh(cluster) {
            self.client.mailbox.nudge();
        }
        self.held = Some(until.min(now.instant + MIGRATION_LOOK));
        true
    }

    /// Runs a request that may run. No count of the engine's owners is touched: other workers have it too.
    fn run_now(&mut self, ready: Ready, args: Args<'_>, hint: Option<Key<'_>>, now: Now) -> Result<(), Error> {
        let Self { engine, settings, client, reply, effects, waits, held, .. } = self;
        let database = client.database;
        let keys = match &client.transaction {
            Some(open) if transaction::is_exec(ready.command) => {
                run::lock_all(engine, settings, &open.queued, &client.watched, database, now)
            }
            _ => run::lock(engine, settings, ready, (args, hint), database, now),
        };
        let Some(mut keys) = keys else {
            // A script holds them. The same request is read again: then the script has ended, or is too slow.
            *held = Some(now.instant + SCRIPT_PATIENCE);
            return Ok(());
        };
        if let Some(cluster) = engine.cluster()
            && let Err(error) =
                route::confirm(engine, cluster, settings, client, (ready, args, hint), &mut keys, now.instant)
        {
            drop(keys);
            send_away(engine, client, reply, ready, &error);
            return Ok(());
        }
        // Who holds writes has waited for those that hold keys, so whoever comes later sees it here.
        if engine.migration.hold.is_on() && waits_for_migration(engine, client, ready, args) {
            *held = Some(now.instant + MIGRATION_LOOK);
            return Ok(());
        }
        if client.import.is_some() {
            keys.set_now(0);
        }
        // Whoever begins to load waits for those that hold keys, so this is still so when the command has run.
        if engine.is_loading() && (!ready.spec().flags.has(Flags::LOADING) || transaction::is_exec(ready.command)) {
            return Err(Error::LOADING);
        }
        // Nor does the role change while keys are held; before, it may have.
        if engine.role.is_replica() {
            refuse_on_replica(engine, settings, client, ready)?;
        }
        let frame = Frame { engine, settings, now, may_wait: true, is_script: false };
        run::run(&frame, ready, args, client, &mut keys, reply, effects);
        reply.set_protocol(client.protocol);
        client.mailbox.set_protocol(client.protocol);
        if let Some(wait) = effects.wait.take() {
            *waits = Some(begin_wait(engine, client, args, &keys, wait));
        }
        settle(&frame, effects, keys, client);
        Ok(())
    }

    /// A source hears nothing of what it sends, but that it was refused: then nothing more is taken from it.
    fn answer_import(&mut self, args: Args<'_>, mark: Mark, now: Now) {
        let Some(import) = &self.client.import else { return };
        import.note_heard(now);
        if self.waits.is_some() || args.is(0, "CLUSTER") {
            return;
        }
        let reply = self.reply.since(mark);
        let Some(refusal) = reply.strip_prefix(b"-") else {
            self.reply.rewind(mark);
            return;
        };
        let message = match refusal.starts_with(b"OOM") {
            true => "Ran out of memory (OOM) during slot import".to_owned(),
            false => format!("A command of the source failed: {}", String::from_utf8_lossy(refusal).trim_end()),
        };
        import.job.end(Stage::Failed, &message, now);
        self.client.is_leaving = true;
    }

    /// What the state of the client or of the engine does not allow.
    fn refuse_for_now(&self, ready: Ready, now: Now) -> Result<(), Error> {
        let flags = ready.spec().flags;
        let is_resp2 = self.client.protocol == Protocol::Resp2;
        if is_resp2 && !self.client.subscriptions.is_empty() && !is_for_subscribers(ready) {
            let name = ready.command.full_name();
            return Err(Error::text(format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
                 this context"
            )));
        }
        if self.engine.is_loading() && !flags.has(Flags::LOADING) {
            return Err(Error::LOADING);
        }
        if (self.client.is_monitor || self.client.replica.is_some()) && (may_write(flags) || flags.has(Flags::READONLY))
        {
            return Err(Error::new("ERR Replica can't interact with the keyspace"));
        }
        if !flags.has(Flags::ALLOW_BUSY)
            && let Some(busy) = self.engine.scripts.running.refusal(now.instant, self.settings.script_ms_max)
        {
            return Err(busy);
        }
        Ok(())
    }

    /// Where a majority of the copies must have what is done, it must be there; and replies wait for it.
    #[inline]
    fn pass_gate(&mut self, ready: Ready, args: Args<'_>) -> Result<(), Error> {
        let gate = self.engine.replication.gate();
        let is_at_once = self.client.transaction.is_none() || transaction::runs_at_once(ready.command);
        if gate == Gate::Off || !is_at_once || !self.is_about_keys(ready, args) {
            return Ok(());
        }
        if gate == Gate::Short {
            return Err(Error::NO_MAJORITY);
        }
        self.is_about_keys = true;
        Ok(())
    }

    fn is_about_keys(&self, ready: Ready, args: Args<'_>) -> bool {
        let flags = ready.spec().flags;
        let is_script = || self.engine.scripts.flags_of(ready.spec().name, args).is_some();
        flags.has(Flags::WRITE)
            || flags.has(Flags::READONLY)
            || self.client.slot.is_some()
            || transaction::is_exec(ready.command)
            || is_script()
    }

    /// Nothing may be written while files cannot be, or while there are too few replicas.
    fn refuse_what_is_not_kept(&self, now: Now) -> Result<(), Error> {
        let files = &self.settings.files;
        if let Some(why) = self.engine.journal.refusal() {
            return Err(Error::text(format!("MISCONF Errors writing to the AOF file: {why}")));
        }
        if self.engine.journal.is_held() && self.engine.journal.has_log() {
            return Err(Error::new(
                "MISCONF Errors writing to the AOF file: it does not have yet what came from a primary",
            ));
        }
        if self.engine.saves.has_failed() && files.stops_after_failure && !files.save_points.is_empty() {
            return Err(Error::new(
                "MISCONF Valkey is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that \
                 may modify the data set are disabled, because this instance is configured to report errors during writes if RDB \
                 snapshotting fails (stop-writes-on-bgsave-error option). Please check the Valkey logs for details about the \
                 RDB error.",
            ));
        }
        if self.engine.lacks_replicas(&self.settings, now) {
            return Err(Error::NO_REPLICAS);
        }
        Ok(())
    }

    /// Takes keys out if memory is full, and refuses what needs memory if that did not help. What waits for EXEC takes memory
    /// too.
    #[inline]
    fn make_room(&mut self, ready: Ready, now: Now) -> Result<(), Error> {
        self.client.is_memory_full = self.engine.make_room(&self.settings, now) == Room::None;
        if !self.client.is_memory_full {
            return Ok(());
        }
        let needs_memory = match &self.client.transaction {
            Some(open) if transaction::is_exec(ready.command) => open.needs_memory,
            Some(_) if matches!(ready.spec().name, "discard" | "quit" | "reset") => false,
            Some(_) => true,
            None => ready.spec().flags.has(Flags::DENYOOM),
        };
        if needs_memory { Err(Error::MEMORY_FULL) } else { Ok(()) }
    }

    /// Whether the pause that is on is about this command. It is read again when the pause ends.
    fn is_held_back(&mut self, ready: Ready, args: Args<'_>, now: Now) -> bool {
        let is_exec = transaction::is_exec(ready.command);
        let queued = self.client.transaction.as_ref().is_some_and(|open| is_exec && open.may_write);
        let wants_to_write = queued || call_may_write(&self.engine, ready, args);
        let now_ms = now.milliseconds();
        let until_ms = self.engine.pause.hold(self.client.id, &self.client.mailbox, wants_to_write, now_ms);
        let span = until_ms.map(|until_ms| Duration::from_millis((until_ms - now_ms).unsigned_abs()));
        self.held = span.map(|span| now.instant + span);
        self.held.is_some()
    }
}

/// Whether a request has to wait because it writes to a slot that changes hands, or may. It is read again when that is over.
fn waits_for_migration(engine: &Engine, client: &Client, ready: Ready, args: Args<'_>) -> bool {
    let open = client.transaction.as_ref();
    if client.import.is_some() || open.is_some() && !transaction::runs_at_once(ready.command) {
        return false;
    }
    let is_writing_exec = open.is_some_and(|open| open.may_write && transaction::is_exec(ready.command));
    if !is_writing_exec && !call_may_write(engine, ready, args) {
        return false;
    }
    // A message is about no slot and writes to none.
    let is_message = client.slot.is_none() && !is_writing_exec && !ready.spec().flags.has(Flags::WRITE);
    let is_script = engine.scripts.flags_of(ready.spec().name, args).is_some();
    if is_message && !is_script || !engine.migration.hold.covers(client.slot) {
        return false;
    }
    engine.migration.hold.enter(client.id, &client.mailbox);
    true
}

/// The request runs elsewhere, or nowhere.
fn send_away(engine: &Engine, client: &mut Client, reply: &mut Reply, ready: Ready, error: &Error) {
    engine.count_error(error);
    client.meter.reject(ready.command.number);
    if transaction::is_exec(ready.command) {
        transaction::discard_all(engine, client);
    } else if let Some(open) = &mut client.transaction {
        open.is_broken = true;
    }
    reply.error(error.as_str());
}

/// A replica may be for reading only, and what it has may be too old.
fn refuse_on_replica(engine: &Engine, settings: &Settings, client: &Client, ready: Ready) -> Result<(), Error> {
    let flags = ready.spec().flags;
    let open = client.transaction.as_ref().filter(|_| transaction::is_exec(ready.command));
    if settings.replication.is_read_only && (flags.has(Flags::WRITE) || open.is_some_and(|open| open.writes)) {
        return Err(Error::READ_ONLY);
    }
    let needs_present = !flags.has(Flags::STALE) || open.is_some_and(|open| open.needs_present);
    if needs_present && engine.is_stale(settings) {
        return Err(Error::STALE);
    }
    Ok(())
}

/// The command waits from now on.
fn begin_wait(engine: &Engine, client: &Client, args: Args<'_>, keys: &Keys<'_>, mut wait: Wait) -> Waits {
    let who = (Arc::clone(&client.card), client.protocol);
    let request = wait.request.take().unwrap_or_else(|| Request::copy(args));
    let waiter = engine.waiting.enter(who, keys.database(), request, &wait);
    if wait.goal.is_some() {
        // It may have been reached before it was entered.
        engine.waiting.reached(engine);
        engine.replication.ask();
    }
    Waits { waiter, deadline: wait.deadline }
}

/// What follows a command: others are served, subscribers are told.
fn settle(frame: &Frame<'_>, effects: &mut Effects, mut keys: Keys<'_>, client: &mut Client) {
    if frame.settings.logs.counts_slots
        && let Some(slot) = client.slot.filter(|_| !client.crosses_slots)
    {
        frame.engine.count_stream(slot, effects);
    }
    client.has_logged |= std::mem::take(&mut effects.has_logged) && frame.engine.journal.is_on();
    frame.engine.settle(frame.settings, &mut keys, effects);
    drop(keys);
    if frame.engine.is_heard() {
        client.written = (frame.engine.replication.end(), frame.engine.journal.end());
    }
    let mut found = std::mem::take(&mut effects.ready);
    if effects.ran_script {
        effects.ran_script = false;
        found.extend(frame.engine.scripts.take_deferred());
    }
    if !found.is_empty() {
        // What the command found unexpired may have expired while it ran.
        frame.engine.serve(found, frame.settings, frame.now.at(frame.engine.host.now()));
    }
}

/// The same of a call: scripts and functions say of themselves whether they write.
fn call_may_write(engine: &Engine, ready: Ready, args: Args<'_>) -> bool {
    match engine.scripts.flags_of(ready.spec().name, args) {
        Some(flags) => !flags.has(ScriptFlags::NO_WRITES),
        None => may_write(ready.spec().flags),
    }
}

/// Whether a word that is no command is one that HTTP requests begin with, or have among their headers.
fn is_http(args: Args<'_>) -> bool {
    args.is(0, "POST") || args.is(0, "Host:")
}

/// Whether a word ends so, in any case.
fn ends_with(word: Option<&[u8]>, end: &[u8]) -> bool {
    word.and_then(|word| word.len().checked_sub(end.len()).map(|at| &word[at..]))
        .is_some_and(|tail| tail.eq_ignore_ascii_case(end))
}

/// Whether a command may change keys or reach replicas.
fn may_write(flags: Flags) -> bool {
    flags.has(Flags::WRITE) || flags.has(Flags::MAY_REPLICATE)
}

/// Whether a client that listens may call it in RESP2, where messages and replies look alike.
fn is_for_subscribers(ready: Ready) -> bool {
    let name = ready.spec().name;
    name.ends_with("subscribe") || matches!(name, "ping" | "quit" | "reset")
}

impl Drop for Session {
    fn drop(&mut self) {
        self.client.meter.flush(&self.engine, self.settings.logs.counts_latency);
        if let Some(waits) = &self.waits {
            waits.waiter.claim();
            self.engine.waiting.leave(&waits.waiter);
        }
        for (topic, name) in &self.client.subscriptions {
            self.engine.pubsub.unsubscribe(self.client.id, *topic, name);
        }
        self.engine.waiting.unwatch(self.client.id, &self.client.watched);
        if self.client.tracking.is_some() {
            self.engine.tracking.end(self.client.id);
        }
        if self.client.is_monitor {
            self.engine.monitors.end(self.client.id);
        }
        if let Some(import) = self.client.import.take() {
            let unix_us = self.client.traffic.seen_ms.saturating_mul(1_000);
            self.engine.end_import(&import, Now { unix_us, instant: self.engine.host.now() });
        }
        if self.client.replica.is_some() {
            self.engine.replication.leave(self.client.id);
        }
        self.release();
        self.engine.clients.bytes.change(self.told_bytes, 0);
        self.engine.clients.leave(self.client.id);
    }
}
