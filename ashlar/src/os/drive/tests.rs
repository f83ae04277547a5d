//! A drive in a directory: made, written, stopped, opened, read; and what is refused.

use std::sync::mpsc::{Receiver, channel};

use ashlar_node::volume::drive_host::ClientToken;
use ashlar_placement::map::GroupId;
use ashlar_replica::Configuration;
use ashlar_replica::config::Witnesses;
use ashlar_replica::request::{ClientRequest, Generation};
use ashlar_wire::id::VolumeId;

use super::*;

use crate::os::files::tests::Scratch;
use ashlar_placement::rule::{Extent, ExtentId};
use ashlar_replica::request::{Answer, ClientResult, Content, Operation, Range, RequestId, Run, SessionId};
use ashlar_wire::epoch::Epoch;

/// Superblocks, the usual journal of 64 MiB, tables and some slots.
const BYTES: u64 = 96 << 20;
const DRIVE: DriveId = DriveId::from_bytes([3; 16]);

fn ids(cluster: u8) -> DriveIds {
    let (cluster, server) = (ClusterId::from_bytes([cluster; 16]), ServerId::from_bytes([2; 16]));
    DriveIds { cluster, server, new_drive: DRIVE }
}

fn start(dir: &Path) -> (DriveHandle, Receiver<HostOutput>) {
    let (sender, outputs) = channel();
    let drive = DriveThread::open_or_format(dir, ids(1), BYTES, move |_, outputs| {
        outputs.into_iter().for_each(|output| drop(sender.send(output)));
    })
    .unwrap();
    (drive, outputs)
}

fn refusal(dir: &Path, cluster: u8, bytes: u64) -> String {
    DriveThread::open_or_format(dir, ids(cluster), bytes, |_, _| {}).unwrap_err().to_string()
}

fn configure(drive: &DriveHandle, epoch: u64) {
    let (acting, learners) = (vec![drive.drive()], Vec::new());
    let (group, epoch, primary) = (GroupId::default(), Epoch(epoch), drive.drive());
    let configuration = Configuration { group, epoch, acting, primary, learners, min_copies: 1 };
    drive.send(DriveInput::Configuration { configuration, witnesses: Witnesses::default() }).unwrap();
}

/// Asks until the member serves: it waits for leases of an earlier life.
fn ask(
    drive: &DriveHandle,
    outputs: &Receiver<HostOutput>,
    request: u64,
    epoch: u64,
    what: &Operation,
) -> ClientResult {
    loop {
        let request = ClientRequest {
            session: SessionId(1),
            request: RequestId(request),
            floor: RequestId(1),
            generation: Generation(1),
            epoch: Epoch(epoch),
            extent: ExtentId { volume: VolumeId::from_bytes([5; 16]), extent: Extent(8) },
            operation: what.clone(),
        };
        drive
            .send(DriveInput::Client { token: ClientToken(request.request.0), group: GroupId::default(), request })
            .unwrap();
        // A new group, and a restarted member, ask for another epoch until it comes.
        let reply = outputs.iter().find_map(|output| match output {
            HostOutput::Reply { result, .. } => Some(result),
            HostOutput::Report { .. } => None,
            other => panic!("{other:?}"),
        });
        match reply.expect("the drive runs") {
            Err(ashlar_replica::Refusal::NotServing | ashlar_replica::Refusal::Behind(_)) => thread::yield_now(),
            result => return result,
        }
    }
}

#[test]
fn what_is_written_is_there_after_a_restart() {
    let scratch = Scratch::new();
    let dir = scratch.0.join("drive");
    let (drive, outputs) = start(&dir);
    // The first epoch founds the group, and serves nothing.
    configure(&drive, 1);
    configure(&drive, 2);
    let blocks: Vec<u8> = (0..3).flat_map(|value| vec![value; 4_096]).collect();
    let run = Run { offset: 8_192, content: Content::Data(blocks.clone().into()) };
    assert_eq!(ask(&drive, &outputs, 1, 2, &Operation::Write(run)), Ok(Answer::Written));
    let large = Run { offset: 65_536, content: Content::Data(vec![7; 128 << 10].into()) };
    assert_eq!(ask(&drive, &outputs, 2, 2, &Operation::Write(large)), Ok(Answer::Written));

    assert!(refusal(&dir, 1, BYTES).contains("in use by another process"));
    drive.stop();
    assert!(refusal(&dir, 9, BYTES).contains("belongs to cluster"));

    // The size and the id are those of the first time.
    let (sender, outputs) = channel();
    let others = DriveIds { new_drive: DriveId::from_bytes([4; 16]), ..ids(1) };
    let drive = DriveThread::open_or_format(&dir, others, 1, move |_, outputs| {
        outputs.into_iter().for_each(|output| drop(sender.send(output)));
    })
    .unwrap();
    assert_eq!(drive.drive(), DRIVE);
    configure(&drive, 3);
    let read = |offset, len| Operation::Read(Range { offset, len });
    assert_eq!(ask(&drive, &outputs, 3, 3, &read(8_192, 12_288)), Ok(Answer::Read(blocks.into())));
    assert_eq!(ask(&drive, &outputs, 4, 3, &read(65_536, 128 << 10)), Ok(Answer::Read(vec![7; 128 << 10].into())));
}

#[test]
fn a_drive_that_cannot_be_used_says_why() {
    let scratch = Scratch::new();
    let dir = scratch.0.join("drive");
    assert!(refusal(&dir, 1, 1 << 20).contains("give the drive more space"));
    assert!(!dir.join("extents").exists(), "nothing was made");
    // A file of the right name that is no drive is left alone.
    std::fs::write(dir.join("extents"), vec![0; 1 << 20]).unwrap();
    assert!(refusal(&dir, 1, BYTES).contains("no superblock"));
    std::fs::remove_file(dir.join("extents")).unwrap();
    // An interrupted formatting begins anew.
    std::fs::write(dir.join("extents.new"), "half").unwrap();
    let (drive, _outputs) = start(&dir);
    drive.stop();
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&dir), mode(&dir.join("extents"))), (0o700, 0o600));
    assert!(!dir.join("extents.new").exists());
}
