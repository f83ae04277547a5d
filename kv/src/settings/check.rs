//! Texts of parameters that have rules of their own. Each gives the text as it is shown, or says what is wrong with it.

use core::net::{Ipv4Addr, Ipv6Addr};

use super::form::plain_name;

/// The longest name of a host, in bytes.
const HOST_BYTES_END: usize = 256;
/// Bytes that an address as text does not reach.
const ADDRESS_BYTES_END: usize = 46;
/// How often housekeeping may be asked for, a second.
const HERTZ: std::ops::RangeInclusive<i64> = 1..=500;

type Checked = Result<String, String>;

pub(super) fn dump_name(name: &str) -> Checked {
    plain_name("dbfilename", name, "filename")
}

pub(super) fn log_name(name: &str) -> Checked {
    plain_name("appendfilename", name, "filename")
}

pub(super) fn log_folder(name: &str) -> Checked {
    plain_name("appenddirname", name, "dirname")
}

/// Whether it is there is asked when it is changed.
pub(super) fn folder(path: &str) -> Checked {
    if path.is_empty() { Err("dir can't be empty".to_owned()) } else { Ok(path.to_owned()) }
}

pub(super) fn cluster_file(name: &str) -> Checked {
    if name.is_empty() { Err("cluster-config-file can't be empty".to_owned()) } else { Ok(name.to_owned()) }
}

pub(super) fn ipv4(text: &str) -> Checked {
    let is_one = text.is_empty() || text.parse::<Ipv4Addr>().is_ok();
    is_one.then(|| text.to_owned()).ok_or_else(|| "Invalid IPv4 address".to_owned())
}

pub(super) fn ipv6(text: &str) -> Checked {
    let is_one = text.is_empty() || text.parse::<Ipv6Addr>().is_ok();
    is_one.then(|| text.to_owned()).ok_or_else(|| "Invalid IPv6 address".to_owned())
}

pub(super) fn host_name(text: &str) -> Checked {
    if text.len() >= HOST_BYTES_END {
        return Err(format!("Hostnames must be less than {HOST_BYTES_END} characters"));
    }
    if !text.bytes().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, b'-' | b'.')) {
        return Err("Hostnames may only contain alphanumeric characters, hyphens or dots".to_owned());
    }
    Ok(text.to_owned())
}

/// Whether a byte has no meaning of its own in `nodes.conf` and `CLUSTER NODES`, so that it may be part of a field there.
fn is_plain(letter: u8) -> bool {
    letter > b',' && letter != 0x7f && !br";<=>?@[]^{|}~\".contains(&letter)
}

/// An address that other nodes show: what is in it goes into their files as it is.
pub(super) fn announced_address(text: &str) -> Checked {
    if text.len() >= ADDRESS_BYTES_END {
        return Err("cluster-announce-ip is too long".to_owned());
    }
    if !text.bytes().all(is_plain) {
        return Err("cluster-announce-ip contains invalid character".to_owned());
    }
    Ok(text.to_owned())
}

pub(super) fn node_name(text: &str) -> Checked {
    if !text.bytes().all(is_plain) {
        return Err("Announced human node name contained invalid character".to_owned());
    }
    Ok(text.to_owned())
}

/// Names in braces are those that can be put in.
pub(super) fn title(text: &str) -> Checked {
    const KNOWN: [&str; 7] = ["title", "listen-addr", "server-mode", "port", "tls-port", "unixsocket", "config-file"];
    let names = text.split('{').skip(1).map(|rest| rest.split_once('}').map(|(name, _)| name));
    let is_valid =
        !text.trim().is_empty() && names.into_iter().all(|name| name.is_some_and(|name| KNOWN.contains(&name)));
    if !is_valid {
        return Err("template format is invalid or contains unknown variables".to_owned());
    }
    Ok(text.to_owned())
}

/// Pairs of seconds and changes.
pub(super) fn save_points(text: &str) -> Checked {
    let invalid = || "Invalid save parameters".to_owned();
    if text.is_empty() {
        return Ok(String::new());
    }
    let numbers: Option<Vec<i64>> = text.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
    let numbers = numbers.filter(|numbers| numbers.len().is_multiple_of(2)).ok_or_else(invalid)?;
    if numbers.chunks_exact(2).any(|pair| pair[0] < 1 || pair[1] < 0) {
        return Err(invalid());
    }
    Ok(numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(" "))
}

pub(super) fn percentiles(text: &str) -> Checked {
    let invalid = || "Invalid latency-tracking-info-percentiles parameters".to_owned();
    if text.is_empty() {
        return Ok(String::new());
    }
    let numbers: Result<Vec<f64>, _> = text.split(' ').map(str::parse).collect();
    let numbers = numbers.map_err(|_| invalid())?;
    if !numbers.iter().all(|number| (0.0..=100.0).contains(number)) {
        return Err("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]".to_owned());
    }
    // Six digits behind the point are shown, without zeros at the end.
    let shown = numbers.iter().map(|number| {
        let digits = format!("{number:.6}");
        digits.trim_end_matches('0').trim_end_matches('.').to_owned()
    });
    Ok(shown.collect::<Vec<_>>().join(" "))
}

pub(super) fn oom_scores(text: &str) -> Checked {
    let words: Vec<&str> = text.split(' ').collect();
    if words.len() != 3 {
        return Err("wrong number of arguments".to_owned());
    }
    if !words.iter().all(|word| word.parse::<i64>().is_ok_and(|score| (-2_000..=2_000).contains(&score))) {
        return Err("Invalid oom-score-adj-values, elements must be between -2000 and 2000.".to_owned());
    }
    Ok(words.join(" "))
}

/// Taken, and kept within what is sensible.
pub(super) fn hertz(text: &str) -> Checked {
    let value: i64 = text.parse().map_err(|_| "argument couldn't be parsed into an integer".to_owned())?;
    if !(0..=i64::from(i32::MAX)).contains(&value) {
        return Err(format!("argument must be between 0 and {} inclusive", i32::MAX));
    }
    Ok(value.clamp(*HERTZ.start(), *HERTZ.end()).to_string())
}

/// A host and a port, or nothing.
pub(super) fn primary(text: &str) -> Checked {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    match words[..] {
        [] => Ok(String::new()),
        [no, one] if no.eq_ignore_ascii_case("no") && one.eq_ignore_ascii_case("one") => Ok(String::new()),
        [host, port] => match port.parse::<u16>() {
            Ok(port) if port > 0 => Ok(format!("{host} {port}")),
            _ => Err("Invalid master port".to_owned()),
        },
        _ => Err("wrong number of arguments".to_owned()),
    }
}

/// Memory is not moved here to close gaps: cells of a kind lie together from the start.
pub(super) fn defrag(text: &str) -> Checked {
    match text.to_ascii_lowercase().as_str() {
        "no" => Ok("no".to_owned()),
        "yes" => Err(
            "Active defragmentation cannot be enabled: it requires a server compiled with a modified Jemalloc like \
                      the one shipped by default with the source distribution"
                .to_owned(),
        ),
        _ => Err("argument must be 'yes' or 'no'".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_and_what_is_not() {
        type Check = fn(&str) -> Checked;
        type Case<'a> = (&'a str, Check, &'a [(&'a str, &'a str)], &'a [&'a str]);
        let cases: [Case<'_>; 10] = [
            ("dump", dump_name, &[("a.rdb", "a.rdb")], &["", "a/b"]),
            ("save", save_points, &[("", ""), ("60  1", "60 1"), ("60 0", "60 0")], &["60", "0 1", "1 -1", "a b"]),
            ("percentiles", percentiles, &[("50 99.900", "50 99.9"), ("0.0", "0")], &["x", "101", "-1"]),
            ("hertz", hertz, &[("0", "1"), ("10", "10"), ("9999", "500")], &["x", "-1"]),
            ("oom", oom_scores, &[("0 200 800", "0 200 800")], &["1 2", "1 2 x", "0 0 2001"]),
            ("title", title, &[("{title} x", "{title} x")], &["", "{nosuch}", "{title"]),
            ("host", host_name, &[("", ""), ("a-b.c", "a-b.c")], &["a_b"]),
            ("node", node_name, &[("a-b", "a-b")], &["a=b", "a b"]),
            ("ipv4", ipv4, &[("", ""), ("10.0.0.1", "10.0.0.1")], &["x", "::1"]),
            ("ipv6", ipv6, &[("::1", "::1")], &["10.0.0.1"]),
        ];
        for (name, check, taken, refused) in cases {
            for (text, shown) in taken {
                assert_eq!(check(text).as_deref(), Ok(*shown), "{name} {text}");
            }
            for text in refused {
                assert!(check(text).is_err(), "{name} {text}");
            }
        }
    }
}
