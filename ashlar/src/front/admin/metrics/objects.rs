//! S3 requests in metrics: by operation and status, and by bucket. Objects that are to be healed.

use ashlar_node::object::ObjectNode;

use super::page::Spans;
use super::{Kind, Page, Source, Telling};
use crate::front::s3::account::Accounting;
use crate::front::s3::figures::{BucketFigures, S3Numbers, SPAN_BOUNDS};
use crate::os::runtime::OsRuntime;

impl Source for Accounting {
    fn tell<'a>(&'a self, page: &'a mut Page) -> Telling<'a> {
        let help = "S3 requests that have not ended.";
        page.single("ashlar_s3_requests_in_flight", Kind::Gauge, help, self.figures.in_flight());
        numbers(page, &self.figures.numbers());
        if let Some(audit) = &self.audit {
            let help = "Lines of the audit log that were lost: the drive was too slow, or refused them.";
            page.single("ashlar_s3_audit_lost_total", Kind::Counter, help, audit.lost());
        }
        Box::pin(core::future::ready(()))
    }
}

impl Source for ObjectNode<OsRuntime> {
    fn tell<'a>(&'a self, page: &'a mut Page) -> Telling<'a> {
        let help = "Objects that lack shards, or have some on drives that leave, as far as this server heals them.";
        page.single("ashlar_objects_to_heal", Kind::Gauge, help, self.to_heal());
        Box::pin(core::future::ready(()))
    }
}

fn numbers(page: &mut Page, S3Numbers { apis, buckets }: &S3Numbers) {
    let name = "ashlar_s3_requests_total";
    page.metric(name, Kind::Counter, "S3 requests that have ended, by operation and HTTP status.");
    for (api, figures) in apis {
        for (status, count) in &figures.by_status {
            page.sample(name, &[("api", api), ("status", &status.to_string())], count);
        }
    }
    let name = "ashlar_s3_request_duration_seconds";
    page.metric(name, Kind::Histogram, "From the head of a request to the end of its reply's body.");
    for (api, figures) in apis {
        let (bounds, within) = (&SPAN_BOUNDS[..], &figures.within[..]);
        let spans = Spans { bounds, within, sum: figures.spans, count: figures.requests() };
        page.spans(name, &[("api", api)], &spans);
    }
    let name = "ashlar_s3_reply_seconds_total";
    page.metric(
        name,
        Kind::Counter,
        "Time from the head of a request to the head of its reply, all requests together.",
    );
    for (api, figures) in apis {
        page.sample(name, &[("api", api)], figures.to_reply.as_secs_f64());
    }
    type Number = fn(&BucketFigures) -> u64;
    let columns: [(&str, &str, Number); 4] = [
        ("ashlar_s3_bucket_requests_total", "S3 requests about a bucket.", |figures| figures.requests),
        ("ashlar_s3_bucket_errors_total", "Those with a status of 400 or more.", |figures| figures.errors),
        ("ashlar_s3_bucket_received_bytes_total", "Bytes of their bodies.", |figures| figures.received),
        ("ashlar_s3_bucket_sent_bytes_total", "Bytes of the bodies of replies.", |figures| figures.sent),
    ];
    for (name, help, number) in columns {
        page.metric(name, Kind::Counter, help);
        for (bucket, figures) in buckets {
            page.sample(name, &[("bucket", bucket)], number(figures));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::page::tests::lint;
    use super::*;
    use crate::front::s3::figures::{Ended, S3Figures};

    #[test]
    fn requests_are_told_by_the_conventions() {
        let figures = S3Figures::default();
        for (api, status) in [("GetObject", 200), ("GetObject", 404), ("PutObject", 200)] {
            let (to_reply, whole) = (Duration::from_millis(125), Duration::from_millis(250));
            figures.begin();
            figures.end(&Ended { api, bucket: "photos", status, received: 10, sent: 20, to_reply, whole });
        }
        let mut page = Page::default();
        numbers(&mut page, &figures.numbers());
        let text = page.into_text();
        assert_eq!(lint(&text), Vec::<String>::new());
        for line in [
            "ashlar_s3_requests_total{api=\"GetObject\",status=\"404\"} 1",
            "ashlar_s3_request_duration_seconds_bucket{api=\"GetObject\",le=\"0.1\"} 0",
            "ashlar_s3_request_duration_seconds_bucket{api=\"GetObject\",le=\"0.25\"} 2",
            "ashlar_s3_reply_seconds_total{api=\"PutObject\"} 0.125",
            "ashlar_s3_bucket_errors_total{bucket=\"photos\"} 1",
            "ashlar_s3_bucket_sent_bytes_total{bucket=\"photos\"} 60",
        ] {
            assert!(text.lines().any(|other| other == line), "`{line}` is not in {text}");
        }
    }
}
