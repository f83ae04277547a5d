//! Factors compiled for one instruction set, and how a job of any length is cut into registers.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;

use super::matrix;
use super::sink::{Add, Compare, Sink, Stream, Write};
use super::transform;
use super::vector::{Instructions, LINE_BYTES, Wide, Work};
use crate::{SHARDS_MAX, Stores};

/// The longest register of any instruction set.
const REGISTER_BYTES_MAX: usize = 64;

/// Computes output shards from input shards, all equally long.
///
/// # Panics
/// Every method, unless the numbers of shards are those of its construction and all shards are equally long.
pub(crate) trait Program: fmt::Debug + Send + Sync {
    /// Writes every output.
    fn write(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], stores: Stores);

    /// Whether every output is what the inputs make it.
    fn matches(&self, inputs: &[&[u8]], outputs: &[&[u8]]) -> bool;
}

/// Sums of products, which can also be taken over some of the inputs.
///
/// # Panics
/// As [`Program`], and if there is no such input.
pub(crate) trait Sums: Program {
    /// Adds to every output what the inputs numbered `first` and on contribute.
    fn add(&self, first: usize, inputs: &[&[u8]], outputs: &mut [&mut [u8]]);

    /// Adds to every output what changes when input `index` becomes `new` after it was `old`.
    fn change(&self, index: usize, old: &[u8], new: &[u8], outputs: &mut [&mut [u8]]);
}

/// A matrix: row by row, each output's factor for each input. There is at least one of either.
pub(super) fn matrix<V: Instructions>(rows: &[Vec<u8>]) -> Box<dyn Sums> {
    let inputs = rows[0].len();
    assert!(inputs > 0 && rows.iter().all(|row| row.len() == inputs), "a matrix has no holes");
    let group = |rows: &[Vec<u8>]| {
        let column = |input: usize| rows.iter().map(move |row| V::factor(row[input]));
        Group { factors: (0..inputs).flat_map(column).collect(), outputs: rows.len() }
    };
    Box::new(Matrix::<V> { groups: rows.chunks(V::OUTPUTS_MAX).map(group).collect(), inputs, outputs: rows.len() })
}

/// A transform for as many cosets as there are in `skews`, where one is compiled for that shape.
pub(super) fn transform<V: Instructions>(skews: &[Vec<u8>]) -> Option<Box<dyn Program>> {
    let cosets = skews.len();
    let width = skews.first()?.len();
    Some(match (width, cosets) {
        (2, 2) => Transform::<V, 2, 2>::boxed(skews),
        (2, 4) => Transform::<V, 2, 4>::boxed(skews),
        (2, 8) => Transform::<V, 2, 8>::boxed(skews),
        (4, 2) => Transform::<V, 4, 2>::boxed(skews),
        (4, 4) => Transform::<V, 4, 4>::boxed(skews),
        (4, 8) => Transform::<V, 4, 8>::boxed(skews),
        (8, 2) => Transform::<V, 8, 2>::boxed(skews),
        (8, 4) => Transform::<V, 8, 4>::boxed(skews),
        (16, 2) => Transform::<V, 16, 2>::boxed(skews),
        _ => return None,
    })
}

/// The factors of up to eight outputs: input by input, one for each output.
struct Group<F> {
    factors: Vec<F>,
    outputs: usize,
}

struct Matrix<V: Instructions> {
    groups: Vec<Group<V::Factor>>,
    inputs: usize,
    outputs: usize,
}

struct Transform<V: Instructions, const K: usize, const COSETS: usize> {
    skews: [[V::Factor; K]; COSETS],
}

/// A part of a program that may run on any span of whole registers.
trait Kernel<V: Instructions> {
    /// # Safety
    /// The CPU has `V`'s instruction set; inputs and outputs are as many as the kernel has, each good over `span` for
    /// what `S` does; `span` is a whole number of registers.
    unsafe fn run<S: Sink>(&self, inputs: &[&[u8]], outputs: &[*mut u8], span: Range<usize>) -> bool;
}

/// Some of a matrix's inputs, and all of its outputs.
struct Columns<'a, V: Instructions> {
    groups: &'a [Group<V::Factor>],
    /// The first input; those that run say how many.
    first: usize,
}

impl<V: Instructions> Kernel<V> for Columns<'_, V> {
    unsafe fn run<S: Sink>(&self, inputs: &[&[u8]], outputs: &[*mut u8], span: Range<usize>) -> bool {
        let tile_len = if self.groups.len() == 1 { span.len().max(1) } else { matrix::tile_len(inputs.len()) };
        let mut is_different = false;
        for start in span.clone().step_by(tile_len) {
            let tile = start..span.end.min(start + tile_len);
            for (group, outputs) in self.groups.iter().zip(outputs.chunks(V::OUTPUTS_MAX)) {
                let factors = &group.factors[self.first * group.outputs..];
                // SAFETY: a tile is a part of the span, and a group a part of the outputs.
                is_different |= unsafe { run_group::<V, S>(factors, inputs, outputs, tile.clone()) };
            }
        }
        is_different
    }
}

/// # Safety
/// As for [`Kernel::run`].
unsafe fn run_group<V: Instructions, S: Sink>(
    factors: &[V::Factor],
    inputs: &[&[u8]],
    outputs: &[*mut u8],
    span: Range<usize>,
) -> bool {
    macro_rules! pass {
        ($($outputs:literal)+) => {
            match outputs.len() {
                $($outputs => {
                    let rows = &factors.as_chunks::<$outputs>().0[..inputs.len()];
                    let outputs = *outputs.first_chunk().expect("matched");
                    let work = MatrixPass::<V, S, $outputs> { rows, inputs, outputs, span, sink: PhantomData };
                    // SAFETY: the caller vouches for the instruction set, the shards and the span.
                    unsafe { V::enter(work) }
                })+
                _ => unreachable!("a group has 1 to 8 outputs"),
            }
        };
    }
    pass!(1 2 3 4 5 6 7 8)
}

struct MatrixPass<'a, V: Instructions, S, const OUT: usize> {
    rows: &'a [[V::Factor; OUT]],
    inputs: &'a [&'a [u8]],
    outputs: [*mut u8; OUT],
    span: Range<usize>,
    sink: PhantomData<S>,
}

impl<V: Instructions, S: Sink, const OUT: usize> Work for MatrixPass<'_, V, S, OUT> {
    #[inline(always)]
    unsafe fn run(self) -> bool {
        // Known when compiled: no kernel is made for more outputs.
        assert!(OUT <= V::OUTPUTS_MAX, "a group is no larger");
        let Self { rows, inputs, outputs, span: Range { start: mut at, end }, .. } = self;
        let mut is_different = false;
        // Half of the registers for sums.
        let registers = V::REGISTERS / (2 * OUT);
        if registers >= 4 || S::LINES && 4 * V::BYTES == LINE_BYTES {
            // SAFETY: whoever made this vouches for the shards and the span, the caller for the instruction set.
            is_different |= unsafe { matrix::pass::<Wide<V, 4>, S, OUT>(rows, inputs, outputs, &mut at, end) };
        } else if registers >= 2 || S::LINES && 2 * V::BYTES == LINE_BYTES {
            // SAFETY: as above.
            is_different |= unsafe { matrix::pass::<Wide<V, 2>, S, OUT>(rows, inputs, outputs, &mut at, end) };
        }
        // SAFETY: as above.
        is_different | unsafe { matrix::pass::<V, S, OUT>(rows, inputs, outputs, &mut at, end) }
    }
}

impl<V: Instructions, const K: usize, const COSETS: usize> Kernel<V> for Transform<V, K, COSETS> {
    unsafe fn run<S: Sink>(&self, inputs: &[&[u8]], outputs: &[*mut u8], span: Range<usize>) -> bool {
        let outputs = *outputs.first_chunk().expect("the shape was checked");
        let work = TransformPass::<V, S, K, COSETS> { skews: &self.skews, inputs, outputs, span, sink: PhantomData };
        // SAFETY: the caller vouches for the instruction set, the shards and the span.
        unsafe { V::enter(work) }
    }
}

struct TransformPass<'a, V: Instructions, S, const K: usize, const COSETS: usize> {
    skews: &'a [[V::Factor; K]; COSETS],
    inputs: &'a [&'a [u8]],
    outputs: [*mut u8; K],
    span: Range<usize>,
    sink: PhantomData<S>,
}

impl<V: Instructions, S: Sink, const K: usize, const COSETS: usize> Work for TransformPass<'_, V, S, K, COSETS> {
    #[inline(always)]
    unsafe fn run(self) -> bool {
        let Self { skews, inputs, outputs, span: Range { start: mut at, end }, .. } = self;
        let mut is_different = false;
        // A quarter of the registers for each coset's values. Where they live beside a sum, a product's result needs one
        // more: without it each step moves registers to the stack and back.
        let result_registers = if COSETS > 2 { 1 } else { 0 };
        let fits_twice = 4 * K + V::PRODUCT_REGISTERS + result_registers <= V::REGISTERS;
        if S::LINES && 4 * V::BYTES == LINE_BYTES {
            // SAFETY: whoever made this vouches for the shards and the span, the caller for the instruction set.
            is_different |=
                unsafe { transform::pass::<Wide<V, 4>, S, K, COSETS>(skews, inputs, outputs, &mut at, end) };
        } else if fits_twice || S::LINES && 2 * V::BYTES == LINE_BYTES {
            // SAFETY: as above.
            is_different |=
                unsafe { transform::pass::<Wide<V, 2>, S, K, COSETS>(skews, inputs, outputs, &mut at, end) };
        }
        // SAFETY: as above.
        is_different | unsafe { transform::pass::<V, S, K, COSETS>(skews, inputs, outputs, &mut at, end) }
    }
}

impl<V: Instructions, const K: usize, const COSETS: usize> Transform<V, K, COSETS> {
    fn boxed(skews: &[Vec<u8>]) -> Box<dyn Program> {
        let skew = |coset: usize, node: usize| V::factor(skews[coset][node]);
        let skews = core::array::from_fn(|coset| core::array::from_fn(|node| skew(coset, node)));
        Box::new(Self { skews })
    }

    fn check(inputs: usize, outputs: usize) {
        assert!(inputs == K * (COSETS - 1) && outputs == K, "the shape is the transform's");
    }
}

impl<V: Instructions, const K: usize, const COSETS: usize> Program for Transform<V, K, COSETS> {
    fn write(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], stores: Stores) {
        Self::check(inputs.len(), outputs.len());
        write(self, inputs, outputs, stores);
    }

    fn matches(&self, inputs: &[&[u8]], outputs: &[&[u8]]) -> bool {
        Self::check(inputs.len(), outputs.len());
        matches(self, inputs, outputs)
    }
}

impl<V: Instructions> Matrix<V> {
    fn columns(&self, first: usize, inputs: usize, outputs: usize) -> Columns<'_, V> {
        assert!(inputs > 0 && first + inputs <= self.inputs && outputs == self.outputs, "the shape is the matrix's");
        Columns { groups: &self.groups, first }
    }
}

impl<V: Instructions> Program for Matrix<V> {
    fn write(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], stores: Stores) {
        assert!(inputs.len() == self.inputs, "a row has a factor for each input");
        write(&self.columns(0, inputs.len(), outputs.len()), inputs, outputs, stores);
    }

    fn matches(&self, inputs: &[&[u8]], outputs: &[&[u8]]) -> bool {
        assert!(inputs.len() == self.inputs, "a row has a factor for each input");
        matches(&self.columns(0, inputs.len(), outputs.len()), inputs, outputs)
    }
}

impl<V: Instructions> Sums for Matrix<V> {
    fn add(&self, first: usize, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let columns = self.columns(first, inputs.len(), outputs.len());
        write_through::<V, Add>(&columns, inputs, outputs);
    }

    fn change(&self, index: usize, old: &[u8], new: &[u8], outputs: &mut [&mut [u8]]) {
        // Products are linear: the old shard's go and the new one's come, by the same factors.
        let columns = self.columns(index, 1, outputs.len());
        let twice = |group: &Group<V::Factor>| {
            let factors = &group.factors[index * group.outputs..][..group.outputs];
            Group { factors: [factors, factors].concat(), outputs: group.outputs }
        };
        let groups: Vec<_> = columns.groups.iter().map(twice).collect();
        write_through::<V, Add>(&Columns::<V> { groups: &groups, first: 0 }, &[old, new], outputs);
    }
}

fn write<V: Instructions>(kernel: &impl Kernel<V>, inputs: &[&[u8]], outputs: &mut [&mut [u8]], stores: Stores) {
    match stores {
        Stores::Cached => write_through::<V, Write>(kernel, inputs, outputs),
        Stores::Streaming => write_through::<V, Stream>(kernel, inputs, outputs),
    }
}

fn write_through<V: Instructions, S: Sink>(kernel: &impl Kernel<V>, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
    let len = inputs[0].len();
    let are_equal = inputs.iter().all(|input| input.len() == len) && outputs.iter().all(|output| output.len() == len);
    assert!(are_equal, "all shards are equally long");
    let mut pointers = [core::ptr::null_mut(); SHARDS_MAX];
    pointers.iter_mut().zip(outputs.iter_mut()).for_each(|(pointer, output)| *pointer = output.as_mut_ptr());
    // SAFETY: programs are made by `Kernel::is_available` only; the pointers are of exclusive slices of `len` bytes.
    unsafe { cover::<V, S>(kernel, inputs, &pointers[..outputs.len()], len) };
}

fn matches<V: Instructions>(kernel: &impl Kernel<V>, inputs: &[&[u8]], outputs: &[&[u8]]) -> bool {
    let len = inputs[0].len();
    let are_equal = inputs.iter().all(|input| input.len() == len) && outputs.iter().all(|output| output.len() == len);
    assert!(are_equal, "all shards are equally long");
    let mut pointers = [core::ptr::null_mut(); SHARDS_MAX];
    pointers.iter_mut().zip(outputs).for_each(|(pointer, output)| *pointer = output.as_ptr().cast_mut());
    // SAFETY: programs are made by `Kernel::is_available` only; `Compare` only reads the outputs.
    unsafe { !cover::<V, Compare>(kernel, inputs, &pointers[..outputs.len()], len) }
}

/// Runs the kernel over `len` bytes, whatever the length and the alignment.
///
/// # Safety
/// As for [`Kernel::run`], over all `len` bytes.
unsafe fn cover<V: Instructions, S: Sink>(
    kernel: &impl Kernel<V>,
    inputs: &[&[u8]],
    outputs: &[*mut u8],
    len: usize,
) -> bool {
    if len < V::BYTES {
        // SAFETY: the caller vouches for `len` bytes.
        return unsafe { cover_padded::<V, S>(kernel, inputs, outputs, 0..len) };
    }
    let mut start = 0;
    let mut is_different = false;
    if S::IS_ALIGNED {
        match misalignment(outputs, V::BYTES) {
            Some(head) if head + V::BYTES <= len => start = head,
            // SAFETY: as for this function; the sink beneath has no demand on alignment.
            _ => return unsafe { cover::<V, S::Unaligned>(kernel, inputs, outputs, len) },
        }
        if start > 0 {
            // SAFETY: one register from the start fits into `len`.
            is_different |= unsafe { kernel.run::<S::Unaligned>(inputs, outputs, 0..V::BYTES) };
        }
    }
    let end = len - (len - start) % V::BYTES;
    // SAFETY: the span is whole registers within `len`.
    is_different |= unsafe { kernel.run::<S>(inputs, outputs, start..end) };
    if S::IS_ALIGNED {
        V::fence();
    }
    if end == len {
        return is_different;
    }
    if S::IS_ONCE {
        // SAFETY: the rest lies within `len`.
        return is_different | unsafe { cover_padded::<V, S>(kernel, inputs, outputs, end..len) };
    }
    // The last register overlaps the one before: the same bytes are computed twice.
    // SAFETY: one register before the end fits into `len`.
    is_different | unsafe { kernel.run::<S::Unaligned>(inputs, outputs, len - V::BYTES..len) }
}

/// How far all outputs stand before a multiple of `align`, if they agree.
fn misalignment(outputs: &[*mut u8], align: usize) -> Option<usize> {
    let before = |output: &*mut u8| output.addr().wrapping_neg() % align;
    let first = outputs.first().map(before)?;
    outputs.iter().all(|output| before(output) == first).then_some(first)
}

/// Runs the kernel over less than a register, on padded copies.
///
/// # Safety
/// As for [`Kernel::run`], but for the length of `span`, which is below one register.
#[inline(never)]
unsafe fn cover_padded<V: Instructions, S: Sink>(
    kernel: &impl Kernel<V>,
    inputs: &[&[u8]],
    outputs: &[*mut u8],
    span: Range<usize>,
) -> bool {
    // Padding is zero on both sides, and sums of products of zeros are zero: a comparison finds no difference there.
    let mut input_bytes = [[0; REGISTER_BYTES_MAX]; SHARDS_MAX];
    let mut output_bytes = [[0; REGISTER_BYTES_MAX]; SHARDS_MAX];
    let mut padded_inputs = [[].as_slice(); SHARDS_MAX];
    let mut pointers = [core::ptr::null_mut(); SHARDS_MAX];
    for ((bytes, padded), input) in input_bytes.iter_mut().zip(&mut padded_inputs).zip(inputs) {
        bytes[..span.len()].copy_from_slice(&input[span.clone()]);
        *padded = bytes;
    }
    for ((bytes, pointer), output) in output_bytes.iter_mut().zip(&mut pointers).zip(outputs) {
        // SAFETY: the caller vouches for the output over `span`.
        unsafe { output.wrapping_add(span.start).copy_to_nonoverlapping(bytes.as_mut_ptr(), span.len()) };
        *pointer = bytes.as_mut_ptr();
    }
    let (padded_inputs, pointers) = (&padded_inputs[..inputs.len()], &pointers[..outputs.len()]);
    // SAFETY: every copy is at least one register long.
    let is_different = unsafe { kernel.run::<S::Unaligned>(padded_inputs, pointers, 0..V::BYTES) };
    if S::WRITES {
        for (bytes, output) in output_bytes.iter().zip(outputs) {
            // SAFETY: the caller vouches for the output over `span`.
            unsafe { output.wrapping_add(span.start).copy_from_nonoverlapping(bytes.as_ptr(), span.len()) };
        }
    }
    is_different
}

impl<V: Instructions> fmt::Debug for Matrix<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matrix({} x {}, {} B)", self.outputs, self.inputs, V::BYTES)
    }
}

impl<V: Instructions, const K: usize, const COSETS: usize> fmt::Debug for Transform<V, K, COSETS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transform({COSETS} x {K}, {} B)", V::BYTES)
    }
}
