use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};

use ashlar_grid::handler::Payload as _;
use ashlar_placement::map::{PgId, SetId};
use ashlar_placement::part::{Part, Volume};
use ashlar_placement::rule::{ExtentId, ExtentSize, Mapping, Rule};
use ashlar_replica::request::{ClientRequest, Content, Operation, Range, Run};
use ashlar_volume::initiator::Limits;
use ashlar_volume::message::{SessionId, SubrequestHeader};
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, ServerId};

use super::super::subrequest::{Asked, client_request};
use super::*;
use crate::promise::Promise;

const EXTENT: u64 = 1 << 16;
const SIZE: u64 = 4 * EXTENT + 8_192;
const GROUP: GroupId = GroupId { set: SetId(0), pg: PgId(3) };

/// A server that has every extent and refuses some requests at first.
#[derive(Default)]
struct Model {
    state: Mutex<ModelState>,
    tasks: Mutex<VecDeque<BoxFuture<()>>>,
}

#[derive(Default)]
struct ModelState {
    extents: BTreeMap<ExtentId, Vec<u8>>,
    asked: u64,
    epoch: u64,
    /// The catalog's epoch comes here at this time.
    news_at_ms: u64,
    ms: u64,
    refusals: u64,
    /// Answers everything alike.
    always: Option<AnswerKind>,
    is_gone: bool,
    is_lost: bool,
    /// The greatest generation that was seen.
    generation: Generation,
    /// Requests wait here for their answer, if it is not given at once.
    holds: bool,
    held: VecDeque<(Subrequest, Promise<Answer>)>,
    floors: Vec<u64>,
}

impl Model {
    fn lock(&self) -> MutexGuard<'_, ModelState> {
        self.state.lock().unwrap()
    }

    /// Runs spawned tasks until each of them waits.
    fn run_tasks(&self) {
        let mut waiting = VecDeque::new();
        loop {
            let task = self.tasks.lock().unwrap().pop_front();
            let Some(mut task) = task else { break };
            if task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                waiting.push_back(task);
            }
        }
        self.tasks.lock().unwrap().extend(waiting);
    }

    fn finish<T>(&self, mut future: Pin<&mut impl Future<Output = T>>) -> T {
        for _ in 0..10_000 {
            if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return result;
            }
            self.run_tasks();
        }
        panic!("it does not end");
    }

    fn release(&self) {
        let held = core::mem::take(&mut self.lock().held);
        for (subrequest, promise) in held {
            promise.keep(self.answer(&subrequest));
        }
    }

    fn answer(&self, subrequest: &Subrequest) -> Answer {
        let mut bytes = Vec::new();
        Asked::from(subrequest).encode(&mut bytes);
        let asked = Asked::decode(&bytes).expect("it is a request");
        assert_eq!((asked.header, &asked.payload), (subrequest.header, &subrequest.payload));
        let state = &mut *self.lock();
        state.asked += 1;
        state.floors.push(asked.header.settled_below.0);
        if let Some(kind) = state.always {
            return answered(kind);
        }
        state.generation = state.generation.max(asked.header.generation);
        if asked.header.generation < state.generation {
            return answered(AnswerKind::Fenced);
        }
        if asked.header.epoch.0 < state.epoch {
            return answered(AnswerKind::OtherEpoch(None));
        }
        if state.refusals > 0 {
            state.refusals -= 1;
            let is_lost = state.asked.is_multiple_of(2);
            return if is_lost { Answer::Lost } else { answered(AnswerKind::NotPrimary(None)) };
        }
        let request = client_request(&asked.header, &asked.payload).expect("the range is one of an extent");
        state.apply(&request)
    }
}

impl ModelState {
    fn apply(&mut self, request: &ClientRequest) -> Answer {
        let bytes = self.extents.entry(request.extent).or_insert_with(|| vec![0; EXTENT as usize]);
        match &request.operation {
            Operation::Read(Range { offset, len }) => {
                let data = Bytes::copy_from_slice(&bytes[*offset as usize..(*offset + *len) as usize]);
                Answer::Answered(AnswerKind::Done, data)
            }
            Operation::Presence(range) => {
                // Blocks that are not zero.
                let blocks = bytes[range.offset as usize..(range.offset + range.len) as usize].chunks(4_096);
                let mut bits = vec![0_u8; range.presence_len()];
                for (at, block) in blocks.enumerate() {
                    bits[at / 8] |= u8::from(block.iter().any(|byte| *byte != 0)) << (at % 8);
                }
                Answer::Answered(AnswerKind::Done, Bytes::from(bits))
            }
            Operation::Write(Run { offset, content }) => {
                let at = *offset as usize;
                match content {
                    Content::Data(data) => bytes[at..at + data.len()].copy_from_slice(data),
                    content @ (Content::Zeroes(_) | Content::Lost(_)) => bytes[at..at + content.len() as usize].fill(0),
                }
                answered(AnswerKind::Done)
            }
        }
    }
}

impl Fabric for Model {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.lock().ms * 1_000_000)
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<()> {
        let mut state = self.lock();
        state.ms = state.ms.max(at.as_nanos() / 1_000_000 + 1);
        Box::pin(core::future::ready(()))
    }

    fn spawn(&self, task: BoxFuture<()>) {
        self.tasks.lock().unwrap().push_back(task);
    }

    fn leader(&self, group: GroupId) -> Leader {
        assert_eq!(group, GROUP);
        let state = self.lock();
        if state.is_gone {
            return Leader::Gone;
        }
        if state.is_lost {
            return Leader::Lost;
        }
        let epoch = if state.ms >= state.news_at_ms { state.epoch } else { 0 };
        Leader::Known(config(epoch))
    }

    fn ask(&self, subrequest: &Subrequest) -> BoxFuture<Answer> {
        let (kept, answer) = promise();
        if self.lock().holds {
            self.lock().held.push_back((subrequest.clone(), kept));
        } else {
            kept.keep(self.answer(subrequest));
        }
        Box::pin(async move { answer.await.unwrap_or(Answer::Lost) })
    }
}

fn config(epoch: u64) -> GroupConfig {
    GroupConfig { epoch: Epoch(epoch), drive: DriveId::default(), server: ServerId::default() }
}

fn attach(model: &Arc<Model>) -> Attachment {
    attach_as(model, 1)
}

fn attach_as(model: &Arc<Model>, generation: u64) -> Attachment {
    let rule = Rule { extent_size: ExtentSize::new(EXTENT).expect("a power of two"), mapping: Mapping::Shuffled };
    let volume = Volume::new(VolumeId::from_bytes([7; 16]), rule, &[Part { set: GROUP.set, extents: 5 }]).unwrap();
    let identity = ashlar_volume::initiator::Attachment { generation: Generation(generation), session: SessionId(5) };
    let initiator = Initiator::pinned(identity, volume, (GROUP, config(0)), Limits::default(), PACING, 1);
    Attachment::new(Arc::clone(model) as Arc<dyn Fabric>, initiator, SIZE)
}

fn run(model: &Model, attachment: &Attachment, op: Op) -> Result<Vec<u8>, Failure> {
    let pieces = model.finish(pin!(attachment.run(op)))?;
    Ok(pieces
        .iter()
        .flat_map(|piece| match piece {
            Piece::Data(data) => data.to_vec(),
            Piece::Zeroes(len) => vec![0; *len as usize],
            Piece::Stored(_) => unreachable!("a read has content"),
        })
        .collect())
}

fn read(offset: u64, len: u64) -> Op {
    Op::Read { offset, len }
}

fn write(offset: u64, len: usize, byte: u8) -> Op {
    Op::Write { offset, data: vec![byte; len].into() }
}

#[test]
fn any_bytes_are_written_and_read() {
    let model = Arc::new(Model::default());
    let (attachment, mut flat) = (attach(&model), vec![0; SIZE as usize]);
    let mut chance = 7_u64;
    let mut draw = |below: u64| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (chance >> 33) % below
    };
    for round in 0..400_u64 {
        let offset = draw(SIZE);
        let len = [1, 511, 4_096, 10_000, EXTENT + 5_000][draw(5) as usize].min(SIZE - offset);
        let at = offset as usize..(offset + len) as usize;
        model.lock().refusals = draw(4);
        let byte = (round % 255) as u8 + 1;
        match draw(4) {
            0 => {
                flat[at].fill(byte);
                assert_eq!(run(&model, &attachment, write(offset, len as usize, byte)), Ok(vec![]));
            }
            1 => {
                flat[at].fill(0);
                let space = if round % 2 == 0 { Space::Keep } else { Space::Release };
                assert_eq!(run(&model, &attachment, Op::Zero { offset, len, space }), Ok(vec![]));
            }
            2 => assert_eq!(run(&model, &attachment, read(offset, len)).as_deref(), Ok(&flat[at])),
            _ => {
                let bytes = model.finish(pin!(attachment.read(offset, len as u32)));
                assert_eq!(bytes.as_deref(), Ok(&flat[at]));
            }
        }
    }
    let state = attachment.0.lock();
    assert_eq!((state.waiting.len(), state.backlog.len(), state.initiator.requests()), (0, 0, 0));
    assert!(model.lock().floors.is_sorted(), "a session settles more and more");
}

#[test]
fn a_request_waits_for_the_configuration_that_the_primary_knows() {
    let model = Arc::new(Model::default());
    (model.lock().epoch, model.lock().news_at_ms) = (4, 100);
    let attachment = attach(&model);
    assert_eq!(run(&model, &attachment, write(0, 4_096, 1)), Ok(vec![]));
    assert!(model.lock().ms >= 100, "it has waited for the catalog");
    // Later ones go by what is known, and are not refused once.
    let asked = model.lock().asked;
    assert_eq!(run(&model, &attachment, write(0, 4_096, 2)), Ok(vec![]));
    assert_eq!(model.lock().asked, asked + 1);
}

#[test]
fn news_of_the_catalog_end_pauses() {
    let model = Arc::new(Model::default());
    (model.lock().epoch, model.lock().news_at_ms, model.lock().holds) = (4, u64::MAX, true);
    let attachment = attach(&model);
    let mut written = pin!(attachment.run(write(0, 4_096, 1)));
    assert!(written.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    model.run_tasks();
    // Time stands still from here on: the answer comes, and the pause after it does not end.
    let (subrequest, promise) = model.lock().held.pop_front().unwrap();
    promise.keep(model.answer(&subrequest));
    let task = model.tasks.lock().unwrap().pop_front();
    let mut task = task.expect("the request's");
    assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    model.tasks.lock().unwrap().clear();
    attachment.handle_news();
    assert_eq!(model.lock().held.len(), 0, "these are no news of the group");
    model.lock().news_at_ms = 0;
    attachment.handle_news();
    let sent = model.lock().held.pop_front().expect("it is sent again");
    assert_eq!((sent.0.header.epoch, sent.0.header.number), (Epoch(4), subrequest.header.number));
}

#[test]
fn what_cannot_be_is_refused() {
    let model = Arc::new(Model::default());
    let attachment = attach(&model);
    for (offset, len) in [(SIZE, 1), (SIZE - 1, 2), (u64::MAX, 1)] {
        let refused = Err(Failure::Volume(Error::BehindEnd { offset, len, size: SIZE }));
        assert_eq!(run(&model, &attachment, read(offset, len)), refused);
        assert_eq!(run(&model, &attachment, Op::Zero { offset, len, space: Space::Release }), refused);
    }
    assert_eq!(run(&model, &attachment, read(SIZE, 0)), Err(Failure::Volume(Error::EmptyRange)));
    for (kind, error) in [
        (AnswerKind::Full, Error::Full),
        (AnswerKind::Wrong, Error::Rejected),
        (AnswerKind::Settled, Error::BadAnswer),
        (AnswerKind::Fenced, Error::Fenced),
    ] {
        model.lock().always = Some(kind);
        let asked = model.lock().asked;
        assert_eq!(run(&model, &attachment, write(0, 4_096, 1)), Err(Failure::Volume(error)));
        assert_eq!(model.lock().asked, asked + 1, "{kind:?} is not tried again");
    }
    model.lock().always = None;
    assert_eq!(run(&model, &attachment, read(0, 1)), Err(Failure::Volume(Error::Fenced)), "it stays so");
}

#[test]
fn requests_beyond_the_limits_wait_in_their_order() {
    let model = Arc::new(Model::default());
    model.lock().holds = true;
    let attachment = attach(&model);
    let (count, ended) = (Limits::default().requests_max + 50, Arc::new(Mutex::new(Vec::new())));
    for number in 0..count {
        let ended = Arc::clone(&ended);
        let op = write(0, 4_096, (number % 200) as u8);
        attachment.begin(op, move |result| ended.lock().unwrap().push((number, result)));
    }
    assert_eq!(attachment.0.lock().backlog.len(), 50);
    let cancelled = attachment.begin(read(0, 1), |_| panic!("nobody waits for it any more"));
    attachment.cancel(cancelled);
    assert_eq!(attachment.0.lock().backlog.len(), 50);
    for _ in 0..count {
        model.release();
        model.run_tasks();
    }
    let expected: Vec<_> = (0..count).map(|number| (number, Ok(vec![]))).collect();
    assert_eq!(*ended.lock().unwrap(), expected);
}

#[test]
fn a_request_that_is_dropped_holds_nothing_up() {
    let model = Arc::new(Model::default());
    model.lock().holds = true;
    let attachment = attach(&model);
    {
        let mut dropped = pin!(attachment.run(write(0, 100, 1)));
        assert!(dropped.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert_eq!(attachment.0.lock().waiting.len(), 0);
    model.lock().holds = false;
    model.lock().held.clear();
    // The read of the block's rest is lost with its server, and the write is never sent.
    assert_eq!(run(&model, &attachment, read(0, 100)), Ok(vec![0; 100]));
    assert_eq!(attachment.0.lock().initiator.requests(), 0);
}

#[test]
fn a_server_that_stops_ends_what_it_would_send_again() {
    let model = Arc::new(Model::default());
    model.lock().holds = true;
    let attachment = attach(&model);
    let mut first = pin!(attachment.run(write(0, 4_096, 1)));
    let mut second = pin!(attachment.run(write(EXTENT, 4_096, 1)));
    for future in [first.as_mut(), second.as_mut()] {
        assert!(future.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    model.run_tasks();
    model.lock().is_gone = true;
    // The first one is lost; the second is done, as it was sent before.
    drop(model.lock().held.pop_front());
    model.run_tasks();
    assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    model.release();
    assert_eq!(model.finish(second), Ok(vec![]));
    assert_eq!(model.finish(first), Err(Failure::Stopping));
    assert_eq!(run(&model, &attachment, read(0, 1)), Err(Failure::Stopping));
}

#[test]
fn requests_of_a_group_that_is_given_up_fail() {
    let model = Arc::new(Model::default());
    let attachment = attach(&model);
    assert_eq!(run(&model, &attachment, write(0, 4_096, 1)), Ok(vec![]));
    model.lock().is_lost = true;
    let lost = Err(Failure::Volume(Error::Damaged));
    assert_eq!(
        (run(&model, &attachment, read(0, 1)), run(&model, &attachment, write(0, 4_096, 1))),
        (lost.clone(), lost)
    );
    model.lock().is_lost = false;
    assert!(run(&model, &attachment, read(0, 1)).is_ok(), "the attachment lives on");
}

#[test]
fn subrequest_headers_are_of_this_attachment() {
    let model = Arc::new(Model::default());
    model.lock().holds = true;
    let attachment = attach(&model);
    attachment.begin(write(4_096, 4_096, 1), |_| {});
    let (Subrequest { header, .. }, _) = model.lock().held.pop_front().unwrap();
    let SubrequestHeader { generation, session, epoch, .. } = header;
    assert_eq!((generation, session, epoch), (Generation(1), SessionId(5), Epoch(0)));
}

#[test]
fn a_later_attachment_fences_the_earlier_one_in_every_group() {
    let model = Arc::new(Model::default());
    let (first, second) = (attach_as(&model, 1), attach_as(&model, 2));
    assert_eq!(run(&model, &first, write(0, 4_096, 1)), Ok(vec![]));
    model.lock().holds = true;
    let mut late = pin!(first.run(write(EXTENT, 4_096, 1)));
    assert!(late.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let (sent, promise) = model.lock().held.pop_front().unwrap();
    model.lock().holds = false;
    assert_eq!(model.finish(pin!(second.reach_all(|_| false))), Ok(()));
    // The earlier one's write arrives only now.
    promise.keep(model.answer(&sent));
    assert_eq!(model.finish(late), Err(Failure::Volume(Error::Fenced)));
    assert!(first.is_fenced() && !second.is_fenced());
    let asked = model.lock().asked;
    assert_eq!(run(&model, &first, write(0, 4_096, 9)), Err(Failure::Volume(Error::Fenced)));
    assert_eq!(model.lock().asked, asked, "it asks nobody any more");
    assert_eq!(run(&model, &second, read(0, 4_096)), Ok(vec![1; 4_096]), "what was completed stays");
    assert_eq!(run(&model, &second, read(EXTENT, 4_096)), Ok(vec![0; 4_096]), "what was refused is not there");
}

#[test]
fn an_attachment_that_hears_of_a_later_one_ends_what_is_under_way() {
    let model = Arc::new(Model::default());
    model.lock().holds = true;
    let attachment = attach(&model);
    let mut written = pin!(attachment.run(write(0, 4_096, 1)));
    assert!(written.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    attachment.fence();
    assert_eq!(model.finish(written), Err(Failure::Volume(Error::Fenced)));
}

#[test]
fn a_volume_grows_while_it_is_attached() {
    let model = Arc::new(Model::default());
    let attachment = attach(&model);
    let part = |extents| Part { set: GROUP.set, extents };
    assert_eq!(attachment.grow(SIZE - 1, &[part(5)], vec![]), Ok(()), "it does not shrink");
    assert_eq!(attachment.size(), SIZE);
    assert_eq!(attachment.grow(8 * EXTENT, &[part(7)], vec![]), Err(Error::BadPart), "the parts are too short");
    assert_eq!(attachment.grow(8 * EXTENT, &[part(8)], vec![]), Ok(()));
    assert_eq!(run(&model, &attachment, write(8 * EXTENT - 4_096, 4_096, 3)), Ok(vec![]));
    assert_eq!(run(&model, &attachment, read(8 * EXTENT - 4_096, 4_096)), Ok(vec![3; 4_096]));
    let other = Part { set: SetId(9), extents: 1 };
    assert_eq!(attachment.grow(9 * EXTENT, &[part(8), other], vec![]), Err(Error::UnknownSet(SetId(9))));
    assert_eq!(attachment.size(), 8 * EXTENT);
}

#[test]
fn what_is_stored_is_told_by_blocks() {
    let model = Arc::new(Model::default());
    let attachment = attach(&model);
    assert_eq!(run(&model, &attachment, write(EXTENT - 4_096, 8_192, 1)), Ok(vec![]));
    let told = model.finish(pin!(attachment.run(Op::Presence { offset: 100, len: SIZE - 100 })));
    let (before, stored) = (EXTENT - 4_096 - 100, 8_192);
    let expected = [Piece::Zeroes(before), Piece::Stored(stored), Piece::Zeroes(SIZE - 100 - before - stored)];
    assert_eq!(told, Ok(expected.to_vec()));
}
