//! `ashlar bench object`: its arguments.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::super::{no_runtime, note, say};
use crate::bench::object::{Study, run_all};
use crate::bench::{Options, report};
use crate::failure::Failure;
use crate::front::s3::client::S3Target;
use crate::os::{self, process};

/// Hold the key.
const ACCESS_KEY_VARIABLE: &str = "AWS_ACCESS_KEY_ID";
const SECRET_KEY_VARIABLE: &str = "AWS_SECRET_ACCESS_KEY";
/// Largest object, bytes.
const SIZE_MAX: i64 = 256 << 20;

/// Load on a server that speaks S3: ours, or any other.
///
/// Puts, gets, a mix of both and lists, of objects of 4 KiB, 1 MiB and 16 MiB. They are deleted afterwards, and the bucket if it was not there.
/// The key is taken from the environment: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`; `ashlar s3 key` prints that of a cluster.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    common: super::Common,
    /// Server to load, without TLS; several with commas are loaded by turns
    #[arg(long, value_name = "HTTP://HOST:PORT", default_value = "http://127.0.0.1:9000", value_delimiter = ',')]
    endpoint: Vec<String>,
    /// Bucket
    #[arg(long, value_name = "NAME", default_value = "ashlar-bench")]
    bucket: String,
    /// Region that is signed
    #[arg(long, value_name = "NAME", default_value = "us-east-1")]
    region: String,
    /// Requests at a time, each with a connection of its own
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=4096))]
    callers: u16,
    /// Threads of the load generator [default: half of the cores, one at least]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Bytes of an object; several with commas [default: 4096,1048576,16777216; with --quick 4096,1048576]
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(..=SIZE_MAX))]
    size: Vec<u32>,
    /// Different keys of each size; of large objects as many as have 512 MiB
    #[arg(long, value_name = "COUNT", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    objects: u32,
    /// GETs among a hundred requests of the mixed cases; the others are PUTs
    #[arg(long, value_name = "PERCENT", default_value_t = 70, value_parser = clap::value_parser!(u8).range(..=100))]
    mix: u8,
    /// Sign the SHA-256 of each body, so that the server checks it; else bodies are not signed
    #[arg(long)]
    sign_bodies: bool,
    /// Process of a server on this machine: its CPU time is told for each operation; several, with commas, are summed
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    server_pid: Vec<u32>,
    /// Leave the objects and the bucket
    #[arg(long)]
    keep: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let common = &arguments.common;
    process::raise_descriptor_limit().ok();
    let study = study(arguments)?;
    let threads = arguments.threads.map_or_else(|| (process::cores() / 2).max(1), usize::from);
    let options = Options {
        quick: common.quick,
        only: common.only.clone(),
        span: common.seconds.map(Duration::from_secs),
        workers: threads.min(study.callers),
    };
    let tell = |line: &str| if common.json { note(line) } else { say(line) };
    tell(&format!("{} | {} callers, {} threads", report::machine_line(), study.callers, options.workers));
    let rows = os::block_on(run_all(&study, &options, tell)).map_err(|error| no_runtime(&error))??;
    if rows.is_empty() {
        return Err(super::nothing_wanted(common));
    }
    if common.json {
        let facts = [
            ("endpoints", json!(arguments.endpoint)),
            ("callers", json!(study.callers)),
            ("threads", json!(options.workers)),
            ("objects", json!(study.objects)),
            ("sign_bodies", json!(arguments.sign_bodies)),
        ];
        say(&report::json("object", &facts, &rows));
    }
    Ok(())
}

fn study(arguments: &Arguments) -> Result<Study, Failure> {
    let (access_key, secret_key) = (key(ACCESS_KEY_VARIABLE)?, key(SECRET_KEY_VARIABLE)?);
    let target = |endpoint: &String| {
        let target = S3Target {
            address: address(endpoint)?,
            access_key: access_key.clone(),
            secret_key: secret_key.clone(),
            region: arguments.region.clone(),
            signs_bodies: arguments.sign_bodies,
        };
        Ok(Arc::new(target))
    };
    let sizes = match arguments.size.as_slice() {
        [] if arguments.common.quick => vec![4 << 10, 1 << 20],
        [] => vec![4 << 10, 1 << 20, 16 << 20],
        given => given.to_vec(),
    };
    Ok(Study {
        targets: arguments.endpoint.iter().map(target).collect::<Result<_, Failure>>()?,
        bucket: arguments.bucket.clone(),
        callers: usize::from(arguments.callers),
        sizes,
        objects: arguments.objects as usize,
        get_percent: arguments.mix,
        server_pids: arguments.server_pid.clone(),
        keeps: arguments.keep,
    })
}

fn key(variable: &str) -> Result<String, Failure> {
    std::env::var(variable).ok().filter(|key| !key.is_empty()).ok_or_else(|| {
        let what = format!("there is no key: the environment has no {variable}");
        Failure::usage(
            what,
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; `ashlar s3 key` prints those of a cluster",
        )
    })
}

/// `HOST:PORT` of an endpoint.
fn address(endpoint: &str) -> Result<String, Failure> {
    let address = endpoint.strip_prefix("http://").unwrap_or(endpoint).trim_end_matches('/');
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    match address.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && !host.contains('/') && is_port(port) => Ok(address.to_owned()),
        _ => Err(Failure::usage(
            format!("`{endpoint}` is no endpoint of S3 without TLS"),
            "give http://HOST:PORT, for instance http://127.0.0.1:9000",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        let read = |text: &str| address(text).ok();
        assert_eq!(read("http://h:9000/"), Some("h:9000".into()));
        assert_eq!(read("[::1]:9000"), Some("[::1]:9000".into()));
        for wrong in ["https://h:9000", "h", "http://h:0", "h:9000/x", ":9000"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
