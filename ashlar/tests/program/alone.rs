//! A majority of the servers is gone for good, with their drives: the one that is left goes on with what it has.

use std::fs;
use std::process::Command;

use super::process::{Scratch, TestServer, check_fails, get, run, secret, until};
use super::upkv::ports;

const DATA: [&str; 3] = ["0", "1", "2"];

/// Whether the tool does it with the volume, within 10 s.
fn qemu_io(nbd: &str, arguments: &[&str]) -> bool {
    let uri = format!("nbd://127.0.0.1:{nbd}/v");
    let output = Command::new("timeout")
        .args(["10", "qemu-io"])
        .args(arguments)
        .arg(&uri)
        .output()
        .expect("qemu-io runs; .ci/run installs it");
    output.status.success()
}

fn start(scratch: &Scratch, number: usize, nbd: &str, join: Option<(&str, &str)>) -> TestServer {
    let data = scratch.path(DATA[number]);
    let mut arguments = vec!["--drive-mib", "1024", "--nbd-port", nbd, "--member-timeout-ms", "1000"];
    let mut environment = Vec::new();
    if let Some((address, secret)) = join {
        arguments.extend(["--join", address]);
        environment.push(("ASHLAR_SECRET", secret));
    }
    TestServer::start(&data, &arguments, &environment)
}

#[test]
fn the_server_that_is_left_goes_on_alone() {
    let (scratch, base) = (Scratch::for_drives(), ports(3));
    let nbd = [0, 1, 2].map(|number| (base + number).to_string());
    let first = start(&scratch, 0, &nbd[0], None);
    let secret = secret(&scratch.path("0"));
    let address = first.address.clone();
    let others = [1, 2].map(|number| start(&scratch, number, &nbd[number], Some((&address, &secret))));
    let lost = others.each_ref().map(|other| other.status().expect("it answers").server);
    let data = scratch.path("0");
    until("three copies of everything", || {
        get(&address, "/v1/groups").is_some_and(|answer| {
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            text.contains("\"whole\":true") && !text.contains("\"whole\":false")
        })
    });
    until("a volume", || {
        run(&["volume", "create", "v", "64M", "--addr", &address, "--data", &data], &[]).code == Some(0)
    });
    assert!(qemu_io(&nbd[0], &["-f", "raw", "-c", "write -P 7 1M 64k"]));
    let recover = ["catalog", "recover", "--data", &data];
    check_fails(&recover, &[], 1, &["in use by another ashlar server"]);
    let exported = run(&["catalog", "export", "--addr", &address, "--data", &data], &[]);
    assert!(exported.out.starts_with("ashlar catalog 1\n") && exported.out.contains("\nvolume "), "{}", exported.out);

    drop((first, others));
    fs::remove_dir_all(scratch.path("1")).unwrap();
    fs::remove_dir_all(scratch.path("2")).unwrap();
    check_fails(&recover, &[], 2, &["would go on alone", "--others-are-gone"]);
    let recovered = run(&[&recover[..], &["--others-are-gone"]].concat(), &[]);
    assert_eq!(recovered.code, Some(0), "{}", recovered.err);
    assert!(recovered.out.contains("goes on alone") && recovered.out.contains("with 1 volumes"), "{}", recovered.out);

    let first = start(&scratch, 0, &nbd[0], None);
    let id = first.status().expect("it answers").server;
    let shown = run(&["catalog", "status", "--json", "--addr", &first.address], &[]);
    assert!(shown.out.contains(&format!("\"voters\":[\"{id}\"]")), "{}", shown.out);
    assert!(first.status().expect("it answers").bus.majority);

    // What was written a moment before waits for a second copy: new servers take the places of the lost ones.
    let others = [1, 2].map(|number| start(&scratch, number, &nbd[number], Some((&first.address, &secret))));
    for id in &lost {
        until("a lost server to be forgotten", || {
            run(&["forget", id, "--addr", &first.address, "--data", &data], &[]).code == Some(0)
        });
    }
    until("what was written to be read", || qemu_io(&nbd[0], &["-r", "-f", "raw", "-c", "read -P 7 1M 64k"]));
    until("writes with two copies", || qemu_io(&nbd[1], &["-f", "raw", "-c", "write -P 8 1M 64k"]));
    drop((first, others));
}
