//! A server with several drives: one that is not there is left out, and comes back.

use std::fs;

use super::disk::tool;
use super::process::{Scratch, TestServer, check_fails, get, nobody, run, until};
use super::upkv::ports;

/// Drives of the cluster in that state.
fn in_state(address: &str, state: &str) -> usize {
    let answer = get(address, "/v1/drives").map(|answer| String::from_utf8_lossy(&answer.body).into_owned());
    answer.unwrap_or_default().matches(&format!("\"state\":\"{state}\"")).count()
}

fn until_in_state(server: &TestServer, count: usize, state: &str) {
    until(&format!("{count} drives `{state}`"), || in_state(&server.address, state) == count);
}

#[test]
fn a_server_runs_without_a_drive_that_is_not_mounted() {
    let scratch = Scratch::for_drives();
    let data = scratch.path("0");
    let folders = ["a", "b"].map(|name| scratch.path(name));
    let list = folders.join(",");
    let arguments = ["--drive-mib", "1024", "--drives", &list];
    let listen = nobody();
    let alone = ["server", "--data", &data, "--listen", &listen, "--drive-mib", "1024", "--drives", &list];
    check_fails(&alone, &[], 1, &["is not there", "mount its drive"]);

    folders.iter().for_each(|folder| fs::create_dir(folder).unwrap());
    let server = TestServer::start(&data, &arguments, &[]);
    until_in_state(&server, 2, "active");
    server.stop();
    let elsewhere = scratch.path("elsewhere");
    fs::rename(&folders[1], &elsewhere).unwrap();
    let server = TestServer::start(&data, &arguments, &[]);
    until_in_state(&server, 1, "missing");
    server.stop();
    assert!(!fs::exists(&folders[1]).unwrap(), "nothing is made where the drive is not");
    fs::rename(&elsewhere, &folders[1]).unwrap();
    let server = TestServer::start(&data, &arguments, &[]);
    until_in_state(&server, 2, "active");
    server.stop();

    // The whole of the first drive, under both names.
    fs::remove_dir_all(&folders[1]).unwrap();
    fs::create_dir(&folders[1]).unwrap();
    fs::copy(format!("{}/extents", folders[0]), format!("{}/extents", folders[1])).unwrap();
    let server = TestServer::start(&data, &arguments, &[]);
    until_in_state(&server, 1, "missing");
    assert_eq!(in_state(&server.address, "active"), 1, "a copy of a drive is not used");
    server.stop();
}

#[test]
fn a_machine_that_stays_alone_keeps_copies_on_its_drives() {
    let scratch = Scratch::for_drives();
    let data = scratch.path("0");
    let folders = ["a", "b", "c"].map(|name| scratch.path(name));
    folders.iter().for_each(|folder| fs::create_dir(folder).unwrap());
    let (list, port) = (folders.join(","), ports(1).to_string());
    let drives = ["--drive-mib", "1024", "--drives", &list, "--nbd-port", &port];
    let volume =
        |server: &TestServer| run(&["volume", "create", "v", "64M", "--addr", &server.address, "--data", &data], &[]);
    let io = |commands: &[&str]| {
        let uri = format!("nbd://127.0.0.1:{port}/v");
        let words: Vec<&str> = commands.iter().flat_map(|command| ["-c", command]).collect();
        tool("qemu-io", &[&["-f", "raw"][..], &words, &[&uri]].concat())
    };

    // Copies on servers: one server is too few.
    let server = TestServer::start(&data, &drives, &[]);
    until_in_state(&server, 3, "active");
    assert_ne!(volume(&server).code, Some(0));
    server.stop();
    let server = TestServer::start(&data, &[&drives[..], &["--copies-on", "drives"]].concat(), &[]);
    until("the volume to be made", || volume(&server).code == Some(0));
    io(&["write -P 7 0 3M", "flush", "read -P 7 0 3M"]);
    server.stop();

    // A drive is lost. Which rule holds is in the catalog by now.
    fs::remove_dir_all(&folders[1]).unwrap();
    let server = TestServer::start(&data, &drives, &[]);
    until_in_state(&server, 1, "missing");
    io(&["read -P 7 0 3M", "write -P 8 1M 1M", "read -P 8 1M 1M"]);
    server.stop();
}
