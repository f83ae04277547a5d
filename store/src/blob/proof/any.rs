//! Any bytes in the place of an area: for fuzzing.
//!
//! Bytes without right checksums would all be refused at the same place. So an input is a list of patches to an area that
//! was filled by a run, and may ask that checksums are made right afterwards.

use std::sync::OnceLock;

use super::super::Salts;
use super::super::planted::BlobBugs;
use super::BlobCounts;
use super::model::Model;
use super::reseal::{reseal_batch, reseal_mark};
use super::run::{AREA_BYTES, Run};
use crate::buffer::BLOCK_BYTES;
use crate::cursor::FieldReader;
use crate::proof::drive::FakeDrive;

/// Most patches of one input.
const PATCHES_MAX: usize = 64;

/// Opens an area that was patched as an input says, and uses it. Nothing panics, every request is answered, the area comes to
/// rest, and what is read was put there, unless checksums were made right.
///
/// # Panics
/// When that is not so.
pub fn open_any(input: &[u8]) {
    static FILLED: OnceLock<(Model, Vec<u8>)> = OnceLock::new();
    let new_run = || Run::new(FakeDrive::new(AREA_BYTES), 3, BlobBugs::default(), BlobCounts::default());
    let (model, image) = FILLED.get_or_init(|| {
        let mut run = new_run();
        let image = run.begin().and_then(|()| run.prepare()).expect("a run without a planted bug succeeds");
        (run.into_model(), image)
    });
    let mut run = new_run();
    let mut image = image.clone();
    let mut fields = FieldReader::new(input);
    let is_resealed = fields.u8().is_some_and(|flags| flags & 1 > 0);
    let salts = Salts::new(&run.superblock(), BlobBugs::default());
    for _ in 0..PATCHES_MAX {
        let Some(block) = patch(&mut fields, &mut image) else { break };
        let bytes = &mut image[block * BLOCK_BYTES..][..BLOCK_BYTES];
        match &bytes[..4] {
            b"asgm" if is_resealed => reseal_mark(salts.mark, bytes),
            b"abat" if is_resealed => reseal_batch(salts.batch, bytes),
            _ => {}
        }
    }
    run.exercise(model, &image, is_resealed).unwrap_or_else(|what| panic!("{what}"));
}

/// Applies the next patch; says to which block.
fn patch(fields: &mut FieldReader<'_>, image: &mut [u8]) -> Option<usize> {
    let block = usize::from(fields.u16()?) % (image.len() / BLOCK_BYTES);
    let at = usize::from(fields.u16()?);
    // Most of what matters stands at the beginning of a block.
    let at = if at & 0x8000 > 0 { at % BLOCK_BYTES } else { at % 192 };
    let len = 1 + usize::from(fields.u8()?) % 24;
    let bytes = fields.take(len)?;
    let len = len.min(BLOCK_BYTES - at);
    image[block * BLOCK_BYTES + at..][..len].copy_from_slice(&bytes[..len]);
    Some(block)
}
