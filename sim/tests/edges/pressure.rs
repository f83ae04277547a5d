//! Slow links, large payloads, full buffers.

use core::time::Duration;

use ashlar_grid::CallOptions;
use ashlar_grid::handler::Packed;
use ashlar_grid::seam::BoxFuture;
use ashlar_sim::WorldOptions;

use crate::methods::{Counted, Echo, LargeSource, PATTERN, Pattern, Sink, Source, message};
use crate::rig::{Node, Rig, gather, id, link, ms, secs, shaken, timed, world_with};

const MIB: u64 = 1 << 20;

/// A backlog of 60,000 calls, waiting in the mux, where pings overtake it, or in a kernel that takes `send_bytes_max`: there a
/// ping waits behind all of it, and only what arrives and what is acknowledged shows that the peer lives.
fn backlog_on_a_slow_link(slow: [bool; 2], send_bytes_max: u64) {
    let world = WorldOptions { send_bytes_max, ..world_with(link(500, 0, 64 << 10)) };
    let mut rig = Rig::meshed(2, world, |_, _| {});
    let (a, b) = (rig.nodes[0].no, rig.nodes[1].no);
    for (from, to, slow) in [(a, b, slow[0]), (b, a, slow[1])] {
        rig.world.set_link(from, to, link(500, if slow { MIB } else { 0 }, 64 << 10));
    }
    let (grid, control, before) = (rig.nodes[0].grid.clone(), rig.control(), rig.conn());
    let (took, failed) = rig.run(secs(120), async move {
        let call = |number: u64| -> BoxFuture<bool> {
            let grid = grid.clone();
            Box::pin(async move {
                let request = message(number, 512);
                let options = CallOptions::within(secs(120));
                grid.call::<Echo>(id(1), &request, options).await == Ok(request)
            })
        };
        let (took, answers) = timed(&control, gather(&control, (0..60_000).map(call).collect())).await;
        (took, answers.iter().filter(|good| !**good).count())
    });
    assert_eq!((failed, rig.conn()), (0, before), "slow: {slow:?}, {send_bytes_max} bytes in the kernel");
    assert!(rig.nodes.iter().all(|node| node.losses().is_empty()));
    // It was a backlog indeed: longer than any silence that is allowed.
    assert!(took > secs(25), "{took:?}");
}

#[test]
fn slow_link_survives_backlog() {
    // The slow direction is the one of the requests, then the one of the answers, then both.
    for slow in [[true, false], [false, true], [true, true]] {
        for send_bytes_max in [256 << 10, 64 * MIB] {
            backlog_on_a_slow_link(slow, send_bytes_max);
        }
    }
}

#[test]
fn large_message_on_slow_link() {
    for (bulk, downwards) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut rig = Rig::new(2, world_with(link(500, 2 * MIB, 16 << 10)), |_, _| {});
        if !bulk {
            rig.refuses_bulk = true;
            rig.restart(0, ashlar_sim::Kill::Process);
            rig.restart(1, ashlar_sim::Kill::Process);
        }
        rig.mesh();
        let (grid, control, before) = (rig.nodes[0].grid.clone(), rig.control(), rig.conn());
        let slowest = rig.run(secs(60), async move {
            let large_grid = grid.clone();
            let options = CallOptions::within(secs(60));
            let large = gather(
                &control,
                vec![Box::pin(async move {
                    if downwards {
                        let answer =
                            large_grid.call::<LargeSource>(id(1), &Packed(16 * MIB), options).await.expect("answered");
                        assert_eq!(answer, message(16 * MIB, 16 << 20));
                    } else {
                        let answer =
                            large_grid.call::<Sink>(id(1), &vec![7; 16 << 20], options).await.expect("answered");
                        assert_eq!(answer, Packed(16 * MIB));
                    }
                }) as BoxFuture<_>],
            );
            let (timing, calling) = (control.clone(), grid.clone());
            let small = gather(
                &control,
                vec![Box::pin(async move {
                    let mut slowest = Duration::ZERO;
                    let begun_ns = timing.now_ns();
                    while timing.now_ns() - begun_ns < 7_000_000_000 {
                        let request = vec![1; 512];
                        let call = calling.call::<Echo>(id(1), &request, CallOptions::within(secs(5)));
                        let (took, answer) = timed(&timing, call).await;
                        assert_eq!(answer.map(|answer| answer.len()), Ok(512));
                        slowest = slowest.max(took);
                        timing.sleep(ms(50)).await;
                    }
                    slowest
                }) as BoxFuture<_>],
            );
            let (took, _) = timed(&control, large).await;
            assert!(took > ms(7_900) && took < ms(9_000), "16 MiB at 2 MiB/s took {took:?}");
            small.await[0]
        });
        // Beside a bulk connection a small call waits for a segment of 16 KiB (8 ms) each way. In the same connection
        // it waits for what the kernel holds (256 KiB, 125 ms) and a batch (64 KiB of a large payload and a chunk,
        // 40 ms).
        let bound = if bulk { ms(25) } else { ms(175) };
        assert!(slowest < bound, "bulk {bulk}, downwards {downwards}: a small call took {slowest:?}");
        assert_eq!(rig.conn(), before);
        assert!(rig.nodes.iter().all(|node| node.losses().is_empty()));
        assert_eq!(rig.nodes[0].status(1).bulk_connections, usize::from(bulk));
    }
}

#[test]
fn large_message_in_a_deep_buffer() {
    // The kernels take all of it at once. For eight seconds the peer says nothing, and a ping waits behind the payload:
    // only the acknowledgements show that it lives.
    for downwards in [false, true] {
        let deep = WorldOptions { send_bytes_max: 64 * MIB, ..world_with(link(500, 2 * MIB, 16 << 10)) };
        let mut rig = Rig::meshed(2, deep, |_, _| {});
        let grid = rig.nodes[0].grid.clone();
        rig.run(secs(30), async move {
            let options = CallOptions::within(secs(30));
            if downwards {
                let answer = grid.call::<LargeSource>(id(1), &Packed(16 * MIB), options).await;
                assert_eq!(answer.map(|answer| answer.len()), Ok(16 << 20));
            } else {
                let answer = grid.call::<Sink>(id(1), &vec![7; 16 << 20], options).await;
                assert_eq!(answer, Ok(Packed(16 * MIB)));
            }
        });
        assert!(rig.nodes.iter().all(|node| node.losses().is_empty()));
    }
}

/// Times of small calls on an otherwise idle small lane, sorted.
async fn small_calls(grid: ashlar_grid::Grid<ashlar_sim::SimRuntime>, control: ashlar_sim::Control) -> Vec<Duration> {
    let mut times = Vec::new();
    for _ in 0..1_000 {
        let request = vec![1; 512];
        let call = grid.call::<Echo>(id(1), &request, CallOptions::default());
        let (took, answer) = timed(&control, call).await;
        answer.expect("answered");
        times.push(took);
        control.sleep(Duration::from_micros(300)).await;
    }
    times.sort_unstable();
    times
}

#[test]
fn small_calls_beside_bulk() {
    // 100 MiB/s, connections take turns by segments of an Ethernet frame: the least that a network can do for a small
    // call beside others. Processors cost nothing here, so what this measures is queues: of the mux, and of the kernel
    // (256 KiB on a connection, 2.5 ms). A small call that had to pass either would be seen at once.
    let mut rig = Rig::meshed(2, world_with(link(50, 100 * MIB, 1_500)), |_, _| {});
    let (grid, control) = (rig.nodes[0].grid.clone(), rig.control());
    let alone = rig.run(secs(10), small_calls(grid.clone(), control.clone()));
    let (bulk_grid, bulk_control) = (grid.clone(), control.clone());
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopping = stop.clone();
    let beside = rig.run(secs(30), async move {
        let bulk = |_: u32| -> BoxFuture<u64> {
            let (grid, stop) = (bulk_grid.clone(), stopping.clone());
            Box::pin(async move {
                let (request, mut count) = (vec![3; 8 << 20], 0);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let answer = grid.call::<Sink>(id(1), &request, CallOptions::within(secs(30))).await;
                    assert_eq!(answer, Ok(Packed(8 * MIB)));
                    count += 1;
                }
                count
            })
        };
        let bulk = gather(&bulk_control, (0..4).map(bulk).collect());
        bulk_control.sleep(ms(20)).await;
        let times = small_calls(grid, control).await;
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(bulk.await.iter().sum::<u64>() >= 4, "there was bulk beside them");
        times
    });
    let p99 = |times: &[Duration]| times[times.len() * 99 / 100];
    let (alone, beside) = (p99(&alone), p99(&beside));
    assert!(beside <= alone * 3, "p99 is {alone:?} alone and {beside:?} beside 4 x 8 MiB");
}

/// Calls with answers of all lengths, and streams both ways that nobody reads for a second, from one server to the other.
fn flood(node: &Node, to: usize, control: &ashlar_sim::Control) -> Vec<BoxFuture<()>> {
    let options = CallOptions { window: (64 << 10, 0), ..CallOptions::within(secs(600)) };
    let mut tasks: Vec<BoxFuture<()>> = Vec::new();
    for number in 0..200_u64 {
        let grid = node.grid.clone();
        tasks.push(Box::pin(async move {
            let len = [100, 3_000, 40_000, 15_000][number as usize % 4];
            let answer = grid.call::<Source>(id(to), &Packed(len), options).await;
            assert_eq!(answer.map(|answer| answer.len() as u64), Ok(len));
            let answer = grid.call::<Sink>(id(to), &vec![1; len as usize], options).await;
            assert_eq!(answer, Ok(Packed(len)));
            let answer = grid.call::<Counted>(id(to), &Packed((number, 0)), options).await;
            assert_eq!(answer, Ok(Packed(number)));
        }));
    }
    for _ in 0..8 {
        let (grid, control) = (node.grid.clone(), control.clone());
        tasks.push(Box::pin(async move {
            let initial = Pattern::Down(500, 700).encode();
            let mut stream = grid.open_stream(id(to), PATTERN, &initial, options).await.expect("opened");
            control.sleep(secs(1)).await;
            for number in 0..500 {
                assert_eq!(stream.receiver.receive().await, Ok(Some(message(number, 700))));
            }
            assert_eq!(stream.receiver.receive().await, Ok(None));
        }));
        let grid = node.grid.clone();
        tasks.push(Box::pin(async move {
            let initial = Pattern::Up(700).encode();
            let mut stream = grid.open_stream(id(to), PATTERN, &initial, options).await.expect("opened");
            for number in 0..500 {
                stream.sender.send(&message(number, 700)).await.expect("the handler takes it");
            }
            stream.sender.finish().await.expect("the handler is there");
            assert_eq!(stream.receiver.receive().await, Ok(Some(500_u64.to_be_bytes().to_vec())));
        }));
    }
    tasks
}

#[test]
fn reader_never_blocks_on_writer() {
    for (seed, buffer) in [(1, 300), (2, 1_000), (3, 4_096), (4, 20_000), (5, 100_000)] {
        let small = WorldOptions { send_bytes_max: buffer, receive_bytes_max: buffer, ..shaken(seed) };
        let mut rig = Rig::meshed(2, WorldOptions { link: link(100, 0, 1_400), ..small }, |_, _| {});
        let control = rig.control();
        let mut tasks = flood(&rig.nodes[0], 1, &control);
        tasks.extend(flood(&rig.nodes[1], 0, &control));
        rig.run(secs(120), async move { gather(&control, tasks).await });
        assert!(rig.nodes.iter().all(|node| node.losses().is_empty()), "buffers of {buffer} bytes");
    }
}
