//! The instruction sets, and the one place that chooses among them.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use super::portable::Words;
use super::program::{self, Program, Sums};
use super::vector::Instructions;

/// An instruction set that the kernels are compiled for.
///
/// All give the same bytes. [`Kernel::best`] is what to use; the others are there to compare and to test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kernel {
    /// Plain integers, on every CPU.
    Portable,
    /// x86-64: 16 bytes, shuffles.
    Ssse3,
    /// x86-64: 32 bytes, shuffles.
    Avx2,
    /// x86-64: 32 bytes, one instruction a product.
    Avx2Gfni,
    /// x86-64: 64 bytes, one instruction a product.
    Avx512Gfni,
    /// aarch64: 16 bytes, table look-ups.
    Neon,
    /// NEON over a model of its instructions, in the tests of other CPUs.
    #[cfg(all(test, not(target_arch = "aarch64")))]
    NeonModel,
}

/// A text is not the name of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseKernelError;

impl Kernel {
    /// Every kernel, slowest first on each kind of CPU.
    pub const ALL: [Self; 6] = [Self::Portable, Self::Ssse3, Self::Avx2, Self::Avx2Gfni, Self::Avx512Gfni, Self::Neon];

    /// The fastest that this CPU and its operating system offer.
    #[must_use]
    pub fn best() -> Self {
        let fastest = Self::ALL.into_iter().rev().find(|kernel| kernel.is_available());
        fastest.expect("plain integers are everywhere")
    }

    /// Whether this CPU and its operating system offer it.
    #[must_use]
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        use super::detect::{self, AVX2, AVX512, GFNI, SSSE3};
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Ssse3 => detect::has(SSSE3),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => detect::has(AVX2),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2Gfni => detect::has(AVX2 | GFNI),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Gfni => detect::has(AVX512 | GFNI),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => true,
            #[cfg(all(test, not(target_arch = "aarch64")))]
            Self::NeonModel => true,
            #[allow(unreachable_patterns, reason = "which sets are left differs from CPU to CPU")]
            _ => false,
        }
    }

    /// The name that [`FromStr`] reads: `avx512-gfni` and the like.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Ssse3 => "ssse3",
            Self::Avx2 => "avx2",
            Self::Avx2Gfni => "avx2-gfni",
            Self::Avx512Gfni => "avx512-gfni",
            Self::Neon => "neon",
            #[cfg(all(test, not(target_arch = "aarch64")))]
            Self::NeonModel => "neon-model",
        }
    }

    /// The program that sums the products of `rows`, one row for each output.
    ///
    /// # Panics
    /// If the kernel is not available here.
    pub(crate) fn matrix(self, rows: &[Vec<u8>]) -> Box<dyn Sums> {
        self.compile(Matrix { rows })
    }

    /// The program that transforms with `skews`, where one is compiled for that shape.
    ///
    /// # Panics
    /// If the kernel is not available here.
    pub(crate) fn transform(self, skews: &[Vec<u8>]) -> Option<Box<dyn Program>> {
        self.compile(Transform { skews })
    }

    /// The one place that turns a kernel into a type.
    fn compile<R: Recipe>(self, recipe: R) -> R::Program {
        assert!(self.is_available(), "the CPU has the kernel's instructions");
        match self {
            Self::Portable => recipe.compile::<Words>(),
            #[cfg(target_arch = "x86_64")]
            Self::Ssse3 => recipe.compile::<super::ssse3::Xmm>(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => recipe.compile::<super::avx2::Ymm>(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2Gfni => recipe.compile::<super::avx2_gfni::Ymm>(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Gfni => recipe.compile::<super::avx512::Zmm>(),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => recipe.compile::<super::neon::Neon>(),
            #[cfg(all(test, not(target_arch = "aarch64")))]
            Self::NeonModel => recipe.compile::<super::neon::Neon>(),
            #[allow(unreachable_patterns, reason = "which sets are left differs from CPU to CPU")]
            _ => unreachable!("not available here"),
        }
    }
}

impl Default for Kernel {
    fn default() -> Self {
        Self::best()
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kernel {
    type Err = ParseKernelError;

    fn from_str(text: &str) -> Result<Self, ParseKernelError> {
        Self::ALL.into_iter().find(|kernel| kernel.name() == text).ok_or(ParseKernelError)
    }
}

impl fmt::Display for ParseKernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a kernel is one of")?;
        Kernel::ALL.iter().try_for_each(|kernel| write!(f, " {kernel}"))
    }
}

impl core::error::Error for ParseKernelError {}

/// What is compiled for an instruction set that is only known at run time.
trait Recipe {
    type Program;
    fn compile<V: Instructions>(self) -> Self::Program;
}

struct Matrix<'a> {
    rows: &'a [Vec<u8>],
}

impl Recipe for Matrix<'_> {
    type Program = Box<dyn Sums>;

    fn compile<V: Instructions>(self) -> Self::Program {
        program::matrix::<V>(self.rows)
    }
}

struct Transform<'a> {
    skews: &'a [Vec<u8>],
}

impl Recipe for Transform<'_> {
    type Program = Option<Box<dyn Program>>;

    fn compile<V: Instructions>(self) -> Self::Program {
        program::transform::<V>(self.skews)
    }
}
