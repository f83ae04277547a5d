//! Drives, placement groups and volumes in metrics.

use ashlar_catalog::state::State;
use ashlar_node::volume::figures::{OpFigures, OpKind, SPAN_BOUNDS, VolumeFigures};
use ashlar_node::volume::service::VolumeService;
use ashlar_node::volume::space::{DriveSpace, Room};

use super::page::Spans;
use super::{Kind, Page, Source, Telling};
use crate::front::admin::groups;
use crate::os::runtime::OsRuntime;

impl Source for VolumeService<OsRuntime> {
    fn tell<'a>(&'a self, page: &'a mut Page) -> Telling<'a> {
        space(page, &self.space_here());
        if let Some(state) = self.catalog().state_now() {
            groups_of(page, &state);
        }
        volumes(page, &self.figures_here());
        Box::pin(core::future::ready(()))
    }
}

/// The drives of this server; none where it has none.
fn space(page: &mut Page, drives: &[DriveSpace]) {
    if drives.is_empty() {
        return;
    }
    type Number = fn(&Room) -> u64;
    let numbers: [(&str, &str, Number); 2] = [
        ("ashlar_drive_bytes", "Bytes of data that the drive can hold.", |room| room.bytes),
        ("ashlar_drive_free_bytes", "Bytes of data that still can be written, an upper bound.", |room| room.free),
    ];
    for (name, help, number) in numbers {
        page.metric(name, Kind::Gauge, help);
        for DriveSpace { drive, volumes, objects, .. } in drives {
            for (kind, room) in [("volumes", volumes), ("objects", objects)] {
                page.sample(name, &[("drive", &drive.to_string()), ("for", kind)], number(room));
            }
        }
    }
    page.metric(
        "ashlar_drive_failed",
        Kind::Gauge,
        "1 if the drive has failed a write or a sync and is not used any more.",
    );
    for DriveSpace { drive, has_failed, .. } in drives {
        page.sample("ashlar_drive_failed", &[("drive", &drive.to_string())], u8::from(*has_failed));
    }
}

/// The placement groups of the cluster, as this server knows the catalog.
fn groups_of(page: &mut Page, state: &State) {
    let views = groups::views(state);
    page.single("ashlar_groups", Kind::Gauge, "Placement groups of the cluster, as this server knows.", views.len());
    let help = "Placement groups with too few copies, or with copies that are being filled.";
    page.single("ashlar_groups_degraded", Kind::Gauge, help, groups::degraded(&views));
}

/// The volumes that are attached here; none where there is none.
fn volumes(page: &mut Page, volumes: &[VolumeFigures]) {
    if volumes.is_empty() {
        return;
    }
    let mut each = |name: &str, help: &str, value: &dyn Fn(&VolumeFigures) -> f64| {
        page.metric(name, Kind::Gauge, help);
        for volume in volumes {
            page.sample(name, &[("volume", &volume.name)], value(volume));
        }
    };
    #[allow(clippy::cast_precision_loss, reason = "a size needs no 53 bits")]
    each("ashlar_volume_size_bytes", "Bytes of a volume that is attached here.", &|volume| volume.size_bytes as f64);
    #[allow(clippy::cast_precision_loss, reason = "so many clients are not let in")]
    each("ashlar_volume_clients", "Clients that have the volume attached here.", &|volume| volume.clients as f64);
    #[allow(clippy::cast_precision_loss, reason = "so many requests are not let in")]
    each("ashlar_volume_requests_in_flight", "Requests without an answer yet.", &|volume| volume.in_flight as f64);
    let help = "How long the oldest request without an answer waits.";
    each("ashlar_volume_oldest_request_seconds", help, &|volume| volume.oldest.as_secs_f64());
    let mut by_op = |name: &str, help: &str, value: fn(&OpFigures) -> u64| {
        page.metric(name, Kind::Counter, help);
        for volume in volumes {
            for (op, figures) in OpKind::ALL.iter().zip(&volume.ops) {
                page.sample(name, &[("volume", &volume.name), ("op", op.name())], value(figures));
            }
        }
    };
    let help = "Requests that failed for good, since the volume was attached here.";
    by_op("ashlar_volume_failed_requests_total", help, |figures| figures.failed);
    by_op("ashlar_volume_bytes_total", "Bytes of requests that were done.", |figures| figures.bytes);
    let name = "ashlar_volume_request_duration_seconds";
    page.metric(name, Kind::Histogram, "From a request to its answer, waits for a failover included.");
    for volume in volumes {
        for (op, figures) in OpKind::ALL.iter().zip(&volume.ops) {
            let OpFigures { within, spans, done, .. } = figures;
            let spans = Spans { bounds: &SPAN_BOUNDS, within, sum: *spans, count: *done };
            page.spans(name, &[("volume", &volume.name), ("op", op.name())], &spans);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::super::page::tests::lint;
    use super::*;

    #[test]
    fn drives_and_volumes_are_told_by_the_conventions() {
        let mut page = Page::default();
        let write =
            OpFigures { done: 3, bytes: 12_288, spans: Duration::from_millis(1_500), within: [2; 13], failed: 1 };
        let ops = [OpFigures::default(), write, OpFigures::default(), OpFigures::default(), OpFigures::default()];
        let demo = VolumeFigures {
            name: "demo".to_owned(),
            size_bytes: 1 << 30,
            clients: 1,
            ops,
            in_flight: 2,
            oldest: Duration::from_millis(250),
        };
        let room = Room { bytes: 1 << 30, free: 1 << 20 };
        let drive = ashlar_wire::id::DriveId::from_bytes([7; 16]);
        space(&mut page, &[DriveSpace { drive, volumes: room, objects: Room::default(), has_failed: false }]);
        volumes(&mut page, &[demo.clone(), VolumeFigures { name: "other".to_owned(), ..demo }]);
        let text = page.into_text();
        assert_eq!(lint(&text), Vec::<String>::new());
        for line in [
            "ashlar_volume_oldest_request_seconds{volume=\"demo\"} 0.25",
            "ashlar_volume_bytes_total{volume=\"demo\",op=\"write\"} 12288",
            "ashlar_volume_failed_requests_total{volume=\"other\",op=\"write\"} 1",
            "ashlar_volume_request_duration_seconds_bucket{volume=\"demo\",op=\"write\",le=\"0.0001\"} 2",
            "ashlar_volume_request_duration_seconds_bucket{volume=\"demo\",op=\"write\",le=\"+Inf\"} 3",
            "ashlar_volume_request_duration_seconds_sum{volume=\"demo\",op=\"write\"} 1.5",
        ] {
            assert!(text.lines().any(|other| other == line), "`{line}` is not in {text}");
        }
    }
}
