//! Two wires on a loopback connection, plain and under TLS.

use core::future::poll_fn;
use core::time::Duration;

use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::super::{block_on, clock, dial};
use super::*;

/// Dialer and acceptor of one connection; the acceptor has `early` already.
async fn pair(is_tls: bool, early: &[u8]) -> (OsWire, OsWire) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (near, far) = tokio::join!(dial::connect(&address), listener.accept());
    let (near, (far, _)) = (near.unwrap(), far.unwrap());
    let (near, far) = if is_tls {
        let made = rcgen::generate_simple_self_signed(vec![tls::SERVER_NAME.to_owned()]).unwrap();
        let config = tls::server(&made.cert.pem(), &made.signing_key.serialize_pem()).unwrap();
        let (near, far) = tokio::join!(dial::secure(near, tls::dialer()), TlsAcceptor::from(config).accept(far));
        (Io::Tls(Box::new(near.unwrap())), Io::Tls(Box::new(TlsStream::Server(far.unwrap()))))
    } else {
        (Io::Plain(near), Io::Plain(far))
    };
    (OsWire::new(near, &[], None).unwrap(), OsWire::new(far, early, None).unwrap())
}

async fn read(wire: &mut OsWire, into: &mut Vec<u8>) -> Result<usize, WireError> {
    poll_fn(|cx| wire.poll_read(cx, &mut |bytes| into.extend_from_slice(bytes))).await
}

async fn read_exact(wire: &mut OsWire, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let count = read(wire, &mut bytes).await.unwrap();
        assert!(count > 0 && count <= BATCH_BYTES_MAX, "{count}");
    }
    bytes
}

async fn write_all(wire: &mut OsWire, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let (a, b) = bytes.split_at(bytes.len() / 3);
        let bufs = [IoSlice::new(a), IoSlice::new(b)];
        let count = poll_fn(|cx| wire.poll_write(cx, &bufs)).await.unwrap();
        assert!(count > 0 && count <= bytes.len());
        bytes = &bytes[count..];
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| u8::try_from(index * 31 % 251).unwrap()).collect()
}

/// No test measures time; this ends one that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn bounded(test: impl Future<Output = ()>) {
    block_on(async { clock::within(PATIENCE, test).await.expect("nothing hangs") }).unwrap();
}

fn on_both_kinds<F: Future<Output = ()>>(check: impl Fn(bool) -> F) {
    for is_tls in [false, true] {
        bounded(check(is_tls));
    }
}

/// Writes `bytes` to one end, which keeps polling reads as the grid does, and reads them at the other.
async fn transfer(from: &mut OsWire, to: &mut OsWire, bytes: &[u8]) -> Vec<u8> {
    let mut nothing = Vec::new();
    let write = async {
        write_all(from, bytes).await;
        read(from, &mut nothing).await
    };
    tokio::select! {
        got = read_exact(to, bytes.len()) => got,
        end = write => panic!("nobody wrote to the writer, but: {end:?}"),
    }
}

#[test]
fn bytes_arrive_whole_and_in_order_both_ways() {
    on_both_kinds(|is_tls| async move {
        let (mut near, mut far) = pair(is_tls, b"").await;
        let sent = pattern(8 << 20);
        assert!(transfer(&mut near, &mut far, &sent).await == sent, "to the acceptor");
        assert!(transfer(&mut far, &mut near, &sent).await == sent, "to the dialer");
    });
}

#[test]
fn early_bytes_come_first() {
    on_both_kinds(|is_tls| async move {
        let (mut near, mut far) = pair(is_tls, b"early ").await;
        write_all(&mut near, b"late").await;
        assert_eq!(read_exact(&mut far, 10).await, b"early late");
    });
}

/// What the kernel did not take must arrive although nobody writes any more: reads push it on.
#[test]
fn nothing_stays_behind_when_writing_stops() {
    on_both_kinds(|is_tls| async move {
        let (mut near, mut far) = pair(is_tls, b"").await;
        let chunk = pattern(1 << 20);
        let mut sent = Vec::new();
        poll_fn(|cx| {
            while let Poll::Ready(count) = near.poll_write(cx, &[IoSlice::new(&chunk)]) {
                sent.extend_from_slice(&chunk[..count.unwrap()]);
            }
            Poll::Ready(())
        })
        .await;
        assert!(near.unacked_bytes().is_some_and(|bytes| bytes > 0), "the kernel is full");
        let mut nothing = Vec::new();
        tokio::select! {
            got = read_exact(&mut far, sent.len()) => assert!(got == sent),
            end = read(&mut near, &mut nothing) => panic!("nobody wrote to the dialer, but: {end:?}"),
        }
    });
}

#[test]
fn bindings_are_equal_at_both_ends_and_different_between_connections() {
    bounded(async {
        let (near, far) = pair(true, b"").await;
        let (other, _) = pair(true, b"").await;
        assert_eq!(near.channel_binding(), far.channel_binding());
        assert_ne!(near.channel_binding(), other.channel_binding());
        let (near, far) = pair(false, b"").await;
        assert_eq!((near.channel_binding(), far.channel_binding()), ([0; 32], [0; 32]));
    });
}

#[test]
fn the_end_is_told_orderly_or_as_a_loss() {
    bounded(async {
        let mut nothing = Vec::new();
        let (near, mut far) = pair(false, b"").await;
        drop(near);
        assert_eq!(read(&mut far, &mut nothing).await, Ok(0));
        let (near, mut far) = pair(true, b"").await;
        drop(near);
        let error = read(&mut far, &mut nothing).await.expect_err("TLS was not ended");
        assert!(error.0.contains("farewell"), "{error}");
        assert!(nothing.is_empty());
    });
}

/// A sink may read another wire of the same thread.
#[test]
fn sinks_may_nest() {
    bounded(async {
        let (mut a, mut b) = pair(false, b"").await;
        let (mut c, mut d) = pair(false, b"inner").await;
        write_all(&mut a, b"outer").await;
        let (mut outer, mut inner) = (Vec::new(), Vec::new());
        poll_fn(|cx| {
            let mut inner_cx = Context::from_waker(core::task::Waker::noop());
            b.poll_read(cx, &mut |bytes| {
                let nested = d.poll_read(&mut inner_cx, &mut |bytes| inner.extend_from_slice(bytes));
                assert!(matches!(nested, Poll::Ready(Ok(5))));
                assert!(d.poll_read(&mut inner_cx, &mut |_| ()).is_pending());
                outer.extend_from_slice(bytes);
            })
        })
        .await
        .unwrap();
        assert_eq!((outer.as_slice(), inner.as_slice()), (&b"outer"[..], &b"inner"[..]));
        write_all(&mut c, b"x").await;
        assert_eq!(read_exact(&mut d, 1).await, b"x");
    });
}
