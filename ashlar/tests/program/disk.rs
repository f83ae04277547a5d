//! A volume with three copies over NBD: other people's tools, and a server that is killed meanwhile.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use super::process::{Outcome, Running, Scratch, run, until};
use super::upkv::ports;

/// A cluster with drives; the first server's NBD port is `nbd`.
struct Disks {
    running: Running,
    data: String,
    port: u16,
    nbd: u16,
    scratch: Scratch,
}

impl Disks {
    fn new() -> Self {
        let (scratch, port) = (Scratch::for_drives(), ports(6));
        let (data, nbd) = (scratch.path("data"), port + 3);
        let running = command(&data, port, nbd);
        Running::line(&running.out, "nbd://127.0.0.1");
        Self { running, data, port, nbd, scratch }
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn uri(&self) -> String {
        format!("nbd://127.0.0.1:{}/demo", self.nbd)
    }

    fn restart(&mut self) {
        self.running.signal("INT");
        assert_eq!(self.running.wait(), Some(0));
        self.running = command(&self.data, self.port, self.nbd);
        Running::line(&self.running.out, "nbd://127.0.0.1");
    }

    /// Kills the server of this number with -9. It is started again by itself.
    fn kill(&self, server: u16) {
        let status = super::process::status(&format!("127.0.0.1:{}", self.port + server)).expect("it answers");
        super::process::signal(status.pid, "KILL");
    }
}

fn command(data: &str, port: u16, nbd: u16) -> Running {
    let [port, nbd] = [port, nbd].map(|port| port.to_string());
    let begin = ["up", "--data", data, "--port-base", &port, "--kv-port", "0", "--nbd-port", &nbd];
    Running::start(&[&begin[..], &["--drive-mib", "1024", "--object-mib", "0", "--workers", "1"]].concat(), &[])
}

/// Runs one of other people's tools; what it prints.
pub(crate) fn tool(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; .ci/run installs it"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {text}");
    text
}

#[test]
fn a_volume_is_served_to_tools_and_lasts() {
    let mut disks = Disks::new();
    let mut silent = TcpStream::connect(("127.0.0.1", disks.nbd)).unwrap();
    let info = tool("nbdinfo", &[&disks.uri()]);
    assert!(info.contains("export-size: 1073741824") && info.contains("can_multi_conn: true"), "{info}");
    let (from, to) = (disks.scratch.path("from"), disks.scratch.path("to"));
    let bytes: Vec<u8> = (0..3_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(&from, &bytes).unwrap();
    tool("nbdcopy", &[&from, &disks.uri()]);
    // Any bytes: the blocks at the edges are read first.
    let io = |commands: &[&str]| {
        let words: Vec<&str> = commands.iter().flat_map(|command| ["-c", command]).collect();
        tool("qemu-io", &[&["-f", "raw"][..], &words, &[&disks.uri()]].concat())
    };
    let said = io(&[
        "write -P 0x5a 5000001 12345",
        "read -P 0x5a 5000001 12345",
        "write -z 4M 64k",
        "read -P 0 4M 64k",
        "flush",
    ]);
    assert!(!said.contains("Pattern verification failed"), "{said}");
    let map = tool("nbdinfo", &["--map", "--totals", &disks.uri()]);
    // What nbdcopy wrote, the zeroes, and the four blocks of 4 KiB that the odd bytes touch.
    let stored = ((3 << 20) + (64 << 10) + (16 << 10)).to_string();
    assert!(
        map.contains("hole,zero") && map.contains(&stored),
        "{stored} bytes are stored, and the rest is not: {map}"
    );
    let mut greeting = Vec::new();
    silent.read_to_end(&mut greeting).expect("who says nothing is let go");
    assert!(greeting.starts_with(b"NBDMAGIC"), "{greeting:?}");
    disks.restart();
    tool("nbdcopy", &[&disks.uri(), &to]);
    let read = std::fs::read(&to).unwrap();
    assert!(read[..bytes.len()] == bytes, "what was written is read again after a restart of all servers");
    assert!(read[5_000_001..5_012_346].iter().all(|byte| *byte == 0x5a));
    let list = run(&["volume", "list", "--json", "--addr", &disks.address()], &[]);
    assert_eq!(list.code, Some(0), "{list:?}");
    assert!(list.out.contains("\"name\":\"demo\"") && list.out.contains("\"bytes\":1073741824"), "{list:?}");
    let again = run(&["volume", "create", "demo", "1G", "--addr", &disks.address(), "--data", &disks.data], &[]);
    assert!(again.code == Some(1) && again.err.contains("a volume of this name exists"), "{again:?}");
    let wrong = run(&["volume", "create", "other", "5", "--addr", &disks.address(), "--data", &disks.data], &[]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    disks.running.signal("INT");
    assert_eq!(disks.running.wait(), Some(0));
}

#[test]
fn a_volume_goes_on_while_servers_are_killed() {
    let disks = Disks::new();
    let uri = format!("--uri={}", disks.uri());
    let words = [
        "--name=a",
        "--ioengine=nbd",
        &uri,
        "--rw=randwrite",
        "--bs=4k",
        "--iodepth=8",
        "--size=48m",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0", // it would leave a file where the tests were started
        "--io_size=12m",
    ];
    let mut fio = Command::new("fio").args(words).stdout(Stdio::null()).spawn().expect("fio runs; .ci/run installs it");
    // One after the other, and each comes back by itself.
    for server in [2, 1] {
        disks.kill(server);
        let place = format!("127.0.0.1:{}", disks.port + server);
        until("the server to be back", || super::process::status(&place).is_some_and(|status| status.ready));
    }
    let status = fio.wait().expect("it is waited for once");
    assert!(status.success(), "fio saw no error and read what it wrote: {status}");
}

/// A client that connects again sees nothing of a server that is restarted, here the one that it is connected to.
#[test]
fn an_orderly_stop_is_no_error_to_a_client_that_connects_again() {
    let disks = Disks::new();
    let place = format!("driver=nbd,server.type=inet,server.host=127.0.0.1,server.port={}", disks.nbd);
    let image = format!("{place},export=demo,reconnect-delay=60");
    let mut client = Command::new("qemu-io")
        .args(["--image-opts", &image])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("qemu-io runs; .ci/run installs it");
    let mut commands = client.stdin.take().expect("it was piped");
    let server = super::process::status(&disks.address()).expect("it answers");
    for round in 0..40 {
        if round == 10 {
            let list = || run(&["volume", "list", "--json", "--addr", &disks.address()], &[]).out;
            until("the client to have the volume", || list().contains("\"attached\":\""));
            super::process::signal(server.pid, "TERM");
        }
        (0..16).for_each(|number| writeln!(commands, "aio_write -q -P {} {}k 64k", round + 1, number * 64).unwrap());
        writeln!(commands, "aio_flush").unwrap();
    }
    writeln!(commands, "read -P 40 0 1M").unwrap();
    drop(commands);
    let output = client.wait_with_output().expect("it is waited for once");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("failed"), "{said}");
    assert!(said.contains("read 1048576/1048576 bytes"), "{said}");
    until("the server to be back", || {
        super::process::status(&disks.address()).is_some_and(|status| status.ready && status.pid != server.pid)
    });
    let log = |number| std::fs::read_to_string(format!("{}/server-{number}.log", disks.data)).unwrap();
    let logs: String = (1..=3).map(log).collect();
    assert!(logs.contains("placement groups go on without servers that are about to stop"), "{logs}");
}

/// `ashlar volume WORDS` at the server of this number, to change something.
fn volume(disks: &Disks, server: u16, words: &[&str]) -> Outcome {
    let address = format!("127.0.0.1:{}", disks.port + server);
    run(&[&["volume"], words, &["--addr", &address, "--data", &disks.data]].concat(), &[])
}

/// A client that stays, and takes commands from its standard input.
fn client(uri: &str) -> Child {
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw", uri]).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().expect("qemu-io runs; .ci/run installs it")
}

#[test]
fn a_volume_is_taken_from_its_clients_enlarged_and_deleted() {
    let disks = Disks::new();
    // One command after the other, each answered by lines that end with its operations.
    let mut client = client(&disks.uri());
    let (mut to, mut from) = (client.stdin.take().unwrap(), BufReader::new(client.stdout.take().unwrap()).lines());
    let mut say = |command: &str, answer: &str| {
        writeln!(to, "{command}").unwrap();
        let line =
            from.by_ref().map(|line| line.unwrap()).find(|line| line.contains(answer) || line.contains("failed"));
        assert!(line.as_ref().is_some_and(|line| line.contains(answer)), "{command}: {line:?}");
    };
    say("write -P 1 0 64k", "1 ops");
    let refused = volume(&disks, 0, &["delete", "demo"]);
    assert!(refused.code == Some(1) && refused.err.contains("volume demo is attached"), "{refused:?}");
    let refused = volume(&disks, 0, &["detach", "demo"]);
    assert!(refused.code == Some(1) && refused.err.contains("--force"), "{refused:?}");
    // By another server than the one that has it.
    let detached = volume(&disks, 1, &["detach", "demo", "--force"]);
    assert_eq!(detached.code, Some(0), "{detached:?}");
    say("write -P 2 0 64k", "failed");
    let other = format!("nbd://127.0.0.1:{}/demo", disks.nbd + 1);
    tool("qemu-io", &["-f", "raw", "-c", "read -P 1 0 64k", &other]);
    let resized = volume(&disks, 2, &["resize", "demo", "2G", "--json"]);
    assert!(resized.code == Some(0) && resized.out.contains("\"bytes\":2147483648"), "{resized:?}");
    tool("qemu-io", &["-f", "raw", "-c", "write -P 3 2000M 64k", "-c", "read -P 3 2000M 64k", &other]);
    drop(to);
    assert!(client.wait().is_ok());
    let deleted = volume(&disks, 0, &["delete", "demo"]);
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    for words in [&["delete", "demo"][..], &["show", "demo"], &["resize", "demo", "4G"], &["detach", "demo", "--force"]]
    {
        let refused = volume(&disks, 1, words);
        let is_unknown = refused.code == Some(1) && refused.err.contains("there is no volume demo");
        assert!(is_unknown, "{words:?}: {refused:?}");
    }
    // The name is free, and nothing of the earlier volume is read under it.
    assert_eq!(volume(&disks, 0, &["create", "demo", "1G"]).code, Some(0));
    tool("qemu-io", &["-f", "raw", "-c", "read -P 0 0 64k", &disks.uri()]);
}

#[test]
fn what_a_killed_server_had_attached_is_free_when_it_is_back() {
    let disks = Disks::new();
    let other = format!("nbd://127.0.0.1:{}/demo", disks.nbd + 1);
    let attached =
        || Command::new("qemu-img").args(["info", &other]).output().expect("qemu-img runs; .ci/run installs it");
    let mut client = client(&disks.uri());
    let mut to = client.stdin.take().unwrap();
    writeln!(to, "write -P 1 0 64k").unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    assert!(lines.any(|line| line.contains("1 ops")));
    let refused = attached();
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && why.contains("it is attached at server"), "{why}");
    // The client loses its server, and does not come back to it.
    disks.kill(0);
    client.kill().unwrap();
    client.wait().unwrap();
    until("the volume to be free", || attached().status.success());
    tool("qemu-io", &["-f", "raw", "-c", "read -P 1 0 64k", &other]);
}

#[test]
fn a_client_that_leaves_while_nothing_can_be_decided_leaves_the_volume_to_others() {
    let disks = Disks::new();
    let at = |server: u16| format!("nbd://127.0.0.1:{}/demo", disks.nbd + server);
    let mut client = client(&at(1));
    let mut to = client.stdin.take().unwrap();
    writeln!(to, "write -P 1 0 64k").unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    assert!(lines.any(|line| line.contains("1 ops")));
    let signal_others = |signal: &str, others: &[u32]| {
        others.iter().for_each(|pid| super::process::signal(*pid, signal));
    };
    let others = [0, 2].map(|server| {
        let status = super::process::status(&format!("127.0.0.1:{}", disks.port + server));
        status.expect("it answers").pid
    });
    signal_others("STOP", &others);
    client.kill().unwrap();
    client.wait().unwrap();
    let log = disks.scratch.path("data/server-2.log");
    let tells = || std::fs::read_to_string(&log).is_ok_and(|log| log.contains("detached is not in the catalog yet"));
    until("the catalog to be told again", tells);
    signal_others("CONT", &others);
    let read = || Command::new("qemu-io").args(["-f", "raw", "-c", "read -P 1 0 64k", &at(2)]).output();
    until("the volume to be free", || read().is_ok_and(|read| read.status.success()));
}

#[test]
fn a_server_lists_what_it_knew_last_and_nothing_before_it_knows() {
    let disks = Disks::new();
    let at = |server: u16| format!("127.0.0.1:{}", disks.port + server);
    let list = || run(&["volume", "list", "--addr", &at(2), "--data", &disks.data], &[]);
    let pid = |server| super::process::status(&at(server)).map(|status| status.pid);
    let [first, second, third] = [0, 1, 2].map(|server| pid(server).expect("it answers"));
    let signal_others = |signal| [first, second].iter().for_each(|pid| super::process::signal(*pid, signal));
    until("the volume to be known", || list().out.contains("demo"));
    signal_others("STOP");
    assert!(list().out.contains("demo"), "cut off, it tells what it knew last");
    disks.kill(2);
    until("another process", || pid(2).is_some_and(|pid| pid != third));
    let early = list();
    signal_others("CONT");
    assert!(early.code != Some(0) && early.err.contains("does not know yet"), "{} {}", early.out, early.err);
    until("the volume to be known again", || list().out.contains("demo"));
}
