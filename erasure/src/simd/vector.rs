//! What a kernel needs of an instruction set: one register of bytes.
//!
//! The kernels in [`super::matrix`] and [`super::transform`] are written once, over this trait; each instruction set
//! implements it and compiles the kernels under its own `target_feature`, where all of this is inlined to bare
//! instructions.

/// One register of bytes, each an element of the field.
///
/// A value exists only on a CPU that has the instruction set: the two ways to make one, `load` and `prepare`, are unsafe
/// and say so. That is why all other operations are safe.
pub(super) trait Vector: Copy + Send + Sync {
    /// Bytes in one register.
    const BYTES: usize;

    /// Registers that a kernel may use for sums.
    const SUMS: usize;

    /// Outputs that the matrix kernel computes in one pass, 8 at most. More take further passes.
    const OUTPUTS_MAX: usize;

    /// A factor in memory, in the form that this instruction set multiplies by.
    type Factor: Copy + Send + Sync;

    /// A factor in registers.
    type Prepared: Copy;

    /// The form of the factor `element`.
    fn factor(element: u8) -> Self::Factor;

    /// Reads a factor into registers.
    ///
    /// # Safety
    /// The CPU has the instruction set.
    unsafe fn prepare(factor: &Self::Factor) -> Self::Prepared;

    /// Reads `BYTES` bytes at any alignment.
    ///
    /// # Safety
    /// The CPU has the instruction set, and `from` is good for reading `BYTES` bytes.
    unsafe fn load(from: *const u8) -> Self;

    /// Writes `BYTES` bytes at any alignment.
    ///
    /// # Safety
    /// `to` is good for writing `BYTES` bytes.
    unsafe fn store(self, to: *mut u8);

    /// Writes `BYTES` bytes past the caches, where the instruction set can; not ordered with other stores until
    /// [`Vector::fence`].
    ///
    /// # Safety
    /// `to` is good for writing `BYTES` bytes and a multiple of `BYTES`.
    unsafe fn stream(self, to: *mut u8);

    /// Orders all earlier [`Vector::stream`]s of this thread before all later stores.
    fn fence();

    /// Asks for the cache line at `at`, which need not be mapped.
    fn prefetch(at: *const u8);

    /// The sum of two registers in the field.
    fn xor(self, other: Self) -> Self;

    /// The sum of three registers.
    fn xor3(self, second: Self, third: Self) -> Self {
        self.xor(second).xor(third)
    }

    /// Every bit that is set in either.
    fn or(self, other: Self) -> Self;

    /// Every byte times the factor.
    fn multiply(self, by: Self::Prepared) -> Self;

    /// Whether every bit is zero.
    fn is_zero(self) -> bool;

    /// Does `work` in code compiled for the instruction set.
    ///
    /// # Safety
    /// The CPU has the instruction set, and what `work` asks for holds.
    unsafe fn enter<W: Work<Self>>(work: W) -> bool;
}

/// A kernel with all its arguments.
pub(super) trait Work<V: Vector> {
    /// Does it, and tells whether a comparison found a difference.
    ///
    /// # Safety
    /// The CPU has `V`'s instruction set; the implementation says what else must hold.
    unsafe fn run(self) -> bool;
}
