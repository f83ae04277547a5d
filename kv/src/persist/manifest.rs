//! Which files are the log: a small text that is only ever replaced as a whole.
//!
//! ```text
//! ashlar-kv-log 1
//! id 000102030405060708090a0b0c0d0e0f
//! base base-3.rdb length 1234 checksum 89abcdef01234567 position 777
//! segment 7 position 777 length 4096
//! segment 8 position 4792
//! checksum 0123456789abcdef
//! ```
//!
//! The base may be absent. A segment with a length is closed: what is behind that length does not count. Only the last one is
//! open. The last line is the XXH3-64 of all before it.

use core::fmt::Write as _;

use super::record::LogId;

/// Its first line. The number grows when what an older program reads would be wrong.
const FIRST_LINE: &str = "ashlar-kv-log 1";
/// More segments than a log has: one for each start and each rewrite since the last base.
const SEGMENTS_MAX: usize = 1 << 16;

/// Which files are the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) id: LogId,
    pub(super) base: Option<Base>,
    /// By number, each beginning where the one before ends.
    pub(super) segments: Vec<Segment>,
}

/// The snapshot that the log begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Base {
    pub(super) name: String,
    pub(super) length: u64,
    /// XXH3-64 of its bytes.
    pub(super) checksum: u64,
    /// It holds the effects of everything in the log before this.
    pub(super) position: u64,
}

/// One file of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) number: u64,
    /// Of the first byte in it.
    pub(super) position: u64,
    /// Bytes of the file that count, once it is closed.
    pub(super) length: Option<u64>,
}

impl Segment {
    /// Its file.
    pub(super) fn name(self) -> String {
        format!("log-{}", self.number)
    }
}

impl Manifest {
    /// As text.
    pub(super) fn encode(&self) -> String {
        let mut text = format!("{FIRST_LINE}\nid ");
        self.id.0.iter().for_each(|byte| put(&mut text, format_args!("{byte:02x}")));
        text.push('\n');
        if let Some(Base { name, length, checksum, position }) = &self.base {
            let line = format_args!("base {name} length {length} checksum {checksum:016x} position {position}\n");
            put(&mut text, line);
        }
        for Segment { number, position, length } in &self.segments {
            put(&mut text, format_args!("segment {number} position {position}"));
            if let Some(length) = length {
                put(&mut text, format_args!(" length {length}"));
            }
            text.push('\n');
        }
        let checksum = self.id.checksum(&[text.as_bytes()]);
        put(&mut text, format_args!("checksum {checksum:016x}\n"));
        text
    }

    /// From text; why it is none otherwise.
    pub(super) fn decode(text: &[u8]) -> Result<Self, &'static str> {
        let text = std::str::from_utf8(text).map_err(|_| "it is no text")?;
        let (body, last) = text.trim_end_matches('\n').rsplit_once('\n').ok_or("it is too short")?;
        let body = &text[..=body.len()];
        let mut lines = body.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err("its first line is of no version that this program reads");
        }
        let id = lines.next().and_then(|line| line.strip_prefix("id ")).and_then(decode_id).ok_or("it has no id")?;
        let checksum = id.checksum(&[body.as_bytes()]);
        if last != format!("checksum {checksum:016x}") {
            return Err("its checksum is wrong");
        }
        let mut manifest = Self { id, base: None, segments: Vec::new() };
        for line in lines {
            manifest.decode_line(line).ok_or("it has a line that this program does not know")?;
        }
        manifest.is_whole().then_some(manifest).ok_or("its files do not follow each other")
    }

    fn decode_line(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["base", name, "length", length, "checksum", checksum, "position", position]
                if self.base.is_none() && self.segments.is_empty() =>
            {
                let is_plain = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
                let (length, position) = (length.parse().ok()?, position.parse().ok()?);
                let checksum = u64::from_str_radix(checksum, 16).ok()?;
                is_plain.then(|| self.base = Some(Base { name: name.into(), length, checksum, position }))
            }
            ["segment", number, "position", position, ref rest @ ..] if self.segments.len() < SEGMENTS_MAX => {
                let length = match rest {
                    [] => None,
                    ["length", length] => Some(length.parse().ok()?),
                    _ => return None,
                };
                let (number, position) = (number.parse().ok()?, position.parse().ok()?);
                self.segments.push(Segment { number, position, length });
                Some(())
            }
            _ => None,
        }
    }

    /// Whether it begins somewhere, numbers grow, and only the last segment is open.
    fn is_whole(&self) -> bool {
        let begin = self.base.as_ref().map_or(0, |base| base.position);
        let grows = self.segments.windows(2).all(|pair| {
            pair[0].number < pair[1].number && pair[0].position <= pair[1].position && pair[0].length.is_some()
        });
        grows && self.segments.first().is_some_and(|first| first.position == begin)
    }
}

fn put(text: &mut String, what: core::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("a string takes everything");
}

fn decode_id(text: &str) -> Option<LogId> {
    let mut id = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).ok()?;
    }
    Some(LogId(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Manifest {
        let base = Base { name: "base-3.rdb".into(), length: 1_234, checksum: 0x89ab, position: 777 };
        let closed = Segment { number: 7, position: 777, length: Some(4_096) };
        let open = Segment { number: 8, position: 4_792, length: None };
        Manifest { id: LogId([3; 16]), base: Some(base), segments: vec![closed, open] }
    }

    #[test]
    fn what_is_written_is_read() {
        let text = example().encode();
        assert!(text.starts_with(
            "ashlar-kv-log 1\nid 03030303030303030303030303030303\n\
             base base-3.rdb length 1234 checksum 00000000000089ab position 777\n\
             segment 7 position 777 length 4096\nsegment 8 position 4792\nchecksum "
        ));
        assert_eq!(Manifest::decode(text.as_bytes()).unwrap(), example());
    }

    #[test]
    fn the_form_is_fixed() {
        let id = LogId(core::array::from_fn(|at| u8::try_from(at).unwrap()));
        let base = Base { checksum: 0x89ab_cdef_0123_4567, ..example().base.unwrap() };
        let text = Manifest { id, base: Some(base), ..example() }.encode();
        // The checksum was computed by another implementation of XXH3.
        let golden = "ashlar-kv-log 1\nid 000102030405060708090a0b0c0d0e0f\n\
                      base base-3.rdb length 1234 checksum 89abcdef01234567 position 777\n\
                      segment 7 position 777 length 4096\nsegment 8 position 4792\nchecksum c665a03bf5f3951b\n";
        assert_eq!(text, golden);
    }

    #[test]
    fn no_bit_changes_unseen() {
        let mut text = example().encode().into_bytes();
        for bit in 0..text.len() * 8 {
            text[bit / 8] ^= 1 << (bit % 8);
            if let Ok(read) = Manifest::decode(&text) {
                assert_eq!(read, example(), "bit {bit} changes nothing that counts");
            }
            text[bit / 8] ^= 1 << (bit % 8);
        }
        for len in 0..text.len() - 1 {
            assert!(Manifest::decode(&text[..len]).is_err(), "{len} bytes of it");
        }
    }

    fn read(manifest: &Manifest) -> Result<Manifest, &'static str> {
        Manifest::decode(manifest.encode().as_bytes())
    }

    #[test]
    fn files_that_do_not_follow_each_other_are_refused() {
        let segment = |number, position, length| Segment { number, position, length };
        let of = |begin: Option<u64>, segments: &[Segment]| {
            let base = begin.map(|position| Base { position, ..example().base.unwrap() });
            Manifest { base, segments: segments.to_vec(), ..example() }
        };
        for (manifest, is_read) in [
            (of(None, &[segment(1, 0, None)]), true),
            (of(None, &[segment(1, 5, None)]), false),
            (of(Some(5), &[segment(3, 5, Some(48)), segment(4, 5, None)]), true),
            (of(Some(5), &[segment(3, 6, None)]), false),
            (of(Some(5), &[segment(3, 0, Some(48)), segment(4, 5, None)]), false),
            (of(Some(5), &[]), false),
            (of(Some(5), &[segment(3, 5, Some(48)), segment(9, 7, Some(60)), segment(10, 9, None)]), true),
            (of(Some(5), &[segment(3, 5, Some(48)), segment(3, 7, None)]), false),
            (of(Some(5), &[segment(3, 5, Some(48)), segment(2, 7, None)]), false),
            (of(Some(5), &[segment(3, 5, Some(48)), segment(4, 4, None)]), false),
            (of(Some(5), &[segment(3, 5, None), segment(4, 7, None)]), false),
        ] {
            assert_eq!(read(&manifest).ok(), is_read.then_some(manifest.clone()), "{manifest:?}");
        }
        for (name, is_read) in
            [("base-3.rdb", true), ("", false), (".hidden", false), ("../base", false), ("a/b", false)]
        {
            let base = Base { name: name.into(), ..example().base.unwrap() };
            assert_eq!(read(&Manifest { base: Some(base), ..example() }).is_ok(), is_read, "{name}");
        }
    }

    #[test]
    fn lines_that_are_none_of_a_manifest_are_refused() {
        let signed = |id: &str, lines: &str| {
            let body = format!("{FIRST_LINE}\nid {id}\n{lines}");
            let checksum = LogId([3; 16]).checksum(&[body.as_bytes()]);
            Manifest::decode(format!("{body}checksum {checksum:016x}\n").as_bytes())
                .map(|manifest| manifest.segments.len())
        };
        let (id, base) = ("03".repeat(16), "base b length 1 checksum 2 position 0\n");
        let segment = "segment 1 position 0 length 48\n";
        assert_eq!(signed(&id, &format!("{base}{segment}segment 2 position 0\n")), Ok(2));
        for lines in [
            &format!("{base}{base}{segment}"),
            &format!("{segment}{base}"),
            &format!("{segment}what else\n"),
            "segment 1 position 0 length\n",
            "segment 1 position 0 size 48\n",
            "segment 1 position x\n",
            "base b length 1 checksum x position 0\nsegment 1 position 0\n",
        ] {
            assert_eq!(signed(&id, lines), Err("it has a line that this program does not know"), "{lines}");
        }
        for id in [&id[1..], &format!("{id}0"), "", &format!("0{}3", "\u{e9}".repeat(15)), &"xy".repeat(16)] {
            assert_eq!(signed(id, segment), Err("it has no id"), "{id}");
        }
    }

    #[test]
    fn more_segments_than_a_log_has_are_refused() {
        let segment = |number| Segment { number, position: 0, length: Some(48) };
        let of = |count: u64| Manifest { base: None, segments: (1..=count).map(segment).collect(), ..example() };
        assert!(read(&of(1 << 16)).is_ok() && read(&of((1 << 16) + 1)).is_err());
    }
}
