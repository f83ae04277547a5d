//! Forms of browsers (`multipart/form-data`): bytes come in in any pieces, fields and the bytes of one file come out.
//!
//! Fields are held whole and are bounded together; the file is passed on as it comes. What stands behind the file is not
//! looked at: S3 has it so, and a form whose fields are signed cannot gain any there.

use bytes::Bytes;

/// Bytes of a form before the bytes of its file: fields, their names and what parts them.
pub const FIELDS_BYTES_MAX: usize = 64 << 10;
/// Fields of a form.
pub const FIELDS_MAX: usize = 256;
/// Longest boundary, as RFC 2046 has it.
pub const BOUNDARY_BYTES_MAX: usize = 70;

/// Why a form is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormError {
    /// It is not a form, or breaks off.
    Malformed,
    /// It has more fields than it may, or longer ones.
    TooLarge,
}

/// What a form has next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormEvent {
    /// A field: its name in lower case, and its value.
    Field(String, String),
    /// The file begins; what its sender calls it.
    File(String),
    /// The next bytes of the file, none of them empty.
    Data(Bytes),
    /// The file or the form has ended.
    End,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    /// Before the first boundary.
    Begin,
    /// Behind a boundary: another part, or the end.
    Boundary,
    /// In the head of a part.
    Head,
    /// In the value of the field of this name.
    Value(String),
    /// In the bytes of the file.
    File,
    /// Behind the file or the form.
    Over,
}

/// Takes a form apart.
#[derive(Debug)]
pub struct FormDecoder {
    /// Line break, two hyphens and the boundary: the end of a part.
    delimiter: Vec<u8>,
    stage: Stage,
    rest: Bytes,
    /// Bytes that were taken before the file.
    taken: usize,
    fields: usize,
    /// Bytes at the beginning of `rest` that were searched without a find.
    searched: usize,
}

/// The boundary that a content type names, if it is that of a form.
#[must_use]
pub fn boundary_of(content_type: &str) -> Option<&str> {
    let (kind, parameters) = content_type.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let mut pairs = parameters.split(';').filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("boundary"))?;
    let value = value.trim().trim_matches('"');
    let is_boundary =
        (1..=BOUNDARY_BYTES_MAX).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_graphic());
    is_boundary.then_some(value)
}

impl FormDecoder {
    /// A form with this boundary between its parts.
    #[must_use]
    pub fn new(boundary: &str) -> Self {
        let delimiter = format!("\r\n--{boundary}").into_bytes();
        Self { delimiter, stage: Stage::Begin, rest: Bytes::new(), taken: 0, fields: 0, searched: 0 }
    }

    /// Takes the next bytes.
    pub fn handle_bytes(&mut self, bytes: Bytes) {
        if self.rest.is_empty() {
            self.rest = bytes;
        } else {
            // What waits is a head or a value, which are bounded, or the beginning of what may be a delimiter.
            self.rest = Bytes::from([&self.rest[..], &bytes[..]].concat());
        }
    }

    /// What comes next; nothing if more bytes are needed.
    ///
    /// # Errors
    /// [`FormError`], and another one from then on.
    pub fn poll(&mut self) -> Result<Option<FormEvent>, FormError> {
        loop {
            let is_before_file = !matches!(self.stage, Stage::File | Stage::Over);
            let event = match core::mem::replace(&mut self.stage, Stage::Over) {
                Stage::Over => return Ok(Some(FormEvent::End)),
                stage => self.step(stage),
            };
            match event {
                Ok(Step::Event(event)) => return Ok(Some(event)),
                Ok(Step::On) => {}
                Ok(Step::Wait(stage)) => {
                    self.stage = stage;
                    let waiting = if is_before_file { self.rest.len() } else { 0 };
                    if self.taken + waiting > FIELDS_BYTES_MAX {
                        return Err(FormError::TooLarge);
                    }
                    return Ok(None);
                }
                Err(error) => {
                    // Nothing that comes later makes it whole: no stage takes an empty delimiter.
                    (self.stage, self.rest) = (Stage::Boundary, Bytes::from_static(b"  "));
                    return Err(error);
                }
            }
        }
    }

    fn step(&mut self, stage: Stage) -> Result<Step, FormError> {
        match stage {
            Stage::Begin => {
                let first = &self.delimiter[2..];
                if self.rest.len() < first.len() {
                    return if first.starts_with(&self.rest) {
                        Ok(Step::Wait(Stage::Begin))
                    } else {
                        Err(FormError::Malformed)
                    };
                }
                if !self.rest.starts_with(first) {
                    return Err(FormError::Malformed);
                }
                self.take(self.delimiter.len() - 2)?;
                self.stage = Stage::Boundary;
            }
            Stage::Boundary => match self.rest.get(..2) {
                None => return Ok(Step::Wait(Stage::Boundary)),
                Some(b"\r\n") => {
                    self.take(2)?;
                    self.stage = Stage::Head;
                }
                Some(b"--") => return Ok(Step::Event(FormEvent::End)),
                Some(_) => return Err(FormError::Malformed),
            },
            Stage::Head => match self.find(b"\r\n\r\n") {
                None => return Ok(Step::Wait(Stage::Head)),
                Some(end) => {
                    let head = self.take(end + 4)?;
                    let (name, file_name) = decode_head(&head[..end]).ok_or(FormError::Malformed)?;
                    self.fields += 1;
                    if self.fields > FIELDS_MAX {
                        return Err(FormError::TooLarge);
                    }
                    if name == "file" {
                        self.stage = Stage::File;
                        return Ok(Step::Event(FormEvent::File(file_name.unwrap_or_default())));
                    }
                    self.stage = Stage::Value(name);
                }
            },
            Stage::Value(name) => match self.find_delimiter() {
                None => return Ok(Step::Wait(Stage::Value(name))),
                Some(end) => {
                    let value = self.take(end + self.delimiter.len())?.slice(..end);
                    let value = core::str::from_utf8(&value).map_err(|_| FormError::Malformed)?.to_owned();
                    self.stage = Stage::Boundary;
                    return Ok(Step::Event(FormEvent::Field(name, value)));
                }
            },
            Stage::File => return self.step_of_file(),
            Stage::Over => return Ok(Step::Event(FormEvent::End)),
        }
        Ok(Step::On)
    }

    fn step_of_file(&mut self) -> Result<Step, FormError> {
        Ok(match self.find_delimiter() {
            Some(0) => match self.rest.get(self.delimiter.len()..self.delimiter.len() + 2) {
                None => Step::Wait(Stage::File),
                Some(b"--" | b"\r\n") => Step::Event(FormEvent::End),
                // The content has what looks like a boundary: where it ends is not known.
                Some(_) => return Err(FormError::Malformed),
            },
            Some(end) => {
                self.stage = Stage::File;
                self.searched = 0;
                Step::Event(FormEvent::Data(self.rest.split_to(end)))
            }
            None => {
                // The end may be the beginning of a delimiter.
                let len = self.rest.len();
                let tail = len.saturating_sub(self.delimiter.len() - 1);
                let held = (tail..len).find(|from| self.delimiter.starts_with(&self.rest[*from..])).unwrap_or(len);
                self.searched = 0;
                if held == 0 {
                    return Ok(Step::Wait(Stage::File));
                }
                self.stage = Stage::File;
                Step::Event(FormEvent::Data(self.rest.split_to(held)))
            }
        })
    }

    /// Bytes of the form before its file.
    fn take(&mut self, len: usize) -> Result<Bytes, FormError> {
        self.searched = 0;
        self.taken += len;
        if self.taken > FIELDS_BYTES_MAX { Err(FormError::TooLarge) } else { Ok(self.rest.split_to(len)) }
    }

    fn find_delimiter(&mut self) -> Option<usize> {
        let delimiter = core::mem::take(&mut self.delimiter);
        let found = self.find(&delimiter);
        self.delimiter = delimiter;
        found
    }

    /// Where these bytes, which begin with a line break, come first. What was searched before is not searched again.
    fn find(&mut self, wanted: &[u8]) -> Option<usize> {
        let from = self.searched;
        let breaks = self.rest[from..].iter().enumerate().filter(|(_, byte)| **byte == b'\r');
        let found = breaks.map(|(at, _)| from + at).find(|at| self.rest[*at..].starts_with(wanted));
        if found.is_none() {
            self.searched = self.rest.len().saturating_sub(wanted.len() - 1).max(from);
        }
        found
    }
}

enum Step {
    Event(FormEvent),
    On,
    Wait(Stage),
}

/// The name of a part in lower case, and the name of its file.
fn decode_head(head: &[u8]) -> Option<(String, Option<String>)> {
    let head = core::str::from_utf8(head).ok()?;
    let is_wanted = |name: &str| name.trim().eq_ignore_ascii_case("content-disposition");
    let (_, value) = head.split("\r\n").filter_map(|line| line.split_once(':')).find(|(name, _)| is_wanted(name))?;
    let (kind, mut rest) = value.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("form-data") {
        return None;
    }
    let (mut name, mut file_name) = (None, None);
    while !rest.trim().is_empty() {
        let (parameter, after) = rest.split_once('=')?;
        let (text, after) = take_text(after)?;
        match parameter.trim().to_ascii_lowercase().as_str() {
            "name" if name.is_none() => name = Some(text.to_ascii_lowercase()),
            "filename" if file_name.is_none() => file_name = Some(text),
            // Twice the same is no form of a browser; others (`filename*`) are passed over.
            "name" | "filename" => return None,
            _ => {}
        }
        rest = match after.trim_start().strip_prefix(';') {
            Some(rest) => rest,
            None if after.trim().is_empty() => "",
            None => return None,
        };
    }
    name.filter(|name| !name.is_empty()).map(|name| (name, file_name))
}

/// A text with or without quotes, and what stands behind it. Browsers write a quote as `%22`, others as `\"`.
fn take_text(value: &str) -> Option<(String, &str)> {
    let Some(quoted) = value.trim_start().strip_prefix('"') else {
        let end = value.find(';').unwrap_or(value.len());
        return Some((value[..end].trim().to_owned(), &value[end..]));
    };
    let mut text = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((text, &quoted[at + 1..])),
            // A backslash before anything else is one: some browsers send whole paths.
            '\\' if quoted[at + 1..].starts_with('"') => {
                chars.next();
                text.push('"');
            }
            char => text.push(char),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(body: &[u8], piece: usize) -> Result<Vec<FormEvent>, FormError> {
        let mut decoder = FormDecoder::new("b");
        let mut events: Vec<FormEvent> = Vec::new();
        for piece in body.chunks(piece.max(1)) {
            decoder.handle_bytes(Bytes::copy_from_slice(piece));
            while let Some(event) = decoder.poll()? {
                match (events.last_mut(), event) {
                    (Some(FormEvent::Data(before)), FormEvent::Data(data)) => {
                        *before = Bytes::from([&before[..], &data[..]].concat());
                    }
                    (_, FormEvent::End) => {
                        events.push(FormEvent::End);
                        return Ok(events);
                    }
                    (_, event) => events.push(event),
                }
            }
        }
        Ok(events)
    }

    fn field(name: &str, value: &str) -> FormEvent {
        FormEvent::Field(name.to_owned(), value.to_owned())
    }

    #[test]
    fn a_form_in_any_pieces() {
        let body = b"--b\r\nContent-Disposition: form-data; name=\"Key\"; filename=\"Key\"\r\n\r\na\r\n-b\r\n--b\r\n\
            content-type: text/plain\r\ncontent-disposition: form-data; name=acl\r\n\r\n\r\n--b\r\n\
            Content-Disposition: form-data; filename=\"C:\\d \\\"x\\\".txt\"; name=\"file\"\r\nContent-Type: a/b\r\n\r\n\
            1\r2\r\n3\r\n--\r\n--\r\n--b--\r\n";
        let file = FormEvent::File("C:\\d \"x\".txt".to_owned());
        let data = FormEvent::Data(Bytes::from_static(b"1\r2\r\n3\r\n--\r\n--"));
        let expected = [field("key", "a\r\n-b"), field("acl", ""), file, data, FormEvent::End];
        for piece in 1..=body.len() {
            assert_eq!(decode(body, piece).as_deref(), Ok(&expected[..]), "{piece}");
        }
        for cut in 1..body.len() - 4 {
            let events = decode(&body[..cut], cut).expect("it waits");
            assert!(!events.contains(&FormEvent::End), "{cut}");
        }
    }

    #[test]
    fn forms_that_are_none() {
        let part = |head: &str| format!("--b\r\n{head}\r\n\r\nx\r\n--b--");
        let wrong = [
            "x",
            "--c\r\n",
            "--bbb",
            "\r\n--b\r\n",
            &part("Content-Type: a/b"),
            &part("Content-Disposition: attachment; name=\"a\""),
            &part("Content-Disposition: form-data"),
            &part("Content-Disposition: form-data; name=\"\""),
            &part("Content-Disposition: form-data; name=\"a"),
            &part("Content-Disposition: form-data; name=\"a\"b"),
            &part("Content-Disposition: form-data; name=\"a\"; name=\"b\""),
            &part("Content-Disposition: form-data; name=\"a\"; filename=\"b\"; filename=\"c\""),
            "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\r\n--bxx",
            "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--bx more of it\r\n--b--",
        ];
        for text in wrong {
            for piece in [1, text.len()] {
                assert_eq!(decode(text.as_bytes(), piece), Err(FormError::Malformed), "{text}");
            }
        }
        let bytes = b"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\xff\r\n--b--";
        assert_eq!(decode(bytes, 1), Err(FormError::Malformed));
        assert_eq!(decode(b"--b--", 2), Ok(vec![FormEvent::End]));
    }

    #[test]
    fn limits() {
        let head = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n";
        let value = |len: usize| format!("{head}{}\r\n--b--", "x".repeat(len));
        let overhead = head.len() + 5;
        for piece in [999, FIELDS_BYTES_MAX] {
            assert!(decode(value(FIELDS_BYTES_MAX - overhead).as_bytes(), piece).is_ok(), "{piece}");
        }
        for piece in [999, FIELDS_BYTES_MAX * 2] {
            let body = value(FIELDS_BYTES_MAX - overhead + 1);
            assert_eq!(decode(body.as_bytes(), piece), Err(FormError::TooLarge));
        }
        let endless = format!("--b\r\n{}", "x".repeat(FIELDS_BYTES_MAX));
        assert_eq!(decode(endless.as_bytes(), 999), Err(FormError::TooLarge));
        let many = |count: usize| {
            let part = "\r\n--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n";
            format!("{}\r\n--b--", part.repeat(count))[2..].to_owned()
        };
        assert!(decode(many(FIELDS_MAX).as_bytes(), 999).is_ok());
        assert_eq!(decode(many(FIELDS_MAX + 1).as_bytes(), 999), Err(FormError::TooLarge));
    }

    #[test]
    fn boundaries() {
        for (text, expected) in [
            ("multipart/form-data; boundary=abc", Some("abc")),
            ("Multipart/Form-Data; charset=utf-8; Boundary=\"a-b\"", Some("a-b")),
            ("multipart/form-data", None),
            ("multipart/form-data; boundary=", None),
            ("multipart/mixed; boundary=abc", None),
            ("multipart/form-data; boundary=a b", None),
        ] {
            assert_eq!(boundary_of(text), expected, "{text}");
        }
        let (longest, longer) = ("x".repeat(BOUNDARY_BYTES_MAX), "x".repeat(BOUNDARY_BYTES_MAX + 1));
        assert_eq!(boundary_of(&format!("multipart/form-data; boundary={longest}")), Some(longest.as_str()));
        assert_eq!(boundary_of(&format!("multipart/form-data; boundary={longer}")), None);
    }
}
