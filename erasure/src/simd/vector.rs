//! What a kernel needs of an instruction set: one register of bytes.
//!
//! The kernels in [`super::matrix`] and [`super::transform`] are written once, over this trait; each instruction set
//! implements it and compiles the kernels under its own `target_feature`, where all of this is inlined to bare
//! instructions. For that, every function on the way is `inline(always)`, loops have constant ends, and there are no
//! closures: what the compiler leaves out of line loses the instruction set, and a hundredfold of its speed.

/// A cache line.
pub(super) const LINE_BYTES: usize = 64;

/// One register of bytes, each an element of the field.
///
/// A value exists only on a CPU that has the instruction set: the two ways to make one, `load` and `prepare`, are unsafe
/// and say so. That is why all other operations are safe.
pub(super) trait Vector: Copy + Send + Sync {
    /// Bytes in one register.
    const BYTES: usize;

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

    /// Asks for the cache lines of a register at `at`, which need not be mapped.
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
}

/// An instruction set: one register, and how kernels over it are compiled.
pub(super) trait Instructions: Vector + 'static {
    /// Registers that there are.
    const REGISTERS: usize;

    /// Registers that a product needs beside its operand and its result.
    const PRODUCT_REGISTERS: usize;

    /// Outputs that the matrix kernel computes in one pass, 8 at most. More take further passes.
    const OUTPUTS_MAX: usize;

    /// Does `work` in code compiled for the instruction set.
    ///
    /// # Safety
    /// The CPU has the instruction set, and what `work` asks for holds.
    unsafe fn enter<W: Work>(work: W) -> bool;
}

/// A kernel with all its arguments.
pub(super) trait Work {
    /// Does it, and tells whether a comparison found a difference.
    ///
    /// # Safety
    /// The CPU has the instruction set that the kernel was compiled for; the implementation says what else must hold.
    unsafe fn run(self) -> bool;
}

/// Several registers that follow each other in memory, as one: more bytes of one shard at a time.
#[derive(Clone, Copy)]
pub(super) struct Wide<V, const N: usize>([V; N]);

impl<V: Vector, const N: usize> Vector for Wide<V, N> {
    const BYTES: usize = N * V::BYTES;
    type Factor = V::Factor;
    type Prepared = V::Prepared;

    fn factor(element: u8) -> V::Factor {
        V::factor(element)
    }

    #[inline(always)]
    unsafe fn prepare(factor: &V::Factor) -> V::Prepared {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { V::prepare(factor) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller vouches for the instruction set and all the bytes.
        let mut all = Self([unsafe { V::load(from) }; N]);
        let mut index = 1;
        while index < N {
            // SAFETY: as above.
            all.0[index] = unsafe { V::load(from.wrapping_add(index * V::BYTES)) };
            index += 1;
        }
        all
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        let mut index = 0;
        while index < N {
            // SAFETY: the caller vouches for all the bytes.
            unsafe { self.0[index].store(to.wrapping_add(index * V::BYTES)) };
            index += 1;
        }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        let mut index = 0;
        while index < N {
            // SAFETY: the caller vouches for all the bytes and their alignment.
            unsafe { self.0[index].stream(to.wrapping_add(index * V::BYTES)) };
            index += 1;
        }
    }

    #[inline(always)]
    fn fence() {
        V::fence();
    }

    #[inline(always)]
    fn prefetch(at: *const u8) {
        let mut index = 0;
        while index < N {
            if index * V::BYTES % LINE_BYTES == 0 {
                V::prefetch(at.wrapping_add(index * V::BYTES));
            }
            index += 1;
        }
    }

    #[inline(always)]
    fn xor(mut self, other: Self) -> Self {
        let mut index = 0;
        while index < N {
            self.0[index] = self.0[index].xor(other.0[index]);
            index += 1;
        }
        self
    }

    #[inline(always)]
    fn xor3(mut self, second: Self, third: Self) -> Self {
        let mut index = 0;
        while index < N {
            self.0[index] = self.0[index].xor3(second.0[index], third.0[index]);
            index += 1;
        }
        self
    }

    #[inline(always)]
    fn or(mut self, other: Self) -> Self {
        let mut index = 0;
        while index < N {
            self.0[index] = self.0[index].or(other.0[index]);
            index += 1;
        }
        self
    }

    #[inline(always)]
    fn multiply(mut self, by: V::Prepared) -> Self {
        let mut index = 0;
        while index < N {
            self.0[index] = self.0[index].multiply(by);
            index += 1;
        }
        self
    }

    #[inline(always)]
    fn is_zero(self) -> bool {
        let mut all = self.0[0];
        let mut index = 1;
        while index < N {
            all = all.or(self.0[index]);
            index += 1;
        }
        all.is_zero()
    }
}
