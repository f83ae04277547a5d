//! The one room of this crate where pointers and instruction sets live.
//!
//! [`Kernel`] names an instruction set and makes programs for it; nothing else of this room is seen outside. The kernels
//! are written once over [`vector::Vector`]: [`matrix`] (sums of products) and [`transform`] (additive Fourier
//! transform). [`program`] checks shapes, cuts a job of any length and alignment into registers, and chooses what becomes
//! of the results ([`sink`]). [`bulk`] asks for memory ahead and copies past the caches, whatever the kernel.

#![allow(unsafe_code, reason = "instruction sets and pointers: every kernel is tested against the scalar definition")]

#[cfg(target_arch = "x86_64")]
mod affine;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx2_gfni;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod bulk;
#[cfg(target_arch = "x86_64")]
mod detect;
mod kernel;
mod matrix;
#[cfg(any(test, target_arch = "aarch64"))]
mod neon;
#[cfg(all(test, not(target_arch = "aarch64")))]
mod neon_model;
mod nibble;
mod portable;
mod program;
mod sink;
#[cfg(target_arch = "x86_64")]
mod ssse3;
mod transform;
mod vector;

pub(crate) use bulk::{Streamer, ask_for};
pub use kernel::{Kernel, ParseKernelError};
pub(crate) use program::{Program, Sums};
