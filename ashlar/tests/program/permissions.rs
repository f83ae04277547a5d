//! Who may read what the program writes: its owner, whatever the mask of the process is.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::keyvalue::connect;
use super::process::{Running, Scratch, until};
use super::upkv::ports;

/// The mask of most users, and the one that takes nothing away.
const MASKS: [&str; 2] = ["022", "000"];

fn start(mask: &str, words: &[&str]) -> Running {
    let script = format!("umask {mask}; exec \"$0\" \"$@\"");
    let begin = ["-c", &script, env!("CARGO_BIN_EXE_ashlar")];
    let all: Vec<String> = begin.iter().chain(words).map(|word| (*word).to_owned()).collect();
    Running::start_other("sh", &all)
}

/// Everything below a directory, but sockets, whose permissions are a setting.
fn below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type());
        match kind {
            Ok(kind) if kind.is_dir() => {
                found.extend(below(&path));
                found.push(path);
            }
            Ok(kind) if !kind.is_socket() => found.push(path),
            // What is replaced meanwhile is gone.
            _ => {}
        }
    }
    found
}

/// Names of everything below a directory, of which nobody but the owner may read anything.
fn check(directory: &Path) -> Vec<String> {
    let check = |path: PathBuf| {
        let found = fs::metadata(&path).ok()?;
        let wanted = if found.is_dir() { 0o700 } else { 0o600 };
        let mode = found.permissions().mode() & 0o777;
        assert_eq!(mode, wanted, "{} has mode {mode:o}", path.display());
        Some(path.file_name()?.to_string_lossy().into_owned())
    };
    below(directory).into_iter().filter_map(check).collect()
}

fn has(names: &[String], wanted: &[&str]) {
    for name in wanted {
        assert!(names.iter().any(|found| found.starts_with(name)), "no {name} among {names:?}");
    }
}

/// Writes keys, a dump, and a new base of the log, at an engine that serves all slots.
fn write(address: &str) {
    let mut client = connect(address);
    until("the slots", || client.ask(&["SET", "key", "value"]) == "OK");
    assert_eq!(client.ask(&["SAVE"]), "OK");
    let reply = client.ask(&["BGREWRITEAOF"]);
    assert!(reply.starts_with("Background"), "{reply}");
    until("the new base", || client.ask(&["INFO", "persistence"]).contains("aof_rewrite_in_progress:0"));
}

#[test]
fn nobody_else_reads_what_an_engine_writes() {
    for mask in MASKS {
        let scratch = Scratch::new();
        let (dir, port) = (scratch.path(""), ports(1));
        let begin = ["kv", "--port", &port.to_string(), "--workers", "1", "--dir", &dir, "--unix", &scratch.path("s")];
        let settings = ["--appendonly", "yes", "--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
        let mut engine = start(mask, &[&begin[..], &settings].concat());
        Running::line(&engine.out, "Ready to accept connections");
        let address = format!("127.0.0.1:{port}");
        let added = connect(&address).ask(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        assert_eq!(added, "OK");
        write(&address);
        check(Path::new(&dir));
        engine.signal("TERM");
        assert_eq!(engine.wait(), Some(0));
        let names = check(Path::new(&dir));
        has(&names, &["appendonlydir", "manifest", "log-", "base-", "lock", "dump.rdb", "nodes.conf", "seat", "bus"]);
    }
}

#[test]
fn nobody_else_reads_what_servers_write() {
    for mask in MASKS {
        let (scratch, port) = (Scratch::new(), ports(3));
        let (above, data) = (scratch.path("above"), scratch.path("above/data"));
        let [first, kv, second] = [port, port + 1, port + 2].map(|port| port.to_string());
        let begin = ["up", "--data", &data, "--servers", "1", "--workers", "1", "--port-base", &first];
        let mut up = start(mask, &[&begin[..], &["--kv-port", &kv, "--kv-replica-port", &second]].concat());
        Running::line(&up.out, "ashlar is up");
        let address = format!("127.0.0.1:{kv}");
        write(&address);
        assert_eq!(connect(&address).ask(&["CONFIG", "SET", "maxmemory", "1gb"]), "OK");
        check(Path::new(&above));
        up.signal("TERM");
        assert_eq!(up.wait(), Some(0));
        let names = check(Path::new(scratch.path("").trim_end_matches('/')));
        let wanted =
            ["cluster.secret", "admin.token", "tls.key", "tls.cert", "identity", "bus", "kv.settings", "manifest"];
        has(&names, &[&wanted[..], &["log-", "dump.rdb", "lock", "above", "data"]].concat());
    }
}

#[test]
fn a_directory_of_the_user_keeps_its_permissions_and_old_files_are_replaced() {
    let scratch = Scratch::new();
    let dir = scratch.path("dir");
    fs::create_dir(&dir).expect("the scratch directory can be written");
    let set = |path: &str, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    set(&dir, 0o750).expect("it is ours");
    let (dump, left) = (scratch.path("dir/dump.rdb"), scratch.path("dir/dump.rdb.new"));
    let engine = start("022", &["kv", "--port", "0", "--workers", "1", "--dir", &dir]);
    let line = Running::line(&engine.out, "Ready to accept connections tcp on ");
    let mut client = connect(line.rsplit(' ').next().expect("it ends with the address"));
    assert_eq!(client.ask(&["SAVE"]), "OK");
    // As an earlier version made them, one of them left by a crash.
    fs::write(&left, "half").expect("it is ours");
    for path in [&dump, &left] {
        set(path, 0o644).expect("it is ours");
    }
    assert_eq!(client.ask(&["SAVE"]), "OK");
    let mode = |path: &str| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&dump), mode(&dir)), (0o600, 0o750));
}
