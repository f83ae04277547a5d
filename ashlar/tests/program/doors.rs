//! The ways into the key-value engine beside plain TCP: a unix socket, and TLS.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::keyvalue::{Client, KvServer};
use super::process::{Running, Scratch, TestServer, check_fails, run, until};
use super::upkv::ports;

/// A peer that never answers must not hold up the tests; nothing is measured by this.
const PATIENCE: Duration = Duration::from_secs(60);

fn local(path: &str) -> Client<UnixStream> {
    let stream = UnixStream::connect(path).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
    Client::new(stream)
}

#[test]
fn unix_socket_with_its_permissions_and_names() {
    let scratch = Scratch::new();
    let path = scratch.path("kv.sock");
    let mut server = KvServer::start_as("unix", &["--no-tcp", "--unix", &path, "--unix-mode", "640"]);
    assert_eq!(server.address, path);
    let mode = std::fs::metadata(&path).expect("the socket is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    let (mut client, mut other) = (local(&path), local(&path));
    assert_eq!(client.ask(&["SET", "key", "value"]), "OK");
    assert_eq!(other.ask(&["GET", "key"]), "value");
    let info = client.ask(&["CLIENT", "INFO"]);
    for expected in [format!(" addr={path}:0 "), format!(" laddr={path}:0 "), " flags=U ".to_owned()] {
        assert!(info.contains(&expected), "`{expected}` is not in {info}");
    }
    assert_eq!(other.ask(&["MONITOR"]), "OK");
    client.ask(&["ECHO", "seen"]);
    assert!(other.reply().contains(&format!("[0 unix:{path}] \"ECHO\" \"seen\"")));

    // Whoever waits and goes is noticed.
    let clients = |client: &mut Client<UnixStream>| client.ask(&["CLIENT", "LIST"]).lines().count();
    let mut waiting = local(&path);
    waiting.send(&["BLPOP", "nothing", "0"]);
    drop(other);
    until("the waiting client", || clients(&mut client) == 2);
    drop(waiting);
    until("the end of the waiting client", || clients(&mut client) == 1);

    server.process.signal("TERM");
    assert_eq!(server.process.wait(), Some(0));
    assert!(std::fs::metadata(&path).is_err(), "the socket goes with its server");
}

#[test]
fn unix_socket_that_is_in_the_way() {
    let scratch = Scratch::new();
    let path = scratch.path("kv.sock");
    let mut first = KvServer::start_as("unix", &["--no-tcp", "--unix", &path]);
    check_fails(&["kv", "--no-tcp", "--unix", &path], &[], 1, &["another process listens on", "--unix"]);
    // Who is killed leaves the socket, and the next one takes its place.
    first.process.signal("KILL");
    first.process.wait();
    assert!(std::fs::metadata(&path).is_ok());
    let second = KvServer::start_as("unix", &["--port", "0", "--unixsocket", &path, "--unixsocketperm", "700"]);
    assert_eq!(local(&second.address).ask(&["PING"]), "PONG");
    let file = scratch.write("file", "precious");
    check_fails(&["kv", "--port", "0", "--unix", &file], &[], 2, &["is no socket", "--unix"]);
    check_fails(&["kv", "--port", "0", "--unix", "/nowhere/kv.sock"], &[], 1, &["cannot listen on /nowhere/kv.sock"]);
    check_fails(&["kv", "--no-tcp"], &[], 2, &["no way in", "--unix"]);
    check_fails(&["kv", "--unix", "x", "--unix-mode", "999"], &[], 2, &["octal"]);
}

#[test]
fn options_and_settings_stand_in_any_order() {
    let scratch = Scratch::new();
    let (dir, path) = (scratch.path(""), scratch.path("kv.sock"));
    let words =
        ["--dir", &dir, "--appendonly", "yes", "--bind", "127.0.0.1", "--save=", "--port", "0", "--unix", &path];
    let server = Running::start(&[&["kv"], &words[..], &["--maxmemory", "1gb", "--workers", "1"]].concat(), &[]);
    let line = Running::line(&server.out, "Ready to accept connections tcp on 127.0.0.1:");
    let port = line.rsplit(':').next().unwrap();
    Running::line(&server.out, &format!("Ready to accept connections unix on {path}"));
    let told = local(&path).ask(&["CONFIG", "GET", "port", "appendonly", "save", "maxmemory", "io-threads"]);
    for expected in [&format!("port {port}"), "appendonly yes", "save  ", "maxmemory 1073741824", "io-threads 1"] {
        assert!(format!("{told} ").contains(expected), "`{expected}` is not in {told}");
    }
    check_fails(&["kv", "--dir", &dir, "--port", "0", "--unix"], &[], 2, &["--unix", "a value is required"]);
    check_fails(&["kv", "--dir", &dir, "--prot", "1"], &[], 2, &["`--prot 1`", "did you mean `--port`?"]);
    check_fails(&["kv", "--port", "0", "1", "--dir", &dir], &[], 2, &["`1` belongs to nothing", "--NAME VALUE"]);
    assert!(run(&["kv", "--appendonly", "yes", "--help"], &[]).out.contains("--NAME=VALUE"));
}

/// Certificates of one authority.
struct Pki {
    scratch: Scratch,
    authority: String,
    server: (String, String),
    client: (String, String),
}

impl Pki {
    fn new() -> Self {
        let scratch = Scratch::new();
        let mut params = CertificateParams::new([]).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = scratch.write("ca.pem", &params.self_signed(&key).expect("a certificate").pem());
        let issuer = Issuer::new(params, key);
        let signed = |name: &str| {
            let key = KeyPair::generate().expect("a key");
            let params = CertificateParams::new([name.to_owned()]).expect("a name");
            let certificate = params.signed_by(&key, &issuer).expect("a certificate").pem();
            let write = |what: &str, text: &str| scratch.write(&format!("{name}.{what}"), text);
            (write("crt", &certificate), write("key", &key.serialize_pem()))
        };
        let (server, client) = (signed("127.0.0.1"), signed("client"));
        Self { scratch, authority, server, client }
    }

    fn start(&self, proof: &str) -> KvServer {
        let (certificate, key) = &self.server;
        let files = ["--tls-cert", certificate, "--tls-key", key, "--tls-ca", &self.authority];
        KvServer::start_as(
            "tls",
            &[&["--port", "0", "--tls-port", "0", "--tls-auth-clients", proof], &files[..]].concat(),
        )
    }

    fn connect(&self, address: &str, with_certificate: bool) -> StreamOwned<ClientConnection, TcpStream> {
        let read = |path: &str| std::fs::read(path).expect("it was written");
        let certificate = |path: &str| CertificateDer::from_pem_slice(&read(path)).expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&self.authority)).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.expect("the usual versions").with_root_certificates(roots);
        let config = if with_certificate {
            let key = PrivateKeyDer::from_pem_slice(&read(&self.client.1)).expect("a key");
            builder.with_client_auth_cert(vec![certificate(&self.client.0)], key).expect("they belong together")
        } else {
            builder.with_no_client_auth()
        };
        let name = "127.0.0.1".try_into().expect("an address");
        let tls = ClientConnection::new(Arc::new(config), name).expect("a client");
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        StreamOwned::new(tls, stream)
    }

    /// Whether a client gets an answer.
    fn is_let_in(&self, server: &KvServer, with_certificate: bool) -> bool {
        self.lets_in(&server.address, with_certificate)
    }

    /// The same of an address.
    fn lets_in(&self, address: &str, with_certificate: bool) -> bool {
        let mut stream = self.connect(address, with_certificate);
        let mut reply = [0; 7];
        stream.write_all(b"PING\r\n").and_then(|()| stream.read_exact(&mut reply)).is_ok() && &reply == b"+PONG\r\n"
    }
}

#[test]
fn tls_carries_what_tcp_carries() {
    let pki = Pki::new();
    let server = pki.start("no");
    let (mut client, mut other) =
        (Client::new(pki.connect(&server.address, false)), Client::new(pki.connect(&server.address, false)));
    assert_eq!(client.ask(&["PING"]), "PONG");
    assert!(client.ask(&["CLIENT", "INFO"]).contains(&format!(" laddr={} ", server.address)));
    // More than the kernel, a TLS record or the connection's buffers hold, in both directions.
    let large = "0123456789abcdef".repeat(1 << 18);
    assert_eq!(client.ask(&["SET", "large", &large]), "OK");
    (0..8).for_each(|_| other.send(&["GET", "large"]));
    (0..8).for_each(|number| assert!(other.reply() == large, "reply {number}"));
    for number in 0..5_000 {
        client.send(&["RPUSH", "list", &format!("element {number}")]);
    }
    for number in 1..=5_000 {
        assert_eq!(client.reply(), number.to_string());
    }
    assert_eq!(client.ask(&["LRANGE", "list", "4998", "-1"]), "element 4998 element 4999");

    // Who waits is served, and who waits and goes is noticed.
    other.send(&["BLPOP", "queue", "0"]);
    until("the waiting client", || client.ask(&["INFO", "clients"]).contains("blocked_clients:1"));
    assert_eq!(client.ask(&["RPUSH", "queue", "job"]), "1");
    assert_eq!(other.reply(), "queue job");
    other.send(&["BLPOP", "queue", "0"]);
    until("the waiting client", || client.ask(&["INFO", "clients"]).contains("blocked_clients:1"));
    drop(other);
    until("the waiting client's end", || client.ask(&["CLIENT", "LIST"]).lines().count() == 1);
    assert_eq!(client.ask(&["QUIT"]), "OK");
    assert!(client.is_over(), "the server closes after QUIT");

    // Who speaks no TLS gets no answer, and does not harm those who do.
    let mut plain = TcpStream::connect(&server.address).expect("the server listens");
    plain.write_all(b"*1\r\n$4\r\nPING\r\n").expect("the server reads");
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).ok();
    assert!(!answer.starts_with(b"+PONG"));
    assert!(pki.is_let_in(&server, false));
}

#[test]
fn clients_prove_themselves_as_far_as_they_have_to() {
    let (pki, stranger) = (Pki::new(), Pki::new());
    for (proof, without, with) in [("yes", false, true), ("optional", true, true), ("no", true, true)] {
        let server = pki.start(proof);
        assert_eq!((pki.is_let_in(&server, false), pki.is_let_in(&server, true)), (without, with), "{proof}");
    }
    let server = pki.start("optional");
    let foreign = Pki { authority: pki.authority.clone(), ..stranger };
    assert!(!foreign.is_let_in(&server, true), "a certificate of another authority");
}

#[test]
fn certificates_are_shown() {
    let pki = Pki::new();
    // The certificates are of this year and expire in 4096, as rcgen makes them.
    let years = |info: &str, whose: &str| {
        let name = format!("tls_{whose}_cert_expires_in_seconds:");
        let seconds = info.lines().find_map(|line| line.strip_prefix(name.as_str())).expect("it is shown");
        seconds.trim().parse::<u64>().expect("a number") / (366 * 86_400)
    };
    for (proof, authority_years) in [("yes", 2_000..2_100), ("no", 0..1)] {
        let server = pki.start(proof);
        let info = Client::new(pki.connect(&server.address, true)).ask(&["INFO", "tls"]);
        assert!((2_000..2_100).contains(&years(&info, "server")), "{info}");
        assert!(authority_years.contains(&years(&info, "ca")), "{info}");
        assert!(
            !info.contains("tls_server_cert_serial:none") && info.contains("tls_client_cert_serial:none"),
            "{info}"
        );
        assert_eq!(info.contains("tls_ca_cert_serial:none"), proof == "no", "{info}");
    }
}

#[test]
fn tls_files_that_do_not_fit() {
    let pki = Pki::new();
    let (certificate, key) = (&*pki.server.0, &*pki.server.1);
    let fails = |arguments: &[&str], texts: &[&str]| {
        check_fails(&[&["kv", "--port", "0", "--tls-port", "0"], arguments].concat(), &[], 2, texts);
    };
    fails(&["--tls-cert", certificate, "--tls-key", key], &["who may have signed them", "--tls-ca"]);
    fails(&["--tls-cert", certificate], &["--tls-key"]);
    let no = ["--tls-auth-clients", "no"];
    fails(&[&no[..], &["--tls-cert", "/nowhere.crt", "--tls-key", key]].concat(), &["/nowhere.crt", "no such file"]);
    fails(&[&no[..], &["--tls-cert", certificate, "--tls-key", certificate]].concat(), &["--tls-key"]);
    fails(&[&no[..], &["--tls-cert", key, "--tls-key", key]].concat(), &["no certificate in it"]);
    fails(&[&no[..], &["--tls-cert", certificate, "--tls-key", &pki.client.1]].concat(), &["cannot use", "--tls-cert"]);
    let garbage = pki.scratch.write("garbage", "nothing");
    fails(&["--tls-cert", certificate, "--tls-key", key, "--tls-ca", &garbage], &["--tls-ca"]);
}

#[test]
fn servers_serve_clients_under_tls_as_an_engine_alone_does() {
    let (pki, scratch) = (Pki::new(), Scratch::new());
    let (data, port) = (scratch.path("data"), ports(4));
    let port = |step: u16| (port + step).to_string();
    let (certificate, key) = &pki.server;
    let doors = [
        "--kv-port",
        &port(0),
        "--kv-replica-port",
        &port(1),
        "--kv-tls-port",
        &port(2),
        "--kv-replica-tls-port",
        &port(3),
    ];
    let files = ["--kv-tls-cert", certificate, "--kv-tls-key", key, "--kv-tls-ca", &pki.authority];
    let server = TestServer::start(&data, &[&doors[..], &files[..]].concat(), &[]);
    for (plain, tls) in [(port(0), port(2)), (port(1), port(3))] {
        let address = format!("127.0.0.1:{tls}");
        assert!(!pki.lets_in(&address, false), "who has no certificate is not let in");
        let mut client = Client::new(pki.connect(&address, true));
        assert_eq!(client.ask(&["CONFIG", "GET", "port"]), format!("port {plain}"));
        assert_eq!(client.ask(&["CONFIG", "GET", "tls-port"]), format!("tls-port {tls}"));
    }
    // Who came under TLS is sent on under TLS.
    let mut client = Client::new(pki.connect(&format!("127.0.0.1:{}", port(2)), true));
    assert_eq!(client.ask(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]), "OK");
    let is_sent_on =
        |client: &mut Client<_>| client.ask(&["CLUSTER", "SLOTS"]).contains(&format!(" 127.0.0.1 {} ", port(2)));
    until("the port under TLS to be told", || is_sent_on(&mut client));
    server.stop();
    let without = ["server", "--data", &data, "--kv-tls-port", "7"];
    check_fails(&without, &[("ASHLAR_KV_PORT", "6")], 2, &["kv_tls_cert: missing"]);
    let alone = ["server", "--data", &data, "--kv-tls-ca", &pki.authority];
    check_fails(&alone, &[("ASHLAR_KV_PORT", "6")], 2, &["kv_tls_ca: it means nothing without kv_tls_port"]);
}
