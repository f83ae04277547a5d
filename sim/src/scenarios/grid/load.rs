//! What the clients on every server do: calls and streams to all others, with deadlines and changes of mind.

use core::fmt;
use core::future::poll_fn;
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use std::sync::Arc;

use ashlar_grid::error::{CallError, Lost, Reason, StreamError};
use ashlar_grid::outbox::Class as Urgency;
use ashlar_grid::seam::Runtime;
use ashlar_grid::stream::{ClientStream, Receiver, Sender};
use ashlar_grid::{CallOptions, Grid};
use ashlar_wire::id::ServerId;

use super::book::{Book, Phase};
use super::serve::{ASKED_FOR, Ask, Counted, Delayed, Echo, PATTERN, ROUTES, STREAM_FAILED, StreamAsk, Way};
use crate::rng::Rng;
use crate::swarm::{Class, Params};
use crate::world::{Control, ServerNo, SimRuntime};

/// How much later than its deadline a call may end, beside pauses of its server and the drift of its clock.
const LATE_NS_MAX: u64 = 20_000_000;

/// How much earlier than its deadline a call may end by it, beside the drift of a clock: the request tells whole milliseconds.
const EARLY_NS_MAX: u64 = 1_000_000;
/// From so long on, a call begins by the coarse clock, and its deadline may come a tick of that earlier.
const LONG: Duration = Duration::from_secs(5);
const EARLY_LONG_NS_MAX: u64 = 11_000_000;

/// Operations of one client in one life.
const OPERATIONS_MAX: u32 = 120;

/// Before a client looks again whether a server is known.
const ACQUAINTANCE: Duration = Duration::from_millis(5);

/// Messages of one stream.
const MESSAGES_MAX: u64 = 200;

/// What of a seed decides how strict the judgement of single errors is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Strictness {
    /// Connections are lost for reasons outside the grid.
    connections_fail: bool,
    /// Bytes change on the way.
    bytes_change: bool,
}

impl Strictness {
    pub(super) fn of(params: &Params) -> Self {
        let gentle = [Class::Drain, Class::Drift, Class::WallStep, Class::Slow];
        Self { connections_fail: !params.only(&gentle), bytes_change: params.classes.contains(&Class::Corrupt) }
    }

    pub(super) fn bytes_change(self) -> bool {
        self.bytes_change
    }

    /// Whether a call may fail for this reason in such a world.
    fn allows(self, reason: Reason) -> bool {
        match reason {
            Reason::Deadline
            | Reason::TooLong
            | Reason::UnknownPeer
            | Reason::NotConnected
            | Reason::Overloaded
            | Reason::Draining
            | Reason::BreakerOpen => true,
            Reason::Disconnected(Lost::Protocol) | Reason::Malformed | Reason::UnknownHandler => self.bytes_change,
            // The grid of this server stopped.
            Reason::Disconnected(Lost::Shutdown) => true,
            Reason::Disconnected(_) => self.connections_fail,
            Reason::Cancelled | Reason::HandlerFailed => false,
        }
    }
}

/// One client of one life of a server.
pub(super) struct Client {
    pub(super) grid: Grid<SimRuntime>,
    pub(super) runtime: SimRuntime,
    pub(super) control: Control,
    pub(super) book: Arc<Book>,
    pub(super) rng: Rng,
    pub(super) servers: u32,
    pub(super) think_ns_max: u64,
    pub(super) strictness: Strictness,
    /// The grid of this server has stopped.
    pub(super) stopped: bool,
}

/// When something began, and how long it may take.
struct Term {
    control: Control,
    book: Arc<Book>,
    server: ServerNo,
    began_ns: u64,
    paused_ns: u64,
    timeout: Duration,
}

impl Term {
    /// Whatever waits for its peer ends at its deadline.
    fn check(&self, what: &dyn fmt::Display) {
        let paused_ns = self.control.paused_ns(self.server) - self.paused_ns;
        let took_ns = self.control.now_ns() - self.began_ns - paused_ns;
        let timeout_ns = self.timeout.as_nanos() as u64;
        if took_ns > timeout_ns + timeout_ns / 50 + LATE_NS_MAX {
            self.book.wrong(format_args!("{what} took {took_ns} ns with a timeout of {timeout_ns} ns"));
        }
    }

    /// Nothing ends by its deadline before it.
    fn check_reason(&self, reason: Reason) {
        let (took_ns, timeout_ns) = (self.control.now_ns() - self.began_ns, self.timeout.as_nanos() as u64);
        let early_ns = if self.timeout < LONG { EARLY_NS_MAX } else { EARLY_LONG_NS_MAX };
        if reason == Reason::Deadline && took_ns + timeout_ns / 50 + early_ns < timeout_ns {
            self.book.wrong(format_args!("the deadline of {timeout_ns} ns had passed after {took_ns} ns"));
        }
    }
}

impl Client {
    pub(super) async fn run(mut self) {
        let book = Arc::clone(&self.book);
        let _running = book.run("clients");
        let mut operations = 0;
        while operations < OPERATIONS_MAX && self.book.phase() != Phase::Over && !self.stopped {
            let own = self.runtime.server().0;
            let to = ServerNo((own + 1 + self.rng.below(u64::from(self.servers - 1)) as u32) % self.servers);
            // Calls to a server that nobody has met yet fail at once: they are tried, but not again and again.
            if self.grid.peer(server_id(to)).is_err() && !self.rng.chance(50_000) {
                self.runtime.sleep_until(self.runtime.now() + ACQUAINTANCE).await;
                continue;
            }
            operations += 1;
            match self.rng.below(10) {
                0..2 => self.echo(to).await,
                2..4 => self.delayed(to).await,
                4..7 => self.counted(to).await,
                _ => self.stream(to).await,
            }
            let think = Duration::from_nanos(self.rng.magnitude(0..=self.think_ns_max));
            self.runtime.sleep_until(self.runtime.now() + think).await;
        }
    }

    fn note(&self, what: fmt::Arguments<'_>) {
        self.control.note(format!("s{} {what}", self.runtime.server().0));
    }

    fn term(&mut self) -> Term {
        let timeout = Duration::from_micros(self.rng.magnitude(1_000..=9_000_000));
        let server = self.runtime.server();
        Term {
            control: self.control.clone(),
            book: Arc::clone(&self.book),
            server,
            began_ns: self.control.now_ns(),
            paused_ns: self.control.paused_ns(server),
            timeout,
        }
    }

    fn options(&mut self, term: &Term) -> CallOptions<'static> {
        CallOptions {
            timeout: Some(term.timeout),
            fail_fast: self.rng.chance(100_000),
            class: self.rng.pick(&[Urgency::Foreground, Urgency::Background]),
            ..CallOptions::default()
        }
    }

    fn body_len(&mut self) -> usize {
        let len_max = if self.rng.chance(50_000) { 400_000 } else { 5_000 };
        self.rng.magnitude(0..=len_max) as usize
    }

    fn ask(&mut self) -> Ask {
        Ask {
            id: self.book.new_id(),
            refuse: self.rng.chance(100_000),
            delay_us: if self.rng.chance(500_000) { 0 } else { self.rng.magnitude(0..=2_000_000) as u32 },
            answer_len: self.body_len() as u32,
        }
    }

    /// The value of `future`, unless the caller loses patience before.
    async fn patiently<T>(&mut self, term: &Term, future: impl Future<Output = T>) -> Option<T> {
        if !self.rng.chance(100_000) {
            return Some(future.await);
        }
        let patience = Duration::from_nanos(self.rng.magnitude(0..=term.timeout.as_nanos() as u64));
        let mut future = pin!(future);
        let mut sleep = self.runtime.sleep_until(self.runtime.now() + patience);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => sleep.as_mut().poll(cx).map(|()| None),
        })
        .await
    }

    async fn echo(&mut self, to: ServerNo) {
        let request = Ask { delay_us: 0, answer_len: 0, ..self.ask() }.encode(self.body_len());
        let term = self.term();
        let options = self.options(&term);
        let grid = self.grid.clone();
        let end = self.patiently(&term, grid.call::<Echo>(server_id(to), &request, options)).await;
        term.check(&"an echo");
        match end {
            None => self.book.count("calls_abandoned"),
            Some(Ok(reply)) if reply == request => self.book.count("calls_ok"),
            Some(Ok(_)) => self.book.wrong("an echo is not what was sent"),
            Some(Err(error)) => self.failed(&term, &error),
        }
    }

    async fn delayed(&mut self, to: ServerNo) {
        let ask = self.ask();
        let request = ask.encode(self.body_len());
        let term = self.term();
        let route = if self.rng.chance(500_000) { "" } else { self.rng.pick(&ROUTES) };
        let options = CallOptions { route, ..self.options(&term) };
        self.note(format_args!("calls {to:?}: {ask:?} + {} bytes within {:?}", request.len(), term.timeout));
        let grid = self.grid.clone();
        let end = self.patiently(&term, grid.call::<Delayed>(server_id(to), &request, options)).await;
        let ended = end.as_ref().map(|end| end.as_ref().map(Vec::len));
        self.note(format_args!("call {} ended: {ended:?}", ask.id));
        term.check(&format_args!("call {}", ask.id));
        if let Some(end) = end { self.judge(&term, ask, &end) } else { self.book.count("calls_abandoned") }
    }

    async fn counted(&mut self, to: ServerNo) {
        let ask = self.ask();
        let request = ask.encode(self.body_len());
        let term = self.term();
        let options = self.options(&term);
        self.note(format_args!("calls {to:?} once: {ask:?} + {} bytes within {:?}", request.len(), term.timeout));
        let grid = self.grid.clone();
        let end = self.patiently(&term, grid.call::<Counted>(server_id(to), &request, options)).await;
        let ended = end.as_ref().map(|end| end.as_ref().map(Vec::len));
        self.note(format_args!("call {} ended: {ended:?}", ask.id));
        term.check(&format_args!("call {}", ask.id));
        match &end {
            None => return self.book.count("calls_abandoned"),
            Some(Ok(_) | Err(CallError::Refused(_))) => self.book.answered(ask.id),
            Some(Err(error)) if error.is_retry_safe() => self.book.denied(ask.id, error),
            Some(Err(_)) => {}
        }
        if let Some(end) = end {
            self.judge(&term, ask, &end);
        }
    }

    fn judge(&mut self, term: &Term, ask: Ask, end: &Result<Vec<u8>, CallError>) {
        match end {
            Ok(reply) if !ask.refuse && *reply == ask.answer() => self.book.count("calls_ok"),
            Ok(reply) => {
                let (id, len) = (ask.id, reply.len());
                self.book.wrong(format_args!("call {id} was answered with {len} bytes that are not its answer"));
            }
            Err(CallError::Refused(refusal)) => {
                if !ask.refuse || refusal.code != ASKED_FOR || refusal.text != ask.id.to_string() {
                    self.book.wrong(format_args!("call {}: {refusal}", ask.id));
                }
                self.book.count("calls_refused");
            }
            Err(error) => self.failed(term, error),
        }
    }

    fn failed(&mut self, term: &Term, error: &CallError) {
        self.stopped |= *error == CallError::NotSent(Reason::Disconnected(Lost::Shutdown));
        self.book.count(match error {
            CallError::NotSent(_) => "calls_not_sent",
            CallError::NotExecuted(_) => "calls_not_executed",
            CallError::Unknown(_) | CallError::Refused(_) => "calls_unknown",
        });
        let Some(reason) = error.reason() else { return };
        self.book.count(name_of(reason));
        term.check_reason(reason);
        if !self.strictness.allows(reason) {
            self.book.wrong(format_args!("a call failed for no reason of this world: {error}"));
        }
    }

    async fn stream(&mut self, to: ServerNo) {
        let message_len_max = if self.rng.chance(50_000) { 60_000 } else { 2_000 };
        let ask = StreamAsk {
            id: self.book.new_id(),
            way: self.rng.pick(&[Way::Down, Way::Up, Way::Both]),
            messages: self.rng.magnitude(0..=MESSAGES_MAX) as u32,
            message_len: self.rng.magnitude(0..=message_len_max) as u32,
            pause_us: if self.rng.chance(700_000) { 0 } else { self.rng.magnitude(0..=20_000) as u32 },
            refuse_at: None,
        };
        let refuse_at = self.rng.chance(100_000).then(|| self.rng.below(MESSAGES_MAX) as u32);
        let ask = StreamAsk { refuse_at, ..ask };
        let term = self.term();
        let window = if self.rng.chance(500_000) { (0, 0) } else { self.window() };
        let options = CallOptions { window, ..self.options(&term) };
        let think_us = if self.rng.chance(700_000) { 0 } else { self.rng.magnitude(0..=20_000) };
        let exchange =
            Exchange { ask, runtime: self.runtime.clone(), think: Duration::from_micros(think_us), term: &term };
        self.note(format_args!("opens {to:?}: {ask:?} within {:?}", term.timeout));
        let grid = self.grid.clone();
        let stream = async {
            let opened = grid.open_stream(server_id(to), PATTERN, &ask.encode(), options).await;
            term.check(&format_args!("opening stream {}", ask.id));
            exchange.run(opened?).await
        };
        let end = self.patiently(&term, stream).await;
        self.note(format_args!("stream {} ended: {end:?}", ask.id));
        match end {
            None => self.book.count("streams_abandoned"),
            Some(Ok(())) => self.book.count("streams_ok"),
            Some(Err(error)) => self.stream_failed(&term, ask, &error),
        }
    }

    fn window(&mut self) -> (u32, u32) {
        let first = self.rng.magnitude(1..=100_000) as u32;
        (first, first.saturating_mul(self.rng.within(1..=4) as u32))
    }

    fn stream_failed(&self, term: &Term, ask: StreamAsk, error: &StreamError) {
        self.book.count("streams_failed");
        if let StreamError::NotExecuted(reason) | StreamError::Cut(reason) = error {
            self.book.count(name_of(*reason));
            term.check_reason(*reason);
        }
        let ok = match error {
            StreamError::Refused(refusal) if refusal.code == ASKED_FOR => {
                ask.refuse_at.is_some() && refusal.text == ask.id.to_string()
            }
            // The handler saw the stream fail; its own view of it says why.
            StreamError::Refused(refusal) => refusal.code == STREAM_FAILED && self.strictness.connections_fail,
            StreamError::NotExecuted(reason) | StreamError::Cut(reason) => self.strictness.allows(*reason),
            StreamError::NotWhole => self.strictness.bytes_change,
            StreamError::Finished => false,
        };
        if !ok {
            self.book.wrong(format_args!("stream {} failed for no reason of this world: {error}", ask.id));
        }
    }
}

/// What the summary calls a reason.
fn name_of(reason: Reason) -> &'static str {
    match reason {
        Reason::Deadline => "for_deadline",
        Reason::TooLong => "for_too_long",
        Reason::UnknownPeer => "for_unknown_peer",
        Reason::NotConnected => "for_not_connected",
        Reason::Disconnected(_) => "for_disconnected",
        Reason::Overloaded => "for_overloaded",
        Reason::Draining => "for_draining",
        Reason::BreakerOpen => "for_breaker_open",
        _ => "for_others",
    }
}

/// A stream from its opening to its end.
struct Exchange<'a> {
    ask: StreamAsk,
    runtime: SimRuntime,
    /// The reader's pause after each message.
    think: Duration,
    term: &'a Term,
}

impl Exchange<'_> {
    /// Runs both directions to their ends.
    async fn run(&self, stream: ClientStream) -> Result<(), StreamError> {
        let ClientStream { mut sender, mut receiver } = stream;
        if self.ask.way == Way::Down {
            return self.collect(&mut receiver).await;
        }
        let mut sending = pin!(self.send_all(&mut sender));
        let mut receiving = pin!(self.collect(&mut receiver));
        let mut sent = None;
        poll_fn(|cx| {
            if sent.is_none()
                && let Poll::Ready(end) = sending.as_mut().poll(cx)
            {
                sent = Some(end);
            }
            // What the receiving half says is the stream's end; a failure to send shows there too.
            receiving.as_mut().poll(cx)
        })
        .await
    }

    /// Waits for `future`, which must not take longer than the stream may.
    async fn timed<T>(&self, future: impl Future<Output = T>) -> T {
        let began_ns = self.term.control.now_ns();
        let value = future.await;
        // What is here already may be taken after the deadline.
        if self.term.control.now_ns() > began_ns {
            self.term.check(&format_args!("stream {} {:?}", self.ask.id, self.ask.way));
        }
        value
    }

    async fn send_all(&self, sender: &mut Sender) -> Result<(), StreamError> {
        for index in 0..self.ask.messages {
            self.timed(sender.send(&self.ask.message(index))).await?;
        }
        self.timed(sender.finish()).await
    }

    /// Receives to the end, and checks that an orderly end comes after everything that was sent.
    async fn collect(&self, receiver: &mut Receiver) -> Result<(), StreamError> {
        let StreamAsk { id, way, messages, .. } = self.ask;
        let book = &self.term.book;
        let expected = if way == Way::Up { 1 } else { messages };
        let mut index = 0;
        while let Some(message) = self.timed(receiver.receive()).await? {
            let right = if way == Way::Up { messages.to_le_bytes().to_vec() } else { self.ask.message(index) };
            if message != right || index >= expected {
                book.wrong(format_args!("stream {id} {way:?}: message {index} is not the one that was sent"));
            }
            index += 1;
            if !self.think.is_zero() {
                self.runtime.sleep_until(self.runtime.now() + self.think).await;
            }
        }
        book.add("stream_messages", u64::from(index));
        if index != expected {
            book.wrong(format_args!("stream {id} {way:?} ended in order after {index} of {expected} messages"));
        }
        Ok(())
    }
}

/// Calls `to` until it answers: shows that the pair is connected again.
pub(super) async fn probe(grid: Grid<SimRuntime>, runtime: SimRuntime, book: Arc<Book>, to: ServerNo) {
    let _running = book.run("probes");
    while book.phase() != Phase::Over {
        let options = CallOptions::within(Duration::from_secs(2));
        if grid.call::<Echo>(server_id(to), &vec![7], options).await.is_ok() {
            return book.meet(runtime.server(), to);
        }
        runtime.sleep_until(runtime.now() + Duration::from_millis(50)).await;
    }
}

/// The id of a simulated server.
pub(super) fn server_id(server: ServerNo) -> ServerId {
    let mut bytes = [0x5a; 16];
    bytes[15] = server.0 as u8;
    ServerId::from_bytes(bytes)
}
