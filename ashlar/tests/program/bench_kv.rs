//! `ashlar bench kv` against the engine: few requests, and what the rows say.

use serde_json::Value;

use super::keyvalue::KvServer;
use super::process::{Scratch, check_fails, nobody, run};

/// Runs the benchmark and returns its rows.
fn rows(arguments: &[&str], environment: &[(&str, &str)]) -> Vec<Value> {
    let mut all = vec!["bench", "kv", "--json", "--connections", "4", "--threads", "2", "--warm-up-ms", "0"];
    all.extend(arguments);
    let outcome = run(&all, environment);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let object: Value = serde_json::from_str(&outcome.out).expect("one object and nothing else");
    assert_eq!((&object["bench"], &object["machine"]["connections"]), (&"kv".into(), &4.into()));
    object["rows"].as_array().expect("rows").clone()
}

#[test]
fn cases_of_a_server_of_its_own() {
    let rows = rows(&["--requests", "2000", "--keys", "100", "--pipeline", "1,16", "--workers", "1"], &[]);
    let names: Vec<&str> = rows.iter().filter_map(|row| row["case"].as_str()).collect();
    assert_eq!(names, ["set/1", "set/16", "get/1", "get/16", "mixed/1", "mixed/16"]);
    for row in &rows {
        assert!(row["value"].as_f64().is_some_and(|rate| rate > 0.0) && row["unit"] == "ops/s", "{row}");
        assert_eq!(row["errors"], 0.0, "{row}");
        assert!(row["server_cpu_us_per_op"].is_number() && row["p999_us"].is_number(), "{row}");
        assert!(row["misses"].is_null() || row["misses"] == 0.0, "every key was written: {row}");
    }
}

#[test]
fn a_command_of_ones_own_on_any_server() {
    let server = KvServer::start(&[]);
    let mut all = vec!["--addr", &server.address, "--keys", "300", "--order", "sequential", "--requests", "300"];
    all.extend(["--pipeline", "7", "--protocol", "3", "--db", "1", "--command"]);
    let push = rows(&[&all[..], &["LPUSH __key__ __data__", "--value-bytes", "10"]].concat(), &[]);
    assert_eq!((push.len(), &push[0]["case"], &push[0]["errors"]), (1, &"command/7".into(), &0.0.into()));
    assert!(push[0]["server_cpu_us_per_op"].is_null(), "nobody said which process it is: {}", push[0]);
    let mut client = server.client();
    assert_eq!(client.ask(&["DBSIZE"]), "0");
    assert_eq!(client.ask(&["SELECT", "1"]), "OK");
    assert_eq!(client.ask(&["DBSIZE"]), "300", "each key once");
    assert_eq!(client.ask(&["LLEN", "key:000000000299"]), "1");
    assert_eq!(client.ask(&["LINDEX", "key:000000000299", "0"]).len(), 10);

    let pid = server.process.pid().to_string();
    let wrong = rows(&[&all[..], &["INCR __key__", "--server-pid", &pid, "--rate", "100000"]].concat(), &[]);
    assert_eq!((&wrong[0]["errors"], &wrong[0]["rate_asked"]), (&300.0.into(), &100_000.0.into()), "{}", wrong[0]);
    assert!(wrong[0]["server_cpu_us_per_op"].is_number(), "{}", wrong[0]);
}

#[test]
fn idle_connections_and_a_command_meanwhile() {
    let server = KvServer::start(&[]);
    let pid = server.process.pid().to_string();
    let all =
        ["--addr", &server.address, "--server-pid", &pid, "--requests", "100", "--only", "set/1", "--pipeline", "1"];
    let rows = rows(&[&all[..], &["--idle", "30", "--during", "SELECT 3"]].concat(), &[]);
    assert_eq!((rows.len(), &rows[0]["case"], &rows[1]["case"]), (2, &"set/1".into(), &"idle".into()));
    assert!(rows[0]["server_resident_mib"].as_f64().is_some_and(|mib| mib > 1.0), "{}", rows[0]);
    assert_eq!((&rows[1]["value"], &rows[1]["unit"]), (&30.0.into(), &"connections".into()));
    assert!(rows[1]["server_bytes_each"].is_number(), "{}", rows[1]);
    assert!(server.client().ask(&["INFO", "commandstats"]).contains("cmdstat_select:calls=1,"));
    let refused = [&["bench", "kv"], &all[..], &["--during", "NOSUCH"]].concat();
    check_fails(&refused, &[], 1, &["unknown command"]);
    check_fails(&[&["bench", "kv"], &all[..], &["--during", " "]].concat(), &[], 2, &["--during has no word"]);
}

#[test]
fn passwords() {
    let (server, scratch) = (KvServer::start(&[]), Scratch::new());
    assert_eq!(server.client().ask(&["CONFIG", "SET", "requirepass", "__key__"]), "OK");
    let all = ["--addr", &server.address, "--requests", "10", "--only", "set/1", "--pipeline", "1"];
    let refused = [&["bench", "kv"], &all[..]].concat();
    check_fails(&refused, &[], 1, &["refuses: NOAUTH", "--password-file"]);
    check_fails(&refused, &[("ASHLAR_KV_PASSWORD", "no")], 1, &["refuses: WRONGPASS"]);
    assert_eq!(rows(&all, &[("ASHLAR_KV_PASSWORD", "__key__")]).len(), 1);
    let file = scratch.write("password", "__key__\n");
    for protocol in ["2", "3"] {
        let more = ["--user", "default", "--password-file", &file, "--protocol", protocol];
        assert_eq!(rows(&[&all[..], &more].concat(), &[]).len(), 1);
    }
}

#[test]
fn wrong_arguments_and_addresses() {
    let address = nobody();
    check_fails(&["bench", "kv", "--addr", &address], &[], 1, &[&format!("cannot connect to {address}"), "--addr"]);
    check_fails(&["bench", "kv", "--addr", "/nowhere/s"], &[], 1, &["cannot connect to /nowhere/s"]);
    check_fails(&["bench", "kv", "--addr", "6379"], &[], 2, &["`6379` is no address", "HOST:PORT"]);
    check_fails(&["bench", "kv", "--addr", &address, "--command", " "], &[], 2, &["--command has no word"]);
    check_fails(&["bench", "kv", "--server-pid", "1"], &[], 2, &["--addr"]);
    check_fails(&["bench", "kv", "--addr", &address, "--only", "no such"], &[], 2, &["no case of this benchmark"]);
    let server = KvServer::start(&[]);
    let silent = ["bench", "kv", "--addr", &server.address, "--command", "BLPOP nothing 0", "--seconds", "1"];
    check_fails(&silent, &[], 1, &["gave no reply to command/1"]);
}
