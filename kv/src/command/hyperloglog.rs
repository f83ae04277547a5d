//! Sketches of how many different elements were seen, kept in strings.

use super::call::{Call, Run};
use crate::error::Error;
use crate::keyspace::Key;
use crate::settings::Events;
use crate::value::hll::{Corrupted, NotSketch, REGISTERS, Sketch, estimate};

pub(super) const RUNS: &[(&str, Run)] =
    &[("pfadd", pfadd), ("pfcount", pfcount), ("pfdebug", pfdebug), ("pfmerge", pfmerge), ("pfselftest", pfselftest)];

/// Elements that the self-test adds.
const TESTED: u64 = 100_000;

impl From<NotSketch> for Error {
    fn from(NotSketch: NotSketch) -> Self {
        Self::new("WRONGTYPE Key is not a valid HyperLogLog string value.")
    }
}

impl From<Corrupted> for Error {
    fn from(Corrupted: Corrupted) -> Self {
        Self::new("INVALIDOBJ Corrupted HLL object detected")
    }
}

/// The sketch behind a key, to read it.
fn sketch(call: &mut Call<'_, '_>, key: Key<'_>) -> Result<Option<Sketch>, Error> {
    Ok(call.keys.string(key)?.map(Sketch::from_bytes).transpose()?)
}

/// The sketch behind a key, to change it.
fn sketch_for_change(call: &mut Call<'_, '_>, key: Key<'_>) -> Result<Option<Sketch>, Error> {
    Ok(call.keys.string_for_change(key)?.map(Sketch::from_bytes).transpose()?)
}

fn put(call: &mut Call<'_, '_>, key: Key<'_>, sketch: &Sketch) -> Result<(), Error> {
    let bytes = sketch.as_bytes();
    call.keys.change_string(key, |_| bytes.len(), |value| value.copy_from_slice(bytes))?;
    Ok(())
}

fn pfadd(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let found = sketch_for_change(call, key)?;
    let mut changes = u64::from(found.is_none());
    let mut sketch = found.unwrap_or_default();
    sketch.limit_sparse(call.settings.sketch_bytes_max);
    for element in call.args.from(2) {
        changes += u64::from(sketch.add(element)?);
    }
    if changes > 0 {
        sketch.forget_count();
        put(call, key, &sketch)?;
        call.changed(key, Events::STRING, "pfadd");
        call.effects.changes += changes - 1;
    }
    call.reply.integer(i64::from(changes > 0));
    Ok(())
}

fn pfcount(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let count = if call.args.len() > 2 { count_many(call)? } else { count_one(call)? };
    call.reply.integer(i64::try_from(count).unwrap_or(i64::MAX));
    Ok(())
}

fn count_many(call: &mut Call<'_, '_>) -> Result<u64, Error> {
    let mut registers = [0; REGISTERS];
    for word in call.args.from(1) {
        if let Some(sketch) = sketch(call, call.keys.key(word))? {
            sketch.merge_into(&mut registers)?;
        }
    }
    Ok(estimate(&registers))
}

/// Counts and keeps the result in the sketch, which is a change to replicas.
fn count_one(call: &mut Call<'_, '_>) -> Result<u64, Error> {
    let key = call.key(1);
    let Some(mut sketch) = sketch(call, key)? else { return Ok(0) };
    if let Some(count) = sketch.kept_count() {
        return Ok(count);
    }
    let count = sketch.count()?;
    sketch.keep_count(count);
    put(call, key, &sketch)?;
    call.touched(key);
    call.effects.changes += 1;
    Ok(count)
}

fn pfmerge(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let target = call.key(1);
    let (mut registers, mut is_dense) = ([0; REGISTERS], false);
    for word in call.args.from(1) {
        if let Some(sketch) = sketch(call, call.keys.key(word))? {
            is_dense |= sketch.is_dense();
            sketch.merge_into(&mut registers)?;
        }
    }
    let mut merged = sketch_for_change(call, target)?.unwrap_or_default();
    merged.limit_sparse(call.settings.sketch_bytes_max);
    if is_dense {
        merged.become_dense()?;
    }
    for (index, value) in registers.into_iter().enumerate().filter(|(_, value)| *value > 0) {
        merged.raise(index, value)?;
    }
    merged.forget_count();
    put(call, target, &merged)?;
    call.changed(target, Events::STRING, "pfadd");
    call.reply.ok();
    Ok(())
}

fn pfdebug(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.args.is(1, "SIMD") {
        return vectors(call);
    }
    let key = call.key(2);
    let found = sketch_for_change(call, key)?;
    let mut sketch = found.ok_or(Error::new("ERR The specified key does not exist"))?;
    let is = |word| call.args.is(1, word);
    if is("ENCODING") {
        call.reply.status(if sketch.is_dense() { "dense" } else { "sparse" });
        return Ok(());
    }
    if is("DECODE") {
        let text = decoded(&sketch)?;
        call.reply.bulk(text.as_bytes());
        return Ok(());
    }
    let shows = is("GETREG");
    if !shows && !is("TODENSE") {
        let word = String::from_utf8_lossy(&call.args[1]).into_owned();
        return Err(Error::text(format!("ERR Unknown PFDEBUG subcommand '{word}'")));
    }
    let is_new = sketch.become_dense()?;
    if is_new {
        put(call, key, &sketch)?;
        call.effects.changes += 1;
    }
    if !shows {
        call.reply.integer(i64::from(is_new));
        return Ok(());
    }
    let mut registers = [0; REGISTERS];
    sketch.merge_into(&mut registers)?;
    call.reply.array(registers.len());
    registers.into_iter().for_each(|value| call.reply.integer(i64::from(value)));
    Ok(())
}

/// Whether vectors are used for registers: there is one way to merge them here, and it stays.
fn vectors(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if !call.args.is(2, "ON") && !call.args.is(2, "OFF") {
        return Err(Error::new("ERR Argument must be ON or OFF"));
    }
    call.reply.status("disabled");
    Ok(())
}

/// The runs of a sparse sketch, readable: `z` and `Z` are zeros in one byte and in two, `v` a value.
fn decoded(sketch: &Sketch) -> Result<String, Error> {
    if sketch.is_dense() {
        return Err(Error::new("ERR HLL encoding is not sparse"));
    }
    let mut words = Vec::new();
    for run in sketch.runs() {
        let run = run?;
        words.push(match (run.value, run.bytes) {
            (0, 1) => format!("z:{}", run.len),
            (0, _) => format!("Z:{}", run.len),
            (value, _) => format!("v:{value},{}", run.len),
        });
    }
    Ok(words.join(" "))
}

fn pfselftest(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let seed = call.engine.draw();
    let (mut sketch, mut dense) = (Sketch::new(), Sketch::new());
    dense.become_dense()?;
    let mut checked = 1;
    for number in 1..=TESTED {
        let element = (number ^ seed).to_le_bytes();
        sketch.add(&element)?;
        dense.add(&element)?;
        if number == checked {
            let count = dense.count()?;
            if sketch.count()? != count {
                return Err(Error::new("ERR TESTFAILED dense/sparse disagree"));
            }
            // Six times the standard error, which is 0.81 percent.
            if count.abs_diff(number) > number / 20 + 1 {
                let far = count.abs_diff(number);
                return Err(Error::text(format!("ERR TESTFAILED Too big error. card:{number} abserr:{far}")));
            }
            checked *= 10;
        }
    }
    call.reply.ok();
    Ok(())
}
