//! First starts, restarts, and directories that must be refused.

use std::os::unix::fs::PermissionsExt as _;

use super::super::files::tests::Scratch;
use super::*;
use ashlar_grid::hello::Secrets;

const SECRET: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn refused(root: &Path, opening: Opening<'_>) -> Failure {
    DataDir::open(root, opening).map(drop).expect_err("this directory must be refused")
}

fn check_refused(root: &Path, opening: Opening<'_>, expected: &str) {
    let failure = refused(root, opening);
    assert!(failure.what.contains(expected), "{expected} is not in: {failure}");
    assert!(failure.exit_code() == 1 && !failure.remedy.is_empty(), "{failure}");
}

#[test]
fn identity_stays_and_incarnation_rises() {
    let scratch = Scratch::new();
    let root = scratch.0.join("a/b");
    let first = DataDir::open(&root, Opening::default()).unwrap();
    let (cluster, server, secret, token) = (first.cluster, first.server, first.token.text(), first.admin_token.clone());
    assert_eq!((first.incarnation, token.len()), (Incarnation(1), 64));
    for name in ["cluster.secret", "admin.token", "tls.key"] {
        assert_eq!(fs::metadata(root.join(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    let met = [MetPeer { server: ServerId::from_bytes([7; 16]), address: "host1:7800".into() }];
    DataDir::remember_peers(&root, &met).unwrap();
    drop(first);
    let second = DataDir::open(&root, Opening::default()).unwrap();
    assert_eq!((second.cluster, second.server, second.incarnation), (cluster, server, Incarnation(2)));
    assert_eq!((second.token.text(), second.admin_token, second.peers), (secret, token, met.to_vec()));
}

#[test]
fn golden_bytes() {
    let id = "30313233343536373839616263646566";
    let text = seal("identity", &format!("cluster {id}\nserver {id}\n"));
    assert_eq!(text, format!("format 1\ncluster {id}\nserver {id}\ncheck e6b1d9ddeec499af\n"));
    assert_eq!(cluster_of(&Secret::from_hex(SECRET).unwrap()).to_string(), "adf8f1c42a7141ba23dc9fde7349d2e7");
}

#[test]
fn seal_binds_name_and_content() {
    let text = seal("peers", "peer x\n");
    assert_eq!(unseal("peers", &text), Ok("peer x\n"));
    assert!(unseal("identity", &text).is_err());
    for index in 0..text.len() - 1 {
        let mut bytes = text.clone().into_bytes();
        bytes[index] ^= 1;
        assert!(unseal("peers", &String::from_utf8(bytes).unwrap()).is_err(), "byte {index}");
    }
    let newer = text.replace("format 1", "format 2");
    assert!(unseal("peers", &newer).unwrap_err().contains("newer ashlar"), "{newer}");
}

#[test]
fn one_process_at_a_time() {
    let scratch = Scratch::new();
    let open = DataDir::open(&scratch.0, Opening::default()).unwrap();
    check_refused(&scratch.0, Opening::default(), "in use by another ashlar server");
    drop(open);
    DataDir::open(&scratch.0, Opening::default()).unwrap();
}

#[test]
fn a_joining_server_needs_the_secret_and_takes_the_cluster_from_it() {
    let scratch = Scratch::new();
    let joins = Opening { joins: true, ..Opening::default() };
    check_refused(&scratch.0, joins, "no secret of the cluster");
    assert!(refused(&scratch.0, joins).remedy.contains("ASHLAR_SECRET"));
    fs::write(scratch.0.join("cluster.secret"), SECRET).unwrap();
    let open = DataDir::open(&scratch.0, joins).unwrap();
    assert_eq!(open.cluster, cluster_of(&Secret::from_hex(SECRET).unwrap()));
}

#[test]
fn a_wrong_secret_can_be_corrected_until_somebody_was_met() {
    let scratch = Scratch::new();
    let wrong = "f".repeat(64);
    let with = |secret_text| Opening { joins: true, secret_text: Some(secret_text), secret_file: None };
    let server = DataDir::open(&scratch.0, with(&wrong)).unwrap().server;
    let right = DataDir::open(&scratch.0, with(SECRET)).unwrap();
    assert_eq!((right.server, right.cluster), (server, cluster_of(&Secret::from_hex(SECRET).unwrap())));
    let met = [MetPeer { server: ServerId::from_bytes([7; 16]), address: "host1:7800".into() }];
    DataDir::remember_peers(&scratch.0, &met).unwrap();
    drop(right);
    check_refused(&scratch.0, with(&wrong), "but the secret to cluster");
}

#[test]
fn what_is_not_ours_is_refused() {
    let scratch = Scratch::new();
    fs::write(scratch.0.join("holiday.jpg"), "x").unwrap();
    check_refused(&scratch.0, Opening::default(), "there is `holiday.jpg`");
    check_refused(&scratch.0.join("holiday.jpg"), Opening::default(), "cannot use the data directory");
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1, "nothing was written");
}

#[test]
fn damage_is_noticed() {
    let scratch = Scratch::new();
    drop(DataDir::open(&scratch.0, Opening::default()).unwrap());
    for name in ["identity", "incarnation"] {
        let path = scratch.0.join(name);
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, whole.replace('1', "2")).unwrap();
        check_refused(&scratch.0, Opening::default(), name);
        fs::write(&path, whole).unwrap();
    }
    fs::remove_file(scratch.0.join("incarnation")).unwrap();
    check_refused(&scratch.0, Opening::default(), "incarnation cannot be used: it is gone");
    fs::write(scratch.0.join("cluster.secret"), "abc").unwrap();
    check_refused(&scratch.0, Opening::default(), "holds no cluster secret");
}

#[test]
fn a_replaced_secret_is_of_the_same_cluster() {
    let scratch = Scratch::new();
    let first = DataDir::open(&scratch.0, Opening::default()).unwrap();
    let (cluster, old) = (first.cluster, first.token.secrets.newest().clone());
    let newer = Secret::from_bytes([7; 32]);
    let token = Token { cluster, secrets: Secrets::rotating(newer.clone(), old.clone()) };
    DataDir::keep_secrets(&first.secret_place, &token).unwrap();
    assert_eq!(fs::metadata(scratch.0.join("cluster.secret")).unwrap().permissions().mode() & 0o777, 0o600);
    drop(first);
    let second = DataDir::open(&scratch.0, Opening::default()).unwrap();
    assert_eq!((second.cluster, second.token.secrets.older()), (cluster, Some(&old)));
    let token = Token { cluster, secrets: Secrets::new(newer.clone()) };
    DataDir::keep_secrets(&second.secret_place, &token).unwrap();
    drop(second);
    let third = DataDir::open(&scratch.0, Opening::default()).unwrap();
    assert_eq!((third.cluster, third.token.secrets.key_ids()), (cluster, vec![newer.key_id()]));
    drop(third);
    // Whoever copies only the new secret is told what is missing.
    let bare = newer.to_hex();
    let with = Opening { secret_text: Some(&bare), ..Opening::default() };
    assert!(refused(&scratch.0, with).remedy.contains("the whole line"));
    let whole = token.text();
    let open = DataDir::open(&scratch.0, Opening { secret_text: Some(&whole), ..Opening::default() }).unwrap();
    let failure = DataDir::keep_secrets(&open.secret_place, &token).expect_err("nobody changes an environment");
    assert!(failure.what.contains("ASHLAR_SECRET"), "{failure}");
}

#[test]
fn a_weak_admin_token_is_refused() {
    let scratch = Scratch::new();
    drop(DataDir::open(&scratch.0, Opening::default()).unwrap());
    let path = scratch.0.join(ADMIN_TOKEN);
    let long = "0123456789abcdef".repeat(2);
    for weak in ["", "\n", "secret", &long[1..], &"0".repeat(64), &format!("{} {}", &long[..16], &long[16..])] {
        fs::write(&path, weak).unwrap();
        check_refused(&scratch.0, Opening::default(), "the admin token in");
    }
    fs::write(&path, format!("{long}\n")).unwrap();
    assert_eq!(DataDir::open(&scratch.0, Opening::default()).unwrap().admin_token, long);
}

#[test]
fn servers_of_one_owner_share_an_admin_token() {
    let scratch = Scratch::new();
    let (shared, servers) = (scratch.0.join(ADMIN_TOKEN), ["server-1", "server-2"].map(|name| scratch.0.join(name)));
    let token = |path: &Path| fs::read_to_string(path.join(ADMIN_TOKEN)).unwrap();
    // A server of before keeps its token, and the others take it.
    let first = DataDir::open(&servers[0], Opening::default()).unwrap().admin_token;
    share_admin_token(&shared, &servers).unwrap();
    assert_eq!((token(&scratch.0).trim(), token(&servers[1]).trim()), (&*first, &*first));
    fs::write(servers[1].join(ADMIN_TOKEN), "x").unwrap();
    share_admin_token(&shared, &servers).unwrap();
    assert_eq!(token(&servers[1]).trim(), first);
    assert_eq!(fs::metadata(&shared).unwrap().permissions().mode() & 0o777, 0o600);
    fs::write(&shared, "short").unwrap();
    assert!(share_admin_token(&shared, &servers).is_err());
}

#[test]
fn a_secret_without_chance_is_known() {
    assert!(
        is_guessable(&Secret::from_bytes([0; 32])) && is_guessable(&Secret::from_hex(&"12345678".repeat(8)).unwrap())
    );
    assert!(is_guessable(&Secret::from_hex(&"0123456789abcdef".repeat(4)).unwrap()));
    assert!(!is_guessable(&Secret::from_hex(SECRET).unwrap()));
    (0..100).for_each(|_| assert!(!is_guessable(&Secret::from_bytes(random::bytes()))));
}
