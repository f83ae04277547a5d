//! Handlers: what a server answers, registered once by a typed id.
//!
//! The crate that registers a handler declares its [`HandlerId`]. A handler is *inline* (runs on the connection's own task,
//! must be short and must not wait), *served* (a future that may wait, dropped when its caller leaves), a *stream*, or for
//! *datagrams* (never answered; what comes may have been lost, and must only be handed over).
//! It may be bound to a route, for instance one drive of a server; the caller names the route, which travels once per
//! connection and is two bytes afterwards.

mod served;

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cancel::Cancelled;
use crate::error::Refusal;
use crate::seam::{BoxFuture, Lane};
use crate::stream::ServerStream;

pub use served::Served;
pub(crate) use served::{Place, Request};

/// Number of a handler on the wire. The crate that registers a handler declares its number as a constant; a number never
/// changes its meaning and is never used again (2 was one of an earlier version).
///
/// Ranges: 1 to 9 benchmarks and tests, 10 to 31 the node and its key-value engines, 64 to 79 volumes, 80 to 95 the catalog,
/// 96 to 111 objects. [`Handlers`] refuses two handlers of one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HandlerId(u16);

impl HandlerId {
    /// The greatest number: registered handlers stand in a table of that length at most.
    pub const NUMBER_MAX: u16 = 1_023;

    /// The handler of this number.
    ///
    /// # Panics
    /// The number is 0 or above [`HandlerId::NUMBER_MAX`]. In a constant, the compiler says so.
    #[must_use]
    pub const fn new(number: u16) -> Self {
        assert!(number > 0 && number <= Self::NUMBER_MAX, "handlers have numbers from 1 to 1,023");
        Self(number)
    }

    /// The number.
    #[inline]
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }
}

/// A value that travels as a payload.
pub trait Payload: Sized + Send + 'static {
    /// Appends its written form.
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads it back.
    ///
    /// # Errors
    /// The bytes are not such a value.
    fn decode(bytes: &[u8]) -> Result<Self, MalformedPayload>;

    /// The same, for values that are bytes: in `room`, an empty buffer or one whose content nobody needs.
    ///
    /// # Errors
    /// As [`Payload::decode`].
    fn decode_into(bytes: &[u8], room: Vec<u8>) -> Result<Self, MalformedPayload> {
        drop(room);
        Self::decode(bytes)
    }

    /// Reads it back from bytes that nobody else needs.
    ///
    /// # Errors
    /// As [`Payload::decode`].
    fn take(bytes: Vec<u8>) -> Result<Self, MalformedPayload> {
        Self::decode(&bytes)
    }

    /// Appends its written form, and gives a buffer for the next value that is bytes.
    fn append_to(self, out: &mut Vec<u8>) -> Vec<u8> {
        self.encode(out);
        Vec::new()
    }
}

/// The bytes of a payload are not what its type says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedPayload;

impl fmt::Display for MalformedPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the payload is malformed")
    }
}

impl core::error::Error for MalformedPayload {}

impl Payload for () {
    fn encode(&self, _out: &mut Vec<u8>) {}

    fn decode(bytes: &[u8]) -> Result<Self, MalformedPayload> {
        if bytes.is_empty() { Ok(()) } else { Err(MalformedPayload) }
    }
}

/// Bytes that are moved instead of copied. Fewer are copied, so that buffers that are used again stay where they are.
const MOVED_BYTES_MIN: usize = 4 << 10;

impl Payload for Vec<u8> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn decode(bytes: &[u8]) -> Result<Self, MalformedPayload> {
        Ok(bytes.to_vec())
    }

    fn decode_into(bytes: &[u8], mut room: Vec<u8>) -> Result<Self, MalformedPayload> {
        room.clear();
        room.extend_from_slice(bytes);
        Ok(room)
    }

    fn take(bytes: Vec<u8>) -> Result<Self, MalformedPayload> {
        Ok(bytes)
    }

    fn append_to(mut self, out: &mut Vec<u8>) -> Vec<u8> {
        if out.is_empty() && self.len() >= MOVED_BYTES_MIN {
            core::mem::swap(&mut self, out);
        } else {
            self.encode(out);
        }
        self
    }
}

/// Any serde value, as MessagePack with its fields in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed<T>(pub T);

impl<T: Serialize + DeserializeOwned + Send + 'static> Payload for Packed<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        rmp_serde::encode::write(out, &self.0).expect("a value of our own packs into memory");
    }

    fn decode(bytes: &[u8]) -> Result<Self, MalformedPayload> {
        rmp_serde::from_slice(bytes).map(Self).map_err(|_| MalformedPayload)
    }
}

/// One kind of call: its id and types, known to caller and handler alike.
pub trait Method: 'static {
    /// Its id.
    const ID: HandlerId;
    /// Which connection it takes. [`Lane::Bulk`] where request or answer usually has 64 KiB or more; a longer request
    /// takes the bulk lane anyway.
    const LANE: Lane = Lane::Small;
    /// Whether running it twice is the same as once: then the grid itself retries after a lost connection.
    const IDEMPOTENT: bool = false;
    /// What is asked.
    type Request: Payload;
    /// What is answered.
    type Reply: Payload;
}

/// What a handler knows of its caller.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// The authenticated caller.
    pub caller: ServerId,
    /// When the caller stops waiting; [`Instant::NEVER`] if it did not say.
    pub deadline: Instant,
    /// Resolves when the caller has left. A served handler's future is dropped then; this is for work that it started.
    pub cancelled: Cancelled,
}

pub(crate) type InlineFn = dyn Fn(ServerId, &[u8], &mut Vec<u8>) -> Answered + Send + Sync;
pub(crate) type DatagramFn = dyn Fn(ServerId, &[u8]) + Send + Sync;
pub(crate) type StreamFn = dyn Fn(CallContext, Vec<u8>, ServerStream) -> BoxFuture<Result<(), Refusal>> + Send + Sync;

/// How a handler answered; the answer itself stands in the buffer beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answered {
    /// With a reply.
    Ok,
    /// With a refusal.
    Refused(Refusal),
    /// Not at all: the request is not one.
    Malformed,
}

/// One registered handler.
#[derive(Clone)]
pub enum Handler {
    /// Runs on the connection's task.
    Inline(Arc<InlineFn>),
    /// Runs where its request was read as long as it does not wait, and beside the connection from then on.
    Served(Arc<Served>),
    /// Keeps a stream.
    Stream(Arc<StreamFn>),
    /// Takes datagrams on the connection's task.
    Datagram(Arc<DatagramFn>),
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inline(_) => "Inline",
            Self::Served(_) => "Served",
            Self::Stream(_) => "Stream",
            Self::Datagram(_) => "Datagram",
        })
    }
}

/// The same handler and route were registered before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredTwice {
    /// The handler.
    pub handler: HandlerId,
    /// Its route, empty for none.
    pub route: String,
}

impl fmt::Display for RegisteredTwice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "handler {:?} is registered twice on route {:?}; remove one", self.handler, self.route)
    }
}

impl core::error::Error for RegisteredTwice {}

/// Number of a route among those registered here; 0 is "no route".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct RouteIndex(pub u16);

/// All handlers of a server, complete before the first connection.
#[derive(Debug, Clone, Default)]
pub struct Handlers {
    /// Without a route, by number: the hot path is an index.
    plain: Vec<Option<Handler>>,
    routed: BTreeMap<(RouteIndex, HandlerId), Handler>,
    routes: BTreeMap<String, RouteIndex>,
}

impl Handlers {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers an inline handler over bytes: it appends its answer to the buffer it is given. It runs on the
    /// connection's own task: microseconds, no waiting, no locks that are held for longer, no call of the grid.
    ///
    /// # Errors
    /// Registered before.
    pub fn inline_bytes(
        self,
        id: HandlerId,
        handler: impl Fn(ServerId, &[u8], &mut Vec<u8>) -> Result<(), Refusal> + Send + Sync + 'static,
    ) -> Result<Self, RegisteredTwice> {
        let run = move |caller: ServerId, request: &[u8], out: &mut Vec<u8>| match handler(caller, request, out) {
            Ok(()) => Answered::Ok,
            Err(refusal) => Answered::Refused(refusal),
        };
        self.insert("", id, Handler::Inline(Arc::new(run)))
    }

    /// Registers an inline handler; see [`Handlers::inline_bytes`].
    ///
    /// # Errors
    /// Registered before.
    pub fn inline<M: Method>(
        self,
        handler: impl Fn(ServerId, M::Request) -> Result<M::Reply, Refusal> + Send + Sync + 'static,
    ) -> Result<Self, RegisteredTwice> {
        let run = move |caller: ServerId, request: &[u8], out: &mut Vec<u8>| {
            let Ok(request) = M::Request::decode(request) else { return Answered::Malformed };
            match handler(caller, request) {
                Ok(reply) => {
                    reply.encode(out);
                    Answered::Ok
                }
                Err(refusal) => Answered::Refused(refusal),
            }
        };
        self.insert("", M::ID, Handler::Inline(Arc::new(run)))
    }

    /// Registers a handler whose future may wait. It is polled first on the connection's own task, right where its request was
    /// read: what it does before it waits for the first time holds up the messages behind it, for some 100 us in all; calls
    /// behind those begin as tasks. Once it waits, it is a task; it is dropped when its caller leaves or its deadline passes.
    ///
    /// # Errors
    /// Registered before.
    pub fn serve<M: Method, F>(
        self,
        handler: impl Fn(CallContext, M::Request) -> F + Send + Sync + 'static,
    ) -> Result<Self, RegisteredTwice>
    where
        F: Future<Output = Result<M::Reply, Refusal>> + Send + 'static,
    {
        self.serve_on::<M, F>("", handler)
    }

    /// Like [`Handlers::serve`], for one route.
    ///
    /// # Errors
    /// Registered before on this route.
    pub fn serve_on<M: Method, F>(
        self,
        route: &str,
        handler: impl Fn(CallContext, M::Request) -> F + Send + Sync + 'static,
    ) -> Result<Self, RegisteredTwice>
    where
        F: Future<Output = Result<M::Reply, Refusal>> + Send + 'static,
    {
        self.insert(route, M::ID, Handler::Served(Arc::new(Served::new::<M, F>(handler))))
    }

    /// Registers a stream handler: it gets the initial payload and both directions; its return ends the stream.
    ///
    /// # Errors
    /// Registered before.
    pub fn stream<F>(
        self,
        id: HandlerId,
        handler: impl Fn(CallContext, Vec<u8>, ServerStream) -> F + Send + Sync + 'static,
    ) -> Result<Self, RegisteredTwice>
    where
        F: Future<Output = Result<(), Refusal>> + Send + 'static,
    {
        let run = move |context: CallContext,
                        initial: Vec<u8>,
                        stream: ServerStream|
              -> BoxFuture<Result<(), Refusal>> { Box::pin(handler(context, initial, stream)) };
        self.insert("", id, Handler::Stream(Arc::new(run)))
    }

    /// Registers a handler of datagrams. It runs on the connection's own task, as inline handlers do, and nobody hears of it:
    /// it should do no more than put the bytes where somebody else takes them up.
    ///
    /// # Errors
    /// Registered before.
    pub fn datagram(
        self,
        id: HandlerId,
        handler: impl Fn(ServerId, &[u8]) + Send + Sync + 'static,
    ) -> Result<Self, RegisteredTwice> {
        self.insert("", id, Handler::Datagram(Arc::new(handler)))
    }

    fn insert(mut self, route: &str, id: HandlerId, handler: Handler) -> Result<Self, RegisteredTwice> {
        let twice = || RegisteredTwice { handler: id, route: route.to_owned() };
        if !route.is_empty() {
            let next = RouteIndex(u16::try_from(self.routes.len() + 1).expect("fewer than 65,535 routes a server"));
            let index = *self.routes.entry(route.to_owned()).or_insert(next);
            return match self.routed.insert((index, id), handler) {
                None => Ok(self),
                Some(_) => Err(twice()),
            };
        }
        let at = usize::from(id.number());
        if self.plain.len() <= at {
            self.plain.resize(at + 1, None);
        }
        if self.plain[at].is_some() {
            return Err(twice());
        }
        self.plain[at] = Some(handler);
        Ok(self)
    }

    /// The handler of that number on a route.
    #[inline]
    #[must_use]
    pub fn get(&self, route: RouteIndex, number: u16) -> Option<&Handler> {
        if route == RouteIndex::default() {
            return self.plain.get(usize::from(number))?.as_ref();
        }
        self.routed.get(&(route, HandlerId(number)))
    }

    /// The index of a route that is registered here.
    #[must_use]
    pub fn route(&self, name: &str) -> Option<RouteIndex> {
        self.routes.get(name).copied()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) struct Echo;

    impl Method for Echo {
        const ID: HandlerId = HandlerId::new(1);
        type Request = Vec<u8>;
        type Reply = Vec<u8>;
    }

    #[test]
    #[should_panic(expected = "numbers from 1 to 1,023")]
    fn no_handler_has_number_0() {
        let _ = HandlerId::new(0);
    }

    #[test]
    fn registering_twice_is_an_error() {
        let echo = |_, request| Ok(request);
        let once = Handlers::new().inline::<Echo>(echo).expect("the first");
        let error = once.inline::<Echo>(echo).expect_err("the second");
        assert_eq!(error, RegisteredTwice { handler: Echo::ID, route: String::new() });
    }

    #[test]
    fn routes_are_separate() {
        let serve = |_: CallContext, request: Vec<u8>| core::future::ready(Ok(request));
        let handlers = Handlers::new().serve_on::<Echo, _>("drive-1", serve).expect("first route");
        let handlers = handlers.serve_on::<Echo, _>("drive-2", serve).expect("second route");
        let first = handlers.route("drive-1").expect("registered");
        assert!(handlers.get(first, Echo::ID.number()).is_some());
        assert!(handlers.get(RouteIndex::default(), Echo::ID.number()).is_none());
        assert_eq!(handlers.route("drive-3"), None);
        assert!(handlers.serve_on::<Echo, _>("drive-2", serve).is_err());
    }

    #[test]
    fn numbers_have_a_range() {
        assert_eq!([1, HandlerId::NUMBER_MAX].map(|number| HandlerId::new(number).number()), [1, 1_023]);
        assert!(std::panic::catch_unwind(|| HandlerId::new(HandlerId::NUMBER_MAX + 1)).is_err());
    }

    #[test]
    fn payloads_go_and_come_back() {
        assert_eq!(<()>::decode(b""), Ok(()));
        assert_eq!(<()>::decode(b"?"), Err(MalformedPayload));
        let mut out = b"before ".to_vec();
        ().encode(&mut out);
        assert_eq!(().append_to(&mut out), Vec::<u8>::new());
        Packed(300_u32).encode(&mut out);
        assert_eq!(out, b"before \xcd\x01\x2c");
        assert_eq!(Packed::<u32>::decode(&out[7..]), Ok(Packed(300)));
        assert_eq!(Packed::<u32>::take(out[7..].to_vec()), Ok(Packed(300)));
        assert_eq!(Packed::<u32>::decode_into(&out[7..], vec![1]), Ok(Packed(300)));
        assert_eq!(Packed::<u32>::decode(b"\xa1x"), Err(MalformedPayload));
        let room = Vec::with_capacity(500);
        let at = room.as_ptr();
        let decoded = Vec::<u8>::decode_into(b"bytes", room).expect("bytes");
        assert_eq!((decoded.as_slice(), decoded.as_ptr()), (b"bytes".as_slice(), at), "where there was room");
        assert_eq!(Vec::<u8>::decode(b"bytes"), Ok(b"bytes".to_vec()));
    }

    #[test]
    fn bytes_are_moved_where_they_are_many_and_nothing_is_before_them() {
        for (len, before, is_moved) in [(4_096, false, true), (4_095, false, false), (4_096, true, false)] {
            let mut out = if before { vec![1] } else { Vec::new() };
            let value = vec![7; len];
            let at = value.as_ptr();
            let left = value.append_to(&mut out);
            assert_eq!((out.as_ptr() == at, left.as_ptr() == at), (is_moved, !is_moved), "{len}");
            assert_eq!(out[usize::from(before)..], vec![7; len]);
        }
    }

    #[test]
    fn each_kind_is_found_under_its_number_and_has_a_name() {
        let id = HandlerId::new;
        let handlers = Handlers::new()
            .inline_bytes(id(1), |_, _, _| Ok(()))
            .and_then(|handlers| handlers.stream(id(3), |_, _, _| core::future::ready(Ok(()))))
            .and_then(|handlers| handlers.datagram(id(4), |_, _| {}))
            .and_then(|handlers| handlers.serve_on::<Echo, _>("drive", |_, request| core::future::ready(Ok(request))))
            .expect("four numbers");
        let drive = handlers.route("drive").expect("registered");
        let plain = RouteIndex::default();
        let name = |route, number| handlers.get(route, number).map(|handler| format!("{handler:?}"));
        let names: Vec<_> = (0..6).map(|number| name(plain, number)).collect();
        let expected = [None, Some("Inline"), None, Some("Stream"), Some("Datagram"), None];
        assert_eq!(names, expected.map(|name| name.map(str::to_owned)));
        assert_eq!((name(drive, 1).as_deref(), name(drive, 2), name(RouteIndex(9), 1)), (Some("Served"), None, None));
        assert_eq!((drive, handlers.route("nowhere")), (RouteIndex(1), None));
        let twice = handlers.datagram(id(3), |_, _| {}).expect_err("it is a stream");
        assert_eq!(twice.to_string(), "handler HandlerId(3) is registered twice on route \"\"; remove one");
        assert_eq!(MalformedPayload.to_string(), "the payload is malformed");
    }

    #[test]
    fn inline_handlers_answer_refuse_or_cannot_read() {
        let handlers = Handlers::new().inline::<Number>(|_, Packed(number)| match number {
            0 => Err(Refusal::new(5, "no")),
            number => Ok(Packed(number + 1)),
        });
        let handlers = handlers.expect("the first");
        let Some(Handler::Inline(run)) = handlers.get(RouteIndex::default(), 2) else { panic!("an inline one") };
        let cases: [(&[u8], Answered, &[u8]); 3] = [
            (b"\x05", Answered::Ok, b"\x06"),
            (b"\x00", Answered::Refused(Refusal::new(5, "no")), b""),
            (b"\xc0", Answered::Malformed, b""),
        ];
        for (request, answered, answer) in cases {
            let mut out = Vec::new();
            assert_eq!((run(ServerId::from_bytes([1; 16]), request, &mut out), out.as_slice()), (answered, answer));
        }
    }

    struct Number;

    impl Method for Number {
        const ID: HandlerId = HandlerId::new(2);
        type Request = Packed<u32>;
        type Reply = Packed<u32>;
    }
}
