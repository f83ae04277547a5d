//! Forms of browsers: whatever bytes come in whatever pieces, the fields and the file are those of all of them at once; they keep
//! the limits; and what is read, written again, is read as the same. Any policy of a form is read or refused.
#![no_main]

use ashlar_object::s3::form::{FIELDS_BYTES_MAX, FIELDS_MAX, FormDecoder, FormError, FormEvent, boundary_of};
use ashlar_object::s3::form_policy::FormPolicy;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

/// Fields, the name and the bytes of the file, and whether the end was seen.
#[derive(Debug, Default, PartialEq, Eq)]
struct Form {
    fields: Vec<(String, String)>,
    file: Option<(String, Vec<u8>)>,
    is_over: bool,
}

fn decode(boundary: &str, body: &[u8], piece: usize) -> Result<Form, FormError> {
    let mut decoder = FormDecoder::new(boundary);
    let mut form = Form::default();
    for piece in body.chunks(piece.max(1)) {
        decoder.handle_bytes(Bytes::copy_from_slice(piece));
        while let Some(event) = decoder.poll()? {
            match event {
                FormEvent::Field(name, value) => form.fields.push((name, value)),
                FormEvent::File(name) => form.file = Some((name, Vec::new())),
                FormEvent::Data(data) => {
                    assert!(!data.is_empty());
                    form.file.as_mut().expect("a file began").1.extend_from_slice(&data);
                }
                FormEvent::End => {
                    form.is_over = true;
                    return Ok(form);
                }
            }
        }
    }
    Ok(form)
}

fn quoted(text: &str) -> String {
    text.replace('"', "\\\"")
}

/// Whether a name can be written between quotes: in others a backslash changes what follows.
fn is_plain(text: &str) -> bool {
    !text.contains(['\\', '\r', '\n'])
}

fn encode(form: &Form, boundary: &str) -> Vec<u8> {
    let mut body = Vec::new();
    let mut part = |name: &str, more: &str, value: &[u8]| {
        let head = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{}\"{more}\r\n\r\n", quoted(name));
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(value);
        body.extend_from_slice(b"\r\n");
    };
    form.fields.iter().for_each(|(name, value)| part(name, "", value.as_bytes()));
    if let Some((name, bytes)) = &form.file {
        part("file", &format!("; filename=\"{}\"", quoted(name)), bytes);
    }
    body.extend_from_slice(format!("--{boundary}--").as_bytes());
    body
}

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, body) = input;
    let _ = FormPolicy::decode(body);
    let _ = core::str::from_utf8(body).ok().map(boundary_of);
    let whole = decode("b", body, body.len());
    assert_eq!(decode("b", body, usize::from(piece)), whole);
    let Ok(form) = whole else { return };
    assert!(form.fields.len() <= FIELDS_MAX);
    assert!(form.fields.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() <= FIELDS_BYTES_MAX);
    let names = form.fields.iter().map(|(name, _)| name).chain(form.file.as_ref().map(|(name, _)| name));
    if form.is_over && names.clone().all(|name| is_plain(name)) {
        let again = encode(&form, "b");
        // Heads may be longer than they came.
        if again.len() <= FIELDS_BYTES_MAX {
            assert_eq!(decode("b", &again, usize::from(piece)), Ok(form));
        }
    }
});
