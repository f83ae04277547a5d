//! The code as a whole, every kernel against a definition that shares nothing with it.
//!
//! [`definition`] says what the shards must be, by the shortest way and no table of the crate's; [`golden`] says the
//! same in bytes that another program made. [`kernels`] holds every operation of every kernel to it at every length,
//! alignment and kind of data, [`losses`] every pattern of lost shards, [`sums`] whatever can be split or done one after
//! another, [`tiles`] what is shown while it is encoded, and [`refusals`] that a refused call leaves everything as it was.
//!
//! All kernels of this CPU are under test, and NEON by a model of its instructions. `ASHLAR_ERASURE_KERNEL=avx2 cargo test
//! -p ashlar-erasure` tests one alone.

extern crate std;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::{Codec, Geometry, Kernel, ShardSet};

mod definition;
mod golden;
mod kernels;
mod losses;
mod refusals;
mod room;
mod sums;
mod tiles;

/// The variable that names the one kernel to test.
const KERNEL_VARIABLE: &str = "ASHLAR_ERASURE_KERNEL";

/// Every kernel that can run here, or the one that the environment names.
fn kernels_under_test() -> Vec<Kernel> {
    let asked = std::env::var_os(KERNEL_VARIABLE).map(|name| name.to_string_lossy().into_owned());
    choose(asked.as_deref()).unwrap_or_else(|problem| panic!("{KERNEL_VARIABLE}: {problem}"))
}

fn choose(asked: Option<&str>) -> Result<Vec<Kernel>, String> {
    let mut available: Vec<Kernel> = Kernel::ALL.into_iter().filter(|kernel| kernel.is_available()).collect();
    #[cfg(not(target_arch = "aarch64"))]
    available.push(Kernel::NeonModel);
    if let Some(name) = asked {
        available.retain(|kernel| kernel.name() == name);
        if available.is_empty() {
            let verdict = name.parse::<Kernel>().map_or_else(|error| format!("{error}"), |_| "not on this CPU".into());
            return Err(format!("`{name}`: {verdict}"));
        }
    }
    Ok(available)
}

#[test]
fn environment_names_one_kernel() {
    assert_eq!(choose(Some("portable")), Ok(alloc::vec![Kernel::Portable]));
    assert!(choose(None).unwrap().len() >= 2, "plain integers and NEON or its model are everywhere");
    let foreign = if cfg!(target_arch = "aarch64") { Kernel::Avx2 } else { Kernel::Neon };
    assert_eq!(choose(Some(foreign.name())), Err(format!("`{foreign}`: not on this CPU")));
    for wrong in ["", "AVX2", "avx2 ", "fastest"] {
        assert!(choose(Some(wrong)).unwrap_err().contains("a kernel is one of portable"), "{wrong}");
    }
}

#[test]
fn names_are_read_back() {
    for kernel in Kernel::ALL {
        assert_eq!(kernel.name().parse(), Ok(kernel));
    }
    assert!(Kernel::best().is_available());
    assert_eq!(Kernel::default(), Kernel::best());
}

#[test]
#[should_panic(expected = "the CPU has the kernel's instructions")]
fn a_kernel_of_another_cpu_is_no_codec() {
    let foreign = if cfg!(target_arch = "aarch64") { Kernel::Avx2 } else { Kernel::Neon };
    let _ = Codec::with_kernel(geometry(4, 2), foreign);
}

/// M data and K parity shards, which the test knows to be a geometry.
fn geometry(data: usize, parity: usize) -> Geometry {
    Geometry::new(data, parity).unwrap()
}

fn set(shards: &[usize]) -> ShardSet {
    ShardSet::of(shards).unwrap()
}

fn slices(shards: &[Vec<u8>]) -> Vec<&[u8]> {
    shards.iter().map(Vec::as_slice).collect()
}

fn slices_mut(shards: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    shards.iter_mut().map(Vec::as_mut_slice).collect()
}

/// Numbers that look random and are the same in every run (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).unwrap()).unwrap()
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next().to_le_bytes()[0]).collect()
    }

    fn shards(&mut self, count: usize, len: usize) -> Vec<Vec<u8>> {
        (0..count).map(|_| self.bytes(len)).collect()
    }

    /// `count` different numbers below `end`, in no order.
    fn choose(&mut self, count: usize, end: usize) -> Vec<usize> {
        let mut numbers: Vec<usize> = (0..end).collect();
        for index in 0..count {
            let other = index + self.below(end - index);
            numbers.swap(index, other);
        }
        numbers.truncate(count);
        numbers
    }
}
