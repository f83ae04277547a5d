//! Where received messages become answers and tasks.
//!
//! Inline handlers run right here, without the connection's lock. Calls of served ones are put down until all that has come was
//! read, so that one whose cancel came with it never begins, and then run here too ([`InPlace`]). Everything else goes through the
//! mux, and what it gives back as [`Work`] becomes tasks.

use core::task::Poll;
use std::sync::Arc;

use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use crate::cancel::Cancelled;
use crate::error::Outcome;
use crate::handler::{Answered, CallContext, Handler, Handlers, Place, Request, RouteIndex, Served};
use crate::in_place::{InPlace, Waiting, first_poll};
use crate::inlet::ReceiveEnd;
use crate::link::Link;
use crate::message::{Flags, Header, Message, MuxId, Op};
use crate::mux::streams::StreamKey;
use crate::mux::{Work, deadline_from_ms, encode_refusal};
use crate::seam::Runtime;
use crate::serve;

pub(crate) struct Dispatch<R: Runtime> {
    runtime: Arc<R>,
    link: Arc<Link>,
    handlers: Arc<Handlers>,
    caller: ServerId,
    in_place: InPlace,
    put_down: PutDown,
    /// The answer of a call that ran in place; kept for its room.
    answer: Vec<u8>,
}

/// Calls that wait for the end of what has come.
#[derive(Default)]
struct PutDown {
    calls: Vec<Header>,
    /// How long the request of each is.
    lens: Vec<usize>,
    /// All requests, one behind the other.
    bytes: Vec<u8>,
    /// Calls that were given up meanwhile, put down or not.
    cancelled: Vec<MuxId>,
}

/// How a call that ran in place ended.
enum Ran {
    Answered(Answered),
    Waits(Arc<Served>, Waiting),
}

impl PutDown {
    #[inline]
    fn put(&mut self, header: &Header, request: &[u8]) {
        self.calls.push(*header);
        self.lens.push(request.len());
        self.bytes.extend_from_slice(request);
    }

    fn clear(&mut self) {
        self.calls.clear();
        self.lens.clear();
        self.bytes.clear();
        self.cancelled.clear();
    }
}

impl<R: Runtime> Dispatch<R> {
    pub(crate) fn new(runtime: Arc<R>, link: Arc<Link>, handlers: Arc<Handlers>) -> Self {
        let caller = link.session().peer;
        let (in_place, put_down) = (InPlace::new(), PutDown::default());
        Self { runtime, link, handlers, caller, in_place, put_down, answer: Vec::new() }
    }

    /// A batch of bytes was received at `now`; its messages come next.
    pub(crate) fn begin_batch(&mut self, now: Instant) {
        let mut mux = self.link.lock();
        mux.awake();
        mux.handle_received(now);
        self.in_place.admit(mux.admission());
    }

    /// Takes one message; `None` for one that this version does not know.
    ///
    /// # Errors
    /// The connection has to be closed.
    #[inline]
    pub(crate) fn handle(&mut self, now: Instant, message: Option<Message<'_>>) -> Result<(), ReceiveEnd> {
        let Some(message) = message else {
            self.link.lock().handle_unknown();
            return Ok(());
        };
        let (header, payload) = (&message.header, message.payload);
        if header.op == Op::Call && !header.flags.contains(Flags::MORE) && self.in_place.is_open() {
            let plain = u16::try_from(header.handler).ok();
            match plain.and_then(|number| self.handlers.get(RouteIndex::default(), number)) {
                Some(Handler::Inline(run)) => {
                    let answered = run(self.caller, payload, &mut self.answer);
                    self.answer_in_place(header.id, answered);
                    return Ok(());
                }
                Some(Handler::Served(_)) => {
                    self.put_down.put(header, payload);
                    return Ok(());
                }
                Some(Handler::Stream(_) | Handler::Datagram(_)) | None => {}
            }
        }
        self.handle_in_mux(now, &message)
    }

    fn handle_in_mux(&mut self, now: Instant, message: &Message<'_>) -> Result<(), ReceiveEnd> {
        let work = self.link.lock().handle_message(now, message)?;
        match message.header.op {
            Op::Datagram => self.hand_over(message),
            Op::Cancel if !self.put_down.calls.is_empty() => self.put_down.cancelled.push(message.header.id),
            _ => {}
        }
        match work {
            Some(work) => self.start(work),
            None => Ok(()),
        }
    }

    /// Bytes of requests that were put down.
    pub(crate) fn put_down_len(&self) -> usize {
        self.put_down.bytes.len()
    }

    /// Serves the calls that were put down: all that has come was read. Whether there were any.
    ///
    /// # Errors
    /// The connection has to be closed.
    pub(crate) fn serve(&mut self, now: Instant) -> Result<bool, ReceiveEnd> {
        if self.put_down.calls.is_empty() {
            return Ok(false);
        }
        let mut put_down = core::mem::take(&mut self.put_down);
        put_down.cancelled.sort_unstable();
        self.in_place.begin(now, self.link.lock().admission());
        let result = self.serve_all(now, &put_down);
        for (number, place) in self.in_place.end() {
            if let Some(Handler::Served(served)) = self.handlers.get(RouteIndex::default(), number) {
                served.give_back(place);
            }
        }
        put_down.clear();
        self.put_down = put_down;
        result.map(|()| true)
    }

    fn serve_all(&mut self, now: Instant, put_down: &PutDown) -> Result<(), ReceiveEnd> {
        let mut rest = put_down.bytes.as_slice();
        for (header, len) in put_down.calls.iter().zip(&put_down.lens) {
            let (payload, behind) = rest.split_at(*len);
            rest = behind;
            let message = Message { header: *header, payload };
            if put_down.cancelled.binary_search(&header.id).is_ok() {
                self.link.lock().note_cancelled_in_place();
                continue;
            }
            match self.run_in_place(now, &message) {
                Some(Ran::Answered(answered)) => self.answer_in_place(header.id, answered),
                Some(Ran::Waits(served, waiting)) => {
                    let deadline = deadline_from_ms(now, header.deadline_ms);
                    self.begin_waiting(header.id, served, waiting, *len, deadline);
                }
                None => self.handle_in_mux(now, &message)?,
            }
        }
        Ok(())
    }

    /// Frees buffers: the connection is idle.
    pub(crate) fn release_memory(&mut self) {
        self.put_down = PutDown::default();
        self.answer = Vec::new();
    }

    /// Runs a call that was put down, if it may run here.
    #[inline]
    fn run_in_place(&mut self, now: Instant, message: &Message<'_>) -> Option<Ran> {
        let Self { runtime, handlers, caller, in_place, answer, .. } = self;
        let number = u16::try_from(message.header.handler).ok()?;
        match handlers.get(RouteIndex::default(), number)? {
            Handler::Served(served) if in_place.admits(message.payload.len()) => {
                let deadline = deadline_from_ms(now, message.header.deadline_ms);
                let context = |cancelled| CallContext { caller: *caller, deadline, cancelled };
                match in_place.serve(&**runtime, (number, served), context, message.payload, answer) {
                    Ok(answered) => Some(Ran::Answered(answered)),
                    Err(waiting) => Some(Ran::Waits(served.clone(), waiting)),
                }
            }
            _ => None,
        }
    }

    #[inline]
    fn answer_in_place(&mut self, id: MuxId, answered: Answered) {
        let outcome = match answered {
            Answered::Ok => Outcome::Ok,
            Answered::Refused(refusal) => {
                self.answer = encode_refusal(&refusal);
                Outcome::Refused
            }
            Answered::Malformed => {
                self.answer.clear();
                Outcome::Malformed
            }
        };
        if !self.link.lock().reply_in_place(id, outcome, &mut self.answer) {
            self.in_place.close();
        }
    }

    /// Makes a task of a call that waits.
    fn begin_waiting(&self, id: MuxId, served: Arc<Served>, waiting: Waiting, bytes: usize, deadline: Instant) {
        let Waiting { place, cancelled } = waiting;
        if self.link.lock().begin_waiting(id, bytes, deadline, cancelled.clone()) {
            self.spawn_call(id, served, place, cancelled);
        } else {
            cancelled.cancel();
            served.give_back(place);
        }
    }

    fn spawn_call(&self, id: MuxId, served: Arc<Served>, place: Box<dyn Place>, cancelled: Cancelled) {
        let task = serve::call(self.link.clone(), id, served, place, cancelled);
        self.runtime.spawn(Box::pin(task));
    }

    /// Gives a datagram to its handler. One without a handler, or in parts, is a later version's: nobody waits for it.
    fn hand_over(&self, message: &Message<'_>) {
        let plain = u16::try_from(message.header.handler).ok().filter(|_| !message.header.flags.contains(Flags::MORE));
        let handler = plain.and_then(|number| self.handlers.get(RouteIndex::default(), number));
        if let Some(Handler::Datagram(run)) = handler {
            run(self.caller, message.payload);
        }
    }

    fn start(&mut self, work: Work) -> Result<(), ReceiveEnd> {
        match work {
            Work::Challenge(challenge) => {
                // A secret that is not held here yet cannot be proved: the peer closes if it never is.
                if let Ok(proof) = self.link.proofs().answer(&challenge) {
                    self.link.lock().push_proof(&proof);
                }
            }
            Work::Proof(answer) => self.link.proofs().verify(&answer).map_err(|_| ReceiveEnd::Unproved)?,
            Work::Route { number, name } => {
                let route = self.handlers.route(&name);
                self.link.lock().set_route(number, route);
            }
            Work::Call { id, route, handler, request, deadline, cancelled } => {
                let context = CallContext { caller: self.caller, deadline, cancelled };
                self.start_call(id, route, handler, context, request);
            }
            Work::Stream { key, route, handler, initial, deadline, cancelled } => {
                let context = CallContext { caller: self.caller, deadline, cancelled };
                self.start_stream(key, route, handler, context, initial);
            }
        }
        Ok(())
    }

    /// Starts a call that the mux knows: its handler has a route, its request came in chunks, or too much was served in place.
    fn start_call(&mut self, id: MuxId, route: RouteIndex, handler: u16, context: CallContext, request: Vec<u8>) {
        let mut answer = Vec::new();
        match self.handlers.get(route, handler) {
            Some(Handler::Served(served)) => {
                let (served, cancelled, mut place) = (served.clone(), context.cancelled.clone(), served.take_place());
                let polled = if self.in_place.has_time() {
                    first_poll(&mut *place, context, Request::Owned(request), &mut answer)
                } else if place.begin(context, Request::Owned(request)) {
                    Poll::Pending
                } else {
                    Poll::Ready(Answered::Malformed)
                };
                self.in_place.spend(&*self.runtime);
                match polled {
                    Poll::Pending => self.spawn_call(id, served, place, cancelled),
                    Poll::Ready(answered) => {
                        served.give_back(place);
                        serve::reply(&self.link, id, answered, answer);
                    }
                }
            }
            Some(Handler::Inline(run)) => {
                let answered = run(self.caller, &request, &mut answer);
                serve::reply(&self.link, id, answered, answer);
            }
            Some(Handler::Stream(_) | Handler::Datagram(_)) | None => {
                self.link.lock().reply(id, Outcome::UnknownHandler, answer);
            }
        }
    }

    fn start_stream(
        &mut self,
        key: StreamKey,
        route: RouteIndex,
        handler: u16,
        context: CallContext,
        initial: Vec<u8>,
    ) {
        match self.handlers.get(route, handler) {
            Some(Handler::Stream(run)) => {
                let task = serve::stream(self.link.clone(), key, run.clone(), context, initial);
                self.runtime.spawn(Box::pin(task));
            }
            _ => self.link.lock().refuse_stream(key, Outcome::UnknownHandler),
        }
    }
}
