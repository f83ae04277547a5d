use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::collections::BTreeMap;

use ashlar_placement::map::{PgId, SetId};

use super::*;

const EXTENT: u64 = 1 << 16;
const SIZE: u64 = 4 * EXTENT + 8_192;

/// A server that has every extent, answers each request at once and refuses some at first.
#[derive(Default)]
struct Model {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    extents: BTreeMap<ExtentId, Vec<u8>>,
    asked: u64,
    /// Numbers that were answered, with what.
    done: BTreeMap<u64, Outcome>,
    epoch: u64,
    ms: u64,
    refusals: u64,
    fenced: bool,
    is_full: bool,
    floors: Vec<u64>,
}

impl Model {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

fn answer(state: &mut State, Addressed { request, .. }: &Addressed) -> Option<Outcome> {
    state.asked += 1;
    state.floors.push(request.floor.0);
    assert!(request.floor <= request.request, "a request is not below its own floor");
    if state.fenced {
        return Some(Outcome::Fenced(Generation(9)));
    }
    if state.is_full && matches!(request.operation, Operation::Write(_)) {
        return Some(Outcome::NoSpace);
    }
    if request.epoch.0 < state.epoch {
        return Some(Outcome::Later(Epoch(state.epoch)));
    }
    if state.refusals > 0 {
        state.refusals -= 1;
        return Some(Outcome::Wait).filter(|_| state.asked.is_multiple_of(2));
    }
    assert!(!state.done.contains_key(&request.request.0), "a number is answered once");
    let bytes = state.extents.entry(request.extent).or_insert_with(|| vec![0; EXTENT as usize]);
    let outcome = match &request.operation {
        Operation::Read(Range { offset, len }) => {
            Outcome::Read(Bytes::copy_from_slice(&bytes[*offset as usize..(*offset + *len) as usize]))
        }
        Operation::Write(run) => {
            let at = run.offset as usize;
            match &run.content {
                Content::Data(data) => bytes[at..at + data.len()].copy_from_slice(data),
                Content::Zeroes(len) => bytes[at..at + *len as usize].fill(0),
            }
            Outcome::Written
        }
    };
    state.done.insert(request.request.0, outcome.clone());
    Some(outcome)
}

impl Fabric for Model {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.lock().ms * 1_000_000)
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<()> {
        self.lock().ms = at.as_nanos() / 1_000_000 + 1;
        Box::pin(core::future::ready(()))
    }

    fn primary(&self, extent: ExtentId) -> Option<Primary> {
        let state = self.lock();
        // What the catalog says comes here a moment later.
        let epoch = if state.ms > 20 { state.epoch } else { state.epoch.saturating_sub(1) };
        let group = GroupId { set: SetId(0), pg: PgId(extent.extent.0 as u32 % 3) };
        Some(Primary { group, epoch: Epoch(epoch), drive: DriveId::default(), server: ServerId::default() })
    }

    fn ask(&self, _: ServerId, request: &Addressed) -> BoxFuture<Option<Outcome>> {
        let decoded = Addressed::decode(request.encode()).expect("it is a request");
        assert_eq!(decoded, *request);
        Box::pin(core::future::ready(answer(&mut self.lock(), request)))
    }

    fn is_over(&self) -> bool {
        false
    }
}

fn attach(model: &Arc<Model>) -> Attachment {
    let extent_size = ExtentSize::new(EXTENT).expect("a power of two");
    let volume = (VolumeId::from_bytes([7; 16]), extent_size, SIZE);
    Attachment::new(Arc::clone(model) as Arc<dyn Fabric>, volume, Generation(1), SessionId(5))
}

/// Nothing in the model waits for anybody.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("the model answers at once"),
    }
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
        match draw(3) {
            0 => {
                let data = vec![(round % 255) as u8 + 1; len as usize];
                flat[at].copy_from_slice(&data);
                assert_eq!(now(attachment.write(offset, data.into())), Ok(()));
            }
            1 => {
                flat[at].fill(0);
                assert_eq!(now(attachment.zero(offset, len as u32)), Ok(()));
            }
            _ => assert_eq!(now(attachment.read(offset, len as u32)).as_deref(), Ok(&flat[at])),
        }
    }
    assert!(lock(&attachment.numbers).outstanding.is_empty());
    assert!(model.lock().floors.is_sorted_by(|one, other| other + 20 > *one), "floors rise with the requests");
}

#[test]
fn a_request_waits_for_the_configuration_that_the_primary_knows() {
    let model = Arc::new(Model::default());
    model.lock().epoch = 4;
    let attachment = attach(&model);
    assert_eq!(now(attachment.write(0, Bytes::from(vec![1; 4_096]))), Ok(()));
    let state = model.lock();
    assert!(state.ms > 20, "it has waited for the catalog");
    assert_eq!(state.asked, 2, "it asks again only once it knows the epoch that it was told of");
}

#[test]
fn what_cannot_be_is_refused() {
    let model = Arc::new(Model::default());
    let attachment = attach(&model);
    for (offset, len) in [(SIZE, 1), (SIZE - 1, 2), (u64::MAX, 1), (0, REQUEST_BYTES_MAX + 1)] {
        assert_eq!(now(attachment.read(offset, len)), Err(Failure::OutOfRange), "{offset} {len}");
        assert_eq!(now(attachment.zero(offset, len)), Err(Failure::OutOfRange), "{offset} {len}");
    }
    assert_eq!(now(attachment.read(SIZE, 0)).as_deref(), Ok(&[][..]));
    assert_eq!(now(attachment.write(SIZE, Bytes::new())), Ok(()));
    model.lock().is_full = true;
    assert_eq!(now(attachment.write(0, Bytes::from_static(b"x"))), Err(Failure::NoSpace), "and is not tried again");
    assert_eq!(now(attachment.read(0, 1)).as_deref(), Ok(&[0][..]));
    model.lock().fenced = true;
    assert_eq!(now(attachment.read(0, 1)), Err(Failure::Fenced));
    assert_eq!(now(attachment.write(0, Bytes::from_static(b"x"))), Err(Failure::Fenced));
}
