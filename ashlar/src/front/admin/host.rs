//! `Host` headers: a page in a browser whose name was pointed at this machine (DNS rebinding) sends a foreign one.
//!
//! An IP address is not foreign: to point a name at this machine, a name has to be in the header.

use hyper::Request;
use hyper::header::HOST;
use hyper::http::uri::Authority;

/// Whether the request names this machine: an IP address, `localhost`, the name in `advertise`, or nothing at all.
pub(super) fn is_own<B>(request: &Request<B>, advertised: &str) -> bool {
    let mut named = request.headers().get_all(HOST).iter().map(|value| value.to_str().unwrap_or("?"));
    let (first, second) = (named.next(), named.next());
    if second.is_some() {
        return false;
    }
    let line = request.uri().authority().map(Authority::host);
    let header = match first.map(str::parse::<Authority>) {
        None => None,
        Some(Ok(authority)) => Some(authority),
        Some(Err(_)) => return false,
    };
    line.into_iter().chain(header.as_ref().map(Authority::host)).all(|host| is_own_name(host, advertised))
}

fn is_own_name(host: &str, advertised: &str) -> bool {
    let host = host.trim_end_matches('.');
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let advertised = advertised.rsplit_once(':').map_or(advertised, |(name, _)| name);
    bare.parse::<core::net::IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || !advertised.is_empty() && host.eq_ignore_ascii_case(advertised)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_server_pass() {
        let cases = [
            ("127.0.0.1:7800", true),
            ("[::1]:7800", true),
            ("10.1.2.3", true),
            ("localhost:7800", true),
            ("LOCALHOST.", true),
            ("host1:7800", true),
            ("Host1", true),
            ("evil.example:7800", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("host12:7800", false),
            ("", false),
            ("a b", false),
        ];
        for (host, expected) in cases {
            let request = Request::get("/v1/status").header(HOST, host).body(()).expect("a request");
            assert_eq!(is_own(&request, "host1:7800"), expected, "{host}");
        }
        let request = |uri: &str| Request::get(uri).body(()).expect("a request");
        assert!(is_own(&request("/v1/status"), "host1:7800"), "HTTP/1.0 has no Host");
        assert!(!is_own(&request("http://evil.example/v1/status"), "host1:7800"));
        let twice = Request::get("/").header(HOST, "localhost").header(HOST, "localhost").body(());
        assert!(!is_own(&twice.expect("a request"), ""), "which of the two would count?");
    }
}
