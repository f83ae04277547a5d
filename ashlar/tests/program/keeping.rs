//! The key-value engine keeps what it has acknowledged: killed under load, again and again.
//!
//! Verified: no `appendfsync` loses an acknowledged write or half of a transaction when the process dies, and nothing comes back that
//! was never sent, whether the kill hits the log, a rewrite of it, or recovery. Not verified: loss of power, which needs a drive that
//! forgets; `kv/src/persist/tests/crash.rs` has one.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::process::{Running, Scratch, check_fails, nobody, until};

/// Kills in an ordinary run, with each `appendfsync`; `ASHLAR_KILL_ROUNDS` asks for another number.
const ROUNDS: u64 = 3;
/// Connections that write, each two keys of its own.
const WRITERS: usize = 4;
/// Transactions that a writer sends before it reads their replies.
const PIPELINE: u64 = 8;

/// What one writer has sent, and what was acknowledged.
#[derive(Debug, Default)]
struct Progress {
    sent: AtomicU64,
    acknowledged: AtomicU64,
}

/// A connection that sends words and reads replies of one line or one value.
struct Talk(BufReader<TcpStream>);

impl Talk {
    fn new(address: &str) -> Option<Self> {
        TcpStream::connect(address).ok().map(|stream| Self(BufReader::new(stream)))
    }

    fn send(&mut self, requests: &str) -> Option<()> {
        self.0.get_mut().write_all(requests.as_bytes()).ok()
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        self.0.read_line(&mut line).ok().filter(|count| *count > 0)?;
        line.ends_with("\r\n").then(|| line.trim_end().to_owned())
    }

    fn ask(&mut self, request: &str) -> Option<String> {
        self.send(&format!("{request}\r\n"))?;
        let line = self.line()?;
        if line.starts_with('$') && line != "$-1" { self.line() } else { Some(line) }
    }
}

fn start(address: &str, data: &str, sync: &str) -> Running {
    let port = address.rsplit(':').next().expect("an address has a port");
    let begin = ["kv", "--port", port, "--workers", "2", "--dir", data, "--appendonly", "yes", "--appendfsync", sync];
    let settings = ["--save", "", "--auto-aof-rewrite-min-size", "64kb", "--auto-aof-rewrite-percentage", "20"];
    let running = Running::start(&[&begin[..], &settings].concat(), &[]);
    until("the engine to answer", || {
        Talk::new(address).and_then(|mut talk| talk.ask("PING")).as_deref() == Some("+PONG")
    });
    running
}

/// Sends transactions that set two keys to the next number, until the connection breaks.
fn write(address: &str, writer: usize, progress: &Progress) -> Option<()> {
    let mut talk = Talk::new(address)?;
    let mut next = progress.sent.load(Ordering::SeqCst) + 1;
    loop {
        let batch = next..next + PIPELINE;
        let text: String = batch
            .clone()
            .map(|number| format!("MULTI\r\nSET a{writer} {number}\r\nSET b{writer} {number}\r\nEXEC\r\n"))
            .collect();
        progress.sent.store(batch.end - 1, Ordering::SeqCst);
        talk.send(&text)?;
        for number in batch.clone() {
            for expected in ["+OK", "+QUEUED", "+QUEUED", "*2", "+OK", "+OK"] {
                assert_eq!(talk.line()?, expected);
            }
            progress.acknowledged.store(number, Ordering::SeqCst);
        }
        next = batch.end;
    }
}

/// What is there now must be what was acknowledged, or what was sent after that; and whole.
fn check(address: &str, progress: &[Arc<Progress>]) {
    let mut talk = Talk::new(address).expect("it answers");
    for (writer, progress) in progress.iter().enumerate() {
        let mut number = |key: &str| {
            let text = talk.ask(&format!("GET {key}{writer}")).expect("it answers");
            text.parse::<u64>().unwrap_or_else(|_| if text == "$-1" { 0 } else { panic!("{key}{writer} is {text}") })
        };
        let (one, other) = (number("a"), number("b"));
        assert_eq!(one, other, "half of a transaction of writer {writer}");
        let (sent, acknowledged) = (&progress.sent, &progress.acknowledged);
        let bounds = acknowledged.load(Ordering::SeqCst)..=sent.load(Ordering::SeqCst);
        assert!(bounds.contains(&one), "writer {writer}: {one} is there, {bounds:?} may be");
        // Later numbers are greater than everything that was ever sent.
        acknowledged.store(one, Ordering::SeqCst);
    }
}

#[test]
fn acknowledged_writes_survive_kills() {
    println!("{}", survive_kills("always"));
}

#[test]
fn acknowledged_writes_survive_kills_without_a_sync_each() {
    println!("{}", survive_kills("everysec"));
    println!("{}", survive_kills("no"));
}

fn survive_kills(sync: &str) -> String {
    let rounds = std::env::var("ASHLAR_KILL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let (scratch, address) = (Scratch::new(), nobody());
    let data = scratch.path("");
    let progress: Vec<Arc<Progress>> = (0..WRITERS).map(|_| Arc::default()).collect();
    let mut total = 0;
    for round in 0..rounds {
        let mut engine = start(&address, &data, sync);
        check(&address, &progress);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (address, progress) = (address.clone(), Arc::clone(&progress[writer]));
                #[allow(clippy::disallowed_methods, reason = "a client beside the test")]
                thread::spawn(move || write(&address, writer, &progress))
            })
            .collect();
        let acknowledged = || progress.iter().map(|one| one.acknowledged.load(Ordering::SeqCst)).sum::<u64>();
        let before = acknowledged();
        // At another moment in every round: after so many transactions and then some time.
        let (_keep, never) = mpsc::channel::<()>();
        until("some transactions", || acknowledged() >= before + 50 + round * 37 % 500);
        never.recv_timeout(Duration::from_micros(round * 7_919 % 20_000)).ok();
        engine.signal("KILL");
        engine.wait();
        for writer in writers {
            writer.join().expect("replies are what they should be");
        }
        total += acknowledged() - before;
    }
    let engine = start(&address, &data, sync);
    check(&address, &progress);
    drop(engine);
    format!("appendfsync {sync}: {rounds} kills, {total} transactions acknowledged, none lost")
}

#[test]
fn dumps_are_read_again() {
    let (scratch, address) = (Scratch::new(), nobody());
    let data = scratch.path("");
    let port = address.rsplit(':').next().expect("an address has a port").to_owned();
    let run = || {
        let running = Running::start(&["kv", "--port", &port, "--dir", &data, "--save", "3600 1"], &[]);
        until("the engine to answer", || Talk::new(&address).and_then(|mut talk| talk.ask("PING")).is_some());
        running
    };
    let ask = |request: &str| Talk::new(&address).and_then(|mut talk| talk.ask(request)).expect("it answers");
    let mut engine = run();
    assert_eq!(ask("SET a 1"), "+OK");
    assert_eq!(ask("SAVE"), "+OK");
    assert_eq!(ask("SET b 2"), "+OK");
    engine.signal("KILL");
    engine.wait();
    let mut engine = run();
    assert_eq!((ask("GET a"), ask("GET b")), ("1".into(), "$-1".into()));
    assert_eq!(ask("SET c 3"), "+OK");
    engine.signal("TERM");
    assert_eq!(engine.wait(), Some(0), "a dump is written at the end");
    let _engine = run();
    assert_eq!(ask("GET c"), "3");
}

#[test]
fn what_was_imported_is_in_the_log() {
    let (scratch, address) = (Scratch::new(), nobody());
    let data = scratch.path("");
    let port = address.rsplit(':').next().expect("an address has a port").to_owned();
    let run = |more: &[&str]| {
        let running = Running::start(&[&["kv", "--port", &port], more, &["--dir", &data, "--save", ""]].concat(), &[]);
        until("the engine to answer", || Talk::new(&address).and_then(|mut talk| talk.ask("PING")).is_some());
        running
    };
    let ask = |request: &str| Talk::new(&address).and_then(|mut talk| talk.ask(request)).expect("it answers");
    let mut engine = run(&[]);
    ask("SET a 1");
    assert_eq!(ask("SAVE"), "+OK");
    engine.signal("KILL");
    engine.wait();
    let file = scratch.path("brought.rdb");
    std::fs::rename(scratch.path("dump.rdb"), &file).expect("a dump was written");
    let mut engine = run(&["--import", &file, "--appendonly", "yes"]);
    engine.signal("KILL");
    engine.wait();
    let _engine = run(&["--appendonly", "yes"]);
    assert_eq!(ask("GET a"), "1");
}

#[test]
fn the_log_is_switched_on_and_off() {
    let (scratch, address) = (Scratch::new(), nobody());
    let data = scratch.path("");
    let port = address.rsplit(':').next().expect("an address has a port").to_owned();
    let run = |is_on: &str| {
        let settings = ["kv", "--port", &port, "--dir", &data, "--save", "", "--appendfsync", "always"];
        let running = Running::start(&[&settings[..], &["--appendonly", is_on]].concat(), &[]);
        until("the engine to answer", || Talk::new(&address).and_then(|mut talk| talk.ask("PING")).is_some());
        running
    };
    let ask = |request: &str| Talk::new(&address).and_then(|mut talk| talk.ask(request)).expect("it answers");
    let manifest = Path::new(&data).join("appendonlydir").join("manifest");
    let has_base = || std::fs::read_to_string(&manifest).is_ok_and(|text| text.contains("base"));
    let mut engine = run("no");
    ask("SET a 1");
    assert_eq!(ask("CONFIG SET appendonly yes"), "+OK");
    until("a base", has_base);
    ask("SET b 2");
    engine.signal("KILL");
    engine.wait();
    let mut engine = run("yes");
    assert_eq!((ask("GET a"), ask("GET b")), ("1".into(), "2".into()));
    assert_eq!(ask("CONFIG SET appendonly no"), "+OK");
    // A new log takes the place of the one that is there; it has its base at the latest when the engine ends.
    until("the log to be closed", || ask("WAITAOF 1 0 0").starts_with("-ERR WAITAOF cannot be used"));
    ask("SET c 3");
    ask("CONFIG SET appendonly yes");
    ask("SET d 4");
    engine.signal("TERM");
    assert_eq!(engine.wait(), Some(0));
    let _engine = run("yes");
    assert_eq!((ask("GET a"), ask("GET c"), ask("GET d")), ("1".into(), "3".into(), "4".into()));
}

#[test]
fn a_log_that_cannot_be_opened_is_not_switched_on() {
    let (scratch, address) = (Scratch::new(), nobody());
    let (data, folder) = (scratch.path(""), scratch.path("appendonlydir"));
    let port = address.rsplit(':').next().expect("an address has a port");
    let _engine = Running::start(&["kv", "--port", port, "--dir", &data, "--save", ""], &[]);
    until("the engine to answer", || Talk::new(&address).and_then(|mut talk| talk.ask("PING")).is_some());
    let ask = |request: &str| Talk::new(&address).and_then(|mut talk| talk.ask(request)).expect("it answers");
    let check = |set: &str, reply: &str, shown: &str| {
        assert_eq!(ask(set), reply);
        let mut talk = Talk::new(&address).expect("it answers");
        talk.send("CONFIG GET appendonly\r\n").expect("it is taken");
        let lines: Vec<String> = (0..5).filter_map(|_| talk.line()).collect();
        assert_eq!(lines.last().map(String::as_str), Some(shown));
    };
    let refused = "-ERR CONFIG SET failed (possibly related to argument 'appendonly') - Unable to turn on AOF. Check server logs.";
    std::fs::write(&folder, "no directory").expect("the scratch directory can be written");
    check("CONFIG SET appendonly yes", refused, "no");
    std::fs::remove_file(&folder).expect("it is there");
    // Another process writes there.
    std::fs::create_dir(&folder).expect("the scratch directory can be written");
    let lock = std::fs::File::create(Path::new(&folder).join("lock")).expect("it can be written");
    lock.lock().expect("nobody has it");
    check("CONFIG SET maxmemory-samples 7 appendonly yes", refused, "no");
    drop(lock);
    check("CONFIG SET appendonly yes", "+OK", "yes");
    // At once off and on: nobody is in the way of its own log.
    check("CONFIG SET appendonly no", "+OK", "no");
    check("CONFIG SET appendonly yes", "+OK", "yes");
    let manifest = Path::new(&folder).join("manifest");
    until("a base", || std::fs::read_to_string(&manifest).is_ok_and(|text| text.contains("base")));
    check("PING", "+PONG", "yes");
}

#[test]
fn an_end_that_was_not_closed_is_told() {
    let (scratch, address) = (Scratch::new(), nobody());
    let data = scratch.path("");
    let last = || {
        let files = std::fs::read_dir(Path::new(&data).join("appendonlydir")).expect("the log is there");
        let logs = files.map(|file| file.expect("it can be read").path());
        let number = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix("log-")?.parse::<u64>().ok();
        logs.max_by_key(number).expect("it has a file")
    };
    let killed = |key: &str| {
        let mut engine = start(&address, &data, "always");
        Running::line(&engine.err, "DB loaded from append only file");
        assert_eq!(Talk::new(&address).unwrap().ask(&format!("SET {key} 1")).as_deref(), Some("+OK"));
        engine.signal("KILL");
        engine.wait();
    };
    drop(start(&address, &data, "always"));
    killed("a");
    let whole = std::fs::metadata(last()).expect("it is there").len();
    let told = |text: &str| {
        let engine = start(&address, &data, "always");
        Running::line(&engine.err, text)
    };
    // At the border of a record nobody knows whether there was more; that the file was not closed is known.
    let line = told("the append log was not closed");
    assert!(line.contains(&format!("used_bytes={whole}")) && !line.contains("cut_bytes"), "{line}");
    killed("b");
    let length = std::fs::metadata(last()).expect("it is there").len();
    std::fs::OpenOptions::new().write(true).open(last()).and_then(|file| file.set_len(length - 3)).expect("it is cut");
    let line = told("the append log ended within a record");
    let figure = |name: &str| {
        let text = line.split_once(&format!("{name}=")).expect("the figure is there").1;
        text.split(|letter: char| !letter.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    assert_eq!(figure("used_bytes").zip(figure("cut_bytes")).map(|(used, cut)| used + cut), Some(length - 3), "{line}");
    assert!(line.contains("appendfsync always") && !line.contains("never acknowledged"), "{line}");
    let _engine = start(&address, &data, "always");
    assert_eq!(Talk::new(&address).unwrap().ask("GET a").as_deref(), Some("1"));
}

#[test]
fn other_programs_are_kept_away_from_our_log() {
    let (scratch, address) = (Scratch::new(), nobody());
    let data = scratch.path("");
    let sign = Path::new(&data).join("appendonlydir/appendonly.aof.manifest");
    let set = |key: &str| {
        let _engine = start(&address, &data, "always");
        let text = std::fs::read_to_string(&sign).expect("it is there while the engine runs");
        assert!(text.starts_with("This directory is the append log of an Ashlar key-value engine"), "{text}");
        let mut talk = Talk::new(&address).expect("it answers");
        assert_eq!(talk.ask(&format!("SET {key} 1")).as_deref(), Some("+OK"));
        talk.ask("GET a")
    };
    assert_eq!(set("a").as_deref(), Some("1"));
    // As a directory of the versions before: it is read, and gets what it lacks.
    std::fs::remove_file(&sign).expect("it is there");
    assert_eq!(set("b").as_deref(), Some("1"));
}

#[test]
fn what_is_no_log_of_ours_is_refused() {
    let scratch = Scratch::new();
    let folder = scratch.path("appendonlydir");
    std::fs::create_dir(&folder).expect("the scratch directory can be written");
    let (dir, foreign) = (scratch.path(""), Path::new(&folder).join("appendonly.aof.manifest"));
    std::fs::write(&foreign, "file appendonly.aof.1.base.rdb seq 1 type b\n").expect("it can be written");
    let arguments = ["kv", "--port", "0", "--dir", &dir, "--appendonly", "yes"];
    check_fails(&arguments, &[], 2, &["append log of another program", "BGSAVE"]);
    std::fs::remove_file(foreign).expect("it is there");
    let renamed = Path::new(&folder).join("mine.aof.manifest");
    std::fs::write(&renamed, "file mine.aof.1.base.rdb seq 1 type b\n").expect("it can be written");
    check_fails(&arguments, &[], 2, &["mine.aof.manifest is an append log of another program"]);
    std::fs::remove_file(renamed).expect("it is there");
    let old = scratch.write("appendonly.aof", "*1\r\n$8\r\nFLUSHALL\r\n");
    check_fails(&arguments, &[], 2, &["appendonly.aof is an append log of another program", "BGSAVE"]);
    std::fs::remove_file(old).expect("it is there");
    std::fs::write(Path::new(&folder).join("manifest"), "ashlar-kv-log 1\n").expect("it can be written");
    check_fails(&arguments, &[], 1, &["manifest is damaged", "restore the directory from a copy"]);
}
