//! What scripts read with their libraries: whatever bytes, no call panics, each reply is whole, and what is read is written and
//! read again as the same.
#![no_main]

use std::sync::Arc;

use ashlar_kv::memory::hash_key::HASH_KEY_BYTES;
use ashlar_kv::{Engine, EngineConfig, Link, Mailbox, Now, Session};
use ashlar_wire::time::Instant;
use libfuzzer_sys::fuzz_target;

/// More than this is slow and shows nothing new.
const INPUT_BYTES_MAX: usize = 4_096;

/// By the first byte. What a script cannot do with the bytes it tells by a status. Each call gives one value: `pcall` itself puts
/// one more than it has asked room for behind many results, which builds of Lua that check their own calls do not take. MessagePack
/// is compared from the second writing on: the first cuts what is nested too deep, and an array that ends in what was cut is
/// shorter when it is read.
const SCRIPTS: [&str; 3] = [
    "local ok, read = pcall(function() return (cjson.decode(ARGV[1])) end) if not ok then return {ok = 'no'} end cjson.encode_invalid_numbers(true) \
     cjson.encode_sparse_array(true) local one = cjson.encode(read) local two = cjson.encode(cjson.decode(one)) return {#one, #two}",
    "local ok, read = pcall(function() return (cmsgpack.unpack(ARGV[1])) end) if not ok then return {ok = 'no'} end local one = cmsgpack.pack(read) \
     local goes, again = pcall(function() return (cmsgpack.unpack(one)) end) if not goes then return {ok = 'no'} end \
     local two = cmsgpack.pack(again) return {#two, #cmsgpack.pack(cmsgpack.unpack(two))}",
    "local format, data = ARGV[1]:match('^([^|]*)|(.*)$') if not format then return {ok = 'no'} end pcall(struct.size, format) \
     pcall(struct.pack, format, 1, 2, 3, 4) pcall(function() return (struct.unpack(format, data)) end) return {ok = 'no'}",
];

fuzz_target!(|input: &[u8]| {
    let Some((kind, data)) = input.split_first().filter(|_| input.len() <= INPUT_BYTES_MAX) else { return };
    let config = EngineConfig { secret: [5; HASH_KEY_BYTES], shards: 1, databases: 1 };
    let now = Now { unix_us: 1_800_000_000_000_000, instant: Instant::from_nanos(1) };
    let link = Link {
        is_server: false,
        peer: "127.0.0.1:1".into(),
        local: "127.0.0.1:6379".into(),
        descriptor: 9,
        is_unix: false,
        is_tls: false,
    };
    let mailbox = Arc::new(Mailbox::new(Box::new(|| {})));
    let mut session =
        Session::open(Arc::new(Engine::new(&config)), mailbox, link, now).expect("one client is not too many");
    let script = SCRIPTS[usize::from(*kind) % SCRIPTS.len()];
    let mut request =
        format!("*4\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n${}\r\n", script.len(), data.len()).into_bytes();
    request.extend_from_slice(data);
    request.extend_from_slice(b"\r\n");
    let (taken, _) = session.feed(&request, now);
    assert_eq!(taken, request.len(), "no script waits");
    let reply = String::from_utf8_lossy(session.replies()).into_owned();
    if reply == "+no\r\n" {
        return;
    }
    let lengths: Vec<&str> = reply.trim_end().split("\r\n").collect();
    assert!(lengths.len() == 3 && lengths[0] == "*2" && lengths[1] == lengths[2], "{reply}");
});
