//! The front on loopback over the object service in memory, spoken to in plain HTTP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener as StdListener, TcpStream as StdStream};

use ashlar_object::memory::Memory;
use ashlar_object::s3::date::amz_date;
use ashlar_object::s3::head::RequestHead;
use ashlar_object::s3::signature::{SERVICE, Scope, SigningKey, canonical_request, string_to_sign};
use ashlar_object::s3::{KeyName, KeyService, NoKey, RootCredentials, S3Settings, SecretKey};
use ashlar_wire::secret::Secret;

use super::figures::S3Numbers;
use super::*;
use crate::bench::object::{Study, run_all};
use crate::bench::report::Row;
use crate::failure::Failure;
use crate::os::audit_log::AuditLog;
use crate::os::files::tests::Scratch;

const ACCESS_KEY: &str = "access";
const SECRET: &str = "secret";

/// A front on a thread of its own, until it is dropped.
struct Running {
    port: u16,
    front: Arc<S3Front>,
    stop: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Keys of a cluster that has none.
struct NoKeys;

impl KeyService for NoKeys {
    fn key(&self, _name: &KeyName) -> Result<Secret, NoKey> {
        Err(NoKey::Unavailable)
    }

    fn draw(&self) -> [u8; 32] {
        random::bytes()
    }
}

fn now_ms() -> u64 {
    u64::try_from(clock::now_both().unix_us / 1_000).expect("it is after 1970")
}

impl Running {
    fn start() -> Self {
        Self::start_with(Accounting::default())
    }

    fn start_with(accounting: Accounting) -> Self {
        let credentials = RootCredentials::new(ACCESS_KEY.into(), SecretKey::new(SECRET.into()));
        let service = Memory::new(now_ms).service();
        let s3 = S3Service::new(service, Arc::new(credentials), Arc::new(NoKeys), S3Settings::default());
        let front = Arc::new(S3Front::new(s3, None, accounting));
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let port = listener.local_addr().expect("an address").port();
        let (stop, stopped) = watch::channel(false);
        let serving = front.clone();
        let thread = std::thread::Builder::new().spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(serving.serve(listener, stopped)).expect("a listener");
        });
        Self { port, front, stop, thread: Some(thread.expect("a thread")) }
    }

    fn connect(&self) -> Client {
        let stream = StdStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("a connection");
        Client { stream: BufReader::new(stream) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the front ends");
        }
    }
}

struct Client {
    stream: BufReader<StdStream>,
}

struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The head of a signed request.
fn signed(method: &str, target: &str, headers: &[(&str, &str)]) -> String {
    let date = amz_date(now_ms());
    let mut all = vec![
        ("host".to_owned(), "localhost".to_owned()),
        ("x-amz-content-sha256".to_owned(), "UNSIGNED-PAYLOAD".to_owned()),
        ("x-amz-date".to_owned(), date.clone()),
    ];
    all.extend(headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let head = RequestHead::new(Method::named(method), target, all).expect("a head");
    let mut names: Vec<&str> = head.headers.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    let scope = Scope { day: date[..8].to_owned(), region: "anywhere".to_owned(), service: SERVICE };
    let text = string_to_sign(&date, &scope, &canonical_request(&head, &names, "UNSIGNED-PAYLOAD"));
    let signature = SigningKey::derive(SECRET, &scope).sign(&text).to_hex();
    let lines: String = head.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let (scope, names) = (scope.text(), names.join(";"));
    format!(
        "{method} {target} HTTP/1.1\r\n{lines}authorization: AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}, \
         SignedHeaders={names}, Signature={signature}\r\n\r\n"
    )
}

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("the front reads");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("the front answers");
        line.trim_end().to_owned()
    }

    fn receive(&mut self, has_body: bool) -> Reply {
        let status = self.line();
        let status = status.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.push((name.to_owned(), value.to_owned()));
        }
        let mut reply = Reply { status, headers, body: Vec::new() };
        let bytes = reply.header("content-length").map_or(0, |bytes| bytes.parse().expect("a number"));
        reply.body = vec![0; if has_body { bytes } else { 0 }];
        self.stream.read_exact(&mut reply.body).expect("the body");
        reply
    }

    fn ask(&mut self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let bytes = body.len().to_string();
        let mut all = headers.to_vec();
        if matches!(method, "PUT" | "POST") {
            all.push(("content-length", &bytes));
        }
        self.send(&[signed(method, target, &all).as_bytes(), body].concat());
        self.receive(method != "HEAD")
    }
}

#[test]
fn requests_are_counted() {
    let running = Running::start();
    let mut client = running.connect();
    assert_eq!(client.ask("PUT", "/bucket", &[], b"").status, 200);
    assert_eq!(client.ask("PUT", "/bucket/a", &[], &[7; 100]).status, 200);
    assert_eq!(client.ask("GET", "/bucket/a", &[("range", "bytes=0-9")], b"").status, 206);
    assert_eq!(client.ask("GET", "/nobodys/a", &[], b"").status, 404);
    // The last request ends a moment after its client has the reply.
    drop(client);
    while running.front.connections() > 0 {
        std::thread::yield_now();
    }
    let S3Numbers { apis, buckets } = running.front.accounting.figures.numbers();
    assert_eq!(apis.keys().copied().collect::<Vec<_>>(), ["CreateBucket", "GetObject", "PutObject"]);
    assert_eq!(apis["GetObject"].by_status, [(206, 1), (404, 1)].into());
    let bucket = buckets["bucket"];
    assert_eq!((bucket.requests, bucket.errors, bucket.received, bucket.sent), (3, 0, 100, 10));
    assert!(!buckets.contains_key("nobodys"), "{buckets:?}");
    assert_eq!(running.front.accounting.figures.in_flight(), 0);
}

#[test]
fn requests_are_written_down_one_a_line() {
    let folder = Scratch::new();
    let path = folder.0.join("audit.log");
    let audit = Some(Arc::new(AuditLog::open(&path).expect("the log")));
    let running = Running::start_with(Accounting { audit, ..Accounting::default() });
    let mut client = running.connect();
    client.ask("PUT", "/bucket", &[], b"");
    client.ask("PUT", "/bucket/two%0Alines", &[("user-agent", "me/1")], &[7; 100]);
    client.ask("GET", "/bucket/absent", &[], b"");
    client.send(b"GET /bucket/two%0Alines HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(client.receive(true).status, 403);
    let wrong = "AWS4-HMAC-SHA256 Credential=NOBODY/20260101/us-east-1/s3/aws4_request,SignedHeaders=host,Signature=00";
    client.send(format!("GET /bucket/wrong HTTP/1.1\r\nhost: localhost\r\nauthorization: {wrong}\r\n\r\n").as_bytes());
    assert_eq!(client.receive(true).status / 100, 4);
    client.send(b"GET /bucket/wrong?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=OTHER%2F20260101 HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(client.receive(true).status / 100, 4);
    drop((client, running));
    let text = std::fs::read_to_string(&path).expect("the log");
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |name: &str| lines.iter().map(|line| line[name].to_string()).collect::<Vec<_>>();
    let whose = format!("\"{}\"", ashlar_object::s3::User::root().id);
    assert_eq!(of("api")[..4], ["\"CreateBucket\"", "\"PutObject\"", "\"GetObject\"", "\"GetObject\""]);
    assert_eq!(of("status")[..4], ["200", "200", "404", "403"]);
    assert_eq!(of("user"), [whose.as_str(), &whose, &whose, "null", "null", "null"]);
    assert_eq!(of("access_key")[2..], [&*of("access_key")[0], "null", "\"NOBODY\"", "\"OTHER\""]);
    assert_eq!(of("error")[2..4], ["\"NoSuchKey\"", "\"AccessDenied\""]);
    assert_eq!((&*of("key")[1], &*of("agent")[1], &*of("received_bytes")[1]), ("\"two\\nlines\"", "\"me/1\"", "100"));
    assert_eq!(of("from")[0], "\"127.0.0.1\"");
}

#[test]
fn buckets_and_objects_on_one_connection() {
    let running = Running::start();
    let mut client = running.connect();
    assert_eq!(client.ask("PUT", "/bucket", &[], b"").status, 200);
    // As in us-east-1: whoever owns the bucket already is told that it is there.
    assert_eq!(client.ask("PUT", "/bucket", &[], b"").status, 200);
    let content: Vec<u8> = (0..3 << 20).map(|index: u32| (index % 251) as u8).collect();
    let put = client.ask("PUT", "/bucket/a%20b", &[("x-amz-meta-a", "1")], &content);
    assert_eq!((put.status, put.header("etag").map(str::len)), (200, Some(34)));
    let head = client.ask("HEAD", "/bucket/a%20b", &[], b"");
    assert_eq!(
        (head.status, head.header("content-length"), head.header("x-amz-meta-a")),
        (200, Some("3145728"), Some("1"))
    );
    let get = client.ask("GET", "/bucket/a%20b", &[], b"");
    assert!(get.status == 200 && get.body == content && get.header("etag") == put.header("etag"));
    let range = client.ask("GET", "/bucket/a%20b", &[("range", "bytes=100-199")], b"");
    assert_eq!((range.status, range.header("content-range")), (206, Some("bytes 100-199/3145728")));
    assert_eq!(range.body, content[100..200]);
    let beyond = client.ask("GET", "/bucket/a%20b", &[("range", "bytes=3145728-")], b"");
    assert!(beyond.status == 416 && beyond.text().contains("<Code>InvalidRange</Code>"));
    let list = client.ask("GET", "/bucket?list-type=2", &[], b"").text();
    assert!(list.contains("<Key>a b</Key>") && list.contains("<KeyCount>1</KeyCount>"), "{list}");
    let missing = client.ask("GET", "/bucket/other", &[], b"");
    assert!(missing.status == 404 && missing.text().contains("<Code>NoSuchKey</Code>"));
    assert_eq!(client.ask("DELETE", "/bucket", &[], b"").status, 409);
    assert_eq!(client.ask("DELETE", "/bucket/a%20b", &[], b"").status, 204);
    assert_eq!(client.ask("DELETE", "/bucket", &[], b"").status, 204);
    assert!(client.ask("GET", "/", &[], b"").text().contains("<Buckets></Buckets>"));
    assert_eq!(running.front.connections(), 1);
}

#[test]
fn a_body_cut_short_stores_nothing() {
    let running = Running::start();
    assert_eq!(running.connect().ask("PUT", "/bucket", &[], b"").status, 200);
    assert_eq!(running.connect().ask("PUT", "/bucket/key", &[], b"old").status, 200);
    let mut cut = running.connect();
    cut.send(&[signed("PUT", "/bucket/key", &[("content-length", "1000")]).as_bytes(), b"new"].concat());
    drop(cut);
    let mut other = running.connect();
    // The front has seen the end of that connection once it counts no more than this one.
    while running.front.connections() > 1 {
        std::thread::yield_now();
    }
    assert_eq!(other.ask("GET", "/bucket/key", &[], b"").body, b"old");
}

#[test]
fn a_client_that_sends_nothing_more_gets_its_answer() {
    let running = Running::start();
    let mut client = running.connect();
    client.send(signed("GET", "/", &[]).as_bytes());
    client.stream.get_ref().shutdown(std::net::Shutdown::Write).expect("a connection");
    assert_eq!(client.receive(true).status, 200);
}

#[test]
fn nothing_is_answered_without_a_signature() {
    let running = Running::start();
    let mut client = running.connect();
    assert_eq!(client.ask("PUT", "/bucket", &[], b"").status, 200);
    for (method, target) in [("GET", "/"), ("GET", "/bucket"), ("PUT", "/bucket/key"), ("DELETE", "/bucket")] {
        let mut client = running.connect();
        client.send(format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n").as_bytes());
        let reply = client.receive(true);
        assert_eq!(reply.status, 403, "{method} {target}");
        assert!(reply.text().contains("<Code>AccessDenied</Code>"), "{}", reply.text());
    }
    // A form has its signature in its body; this is no form. The other method is not known.
    for (method, status) in [("POST", 412), ("PATCH", 405)] {
        let mut client = running.connect();
        client.send(format!("{method} /bucket HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n").as_bytes());
        assert_eq!(client.receive(true).status, status, "{method}");
    }
    // A form without a signature is a stranger's, who may put nothing here.
    let form = "--b\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nforged\r\n--b\r\nContent-Disposition: form-data; \
                name=\"file\"; filename=\"f\"\r\n\r\nx\r\n--b--\r\n";
    let mut stranger = running.connect();
    let head = "POST /bucket HTTP/1.1\r\nhost: localhost\r\ncontent-type: multipart/form-data; boundary=b";
    stranger.send(format!("{head}\r\ncontent-length: {}\r\n\r\n{form}", form.len()).as_bytes());
    let reply = stranger.receive(true);
    assert_eq!(reply.status, 403, "{}", reply.text());
    assert_eq!(client.ask("GET", "/bucket/forged", &[], b"").status, 404);
    // Whether keys may be deleted is asked key by key: none may.
    assert_eq!(client.ask("PUT", "/bucket/key", &[], b"x").status, 200);
    let body = "<Delete><Object><Key>key</Key></Object></Delete>";
    let mut stranger = running.connect();
    let length = body.len();
    let request = format!("POST /bucket?delete HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}");
    stranger.send(request.as_bytes());
    let reply = stranger.receive(true);
    assert!(reply.status >= 400 || reply.text().contains("<Code>AccessDenied</Code>"), "{}", reply.text());
    assert_eq!(client.ask("GET", "/bucket/key", &[], b"").status, 200);
    let wrong = signed("GET", "/bucket", &[]).replace("Signature=", "Signature=0");
    client.send(wrong.as_bytes());
    assert_eq!(client.receive(true).status, 403);
}

#[test]
fn a_refused_body_is_not_asked_for() {
    let running = Running::start();
    let mut client = running.connect();
    // The bucket is missing: the body is never read, so `100 Continue` is never sent.
    let headers = [("content-length", "1000000"), ("expect", "100-continue")];
    client.send(signed("PUT", "/missing/key", &headers).as_bytes());
    let refused = client.receive(true);
    assert_eq!((refused.status, refused.header("connection")), (404, Some("close")));
    let mut client = running.connect();
    assert_eq!(client.ask("PUT", "/bucket", &[], b"").status, 200);
    client.send(signed("PUT", "/bucket/key", &[("content-length", "3"), ("expect", "100-continue")]).as_bytes());
    assert_eq!((client.line().as_str(), client.line().as_str()), ("HTTP/1.1 100 Continue", ""));
    client.send(b"abc");
    assert_eq!(client.receive(true).status, 200);
    // Nobody is invited to send an empty body: the answer is the first, and the last of the connection.
    let mut other = running.connect();
    other.send(signed("PUT", "/bucket/empty", &[("content-length", "0"), ("expect", "100-continue")]).as_bytes());
    let put = other.receive(true);
    assert_eq!((put.status, put.header("connection")), (200, Some("close")));
    // Small bodies that nobody wants are read, and the connection lives.
    assert_eq!(client.ask("PUT", "/missing/key", &[], &[0; 100_000]).status, 404);
    assert_eq!(client.ask("GET", "/bucket/key", &[], b"").body, b"abc");
}

#[test]
fn heads_are_bounded() {
    let running = Running::start();
    let mut client = running.connect();
    let long = "x".repeat(4 * HEAD_BYTES_MAX);
    client.stream.get_mut().write_all(format!("GET / HTTP/1.1\r\nhost: h\r\nx: {long}\r\n\r\n").as_bytes()).ok();
    assert!(client.line().starts_with("HTTP/1.1 431 "));
}

/// A small study of the front.
fn study(front: &Running, secret_key: &str, signs_bodies: bool) -> Study {
    let target = client::S3Target {
        address: format!("127.0.0.1:{}", front.port),
        access_key: ACCESS_KEY.to_owned(),
        secret_key: secret_key.to_owned(),
        region: "us-east-1".to_owned(),
        signs_bodies,
    };
    Study {
        targets: vec![Arc::new(target)],
        bucket: "bench".to_owned(),
        callers: 3,
        sizes: vec![0, 5_000],
        objects: 7,
        get_percent: 50,
        server_pids: Vec::new(),
        keeps: false,
    }
}

fn measured(study: &Study) -> Result<Vec<Row>, Failure> {
    let span = Some(Duration::from_millis(50));
    let options = crate::bench::Options { quick: true, only: None, span, workers: 2 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(run_all(study, &options, |_| {}))
}

#[test]
fn the_benchmark_measures_what_succeeds_and_leaves_nothing() {
    let front = Running::start();
    for signs_bodies in [false, true] {
        let rows = measured(&study(&front, SECRET, signs_bodies)).expect("it is answered");
        let cases: Vec<&str> = rows.iter().map(|row| row.case.as_str()).collect();
        let of = |size: &str| ["put", "get", "mixed", "list"].map(|work| format!("{work}/{size}"));
        assert_eq!(cases, [of("0B"), of("5000B")].concat());
        for row in &rows {
            assert!(row.value > 0.0 && !row.columns.iter().any(|(name, _)| *name == "errors"), "{row:?}");
        }
        let gone = front.connect().ask("GET", "/bench", &[], b"");
        assert_eq!(gone.status, 404, "{}", gone.text());
    }
    let refused = measured(&study(&front, "another", false)).expect_err("the key is wrong");
    assert!(refused.what.contains("403") && refused.what.contains("SignatureDoesNotMatch"), "{}", refused.what);
}
