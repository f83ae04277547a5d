//! `ashlar bucket`: lists buckets with what they have, and gives them quotas.

use super::asking::{Asked, ask, demand, no_server, remove};
use super::volume::bytes;
use super::{no_runtime, say, table};
use crate::failure::Failure;
use crate::front::admin::buckets::{BucketView, UsageView};
use crate::os;
use crate::os::http::Target;

/// Buckets of objects.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List all buckets: objects, older versions, parts of uploads, bytes of all of these as they were put, quota
    List(List),
    /// Say how many bytes a bucket may have
    Quota(Quota),
}

#[derive(Debug, clap::Args)]
struct List {
    /// Print one JSON array and nothing else
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Debug, clap::Args)]
struct Quota {
    /// Name of the bucket
    #[arg(value_parser = name)]
    bucket: String,
    /// The most bytes of its objects, their versions and parts of uploads together: a number with K, M, G or T for KiB, MiB, GiB or
    /// TiB, or `none`. What would make them more is refused (403 QuotaExceeded); a bucket that has more already keeps it
    #[arg(value_name = "SIZE|none", value_parser = limit)]
    limit: Limit,
    /// Print the bucket as one JSON object and nothing else
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    asked: Asked,
}

/// Reads the name of a bucket.
pub(super) fn name(text: &str) -> Result<String, String> {
    let may_be = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    let is_name = text.bytes().all(may_be) && (3..=63).contains(&text.len()) && !text.contains("..");
    if is_name {
        Ok(text.to_owned())
    } else {
        Err("a bucket's name has 3 to 63 lower-case letters, digits, dots and hyphens".into())
    }
}

/// A quota, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limit(Option<u64>);

fn limit(text: &str) -> Result<Limit, String> {
    if text == "none" { Ok(Limit(None)) } else { Ok(Limit(Some(bytes(text)?))) }
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let text = match &arguments.command {
        Command::List(arguments) => os::block_on(list(arguments)),
        Command::Quota(arguments) => os::block_on(set_quota(arguments)),
    };
    say(&text.map_err(|error| no_runtime(&error))??);
    Ok(())
}

fn read<T: serde::de::DeserializeOwned>(target: &Target, body: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| no_server(target, &error))
}

fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("our own values have text keys and no cycles")
}

async fn list(List { json, asked }: &List) -> Result<String, Failure> {
    let target = asked.target()?;
    let buckets: Vec<BucketView> = read(&target, &ask(&target, "/v1/buckets").await?)?;
    if *json {
        return Ok(to_json(&buckets));
    }
    let rows: Vec<Vec<String>> = buckets.iter().map(row).collect();
    Ok(table::text(&["bucket", "objects", "versions", "parts", "bytes", "quota"], &rows))
}

fn row(bucket: &BucketView) -> Vec<String> {
    type Number = fn(&UsageView) -> u64;
    let numbers: [Number; 4] =
        [|usage| usage.objects, |usage| usage.versions, |usage| usage.parts, |usage| usage.bytes];
    let told = |number: Option<u64>, otherwise: &str| number.map_or_else(|| otherwise.to_owned(), |it| it.to_string());
    let mut row = vec![bucket.name.clone()];
    row.extend(numbers.map(|number| told(bucket.usage.as_ref().map(number), "?")));
    row.push(told(bucket.quota_bytes, "-"));
    row
}

async fn set_quota(Quota { bucket, limit, json, asked }: &Quota) -> Result<String, Failure> {
    let target = asked.target_to_change()?;
    let path = format!("/v1/buckets/{}/quota", bucket);
    let body = match limit.0 {
        Some(bytes) => demand(&target, &format!("{path}?bytes={bytes}")).await?,
        None => remove(&target, &path).await?,
    };
    let view: BucketView = read(&target, &body)?;
    Ok(match view.quota_bytes {
        _ if *json => to_json(&view),
        Some(bytes) => format!("{bucket} may have {bytes} bytes"),
        None => format!("{bucket} has no quota"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        assert_eq!(limit("none"), Ok(Limit(None)));
        assert_eq!(limit("0"), Ok(Limit(Some(0))), "nothing more");
        assert_eq!(limit("1500K"), Ok(Limit(Some(1_500 << 10))));
        for wrong in ["", "all", "-1", "1.5G", "99999999999T"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_row_says_what_is_not_known() {
        let bucket = BucketView { name: "b".into(), quota_bytes: None, usage: None };
        assert_eq!(row(&bucket), ["b", "?", "?", "?", "?", "-"]);
        let usage = UsageView { objects: 1, versions: 2, parts: 3, bytes: 4 };
        let bucket = BucketView { quota_bytes: Some(5), usage: Some(usage), ..bucket };
        assert_eq!(row(&bucket), ["b", "1", "2", "3", "4", "5"]);
    }
}
