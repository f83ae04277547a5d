//! Streams end whole or with an error.

use core::time::Duration;

use ashlar_grid::error::{Lost, Reason, StreamError};
use ashlar_grid::handler::Packed;
use ashlar_grid::stream::ClientStream;
use ashlar_grid::{CallOptions, Grid};
use ashlar_sim::net::Side;
use ashlar_sim::{Kill, SimRuntime, WorldOptions};

use crate::methods::{Counted, PATTERN, Pattern, Sink, Source, message};
use crate::rig::{Rig, addr, gather, id, link, lock, ms, secs, shaken};

const MESSAGES: u32 = 1_000;
const LEN: u32 = 300;

async fn open(grid: &Grid<SimRuntime>, to: usize, pattern: Pattern, window: u32) -> Result<ClientStream, StreamError> {
    let options = CallOptions { window: (window, 0), ..CallOptions::within(secs(60)) };
    grid.open_stream(id(to), PATTERN, &pattern.encode(), options).await
}

/// Reads a stream to its end: how many messages came, each the right one, and how it ended.
async fn read_all(stream: &mut ClientStream, len: u32) -> (u32, Result<(), StreamError>) {
    let mut count = 0;
    loop {
        match stream.receiver.receive().await {
            Ok(Some(received)) => {
                assert_eq!(received, message(u64::from(count), len as usize), "message {count}");
                count += 1;
            }
            Ok(None) => return (count, Ok(())),
            Err(error) => return (count, Err(error)),
        }
    }
}

/// What cuts the stream while it runs.
#[derive(Debug, Clone, Copy)]
enum Cut {
    /// The connection is reset after that many bytes have arrived.
    ResetAfter(u64),
    /// At that time, in microseconds, the handler's server is killed and comes back.
    Restart(u64, Kill),
    /// At that time the two are partitioned for four seconds: each side finds the other silent and dials.
    Partition(u64),
    /// At that time the handler's server is frozen for four seconds: only the consumer notices, and dials.
    Freeze(u64),
}

/// How many of 1,000 messages came, and how the stream ended.
fn cut_stream(seed: u64, cut: Cut) -> (u32, Result<(), StreamError>) {
    let options = WorldOptions { link: link(50, 10_000_000, 1_400), ..shaken(seed) };
    let mut rig = Rig::meshed(2, options, |_, _| {});
    let grid = rig.nodes[0].grid.clone();
    if let Cut::ResetAfter(bytes) = cut {
        let conn = rig.conns(ashlar_grid::seam::Lane::Small)[0];
        let writer = if conn.hosts[0] == rig.nodes[1].no { Side::Dialer } else { Side::Acceptor };
        rig.world.reset_after(conn.id, writer, bytes);
    }
    let outcome = std::sync::Arc::new(std::sync::Mutex::new(None));
    let slot = outcome.clone();
    rig.world.spawn(async move {
        let mut stream = open(&grid, 1, Pattern::Down(MESSAGES, LEN), 0).await.expect("there is a connection");
        let read = read_all(&mut stream, LEN).await;
        *lock(&slot) = Some(read);
    });
    let no = rig.nodes[1].no;
    match cut {
        Cut::ResetAfter(_) => {}
        Cut::Restart(after_us, how) => {
            rig.pass(Duration::from_micros(after_us));
            rig.restart(1, how);
        }
        Cut::Partition(after_us) => {
            rig.pass(Duration::from_micros(after_us));
            rig.partition(0, 1, true);
            rig.pass(secs(4));
            rig.partition(0, 1, false);
        }
        Cut::Freeze(after_us) => {
            rig.pass(Duration::from_micros(after_us));
            rig.world.pause(no);
            rig.pass(secs(4));
            rig.world.resume(no);
        }
    }
    rig.until(secs(20), "the consumer knows how its stream ended", |_| lock(&outcome).is_some());
    rig.until_connected(secs(20));
    lock(&outcome).take().expect("waited for")
}

/// Both servers learn of each other at the same moment and dial; the stream takes the first connection that comes.
fn cross_dials(seed: u64) -> (u32, Result<(), StreamError>) {
    let mut rig = Rig::new(2, WorldOptions { link: link(50, 10_000_000, 1_400), ..shaken(seed) }, |_, _| {});
    let grids = [0, 1].map(|at| rig.nodes[at].grid.clone());
    grids[0].add_peer(&addr(1));
    rig.pass(Duration::from_micros(seed * 20));
    grids[1].add_peer(&addr(0));
    rig.until(secs(5), "they know each other", |rig| rig.nodes[0].grid.peer(id(1)).is_ok());
    let [grid, _] = grids;
    let read = rig.run(secs(20), async move {
        let mut stream = open(&grid, 1, Pattern::Down(MESSAGES, LEN), 0).await.expect("it waits for a connection");
        read_all(&mut stream, LEN).await
    });
    rig.until_connected(secs(5));
    assert_eq!(rig.conns(ashlar_grid::seam::Lane::Small).len(), 1, "two servers, one connection");
    read
}

#[test]
fn stream_never_truncates_on_redial() {
    let mut cuts: Vec<Cut> = (0..80).map(|step| Cut::ResetAfter(1 + step * 4_391)).collect();
    for after_us in (300..40_000).step_by(1_700) {
        cuts.push(Cut::Restart(after_us, if after_us % 2_000 < 1_000 { Kill::Process } else { Kill::Machine }));
    }
    for after_us in (300..40_000).step_by(4_100) {
        cuts.extend([Cut::Partition(after_us), Cut::Freeze(after_us)]);
    }
    let (mut whole, mut cut_off) = (0, 0);
    for (seed, cut) in cuts.into_iter().enumerate() {
        let (count, end) = cut_stream(seed as u64, cut);
        match end {
            Ok(()) => {
                assert_eq!(count, MESSAGES, "{cut:?}: an end without an error, and not all messages");
                whole += 1;
            }
            Err(StreamError::Cut(reason)) => {
                // Of a machine that lost its power nothing comes on the old connection; its new life's dial ends that.
                if matches!(cut, Cut::Restart(_, Kill::Machine)) {
                    assert_eq!(reason, Reason::Disconnected(Lost::Replaced), "{cut:?}");
                }
                cut_off += 1;
            }
            Err(error) => panic!("{cut:?}: {error:?}"),
        }
    }
    for seed in 0..40 {
        let (count, end) = cross_dials(seed);
        assert!(end.is_err() || count == MESSAGES, "crossing dials, seed {seed}: {count} messages and no error");
    }
    // Both ends were seen, or the cuts are in the wrong places.
    assert!(whole >= 3 && cut_off >= 80, "{whole} whole, {cut_off} cut");
}

#[test]
fn stream_never_truncates_on_mixed_windows() {
    const WINDOWS: [u32; 4] = [1, 100, 64 << 10, 4 << 20];
    const LENS: [u32; 5] = [0, 1, 100, 20_000, 100_000];
    for (at, (caller, handler)) in WINDOWS.iter().flat_map(|a| WINDOWS.map(|b| (*a, b))).enumerate() {
        // Only the handler's server has that window: nobody may take his own for the other's.
        let tweak: crate::rig::Tweak = match handler {
            1 => |at, config| config.limits.stream_window = [64 << 10, 1][at],
            100 => |at, config| config.limits.stream_window = [64 << 10, 100][at],
            65_536 => |at, config| config.limits.stream_window = [1, 64 << 10][at],
            _ => |at, config| config.limits.stream_window = [64 << 10, 4 << 20][at],
        };
        let mut rig = Rig::meshed(2, shaken(at as u64), tweak);
        let (control, grid) = (rig.control(), rig.nodes[0].grid.clone());
        // All at once on one connection: what one stream may send is no other's.
        let down = LENS.map(|len| -> ashlar_grid::seam::BoxFuture<()> {
            let grid = grid.clone();
            Box::pin(async move {
                let mut stream = open(&grid, 1, Pattern::Down(100, len), caller).await.expect("opened");
                let read = read_all(&mut stream, len).await;
                assert_eq!(read, (100, Ok(())), "{caller} and {handler}, down, {len} bytes each");
            })
        });
        let up = LENS.map(|len| -> ashlar_grid::seam::BoxFuture<()> {
            let grid = grid.clone();
            Box::pin(async move {
                let mut stream = open(&grid, 1, Pattern::Up(len), caller).await.expect("opened");
                for number in 0..100 {
                    stream.sender.send(&message(number, len as usize)).await.expect("the handler takes it");
                }
                stream.sender.finish().await.expect("the handler is there");
                let told = stream.receiver.receive().await.expect("the handler answers");
                assert_eq!(told, Some(100_u64.to_be_bytes().to_vec()), "{caller} and {handler}, up, {len} bytes each");
                assert_eq!(stream.receiver.receive().await, Ok(None));
            })
        });
        rig.run(secs(60), async move { gather(&control, down.into_iter().chain(up).collect()).await });
    }
}

/// Calls and streams are numbered apart, so the first call and the first stream of a connection have much in common.
#[test]
fn calls_and_streams_are_never_taken_for_each_other() {
    let mut rig = Rig::two();
    let (grid, control) = (rig.nodes[0].grid.clone(), rig.control());
    rig.run(secs(10), async move {
        let mut stream = open(&grid, 1, Pattern::Up(50), 0).await.expect("opened");
        // A request in chunks, while the stream is open.
        let long = grid.call::<Sink>(id(1), &vec![1; 50_000], CallOptions::within(secs(5))).await;
        assert_eq!(long.map(|Packed(len)| len), Ok(50_000));
        let long = grid.call::<Source>(id(1), &Packed(50_000), CallOptions::within(secs(5))).await;
        assert_eq!(long.map(|answer| answer.len()), Ok(50_000));
        stream.sender.send(&message(0, 50)).await.expect("it is as it was");
        stream.sender.finish().await.expect("it is as it was");
        assert_eq!(stream.receiver.receive().await, Ok(Some(1_u64.to_be_bytes().to_vec())));
        drop(stream);
        // Streams that are let go while calls run, and the other way round.
        for _ in 0..10 {
            let stream = open(&grid, 1, Pattern::Hold, 0).await.expect("opened");
            let calls = (0..10).map(|number| -> ashlar_grid::seam::BoxFuture<_> {
                let grid = grid.clone();
                Box::pin(
                    async move { grid.call::<Counted>(id(1), &Packed((number, 20)), CallOptions::default()).await },
                )
            });
            let calls = gather(&control, calls.collect());
            let let_go = control.sleep(ms(10));
            control.spawn(async move {
                let_go.await;
                drop(stream);
            });
            let answers = calls.await;
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        }
    });
}
