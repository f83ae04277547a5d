//! An engine that cannot save its data does not stop: a client is told so, a first signal is not obeyed, and a second one is.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::keyvalue::connect;
use super::process::{Running, Scratch, get, run, signal, status, until};
use super::upkv::{Up, Wire};

const REFUSED: &str = "-ERR Errors trying to SHUTDOWN. Check logs.";
const GOES_ON: &str = "cannot stop, because data would be lost";

/// `ashlar kv` in a directory, and where it listens.
fn start(directory: &str, more: &[&str]) -> (Running, String) {
    let all = [&["kv", "--port", "0", "--workers", "2", "--dir", directory], more].concat();
    listening(Running::start(&all, &[]))
}

fn listening(process: Running) -> (Running, String) {
    let line = Running::line(&process.out, "Ready to accept connections tcp on ");
    let address = line.rsplit(' ').next().expect("the line ends with the address").to_owned();
    (process, address)
}

/// A dump cannot be written while this is there, by root neither: it has the name under which a dump is begun.
struct Obstacle(String);

impl Obstacle {
    fn new(directory: &str) -> Self {
        let path = Path::new(directory).join("dump.rdb.new").display().to_string();
        fs::create_dir(&path).expect("the directory can be written");
        Self(path)
    }

    fn clear(self) {
        fs::remove_dir(self.0).expect("it is empty");
    }
}

#[test]
fn a_client_cannot_stop_an_engine_whose_dump_cannot_be_written() {
    let scratch = Scratch::new();
    let directory = scratch.path("");
    let (mut engine, address) = start(&directory, &["--save", "3600 1"]);
    let mut client = connect(&address);
    assert_eq!(client.ask(&["SET", "k", "v"]), "OK");
    let obstacle = Obstacle::new(&directory);
    for words in [&["SHUTDOWN"][..], &["SHUTDOWN", "NOW"], &["SHUTDOWN", "SAVE"]] {
        assert_eq!(client.ask(words), REFUSED, "{words:?}");
        let line = Running::line(&engine.err, GOES_ON);
        assert!(line.contains("dump.rdb") && line.contains("SHUTDOWN FORCE"), "{line}");
    }
    assert_eq!(client.ask(&["SHUTDOWN", "ABORT"]), "-ERR No shutdown in progress.");
    assert_eq!(client.ask(&["SET", "k", "w"]), "OK", "it serves on");
    obstacle.clear();
    client.send(&["SHUTDOWN"]);
    assert_eq!(engine.wait(), Some(0));
    assert!(client.is_over());

    let (engine, address) = start(&directory, &["--save", "3600 1"]);
    assert_eq!(connect(&address).ask(&["GET", "k"]), "w");
    drop(engine);
}

#[test]
fn who_insists_ends_an_engine_whose_dump_cannot_be_written() {
    for (words, code) in [(["SHUTDOWN", "FORCE"], 1), (["SHUTDOWN", "NOSAVE"], 0)] {
        let scratch = Scratch::new();
        let (mut engine, address) = start(&scratch.path(""), &["--save", "3600 1"]);
        let mut client = connect(&address);
        assert_eq!(client.ask(&["SET", "k", "v"]), "OK");
        let _obstacle = Obstacle::new(&scratch.path(""));
        client.send(&words);
        assert_eq!(engine.wait(), Some(code), "{words:?}");
    }
}

#[test]
fn the_second_signal_ends_an_engine_whose_dump_cannot_be_written() {
    for (first, second) in [("TERM", "TERM"), ("INT", "TERM")] {
        let scratch = Scratch::new();
        let (mut engine, address) = start(&scratch.path(""), &["--save", "3600 1"]);
        let mut client = connect(&address);
        assert_eq!(client.ask(&["SET", "k", "v"]), "OK");
        let _obstacle = Obstacle::new(&scratch.path(""));
        engine.signal(first);
        Running::line(&engine.err, GOES_ON);
        assert_eq!(client.ask(&["SET", "k", "w"]), "OK", "it serves on");
        engine.signal(second);
        assert_eq!(engine.wait(), Some(1), "{first} {second}");
    }
}

#[test]
fn a_script_that_holds_a_stop_up_is_said_and_can_be_ended() {
    let scratch = Scratch::new();
    let (mut engine, address) = start(&scratch.path(""), &["--save", ""]);
    let mut client = connect(&address);
    client.send(&["EVAL", "while true do end", "0"]);
    let mut other = connect(&address);
    until("the script to be slow", || other.ask(&["GET", "k"]).starts_with("-BUSY"));
    engine.signal("TERM");
    let line = Running::line(&engine.err, "does not end");
    assert!(line.contains("WARN") && line.contains("SCRIPT KILL"), "{line}");
    assert_eq!(other.ask(&["SCRIPT", "KILL"]), "OK");
    assert_eq!(engine.wait(), Some(0));
}

#[test]
fn settings_say_how_a_signal_ends_an_engine() {
    let scratch = Scratch::new();
    let _obstacle = Obstacle::new(&scratch.path(""));
    let (mut engine, address) = start(&scratch.path(""), &["--save", "3600 1", "--shutdown-on-sigterm", "nosave"]);
    let mut client = connect(&address);
    assert_eq!(client.ask(&["CONFIG", "SET", "shutdown-on-sigint", "save"]), "OK");
    engine.signal("INT");
    Running::line(&engine.err, GOES_ON);
    assert_eq!(client.ask(&["CONFIG", "SET", "shutdown-on-sigterm", "nosave force"]), "OK");
    engine.signal("TERM");
    assert_eq!(engine.wait(), Some(0), "no dump was wanted");
}

#[test]
fn an_engine_whose_log_cannot_be_written_does_not_stop() {
    let scratch = Scratch::new();
    let directory = scratch.path("");
    // No file may have more than 64 KiB; what writes more gets an error, and no signal.
    let program = env!("CARGO_BIN_EXE_ashlar");
    let script = format!(
        "trap '' XFSZ; ulimit -S -f 128; exec {program} kv --port 0 --workers 1 --dir {directory} --appendonly yes --save ''"
    );
    let (mut engine, address) = listening(Running::start_other("sh", &["-c".into(), script]));
    let mut client = connect(&address);
    assert_eq!(client.ask(&["SET", "small", "v"]), "OK");
    let large = "x".repeat(80 << 10);
    let refused = client.ask(&["SET", "large", &large]);
    assert!(refused.contains("MISCONF"), "{refused}");
    assert_eq!(client.ask(&["SHUTDOWN"]), REFUSED);
    let line = Running::line(&engine.err, GOES_ON);
    assert!(line.contains("append log"), "{line}");
    engine.signal("TERM");
    Running::line(&engine.err, GOES_ON);
    assert_eq!(client.ask(&["GET", "small"]), "v", "it serves on");
    let pid = engine.pid().to_string();
    let lifted = Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited"]).status();
    assert!(lifted.expect("prlimit is there").success());
    client.send(&["SHUTDOWN"]);
    assert_eq!(engine.wait(), Some(0));

    let (engine, address) = start(&directory, &["--appendonly", "yes", "--save", ""]);
    let mut client = connect(&address);
    assert_eq!((client.ask(&["GET", "small"]).as_str(), client.ask(&["STRLEN", "large"]).as_str()), ("v", "81920"));
    drop(engine);
}

#[test]
fn a_server_whose_dump_cannot_be_written_goes_on_as_a_replica_and_takes_over_again() {
    let mut up = Up::new(3);
    let (engine, admin) = (up.first(0), format!("127.0.0.1:{}", up.port));
    let ask = |words: &[&str]| Wire::new(&engine).and_then(|mut wire| wire.ask(words));
    assert_eq!(ask(&["CONFIG", "SET", "appendonly", "no", "save", "3600 1"]).as_deref(), Some("OK"));
    let obstacle = Obstacle::new(&format!("{}/server-1/kv", up.data));
    signal(up.pid(0), "TERM");
    until("the server to go on", || status(&admin).is_some_and(|status| status.stays_because.is_some()));
    let status = status(&admin).expect("it answers");
    assert!(status.stays_because.is_some_and(|why| why.contains("dump.rdb")) && !status.draining);
    until("it to be ready", || get(&admin, "/health/ready").is_some_and(|answer| answer.status == 200));
    let told = run(&["status", "--addr", &admin], &[]).out;
    assert!(told.contains("was told to stop and goes on, because data would be lost"), "{told}");
    until("it to follow", || up.role(&engine) == "slave" && up.is_whole());

    // Its group is led by the third server, whose only heir it is.
    assert_eq!(up.role(&up.second(2)), "master");
    signal(up.pid(2), "TERM");
    until("it to take over", || up.role(&engine) == "master");
    Running::line(&up.running.out, "server 3 runs again");
    until("the cluster to be whole", || up.is_whole());
    obstacle.clear();

    let mut other = Wire::new(&up.first(1)).expect("it listens");
    assert_eq!(other.ask(&["CONFIG", "SET", "appendonly", "no", "save", "3600 1"]).as_deref(), Some("OK"));
    let obstacle = Obstacle::new(&format!("{}/server-2/kv", up.data));
    up.running.signal("TERM");
    Running::line(&up.running.err, "server 2 goes on, because data would be lost");
    Running::line(&up.running.out, "runs again");
    Running::line(&up.running.out, "runs again");
    let engines = || (0..3).flat_map(|server| [up.first(server), up.second(server)]);
    until("all engines to listen", || engines().all(|engine| Wire::new(&engine).is_some()));
    until("the cluster to be whole", || up.is_whole());
    obstacle.clear();
    up.running.signal("TERM");
    assert_eq!(up.running.wait(), Some(0));
}
