//! Whatever is cut off or changed: what was durable is there, or the start is refused.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::form::FRAME_HEAD_BYTES;
use super::*;
use crate::os::block_on;
use crate::os::files::tests::Scratch;

fn cluster() -> ClusterId {
    ClusterId::from_bytes([0xc1; 16])
}

fn server() -> ServerId {
    ServerId::from_bytes([0x5a; 16])
}

fn open(data: &Path) -> Result<CatalogStorage, OpenError> {
    CatalogStorage::open(data, cluster(), server())
}

fn run<T>(future: BoxFuture<Result<T, StorageError>>) -> T {
    block_on(future).unwrap().unwrap()
}

fn entries(indexes: std::ops::Range<u64>) -> LogWrite {
    let append = indexes.map(|index| (index, vec![index as u8; 20 + index as usize % 50])).collect();
    LogWrite { append, ..LogWrite::default() }
}

/// Steps of every kind, each in a frame of its own, and what they make.
fn steps() -> Vec<LogWrite> {
    vec![
        entries(0..4),
        LogWrite { vote: Some(vec![7; 9]), ..LogWrite::default() },
        LogWrite { truncate_from: Some(3), committed: Some(vec![1, 2]), ..entries(3..8) },
        LogWrite { purge: Some((1, vec![3; 5])), ..LogWrite::default() },
        LogWrite { vote: Some(vec![8; 9]), ..entries(8..12) },
    ]
}

fn made_by(steps: &[LogWrite]) -> StoredLog {
    let mut stored = StoredLog::default();
    steps.iter().for_each(|step| take_step(&mut stored, step.clone()).unwrap());
    stored
}

#[test]
fn what_was_written_is_there_again() {
    let scratch = Scratch::new();
    let mut expected = made_by(&steps());
    {
        let storage = open(&scratch.0).unwrap();
        assert_eq!(run(storage.load()), StoredLog::default());
        steps().into_iter().for_each(|step| run(storage.write(step)));
        run(storage.save_snapshot(vec![5; 3_000]));
        run(storage.save_snapshot(vec![6; 2_000]));
    }
    expected.snapshot = Some(vec![6; 2_000]);
    assert_eq!(run(open(&scratch.0).unwrap().load()), expected);
    let mode = |path: &str| fs::metadata(scratch.0.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("catalog"), mode("catalog/log"), mode("catalog/snapshot")), (0o700, 0o600, 0o600));
}

/// A log of one frame for each step, and where each ends.
fn framed(steps: &[LogWrite]) -> (Vec<u8>, Vec<usize>) {
    let owner = Owner { cluster: cluster(), server: server() };
    let (mut file, mut ends) = (owner.head(Kind::Log), vec![HEAD_BYTES]);
    for step in steps {
        let mut content = Vec::new();
        encode_step(step, &mut content);
        file.extend(owner.frame(Kind::Log, file.len(), &content));
        ends.push(file.len());
    }
    (file, ends)
}

fn write_log(data: &Path, bytes: &[u8]) {
    fs::create_dir_all(data.join(FOLDER)).unwrap();
    fs::write(data.join(FOLDER).join(LOG), bytes).unwrap();
}

#[test]
fn a_torn_end_is_cut_off_wherever_it_is_torn() {
    let (file, ends) = framed(&steps());
    let scratch = Scratch::new();
    for cut in HEAD_BYTES..=file.len() {
        // What a crash leaves of a frame may be zeros as well, and of its full length.
        let zeros = vec![0; file.len() - cut];
        let mut whole = 0;
        for rest in [&[][..], &zeros] {
            let torn = [&file[..cut], rest].concat();
            // A frame that ends with zeros is whole with them.
            let same = torn.iter().zip(&file).take_while(|(one, other)| one == other).count();
            whole = ends.iter().rposition(|end| *end <= same).unwrap();
            write_log(&scratch.0, &torn);
            let storage = open(&scratch.0).unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
            assert_eq!(run(storage.load()), made_by(&steps()[..whole]), "cut at {cut}");
        }
        assert_eq!(fs::metadata(scratch.0.join("catalog/log")).unwrap().len(), ends[whole] as u64);
    }
    // It goes on behind what is whole.
    write_log(&scratch.0, &file[..file.len() - 1]);
    let last = steps().pop().unwrap();
    run(open(&scratch.0).unwrap().write(last));
    assert_eq!(fs::read(scratch.0.join("catalog/log")).unwrap(), file);
}

#[test]
fn damage_before_the_last_frame_is_refused() {
    let (file, ends) = framed(&steps());
    let scratch = Scratch::new();
    for at in 0..ends[ends.len() - 2] {
        let mut damaged = file.clone();
        damaged[at] ^= 0x10;
        write_log(&scratch.0, &damaged);
        let error = open(&scratch.0).expect_err("damage is seen");
        let is_told = match error {
            OpenError::Damaged(_, told) => told <= at as u64,
            // Of the head.
            OpenError::OfAnother(_) | OpenError::Later(..) => at < HEAD_BYTES,
            OpenError::Io(..) => false,
        };
        assert!(is_told, "damage at {at}: {error}");
        assert_eq!(fs::read(scratch.0.join("catalog/log")).unwrap(), damaged, "what is refused is not changed");
    }
    // A whole log of another server.
    write_log(&scratch.0, &file);
    let other = CatalogStorage::open(&scratch.0, cluster(), ServerId::from_bytes([1; 16]));
    assert!(matches!(other, Err(OpenError::OfAnother(_))));
}

#[test]
fn a_damaged_snapshot_is_refused() {
    let scratch = Scratch::new();
    run(open(&scratch.0).unwrap().save_snapshot(vec![9; 100]));
    let path = scratch.0.join("catalog/snapshot");
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&path, &damaged).unwrap();
        assert!(open(&scratch.0).is_err(), "damage at {at}");
        fs::write(&path, &whole[..at]).unwrap();
        assert!(open(&scratch.0).is_err(), "cut at {at}");
    }
}

#[test]
fn a_log_that_was_purged_becomes_short() {
    let scratch = Scratch::new();
    let storage = open(&scratch.0).unwrap();
    let entry = |index| (index, vec![index as u8; 64 << 10]);
    let mut expected = StoredLog::default();
    let length = || fs::metadata(scratch.0.join("catalog/log")).unwrap().len();
    let mut longest = 0;
    for index in 0..200 {
        let purge = (index % 10 == 9).then(|| (index - 3, vec![index as u8; 8]));
        let step = LogWrite { append: vec![entry(index)], purge, vote: Some(vec![index as u8]), ..LogWrite::default() };
        take_step(&mut expected, step.clone()).unwrap();
        run(storage.write(step));
        longest = longest.max(length());
    }
    assert!(longest > SURPLUS_BYTES && longest < 2 * SURPLUS_BYTES, "{longest} bytes");
    drop(storage);
    let storage = open(&scratch.0).unwrap();
    assert_eq!(run(storage.load()), expected);
    run(storage.write(LogWrite { append: vec![entry(200)], ..LogWrite::default() }));
    assert_eq!(run(storage.load()).entries.last(), Some(&entry(200)));
}

#[test]
fn after_a_failure_nothing_is_acknowledged() {
    let scratch = Scratch::new();
    let storage = open(&scratch.0).unwrap();
    run(storage.write(entries(0..2)));
    let gap = block_on(storage.write(entries(5..6))).unwrap();
    assert!(gap.is_err());
    assert_eq!(block_on(storage.write(entries(2..3))).unwrap(), gap);
}

#[test]
fn golden() {
    let owner = Owner { cluster: cluster(), server: server() };
    let mut content = Vec::new();
    let step = LogWrite {
        truncate_from: Some(5),
        append: vec![(5, vec![0xe5])],
        purge: Some((2, vec![0xf0])),
        vote: None,
        committed: Some(vec![0xc0, 0xc1]),
    };
    encode_step(&step, &mut content);
    let expected = [0x95, 1, 5, 1, 5, 0xc4, 1, 0xe5, 2, 1, 0xc4, 1, 0xf0, 0, 0xc4, 0, 1, 0xc4, 2, 0xc0, 0xc1];
    assert_eq!(content, expected);
    let mut head = b"ashl-clg\0\0\0\x01".to_vec();
    head.extend([0xc1; 16]);
    head.extend([0x5a; 16]);
    assert_eq!(owner.head(Kind::Log)[..HEAD_BYTES - 8], head);
    assert_eq!(owner.head(Kind::Log)[HEAD_BYTES - 8..], HEAD_SUM);
    let frame = owner.frame(Kind::Log, HEAD_BYTES, &content);
    assert_eq!(frame[..4], [0, 0, 0, 21]);
    assert_eq!(frame[4..FRAME_HEAD_BYTES], FRAME_SUM);
    assert_eq!(frame[FRAME_HEAD_BYTES..], expected);
}

const HEAD_SUM: [u8; 8] = [135, 136, 135, 40, 100, 182, 204, 207];
const FRAME_SUM: [u8; 8] = [236, 228, 70, 14, 184, 30, 25, 207];
