//! File, environment and flags against each other.

use super::*;

fn flags(given: &[(&str, &str)]) -> Flags {
    let given = given.iter().map(|(name, text)| (keys::find(name).expect("a key"), (*text).to_owned())).collect();
    Flags { config: None, given }
}

fn environment(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

fn read(file: &str, pairs: &[(&str, &str)], given: &[(&str, &str)]) -> Result<Config, Vec<String>> {
    let texts = Texts { file: Some(("a.toml", file)), environment: &environment(pairs), flags: &flags(given) };
    resolve(texts).map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

fn check_problem(file: &str, pairs: &[(&str, &str)], given: &[(&str, &str)], expected: &str) {
    let problems = read(file, pairs, given).expect_err(expected);
    assert!(problems.iter().any(|problem| problem == expected), "{expected} is not among {problems:?}");
}

#[test]
fn defaults() {
    let config = read("data = \"d\"", &[], &[]).expect("data is all that is needed");
    let expected = Config {
        data: "d".into(),
        listen: "127.0.0.1:7800".parse().expect("an address"),
        advertise: None,
        join: Vec::new(),
        join_timeout: Some(Duration::from_secs(30)),
        kv: Some("127.0.0.1:6379".parse().expect("an address")),
        is_kv_bind_given: false,
        kv_replica: Some("127.0.0.1:6479".parse().expect("an address")),
        kv_password_file: None,
        kv_tls: None,
        drive_bytes: None,
        drives: Vec::new(),
        nbd: None,
        copies: 3,
        copies_apart: Conflict::Server,
        object_bytes: None,
        s3: None,
        s3_audit_log: None,
        lifecycle_day: Duration::from_secs(86_400),
        tls: true,
        secret_file: None,
        zone: String::new(),
        member_timeout: Duration::from_secs(15),
        voters_max: 101,
        workers: None,
        log: "info".into(),
        log_json: false,
    };
    assert_eq!(config, expected);
}

#[test]
fn flags_weigh_more_than_environment_and_environment_more_than_file() {
    let file = "data = \"file\"\nworkers = 1\njoin = [\"file:1\"]\ntls = false";
    let config = read(file, &[], &[]).expect("right");
    assert_eq!(
        (config.data, config.workers, config.join, config.tls),
        ("file".into(), Some(1), vec!["file:1".into()], false)
    );
    let variables =
        [("ASHLAR_DATA", "environment"), ("ASHLAR_WORKERS", "2"), ("ASHLAR_JOIN", "e:1, e:2"), ("HOME", "x")];
    let config = read(file, &variables, &[]).expect("right");
    assert_eq!((config.data, config.workers), ("environment".into(), Some(2)));
    assert_eq!((config.join, config.tls), (vec!["e:1".into(), "e:2".into()], false));
    let given = [("data", "flag"), ("join", "f:1"), ("tls", "on")];
    let config = read(file, &variables, &given).expect("right");
    assert_eq!((config.data, config.workers), ("flag".into(), Some(2)));
    assert_eq!((config.join, config.tls), (vec!["f:1".into()], true));
}

#[test]
fn port_base_moves_listen_and_listen_is_stronger() {
    let config = read("data = \"d\"\nport_base = 9100", &[], &[]).expect("right");
    assert_eq!(config.listen.to_string(), "127.0.0.1:9100");
    let config = read("data = \"d\"\nport_base = 9100\nlisten = \"127.0.0.2:1\"", &[], &[]).expect("right");
    assert_eq!(config.listen.to_string(), "127.0.0.2:1");
}

#[test]
fn key_value_port_and_address() {
    let config = read("data = \"d\"\nkv_port = 7000\nkv_bind = \"::1\"\nport_base = 9100", &[], &[]).expect("right");
    assert_eq!(config.kv.map(|address| address.to_string()).as_deref(), Some("[::1]:7000"));
    let config = read("data = \"d\"", &[], &[("kv_port", "0")]).expect("right");
    assert_eq!((config.kv, config.kv_replica), (None, None));
    let replica = |flags: &[(&str, &str)]| {
        read("data = \"d\"", &[], flags).map(|config| config.kv_replica.map(|address| address.port()))
    };
    assert_eq!(replica(&[("kv_port", "7000")]), Ok(Some(7_100)), "above the first engine's");
    assert_eq!(replica(&[("kv_port", "7000"), ("kv_replica_port", "9")]), Ok(Some(9)));
    assert_eq!(replica(&[("kv_port", "7000"), ("kv_replica_port", "0")]), Ok(None));
    for flags in [&[("kv_port", "65500")][..], &[("kv_port", "7000"), ("kv_replica_port", "7000")]] {
        let problems = replica(flags).expect_err("there is no such port");
        assert!(problems[0].starts_with("kv_replica_port: "), "{problems:?}");
    }
}

#[test]
fn two_options_that_ask_for_one_port_are_both_named() {
    let check =
        |flags: &[(&str, &str)]| read("data = \"d\"\ndrive_mib = 1024\nobject_mib = 300", &[], flags).map(|_| ());
    let refused = |flags: &[(&str, &str)], expected: &str| assert_eq!(check(flags), Err(vec![expected.to_owned()]));
    let follows = "(the port of kv_port, plus 100, because it is not given)";
    refused(
        &[("kv_port", "8900"), ("s3_port", "9000")],
        &format!("kv_replica_port: port 9000 {follows} is that of s3_port, too: give one of them another"),
    );
    refused(
        &[("kv_port", "7700")],
        &format!(
            "kv_replica_port: port 7800 {follows} is that of port_base (its default), too: give one of them another"
        ),
    );
    refused(
        &[("listen", "127.0.0.1:6379")],
        "kv_port: port 6379 (its default) is that of listen, too: give one of them another",
    );
    refused(
        &[("kv_port", "7000"), ("kv_replica_port", "7000")],
        "kv_replica_port: port 7000 is that of kv_port, too: give one of them another",
    );
    let tls = [("kv_tls_cert", "c"), ("kv_tls_key", "k"), ("kv_tls_auth_clients", "no")];
    refused(
        &[&tls[..], &[("kv_tls_port", "6279")]].concat(),
        "kv_replica_tls_port: port 6379 (the port of kv_tls_port, plus 100, because it is not given) is that of kv_port \
         (its default), too: give one of them another",
    );
    // NBD is at 127.0.0.1: another address has its own ports, all addresses have not.
    let nbd =
        |listen: &'static str| [("nbd_port", "9000"), ("s3_port", "9000"), ("listen", listen), ("advertise", "h:1")];
    refused(&nbd("127.0.0.1:7800"), "nbd_port: port 9000 is that of s3_port, too: give one of them another");
    refused(&nbd("0.0.0.0:7800"), "nbd_port: port 9000 is that of s3_port, too: give one of them another");
    assert_eq!(check(&nbd("10.0.0.1:7800")), Ok(()));
    assert_eq!(check(&[("listen", "127.0.0.1:0"), ("s3_port", "0"), ("nbd_port", "0")]), Ok(()));
    assert_eq!(check(&[("kv_port", "8900"), ("kv_replica_port", "0"), ("s3_port", "9000")]), Ok(()));
}

#[test]
fn the_address_of_engines_follows_that_of_the_server_or_is_refused() {
    let kv = |file: &str, flags: &[(&str, &str)]| {
        let config = read(&format!("data = \"d\"\n{file}"), &[], flags)?;
        let places = [config.kv, config.kv_replica].map(|place| place.map(|place| place.to_string()));
        Ok::<_, Vec<String>>(places.map(Option::unwrap_or_default))
    };
    let both = |ip: &str| Ok([format!("{ip}:6379"), format!("{ip}:6479")]);
    assert_eq!(kv("", &[]), both("127.0.0.1"));
    assert_eq!(kv("listen = \"10.0.0.1:7800\"", &[]), both("10.0.0.1"));
    let all = "listen = \"0.0.0.0:7800\"\nadvertise = \"host1:7800\"";
    assert_eq!(kv(all, &[]), both("0.0.0.0"));
    assert_eq!(kv(all, &[("kv_bind", "10.0.0.2")]), both("10.0.0.2"));
    assert_eq!(kv("", &[("kv_bind", "127.0.0.2")]), both("127.0.0.2"));
    let problems = kv(all, &[("kv_bind", "127.0.0.1")]).expect_err("others would never reach it");
    assert!(problems[0].starts_with("kv_bind: 127.0.0.1 is reached from this machine only"), "{problems:?}");
    assert!(problems[0].contains("leave kv_bind out"), "{problems:?}");
    assert!(kv(all, &[("kv_bind", "127.0.0.1"), ("kv_port", "0")]).is_ok(), "no engine, no address");
}

#[test]
fn problems_say_where_and_what() {
    let cases = [
        ("data = \"d\"\nlisten_to = \"x\"", "a.toml:2: unknown key `listen_to`; did you mean `listen`?"),
        ("data = \"d\"\n\ncolour = 1", "a.toml:3: unknown key `colour`; `ashlar config reference` describes every key"),
        ("data = 1", "a.toml:1: data: integer was given where string is expected"),
        ("data = \"d\"\njoin = \"a:1\"", "a.toml:2: join: string was given where array of strings is expected"),
        ("data = \"d\"\njoin = [1]", "a.toml:2: join: integer was given in a list where texts are expected"),
        ("data = \"d\"\nworkers = 0", "a.toml:2: workers: `0` is not what is expected here: a whole number 1..1024"),
        ("data = \"d\"\nworkers = -1", "a.toml:2: workers: `-1` is not what is expected here: 1..1024"),
        ("data = \"d\"\ntls = \"yes\"", "a.toml:2: tls: `yes` is not what is expected here: on or off"),
        ("workers = 1", "data: missing: give --data, ASHLAR_DATA or `data = ...` in a file"),
        (
            "data = \"d\"\nlisten = \"0.0.0.0:1\"",
            "advertise: missing: others cannot reach 0.0.0.0; say under which HOST:PORT they can",
        ),
        (
            "data = \"d\"\nadvertise = \"[::]:1\"",
            "advertise: [::]:1: others cannot reach this address; say under which HOST:PORT they can",
        ),
        ("data = \"d\"\ndrive_mib = 300", "drive_mib: 300 is too small: a drive has 1024 MiB at least; 0 for none"),
        (
            "data = \"d\"\ndrive_mib = 1024\nobject_mib = 256",
            "object_mib: 256 is too small: the space for objects has 257 MiB at least; 0 for none",
        ),
        ("data = \"d\"\nobject_mib = 300", "object_mib: it needs a drive: give drive_mib too"),
        ("data = \"d\"\ndrives = [\"a\"]", "drives: they need a size: give drive_mib too"),
        ("data = \"d\"\ndrive_mib = 1024\ndrives = [\"a\", \"b\", \"a\"]", "drives: a directory is there twice"),
        (
            "data = \"d\"\ndrive_mib = 1024\ndrives = \"a\"",
            "a.toml:3: drives: string was given where array of strings is expected",
        ),
        ("data = \"d\"\nnbd_port = 10809", "nbd_port: it needs a drive: give drive_mib too"),
        (
            "data = \"d\"\ndrive_mib = 1024\ns3_port = 9000",
            "s3_port: it needs a drive with space for objects: give drive_mib and object_mib too",
        ),
    ];
    for (file, expected) in cases {
        check_problem(file, &[], &[], expected);
    }
    let problems = read("data = \n", &[], &[]).expect_err("not TOML");
    assert!(problems[0].starts_with("a.toml:1: not TOML: "), "{problems:?}");
    let file = "data = \"d\"";
    check_problem(
        file,
        &[("ASHLAR_LISTN", "x")],
        &[],
        "environment variable ASHLAR_LISTN: unknown; did you mean ASHLAR_LISTEN?",
    );
    check_problem(
        file,
        &[("ASHLAR_TLS", "1")],
        &[],
        "environment variable ASHLAR_TLS: `1` is not what is expected here: on or off",
    );
    check_problem(
        file,
        &[],
        &[("log_format", "xml")],
        "--log-format: `xml` is not what is expected here: text or json",
    );
}

#[test]
fn every_problem_is_reported() {
    let problems = read("a = 1\nb = 2", &[("ASHLAR_TLS", "1")], &[("workers", "x")]).expect_err("wrong");
    assert_eq!(problems.len(), 4, "{problems:?}");
}

#[test]
fn variables_of_others_and_secrets_are_left_alone() {
    let variables = [
        ("ASHLAR_SERVICE_PORT_HTTP", "x"),
        ("ASHLAR_SECRET", "x"),
        ("ASHLAR_ADMIN_TOKEN", "x"),
        ("ASHLAR_CONFIG", "x"),
    ];
    assert!(read("data = \"d\"", &variables, &[]).is_ok());
}

#[test]
fn reference_names_every_key() {
    let page = reference::markdown();
    for key in KEYS {
        assert!(page.contains(&format!("## `{}`", key.name)) && page.contains(&key.environment()), "{}", key.name);
    }
}

#[test]
fn the_reference_page_is_the_one_that_is_printed() {
    let page = include_str!("../../../docs/configuration.md");
    assert_eq!(page.trim_end(), reference::markdown().trim_end(), "`ashlar config reference` prints the new one");
}
