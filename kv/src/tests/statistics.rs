//! What is counted and remembered: INFO, SLOWLOG, LATENCY, and the last words of SHUTDOWN.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ashlar_wire::time::Instant;

use super::{Talk, check, readable};
use crate::engine::{Engine, EngineConfig};
use crate::host::{Certificate, Certificates, Facts, Host};
use crate::memory::hash_key::HASH_KEY_BYTES;
use crate::shutdown::Shutdown;

/// A world in which time passes only while a command rests.
#[derive(Debug, Default)]
struct Sleeper(AtomicU64);

impl Host for Sleeper {
    fn facts(&self) -> Facts {
        Facts { process: 42, system: "Test 1".into(), ..Facts::default() }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(1_000_000 + self.0.load(Ordering::Relaxed))
    }

    fn sleep(&self, span: Duration) {
        self.0.fetch_add(u64::try_from(span.as_nanos()).unwrap(), Ordering::Relaxed);
    }

    fn folder(&self, _from: &str, path: &str) -> Result<String, String> {
        Ok(path.into())
    }

    fn rewrite(&self, _edit: &dyn Fn(&str) -> String) -> Result<(), String> {
        Err("read-only".into())
    }
}

fn talk() -> (Talk, Arc<Sleeper>) {
    let host = Arc::new(Sleeper::default());
    let config = EngineConfig { secret: [3; HASH_KEY_BYTES], shards: 8, databases: 16 };
    let engine = Engine::with_host(&config, Arc::clone(&host) as Arc<dyn Host>);
    engine.configure("enable-debug-command", "yes").unwrap();
    (Talk::with(Arc::new(engine)), host)
}

/// A line of INFO.
fn line(talk: &mut Talk, section: &str, name: &str) -> String {
    let info = talk.say(0, &format!("INFO {section}"));
    let found = info.split("\\r\\n").find_map(|line| line.strip_prefix(&format!("{name}:")));
    found.unwrap_or("none").to_owned()
}

/// A command that rests for so long, by a clock that agrees with the client's when it begins.
fn rest(talk: &mut Talk, host: &Sleeper, seconds: &str) {
    host.0.store(talk.now().instant.as_nanos() - 1_000_000, Ordering::Relaxed);
    talk.say(0, &format!("DEBUG SLEEP {seconds}"));
    host.0.store(0, Ordering::Relaxed);
}

#[test]
fn calls_are_counted_by_command() {
    let (mut talk, host) = talk();
    for sent in ["SET a 1", "GET a", "GET", "INCR a", "LPUSH a 1", "CLIENT ID", "MULTI", "SET b 1", "GET", "EXEC"] {
        talk.say(0, sent);
    }
    for (command, counts) in [
        ("set", "calls=1,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=0"),
        ("get", "calls=1,usec=0,usec_per_call=0.00,rejected_calls=2,failed_calls=0"),
        ("lpush", "calls=1,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=1"),
        ("client|id", "calls=1,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=0"),
        ("exec", "calls=1,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=1"),
        ("hset", "none"),
    ] {
        assert_eq!(line(&mut talk, "commandstats", &format!("cmdstat_{command}")), counts, "{command}");
    }
    assert_eq!(line(&mut talk, "errorstats", "errorstat_EXECABORT"), "count=1");
    assert_eq!(line(&mut talk, "stats", "total_error_replies"), "4");
    rest(&mut talk, &host, "0.002");
    assert_eq!(
        line(&mut talk, "commandstats", "cmdstat_debug"),
        "calls=1,usec=2000,usec_per_call=2000.00,rejected_calls=0,failed_calls=0"
    );
    assert_eq!(talk.say(0, "CONFIG RESETSTAT"), "OK");
    assert_eq!(line(&mut talk, "commandstats", "cmdstat_debug"), "none");
    assert!(line(&mut talk, "commandstats", "cmdstat_config|resetstat").starts_with("calls=1,"));
    assert_eq!(line(&mut talk, "stats", "total_error_replies"), "0");
}

#[test]
fn commands_of_one_batch_are_all_counted() {
    let (mut talk, _) = talk();
    let batch = "PING\r\n".repeat(100) + "DEBUG SLEEP 0.001\r\n" + &"GET a\r\n".repeat(50);
    talk.raw(0, batch.as_bytes());
    for (command, calls) in
        [("ping", "calls=100,usec=0,"), ("debug", "calls=1,usec=1000,"), ("get", "calls=50,usec=0,")]
    {
        let counts = line(&mut talk, "commandstats", &format!("cmdstat_{command}"));
        assert!(counts.starts_with(calls), "{command} {counts}");
    }
    assert_eq!(line(&mut talk, "stats", "total_commands_processed"), "154");
    assert_eq!(line(&mut talk, "debug", "eventloop_cmd_per_cycle_max"), "151");
}

#[test]
fn commands_inside_others_are_counted_too() {
    let (mut talk, _) = talk();
    for sent in ["MULTI", "DEBUG SLEEP 0.001", "PING", "EXEC"] {
        talk.say(0, sent);
    }
    talk.say(0, "EVAL \"redis.call('SET', 'a', 1) return redis.call('INCR', 'a')\" 0");
    for (command, counts) in [
        ("debug", "calls=1,usec=1000,"),
        ("exec", "calls=1,usec=1000,"),
        ("eval", "calls=1,usec=0,"),
        ("set", "calls=1,"),
        ("incr", "calls=1,"),
    ] {
        let found = line(&mut talk, "commandstats", &format!("cmdstat_{command}"));
        assert!(found.starts_with(counts), "{command} {found}");
    }
}

#[test]
fn percentiles_are_shown_if_they_are_wanted() {
    let (mut talk, _) = talk();
    talk.say(0, "DEBUG SLEEP 0.1");
    let shown = line(&mut talk, "latencystats", "latency_percentiles_usec_debug");
    let p50: f64 = shown.split(',').next().unwrap().strip_prefix("p50=").unwrap().parse().unwrap();
    assert!((100_000.0..107_000.0).contains(&p50), "{shown}");
    assert!(shown.contains(",p99=") && shown.contains(",p99.9="), "{shown}");
    talk.say(0, "CONFIG SET latency-tracking-info-percentiles '0.0 100'");
    assert!(line(&mut talk, "latencystats", "latency_percentiles_usec_debug").starts_with("p0="));
    talk.say(0, "CONFIG SET latency-tracking no");
    assert_eq!(line(&mut talk, "latencystats", "latency_percentiles_usec_debug"), "none");
    talk.say(0, "CONFIG SET latency-tracking yes");
    let histogram = talk.say(0, "LATENCY HISTOGRAM debug nosuch");
    assert!(histogram.starts_with("[\"debug\" [\"calls\" 1 \"histogram_usec\" [13"), "{histogram}");
}

#[test]
fn slow_and_large_commands_are_remembered() {
    let (mut talk, host) = talk();
    talk.say(0, "CLIENT SETNAME me");
    talk.say(0, "CONFIG SET slowlog-log-slower-than 1000 slowlog-max-len 2");
    rest(&mut talk, &host, "0.0005");
    assert_eq!(talk.say(0, "SLOWLOG LEN"), "0");
    for _ in 0..3 {
        rest(&mut talk, &host, "0.002");
    }
    let entry = r#"[2 1800000000 2000 ["DEBUG" "SLEEP" "0.002"] "127.0.0.1:50000" "me"]"#;
    assert_eq!(talk.say(0, "SLOWLOG GET 1"), format!("[{entry}]"));
    assert_eq!(talk.say(0, "COMMANDLOG GET 1 slow"), format!("[{entry}]"));
    assert_eq!(talk.say(0, "SLOWLOG LEN"), "2");
    assert_eq!(talk.say(0, "SLOWLOG GET -2"), "(error) ERR count should be greater than or equal to -1");
    assert_eq!(talk.say(0, "SLOWLOG RESET"), "OK");
    assert_eq!(talk.say(0, "SLOWLOG GET -1"), "[]");
    talk.say(0, "CONFIG SET commandlog-request-larger-than 200 commandlog-reply-larger-than 100");
    talk.say(0, &format!("SET a {}", "x".repeat(300)));
    talk.say(0, &format!("RPUSH l {}", "y ".repeat(100)));
    talk.say(0, "GET a");
    assert_eq!(
        (talk.say(0, "COMMANDLOG LEN large-request"), talk.say(0, "COMMANDLOG LEN large-reply")),
        ("2".into(), "1".into())
    );
    let large = talk.say(0, "COMMANDLOG GET -1 LARGE-REQUEST");
    assert!(large.contains(&format!("\"{}... (172 more bytes)\"", "x".repeat(128))), "{large}");
    assert!(large.contains("\"... (71 more arguments)\""), "{large}");
    let wrong = "(error) ERR type should be one of the following: slow, large-request, large-reply";
    assert_eq!(talk.say(0, "COMMANDLOG LEN nosuch"), wrong);
}

#[test]
fn secrets_are_not_remembered() {
    let (mut talk, _) = talk();
    talk.say(0, "CONFIG SET slowlog-log-slower-than 0");
    talk.say(0, "CONFIG SET primaryauth secret requirepass ''");
    talk.say(0, "ACL SETUSER a >secret");
    talk.say(0, "CONFIG SET slowlog-log-slower-than -1");
    let log = talk.say(0, "SLOWLOG GET");
    assert!(!log.contains("secret") && log.contains("(redacted)"), "{log}");
    assert!(log.contains("\"slowlog-log-slower-than\" \"0\"") && !log.contains("\"-1\""), "{log}");
}

#[test]
fn events_that_took_long_are_kept() {
    let (mut talk, host) = talk();
    assert!(talk.say(0, "LATENCY DOCTOR").contains("Latency monitoring is disabled"));
    talk.say(0, "CONFIG SET latency-monitor-threshold 200");
    for seconds in ["0.3", "0.1", "0.4"] {
        rest(&mut talk, &host, seconds);
        talk.wait(2_000);
    }
    assert_eq!(talk.say(0, "LATENCY HISTORY command"), "[[1800000000 300] [1800000004 400]]");
    assert_eq!(talk.say(0, "LATENCY LATEST"), "[[\"command\" 1800000004 400 400 700 2]]");
    assert!(talk.say(0, "LATENCY GRAPH command").contains("command - high 400 ms, low 300 ms (all time high 400 ms)"));
    assert_eq!(talk.say(0, "LATENCY GRAPH nosuch"), "(error) ERR No samples available for event 'nosuch'");
    assert!(talk.say(0, "LATENCY DOCTOR").contains("1. command: 2 latency spikes (average 350ms"));
    assert_eq!(talk.say(0, "LATENCY RESET nosuch"), "0");
    assert_eq!(talk.say(0, "LATENCY RESET"), "1");
}

#[test]
fn sections_are_chosen() {
    let (mut talk, _) = talk();
    talk.say(0, "SET a 1 EX 100");
    let heads = |text: &str| text.split("\\r\\n").filter(|line| line.contains("# ")).count();
    let mut ask = |what: &str| talk.say(0, what);
    assert_eq!((heads(&ask("INFO")), heads(&ask("INFO all")), heads(&ask("INFO everything"))), (11, 14, 14));
    assert_eq!(
        (heads(&ask("INFO cpu default")), heads(&ask("INFO Cpu COMMANDSTATS")), heads(&ask("INFO nosuch"))),
        (11, 2, 0)
    );
    for name in [
        "redis_version:7.2.4",
        "valkey_version:9.1.0",
        "process_id:42",
        "os:Test 1 ",
        "role:master",
        "maxmemory_policy:",
    ] {
        assert!(ask("INFO").contains(name), "{name}");
    }
    assert_eq!(line(&mut talk, "keyspace", "db0"), "keys=1,expires=1,avg_ttl=100000,keys_with_volatile_items=0");
    assert_eq!(line(&mut talk, "persistence", "rdb_changes_since_last_save"), "1");
    assert_eq!(line(&mut talk, "server", "run_id").len(), 40);
}

#[test]
fn a_primary_alone() {
    check(
        r#"
        > ROLE
        ["master" 0 []]
        > REPLICAOF NO ONE
        OK
        > REPLICAOF somewhere 99999
        (error) ERR Invalid master port
        > FAILOVER
        (error) ERR FAILOVER requires connected replicas.
        > FAILOVER ABORT
        (error) ERR No failover in progress.
        > FAILOVER TIMEOUT 0
        (error) ERR FAILOVER timeout must be greater than 0
        > WAIT 0 100
        0
        > WAITAOF 0 0 0
        [0 0]
        > WAITAOF 1 0 0
        (error) ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.
        > WAITAOF 2 0 0
        (error) ERR value is out of range, value must between 0 and 1
        > WAIT 1 -1
        (error) ERR timeout is negative
        > WAIT 1 50
        +20
        0?
        +40
        0?
        0
        > CLUSTER MYID
        (error) ERR This instance has cluster support disabled
        > READONLY
        OK
        > READWRITE
        OK
        > LOLWUT
        "Valkey ver. 9.1.0\n"
    "#,
    );
}

#[test]
fn the_process_is_asked_to_end() {
    let (mut talk, _) = talk();
    assert_eq!(talk.say(0, "SHUTDOWN ABORT"), "(error) ERR No shutdown in progress.");
    for wrong in ["SHUTDOWN nosuch", "SHUTDOWN SAVE NOSAVE", "SHUTDOWN ABORT NOW"] {
        assert_eq!(talk.say(0, wrong), "(error) ERR syntax error", "{wrong}");
    }
    assert_eq!(talk.engine().wants_stop(), None);
    let asked = [
        ("SHUTDOWN", Shutdown::default()),
        ("SHUTDOWN NOSAVE NOW", Shutdown { wants_dump: Some(false), is_now: true, is_forced: false }),
        ("SHUTDOWN save force", Shutdown { wants_dump: Some(true), is_now: false, is_forced: true }),
    ];
    let mut waiting = Vec::new();
    for (sent, wanted) in asked {
        let client = talk.join();
        assert_eq!(talk.say(client, sent), "", "{sent}");
        assert_eq!(talk.engine().wants_stop(), Some(wanted), "{sent}");
        waiting.push(client);
    }
    let writer = talk.join();
    talk.engine().hold_writes_for_stop();
    assert_eq!(talk.say(writer, "SET k v"), "", "nothing is written that the last save may lack");
    assert_eq!(talk.say(0, "GET k"), "(nil)");
    assert!(talk.say(0, "INFO clients").contains("paused_reason:shutdown_in_progress"));
    assert_eq!(talk.say(0, "SHUTDOWN ABORT"), "OK");
    assert_eq!(talk.engine().wants_stop(), None);
    for client in waiting {
        assert_eq!(readable(&talk.mail(client)), "(error) ERR Errors trying to SHUTDOWN. Check logs.");
    }
    assert_eq!(readable(&talk.mail(writer)), "OK");
}

#[test]
fn who_waits_is_served_at_the_time_when_a_transaction_has_ended() {
    let (mut talk, host) = talk();
    let waiter = talk.join();
    talk.say(0, "DEBUG SET-ACTIVE-EXPIRE 0");
    assert_eq!(talk.say(waiter, "BRPOP k 0"), "");
    host.0.store(talk.now().instant.as_nanos() - 1_000_000, Ordering::Relaxed);
    for line in ["MULTI", "RPUSH k v", "PEXPIRE k 100", "DEBUG SLEEP 0.2"] {
        talk.say(0, line);
    }
    assert_eq!(talk.say(0, "EXEC"), "[1 1 OK]");
    assert_eq!(readable(&talk.mail(waiter)), "", "the key has expired, and the command waits on");
    host.0.store(talk.now().instant.as_nanos() + 200_000_000 - 1_000_000, Ordering::Relaxed);
    talk.wait(200);
    talk.say(0, "RPUSH k w");
    assert_eq!(readable(&talk.mail(waiter)), "[\"k\" \"w\"]");
}

#[test]
fn time_in_commands_is_told_of_each_worker() {
    let (mut talk, host) = talk();
    rest(&mut talk, &host, "1.5");
    assert_eq!(line(&mut talk, "cpu", "used_active_time_main_thread"), "1.500000");
}

#[test]
fn a_wait_that_nobody_serves_is_counted_when_it_ends() {
    let (mut talk, _) = talk();
    let waiter = talk.join();
    let served = "calls=1,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=0";
    let refused = "calls=1,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0";
    for (wait, end, command, counts, error) in [
        ("BLPOP k 0", "CLIENT UNBLOCK 2 TIMEOUT", "blpop", served, "none"),
        ("BLPOP k 0", "CLIENT UNBLOCK 2 ERROR", "blpop", refused, "count=1"),
        ("BLPOP k 0", "RPUSH k v", "blpop", served, "none"),
        ("BLPOP k 0.1", "", "blpop", served, "none"),
        ("XREAD BLOCK 100 STREAMS s $", "", "xread", served, "none"),
        ("WAIT 1 100", "", "wait", served, "none"),
        ("WAIT 1 0", "CLIENT UNBLOCK 2", "wait", served, "none"),
    ] {
        talk.say(0, "CONFIG RESETSTAT");
        assert_eq!(talk.say(waiter, wait), "", "{wait}");
        let name = format!("cmdstat_{command}");
        assert_eq!(line(&mut talk, "commandstats", &name), "none", "{wait} has not ended");
        if end.is_empty() {
            talk.wait(200);
        } else {
            talk.say(0, end);
        }
        talk.mail(waiter);
        assert_eq!(line(&mut talk, "commandstats", &name), counts, "{wait}, {end}");
        assert_eq!(line(&mut talk, "errorstats", "errorstat_UNBLOCKED"), error, "{wait}, {end}");
    }
}

#[test]
fn certificates_are_shown_with_the_time_that_they_have_left() {
    let (mut talk, _) = talk();
    let certificate = |serial: &str, expires_s| Some(Certificate { serial: serial.to_owned(), expires_s });
    assert_eq!(line(&mut talk, "tls", "tls_server_cert_serial"), "none");
    assert_eq!(line(&mut talk, "tls", "tls_server_cert_expires_in_seconds"), "0");
    assert!(!talk.say(0, "INFO").contains("# TLS") && talk.say(0, "INFO all").contains("# TLS"));
    let now_s = talk.now().unix_ms() / 1_000;
    let shown = Certificates { server: certificate("0A1B", now_s + 90), authority: certificate("FF", now_s - 5) };
    talk.engine().show_certificates(shown);
    for (name, value) in [
        ("server_cert_serial", "0A1B"),
        ("server_cert_expires_in_seconds", "90"),
        ("client_cert_serial", "none"),
        ("client_cert_expires_in_seconds", "0"),
        ("ca_cert_serial", "FF"),
        ("ca_cert_expires_in_seconds", "0"),
    ] {
        assert_eq!(line(&mut talk, "tls", &format!("tls_{name}")), value, "{name}");
    }
    talk.wait(10_000);
    assert_eq!(line(&mut talk, "tls", "tls_server_cert_expires_in_seconds"), "80");
}
