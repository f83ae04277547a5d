//! How fast this machine moves bytes: what bulk work over memory is measured against.
//!
//! [`copy`] is the plainest work there is. [`spread`] reads and writes what an erasure code does, with the cheapest
//! arithmetic that looks at every byte: one exclusive-or for each byte read. Both can write past the caches.
//!
//! On CPUs without AVX2 there is one safe way for all, through the caches; [`streams`] tells.
#![allow(unsafe_code, reason = "stores past the caches: each function is tested against its safe twin")]

/// Where results go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Route {
    /// Through the caches.
    Cached,
    /// Past them.
    Streaming,
}

/// Whether [`Route::Streaming`] means anything on this CPU.
#[must_use]
pub fn streams() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Copies `from` to `to`, which is as long. Cached, it is the C library's `memcpy`.
///
/// # Panics
/// If the lengths differ.
pub fn copy(from: &[u8], to: &mut [u8], route: Route) {
    match route {
        Route::Cached => to.copy_from_slice(from),
        Route::Streaming => spread(&[from], &mut [to], Route::Streaming),
    }
}

/// Writes the exclusive-or of all `inputs` to each of `outputs`; all are equally long. Outputs that do not begin at
/// multiples of 64 bytes are written through the caches.
///
/// # Panics
/// If the lengths differ.
pub fn spread(inputs: &[&[u8]], outputs: &mut [&mut [u8]], route: Route) {
    let Some(len) = outputs.first().map(|output| output.len()) else { return };
    let lens = inputs.iter().map(|input| input.len()).chain(outputs.iter().map(|output| output.len()));
    assert!(lens.into_iter().all(|other| other == len), "all shards of a call are equally long");
    let is_aligned = outputs.iter().all(|output| output.as_ptr().addr().is_multiple_of(64));
    let streaming = route == Route::Streaming && is_aligned;
    let done = wide(inputs, outputs, len, streaming);
    narrow(inputs, outputs, done..len);
}

/// The bulk in registers; how many bytes of each shard that was.
#[cfg(target_arch = "x86_64")]
fn wide(inputs: &[&[u8]], outputs: &mut [&mut [u8]], len: usize, streaming: bool) -> usize {
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the CPU has it.
        unsafe { zmm::spread(inputs, outputs, len, streaming) }
    } else if is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has it.
        unsafe { ymm::spread(inputs, outputs, len, streaming) }
    } else {
        0
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn wide(_: &[&[u8]], _: &mut [&mut [u8]], _: usize, _: bool) -> usize {
    0
}

/// The safe twin, and the rest of what registers did.
fn narrow(inputs: &[&[u8]], outputs: &mut [&mut [u8]], range: std::ops::Range<usize>) {
    const STEP_BYTES: usize = 256;
    for start in range.clone().step_by(STEP_BYTES) {
        let end = range.end.min(start + STEP_BYTES);
        let mut sum = [0; STEP_BYTES];
        let sum = &mut sum[..end - start];
        for input in inputs {
            sum.iter_mut().zip(&input[start..end]).for_each(|(sum, byte)| *sum ^= byte);
        }
        outputs.iter_mut().for_each(|output| output[start..end].copy_from_slice(sum));
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! registers {
    ($name:ident, $feature:literal, $load:ident, $xor:ident, $store:ident, $stream:ident, $zero:ident) => {
        mod $name {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch, _mm_sfence, $load, $store, $stream, $xor, $zero};

            /// Registers a step: enough that what is read next is under way meanwhile.
            const REGISTERS: usize = 4;

            /// How far ahead bulk work asks for what it will read, bytes: as far as the erasure kernels do.
            const AHEAD: usize = 512;

            #[target_feature(enable = $feature)]
            pub(super) fn spread(inputs: &[&[u8]], outputs: &mut [&mut [u8]], len: usize, streaming: bool) -> usize {
                let register_len = size_of_val(&$zero());
                let step_len = REGISTERS * register_len;
                let done = len - len % step_len;
                for start in (0..done).step_by(step_len) {
                    let mut sums = [$zero(); REGISTERS];
                    for input in inputs {
                        let input = &input[start..start + step_len];
                        for (sum, part) in sums.iter_mut().zip(input.chunks_exact(register_len)) {
                            if streaming {
                                _mm_prefetch::<_MM_HINT_T0>(part.as_ptr().wrapping_add(AHEAD).cast());
                            }
                            // SAFETY: the part is as long as a register; any alignment will do.
                            *sum = $xor(*sum, unsafe { $load(part.as_ptr().cast()) });
                        }
                    }
                    for output in outputs.iter_mut() {
                        let output = &mut output[start..start + step_len];
                        for (sum, part) in sums.iter().zip(output.chunks_exact_mut(register_len)) {
                            if streaming {
                                // SAFETY: as long as a register; the caller says that it is aligned.
                                unsafe { $stream(part.as_mut_ptr().cast(), *sum) };
                            } else {
                                // SAFETY: as long as a register; any alignment will do.
                                unsafe { $store(part.as_mut_ptr().cast(), *sum) };
                            }
                        }
                    }
                }
                if streaming {
                    // Streamed bytes are in order with what comes next only behind this.
                    _mm_sfence();
                }
                done
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
registers!(
    zmm,
    "avx512f",
    _mm512_loadu_si512,
    _mm512_xor_si512,
    _mm512_storeu_si512,
    _mm512_stream_si512,
    _mm512_setzero_si512
);
#[cfg(target_arch = "x86_64")]
registers!(
    ymm,
    "avx2",
    _mm256_loadu_si256,
    _mm256_xor_si256,
    _mm256_storeu_si256,
    _mm256_stream_si256,
    _mm256_setzero_si256
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::pages::Pages;

    const PLACE_BYTES: usize = 1 << 12;

    /// Runs `work` on two inputs and two outputs of `len` bytes that begin `shift` bytes after a multiple of 64.
    fn outputs_of(len: usize, shift: usize, work: impl Fn(&[&[u8]], &mut [&mut [u8]])) -> Vec<u8> {
        let mut pages = Pages::new(4 * PLACE_BYTES).unwrap();
        let bytes = pages.bytes_mut();
        bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * at / 7) as u8);
        let (inputs, outputs) = bytes.split_at_mut(2 * PLACE_BYTES);
        let inputs: Vec<&[u8]> = inputs.chunks(PLACE_BYTES).map(|place| &place[shift..][..len]).collect();
        let mut outputs: Vec<&mut [u8]> =
            outputs.chunks_mut(PLACE_BYTES).map(|place| &mut place[shift..][..len]).collect();
        work(&inputs, &mut outputs);
        // Everything, so that a byte written beside its place shows.
        bytes.to_vec()
    }

    #[test]
    fn wide_is_narrow() {
        for len in (0..600).chain([1_024, 4_000]) {
            for shift in [0, 1, 32, 64] {
                let expected = outputs_of(len, shift, |inputs, outputs| narrow(inputs, outputs, 0..len));
                for route in [Route::Cached, Route::Streaming] {
                    let given = outputs_of(len, shift, |inputs, outputs| spread(inputs, outputs, route));
                    assert!(given == expected, "{len} bytes at {shift}, {route:?}");
                }
                #[cfg(target_arch = "x86_64")]
                if is_x86_feature_detected!("avx2") {
                    let given = outputs_of(len, shift, |inputs, outputs| {
                        // SAFETY: the CPU has it.
                        let done = unsafe { ymm::spread(inputs, outputs, len, shift.is_multiple_of(32)) };
                        narrow(inputs, outputs, done..len);
                    });
                    assert!(given == expected, "{len} bytes at {shift}, 32 bytes a register");
                }
            }
        }
    }

    #[test]
    fn copies() {
        for route in [Route::Cached, Route::Streaming] {
            let from: Vec<u8> = (0..3_000).map(|at| at as u8).collect();
            let mut to = vec![0; from.len()];
            copy(&from, &mut to, route);
            assert_eq!(from, to, "{route:?}");
        }
    }
}
