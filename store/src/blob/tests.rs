//! Blobs from outside: requests in, answers out, and what the drive was asked for.

mod compaction;
mod faults;
mod reads;
mod space;

use super::*;
use crate::buffer::{AlignedBuf, Segment};
use crate::error::OpenError;
use crate::format::Existing;
use crate::io::{Durability, IoKind};
use crate::opening::Expected;
use crate::proof::Chance;
use crate::proof::drive::FakeDrive;
use ashlar_wire::id::{ClusterId, DriveId, ServerId};
use core::time::Duration;

const SEGMENT_BLOCKS: u32 = 64;
const SEGMENTS: usize = 10;
const AREA_BYTES: usize = (8 + SEGMENTS * SEGMENT_BLOCKS as usize + 1) * BLOCK_BYTES;

struct Setup {
    drive: FakeDrive,
    chance: Chance,
    blobs: Blobs,
    now: Instant,
    next: u64,
    /// Everything that the drive was asked for.
    asked: Vec<IoKind>,
}

fn config() -> BlobConfig {
    BlobConfig {
        requests_max: 40,
        list_max: 5,
        list_headers_max: 3,
        packed_bytes_max: 6_000,
        compaction_step_bytes: 16 * 4_096,
        scrub_interval: None,
        ..BlobConfig::default()
    }
}

fn new_area() -> NewBlobArea {
    NewBlobArea {
        cluster: ClusterId::from_bytes([1; 16]),
        server: ServerId::from_bytes([2; 16]),
        drive: DriveId::from_bytes([3; 16]),
        nonce: [4; 16],
        bytes: AREA_BYTES as u64,
        segment_blocks: SEGMENT_BLOCKS,
    }
}

fn expected() -> Expected {
    let new = new_area();
    Expected { cluster: new.cluster, drive: Some(new.drive), bytes: new.bytes }
}

fn format(drive: &mut FakeDrive, new: &NewBlobArea, existing: Existing) -> Result<BlobSuperblock, OpenError> {
    let mut chance = Chance::new(1);
    let mut formatting = BlobFormatting::new(new, existing)?;
    loop {
        while let Some(io) = formatting.poll_io() {
            drive.start(io);
        }
        if let Some(result) = formatting.poll_ready() {
            while drive.in_flight() > 0 {
                drive.complete(0, &mut chance);
            }
            return result;
        }
        let (io, output) = drive.complete(0, &mut chance);
        formatting.handle_io(io.id, Ok(output));
    }
}

fn open(drive: &mut FakeDrive, config: BlobConfig, expected: Expected, now: Instant) -> Result<Blobs, OpenError> {
    let mut chance = Chance::new(1);
    let mut opening = BlobOpening::new(config, expected);
    loop {
        while let Some(io) = opening.poll_io() {
            drive.start(io);
        }
        if let Some(result) = opening.poll_ready(now) {
            // An opening that fails leaves reads behind.
            while drive.in_flight() > 0 {
                drive.complete(0, &mut chance);
            }
            return result;
        }
        let (io, output) = drive.complete(0, &mut chance);
        opening.handle_io(io.id, Ok(output));
    }
}

impl Setup {
    fn new(config: BlobConfig) -> Self {
        let mut drive = FakeDrive::new(AREA_BYTES);
        format(&mut drive, &new_area(), Existing::Refuse).unwrap();
        let blobs = open(&mut drive, config, expected(), Instant::ORIGIN).unwrap();
        Self { drive, chance: Chance::new(1), blobs, now: Instant::ORIGIN, next: 0, asked: Vec::new() }
    }

    fn submit(&mut self, kind: BlobRequestKind) -> RequestId {
        let id = RequestId(self.next);
        self.next += 1;
        self.blobs.handle_request(self.now, id, BlobRequest { deadline: Instant::NEVER, kind }).unwrap();
        id
    }

    fn start_ios(&mut self) {
        while let Some(io) = self.blobs.poll_io() {
            self.asked.push(io.kind.clone());
            self.drive.start(io);
        }
    }

    /// Completes everything, in order.
    fn complete_all(&mut self) {
        self.start_ios();
        while self.drive.in_flight() > 0 {
            let (io, output) = self.drive.complete(0, &mut self.chance);
            self.blobs.handle_io(self.now, io.id, Ok(output));
            self.start_ios();
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.blobs.handle_timeout(self.now);
        self.complete_all();
    }

    fn settle(&mut self) {
        for _ in 0..100 {
            if self.blobs.is_settled() {
                return;
            }
            self.pass(Duration::from_millis(50));
        }
        panic!("it never settles");
    }

    fn ask(&mut self, kind: BlobRequestKind) -> Result<BlobReply, BlobError> {
        let id = self.submit(kind);
        self.complete_all();
        let (answered, result) = self.blobs.poll_reply().expect("everything was completed");
        assert_eq!(answered, id);
        result
    }

    fn put(&mut self, number: u8, len: u32) -> Result<BlobReply, BlobError> {
        self.ask(BlobRequestKind::Put(blob(number, len)))
    }

    fn remove(&mut self, number: u8) -> Result<BlobReply, BlobError> {
        self.ask(BlobRequestKind::Remove { blob: id(number) })
    }

    fn get(&mut self, number: u8, offset: u32, len: u32) -> Result<Vec<u8>, BlobError> {
        match self.ask(BlobRequestKind::Get { blob: id(number), offset, len })? {
            BlobReply::Data { bytes, .. } => Ok(bytes.as_ref().to_vec()),
            other => panic!("a get gives data: {other:?}"),
        }
    }

    /// Loses power and opens again.
    fn reopen(&mut self) {
        self.drive.crash(&mut self.chance);
        self.blobs = open(&mut self.drive, self.blobs.config, expected(), self.now).unwrap();
        self.complete_all();
    }

    /// Blobs that a list gives.
    fn list(&mut self) -> Vec<u8> {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let kind = BlobRequestKind::List { after, limit: 100, detail: ListDetail::Brief };
            let BlobReply::Blobs { blobs, more } = self.ask(kind).unwrap() else { panic!("a list gives blobs") };
            after = blobs.last().map(|listed| listed.blob);
            found.extend(blobs.iter().map(|listed| listed.blob.as_bytes()[0]));
            if !more {
                return found;
            }
        }
    }
}

fn id(number: u8) -> BlobId {
    BlobId::from_bytes([number; 16])
}

fn data_of(number: u8, len: u32) -> Vec<u8> {
    (0..len).map(|at| (at / 7).to_be_bytes()[3] ^ number).collect()
}

fn header_of(number: u8) -> Box<[u8]> {
    vec![number; usize::from(number)].into()
}

fn blob(number: u8, len: u32) -> NewBlob {
    let bytes = data_of(number, len);
    // What stands behind the end is not stored.
    let mut data = AlignedBuf::zeroed(NewBlob::blocks_of(len));
    data.fill(0xee);
    data[..bytes.len()].copy_from_slice(&bytes);
    let data = if bytes.is_empty() { Vec::new() } else { vec![Segment::from(data)] };
    NewBlob { blob: id(number), stamp: 100 + u64::from(number), header: header_of(number), len, data }
}
