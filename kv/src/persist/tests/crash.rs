//! Power is lost at every operation of long runs, several times in a row; and every bit of a small log is flipped.

use super::folder::{Chance, MemoryFolder};
use crate::persist::keeper::NewBase;
use crate::persist::log::{BaseChecksum, LogError, OpenEnd, Recovered, Report};
use crate::persist::{Folder, Log};

const ID: [u8; 16] = [9; 16];

/// What was recovered: all batches, the base's as well, joined.
type Found = Vec<Vec<u8>>;

fn open(folder: &MemoryFolder) -> Result<(Log<MemoryFolder>, Found, Report), LogError> {
    let (mut found, mut base) = (Found::new(), Vec::new());
    let (log, report) = Log::open(folder.clone(), ID, &mut |what| {
        match what {
            Recovered::Base(bytes) => base.extend_from_slice(bytes),
            Recovered::BaseEnd => found.extend(decode_base(&std::mem::take(&mut base))),
            Recovered::Batch(batch) => found.push(batch.to_vec()),
        }
        Ok(())
    })?;
    Ok((log, found, report))
}

/// A base of a log of numbered batches: how many there were.
fn encode_base(batches: usize) -> Vec<u8> {
    u64::try_from(batches).unwrap().to_le_bytes().to_vec()
}

fn decode_base(bytes: &[u8]) -> Found {
    let count = usize::try_from(u64::from_le_bytes(bytes.try_into().unwrap())).unwrap();
    (0..count).map(batch).collect()
}

/// The batch of a number: of very different lengths.
fn batch(number: usize) -> Vec<u8> {
    let len = [3, 40, 1, 500][number % 4];
    (0..len).map(|at| u8::try_from((number * 31 + at * 7) % 256).unwrap()).collect()
}

/// Appends batches from a number on, syncs, rotates, writes bases; until the power goes or all is done. Returns how many
/// batches were appended, and how many of them were durable.
fn work(log: &mut Log<MemoryFolder>, folder: &MemoryFolder, from: usize, chance: &mut Chance) -> (usize, usize) {
    let (mut appended, mut durable) = (from, from);
    for _ in 0..40 {
        let done = match chance.draw(12) {
            0..6 => log.append(&batch(appended)).map(|()| appended += 1),
            6..9 => log.sync(),
            9 => log.mark(),
            10 => log.rotate().map(drop),
            _ => rewrite(log, folder, appended),
        };
        if let Err(error) = done {
            assert!(!matches!(error, LogError::Damaged { .. }), "{error}");
            // An append that failed may have come to the file as a whole.
            break;
        }
        if log.durable() == log.end() {
            durable = appended;
        }
    }
    (appended, durable)
}

fn rewrite(log: &mut Log<MemoryFolder>, folder: &MemoryFolder, batches: usize) -> Result<(), LogError> {
    let position = log.rotate()?;
    let (name, base) = (format!("base-{}.rdb", folder.operations()), encode_base(batches));
    let mut folder = folder.clone();
    let mut checksum = BaseChecksum::default();
    checksum.update(&base);
    let refused = |error| LogError::Refused { what: "write", file: "base".into(), error };
    folder.append(&name, &base).map_err(refused)?;
    folder.syncer(&name)().map_err(refused)?;
    let length = u64::try_from(base.len()).unwrap();
    log.install_base(&NewBase { name, length, checksum: checksum.value(), position, keys: 0 })
}

#[test]
fn what_was_durable_survives_power_loss_at_every_operation() {
    for seed in 0..6 {
        let operations = {
            let folder = MemoryFolder::default();
            let (mut log, ..) = open(&folder).unwrap();
            work(&mut log, &folder, 0, &mut Chance(seed));
            folder.operations()
        };
        for cut in 0..operations {
            let folder = MemoryFolder::default();
            let mut chance = Chance(seed);
            folder.lose_power_after(cut);
            let (mut durable, mut appended) = (0, 0);
            if let Ok((mut log, ..)) = open(&folder) {
                (appended, durable) = work(&mut log, &folder, 0, &mut chance);
            }
            // Again and again, on what is left.
            for round in 0..3 {
                folder.restart(&mut Chance(seed ^ cut << 20 ^ round));
                folder.lose_power_after(3 + (cut * 7 + round) % 30);
                let opened = open(&folder);
                let Ok((mut log, found, _)) = opened else {
                    let error = opened.unwrap_err();
                    assert!(!matches!(error, LogError::Damaged { .. }), "seed {seed} cut {cut} round {round}: {error}");
                    continue;
                };
                assert!(found.len() >= durable, "seed {seed} cut {cut} round {round}: lost {durable}..{}", found.len());
                assert!(found.len() <= appended + 1, "seed {seed} cut {cut} round {round}: invented");
                for (number, found) in found.iter().enumerate() {
                    assert_eq!(*found, batch(number), "seed {seed} cut {cut} round {round}");
                }
                (appended, durable) = work(&mut log, &folder, found.len(), &mut chance);
            }
        }
    }
}

/// A log with a base, a closed segment and one that an abrupt end left open, marked as durable.
fn small() -> (MemoryFolder, Found) {
    let folder = MemoryFolder::default();
    let (mut log, ..) = open(&folder).unwrap();
    for number in 0..9 {
        log.append(&batch(number)).unwrap();
        match number {
            2 => rewrite(&mut log, &folder, 3).unwrap(),
            5 => drop(log.rotate().unwrap()),
            _ => {}
        }
    }
    log.sync().unwrap();
    log.mark().unwrap();
    (folder, (0..9).map(batch).collect())
}

#[test]
fn no_bit_changes_unseen() {
    let (folder, expected) = small();
    assert_eq!(open(&folder.copy()).unwrap().1, expected);
    let names = folder.names();
    assert_eq!(names.len(), 4, "{names:?}");
    let mut refused = 0;
    for name in names {
        let bytes = folder.bytes(&name);
        for bit in 0..bytes.len() * 8 {
            let folder = folder.copy();
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            folder.set_bytes(&name, changed);
            match open(&folder) {
                Err(LogError::Damaged { .. }) => refused += 1,
                Err(error) => panic!("{name} bit {bit}: {error}"),
                // The mark itself, behind everything; or a line's end in the manifest.
                Ok((_, found, _)) => assert_eq!(found, expected, "{name} bit {bit}"),
            }
        }
    }
    assert!(refused > 9_000, "{refused}");
}

#[test]
fn a_file_that_is_missing_or_short_is_refused() {
    let (folder, expected) = small();
    for name in folder.names() {
        let gone = folder.copy();
        gone.take(&name);
        assert!(open(&gone).is_err(), "{name} is gone");
        let bytes = folder.bytes(&name);
        for len in 0..bytes.len() {
            let short = folder.copy();
            short.set_bytes(&name, bytes[..len].to_vec());
            if let Ok((_, found, _)) = open(&short) {
                // Without what was written later, nobody can know that there was more: only the open segment's end.
                assert!(expected.starts_with(&found), "{name} at {len}");
                assert!(name == "log-3" || found == expected, "{name} at {len}");
            }
        }
    }
}

/// A manifest that cannot be read is not one that is absent: else a new log would begin, and the old one would be removed.
#[test]
fn a_file_that_cannot_be_read_costs_nothing() {
    let (folder, expected) = small();
    let files = |folder: &MemoryFolder| folder.names().iter().map(|name| folder.bytes(name)).collect::<Vec<_>>();
    let before = files(&folder);
    for name in folder.names() {
        folder.set_unreadable(Some(&name));
        let refused = open(&folder).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains("the drive does not answer"), "{name}: {refused}");
        assert_eq!(files(&folder), before, "{name}");
    }
    folder.set_unreadable(None);
    assert_eq!(open(&folder).unwrap().1, expected);
}

#[test]
fn an_open_end_is_told_as_far_as_it_is_known() {
    let folder = MemoryFolder::default();
    let (mut log, _, report) = open(&folder).unwrap();
    assert_eq!(report.open_end, None, "a new log");
    let length = || folder.bytes("log-1").len();
    let mut borders = vec![length()];
    for number in 0..3 {
        log.append(&batch(number)).unwrap();
        borders.push(length());
    }
    let whole = folder.bytes("log-1");
    for len in borders[0]..=whole.len() {
        let short = folder.copy();
        short.set_bytes("log-1", whole[..len].to_vec());
        let (_, found, report) = open(&short).unwrap();
        let used = *borders.iter().rfind(|border| **border <= len).unwrap();
        let number = |count: usize| u64::try_from(count).unwrap();
        let end = OpenEnd { file: "log-1".into(), used_bytes: number(used), cut_bytes: number(len - used) };
        assert_eq!(found.len(), borders.iter().filter(|border| **border <= len).count() - 1, "at {len}");
        assert_eq!(report.open_end, (len > borders[0]).then_some(end), "at {len}");
        // It is closed now: the next start has nothing to tell.
        assert_eq!(open(&short).unwrap().2.open_end, None, "at {len}");
    }
    log.close().unwrap();
    assert_eq!(open(&folder).unwrap().2.open_end, None, "a log that was closed");
}

#[test]
fn an_append_that_fails_costs_nothing() {
    let folder = MemoryFolder::default();
    let (mut log, ..) = open(&folder).unwrap();
    log.append(&batch(0)).unwrap();
    folder.set_full(true);
    assert!(matches!(log.append(&batch(1)), Err(LogError::Refused { .. })));
    folder.set_full(false);
    log.append(&batch(1)).unwrap();
    log.sync().unwrap();
    assert_eq!(open(&folder).unwrap().1, [batch(0), batch(1)]);
}

#[test]
fn a_log_that_supersedes_another_takes_over_as_a_whole() {
    const BEFORE: usize = 3;
    let attempt = |folder: &MemoryFolder| -> Result<usize, LogError> {
        // The engine has changed since the old log was closed: it has seven batches' effects now, and goes on.
        let mut log = Log::supersede(folder.clone(), [7; 16], 1_000)?;
        log.append(&batch(7))?;
        log.sync()?;
        assert!(!log.is_named());
        rewrite(&mut log, folder, 8)?;
        assert!(log.is_named());
        log.append(&batch(8))?;
        log.sync()?;
        Ok(9)
    };
    let mut outcomes = Vec::new();
    for cut in 0..=40 {
        let folder = MemoryFolder::default();
        let (mut log, ..) = open(&folder).unwrap();
        (0..BEFORE).for_each(|number| log.append(&batch(number)).unwrap());
        log.close().unwrap();
        folder.lose_power_after(cut);
        let done = attempt(&folder);
        folder.restart(&mut Chance(cut));
        let (log, found, _) = open(&folder).unwrap();
        assert!(found.iter().enumerate().all(|(number, found)| *found == batch(number)), "cut {cut}");
        match done {
            Ok(all) => assert_eq!(found.len(), all, "cut {cut}"),
            Err(_) => assert!([BEFORE, 8, 9].contains(&found.len()), "cut {cut}: {}", found.len()),
        }
        outcomes.push(found.len());
        drop(log);
    }
    assert!(outcomes.is_sorted() && outcomes.first() == Some(&BEFORE) && outcomes.last() == Some(&9), "{outcomes:?}");
}

#[test]
fn a_log_tells_how_long_it_is_and_where_a_base_may_end() {
    let folder = MemoryFolder::default();
    let (mut log, ..) = open(&folder).unwrap();
    let state = |log: &Log<MemoryFolder>| (log.end(), log.bytes_since_base(), log.base_bytes(), log.durable());
    assert_eq!(state(&log), (0, 0, 0, 0));
    assert!(log.begins_at(0) && !log.begins_at(3) && log.is_named());
    log.append(b"").unwrap();
    log.append(b"abc").unwrap();
    assert_eq!(state(&log), (3, 3, 0, 0));
    log.sync().unwrap();
    assert_eq!(log.rotate().unwrap(), 3);
    log.append(b"defgh").unwrap();
    assert_eq!(state(&log), (8, 8, 0, 3));
    assert!(log.begins_at(0) && log.begins_at(3) && !log.begins_at(8));
    rewrite(&mut log, &folder, 0).unwrap();
    assert_eq!(state(&log), (8, 0, 8, 8));
    assert!(!log.begins_at(0) && !log.begins_at(3) && log.begins_at(8));
    log.append(b"ij").unwrap();
    assert_eq!(state(&log), (10, 2, 8, 8));
    let (log, found, report) = open(&folder).unwrap();
    assert_eq!((found, report.batches, report.bytes), (vec![b"ij".to_vec()], 1, 2));
    assert_eq!(state(&log), (10, 2, 8, 10));
    let (mut log, ..) = open(&folder).unwrap();
    for batch in [&b"k"[..], b"lmn", b"op"] {
        log.append(batch).unwrap();
    }
    let report = open(&folder).unwrap().2;
    assert_eq!((report.batches, report.bytes), (4, 8), "of all segments");
}

#[test]
fn a_log_says_once_how_far_it_is_durable_when_nothing_follows() {
    let folder = MemoryFolder::default();
    let (mut log, ..) = open(&folder).unwrap();
    let mark = |log: &mut Log<MemoryFolder>| {
        let before = folder.bytes("log-1").len();
        log.mark().unwrap();
        folder.bytes("log-1").len() - before
    };
    assert_eq!(mark(&mut log), 0, "nothing is durable");
    log.append(b"abc").unwrap();
    assert_eq!(mark(&mut log), 0);
    log.sync().unwrap();
    assert_eq!([(); 2].map(|()| mark(&mut log)), [32, 0]);
    log.append(b"def").unwrap();
    log.sync().unwrap();
    log.append(b"ghi").unwrap();
    assert_eq!(mark(&mut log), 0, "the last batch says it");
    log.sync().unwrap();
    folder.set_full(true);
    assert!(log.append(b"jkl").is_err());
    assert_eq!(mark(&mut log), 0, "a part of a batch may be before it");
    folder.set_full(false);
    log.append(b"jkl").unwrap();
    assert_eq!(open(&folder).unwrap().1.concat(), b"abcdefghijkl");
}

#[test]
fn a_log_without_its_manifest_is_no_new_one() {
    let folder = MemoryFolder::default();
    let (mut log, ..) = open(&folder).unwrap();
    folder.take("manifest");
    let again = folder.copy();
    assert!(open(&again).is_ok(), "an earlier beginning came so far");
    log.append(b"abc").unwrap();
    assert!(matches!(open(&folder), Err(LogError::Damaged { .. })));
    let other = MemoryFolder::default();
    other.clone().append("base-1.rdb", b"x").unwrap();
    assert!(matches!(open(&other), Err(LogError::Damaged { .. })));
    for (len, is_long) in [(16 << 20, false), ((16 << 20) + 1, true)] {
        folder.set_bytes("manifest", vec![b'x'; len]);
        let refused = open(&folder).map(|_| ()).unwrap_err().to_string();
        assert_eq!(refused.contains("it is too long"), is_long, "{refused}");
    }
}

/// A record that tells no more than what can be read is no reason to refuse a log whose end is torn.
#[test]
fn what_was_never_said_to_be_durable_may_be_torn() {
    let folder = MemoryFolder::default();
    let (mut log, ..) = open(&folder).unwrap();
    log.append(b"abc").unwrap();
    log.sync().unwrap();
    let border = folder.bytes("log-1").len();
    log.append(b"def").unwrap();
    log.append(b"ghi").unwrap();
    let mut torn = folder.bytes("log-1");
    torn[border + 33] ^= 1;
    let cut = |bytes: &[u8]| {
        let folder = folder.copy();
        folder.set_bytes("log-1", bytes.to_vec());
        open(&folder).map(|(_, found, report)| (found.concat(), report.open_end.unwrap().cut_bytes))
    };
    assert_eq!(cut(&torn).unwrap(), (b"abc".to_vec(), u64::try_from(torn.len() - border).unwrap()));
    log.sync().unwrap();
    log.mark().unwrap();
    torn.extend_from_slice(&folder.bytes("log-1")[torn.len()..]);
    let refused = cut(&torn).unwrap_err().to_string();
    assert!(
        refused.contains(&format!("damaged at byte {border}")) && refused.contains("had become durable"),
        "{refused}"
    );
}

#[test]
fn a_log_longer_than_what_is_read_at_once_is_read_whole() {
    let folder = MemoryFolder::default();
    let (mut log, ..) = open(&folder).unwrap();
    // The head of the third batch begins before what is read at once ends, and ends behind it.
    let lens = [3 << 20, (1 << 20) - 186, (5 << 20) + 7, 40, (4 << 20) + 99];
    let batches = [0, 1, 2, 3, 4].map(|number: usize| vec![7 + u8::try_from(number).unwrap(); lens[number]]);
    let mut borders = Vec::new();
    for batch in &batches {
        borders.push(folder.bytes("log-1").len());
        log.append(batch).unwrap();
    }
    assert_eq!(borders[2], (4 << 20) - 10);
    assert!(open(&folder.copy()).unwrap().1 == batches);
    // The last batch but one is damaged: what is behind it is looked through, and may say that it was durable.
    let mut torn = folder.bytes("log-1");
    torn[borders[3] + 39] ^= 64;
    let len = torn.len();
    let copy = folder.copy();
    copy.set_bytes("log-1", torn.clone());
    let (_, found, report) = open(&copy).unwrap();
    assert!(found == batches[..3]);
    let end = report.open_end.unwrap();
    assert_eq!(end.used_bytes + end.cut_bytes, u64::try_from(len).unwrap());
    log.sync().unwrap();
    log.mark().unwrap();
    torn.extend_from_slice(&folder.bytes("log-1")[len..]);
    let copy = folder.copy();
    copy.set_bytes("log-1", torn);
    assert!(open(&copy).unwrap_err().to_string().contains("had become durable"));
    log.close().unwrap();
    assert!(open(&folder).unwrap().1 == batches);
}

#[test]
fn a_batch_that_is_not_whole_is_not_there_and_the_next_takes_its_place() {
    let folder = MemoryFolder::default();
    let (mut log, ..) = open(&folder).unwrap();
    log.append(&batch(0)).unwrap();
    let (border, position) = (folder.bytes("log-1").len(), log.end());
    // Its first record is whole, and its second one is not.
    log.append(&vec![7; (1 << 20) + 5]).unwrap();
    let mut torn = folder.bytes("log-1");
    torn.pop();
    let cut_bytes = u64::try_from(torn.len() - border).unwrap();
    folder.set_bytes("log-1", torn);
    let (mut log, found, report) = open(&folder).unwrap();
    assert_eq!((found, log.end()), (vec![batch(0)], position));
    let used_bytes = u64::try_from(border).unwrap();
    assert_eq!(report.open_end, Some(OpenEnd { file: "log-1".into(), used_bytes, cut_bytes }));
    log.append(&batch(1)).unwrap();
    assert_eq!(open(&folder).unwrap().1, [batch(0), batch(1)]);
}

/// An intact record that is not where it was written, as a drive that writes to a wrong place leaves it.
#[test]
fn a_record_in_another_place_is_none() {
    let folder = MemoryFolder::default();
    let (mut log, ..) = open(&folder).unwrap();
    let begin = folder.bytes("log-1").len();
    log.append(b"abc").unwrap();
    let border = folder.bytes("log-1").len();
    log.append(b"def").unwrap();
    let bytes = folder.bytes("log-1");
    let again = folder.copy();
    again.set_bytes("log-1", [&bytes[..], &bytes[begin..border]].concat());
    let (log_again, found, report) = open(&again).unwrap();
    assert_eq!((found.concat(), log_again.end()), (b"abcdef".to_vec(), 6));
    assert_eq!(report.open_end.unwrap().cut_bytes, u64::try_from(border - begin).unwrap());
    log.close().unwrap();
    folder.set_bytes("log-1", [&bytes[..border], &bytes[begin..border]].concat());
    assert!(matches!(open(&folder), Err(LogError::Damaged { .. })));
}

#[test]
fn a_segment_that_was_closed_is_whole_or_damaged_to_its_last_byte() {
    let folder = MemoryFolder::default();
    let (mut log, ..) = open(&folder).unwrap();
    log.append(b"abc").unwrap();
    log.sync().unwrap();
    let border = folder.bytes("log-1").len();
    log.mark().unwrap();
    let whole = folder.bytes("log-1");
    assert!(whole.len() > border);
    log.close().unwrap();
    // The batch is there in each case: only the mark behind it is missing.
    for len in border..whole.len() {
        let short = folder.copy();
        short.set_bytes("log-1", whole[..len].to_vec());
        assert!(matches!(open(&short), Err(LogError::Damaged { .. })), "{len} of {} bytes", whole.len());
    }
    assert_eq!(open(&folder).unwrap().1.concat(), b"abc");
}
