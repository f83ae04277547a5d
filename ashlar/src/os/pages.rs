//! Large buffers on huge pages: bulk work walks memory faster when a page is 2 MiB.
//!
//! A [`Pages`] is one private mapping, zeroed, that begins at a multiple of 2 MiB and goes back to the operating system
//! as a whole when it is dropped. Whoever needs many buffers cuts one mapping into slices. Huge pages are asked for, not
//! demanded: [`Pages::huge_bytes`] says what the system gave.
#![allow(unsafe_code, reason = "mappings and advice about them are not offered by std")]

use std::ffi::c_void;
use std::fs;
use std::io;
use std::ptr::{self, NonNull};
use std::slice;

/// A huge page of x86-64, and of aarch64 with small pages of 4 KiB.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A zeroed buffer at a multiple of 2 MiB.
#[derive(Debug)]
pub struct Pages {
    /// What `mmap` gave, `mapped_len` bytes; ours alone until it is unmapped.
    mapped: NonNull<u8>,
    mapped_len: usize,
    /// The first multiple of a huge page in it.
    start: NonNull<u8>,
    /// From `start`; ends within the mapping.
    len: usize,
}

// SAFETY: the mapping belongs to this value alone, as the heap of a vector does.
unsafe impl Send for Pages {}
// SAFETY: shared access only reads.
unsafe impl Sync for Pages {}

impl Pages {
    /// A buffer of `len` bytes. It takes up memory only where it is touched.
    ///
    /// # Errors
    /// The operating system gives no such mapping. Retry safe.
    pub fn new(len: usize) -> io::Result<Self> {
        // Room to begin at a multiple.
        let mapped_len = len.checked_add(HUGE_PAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping without a wished address touches no memory that is in use.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), mapped_len, access, kind, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapped = NonNull::new(mapped.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let skip = mapped.as_ptr().align_offset(HUGE_PAGE_BYTES);
        assert!(skip < HUGE_PAGE_BYTES, "a multiple of a huge page comes before the end of one");
        // SAFETY: `skip` bytes lie in the mapping, which is a huge page longer than `len`.
        let start = unsafe { mapped.add(skip) };
        // Advice only: without huge pages the buffer works as well.
        // SAFETY: the range lies in the mapping, and the advice changes no content.
        let _ = unsafe { libc::madvise(start.as_ptr().cast::<c_void>(), len, libc::MADV_HUGEPAGE) };
        Ok(Self { mapped, mapped_len, start, len })
    }

    /// The buffer.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes from `start` are mapped, zeroed by the kernel, and borrowed with `self`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The buffer, to write.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len` bytes from `start` are mapped, zeroed by the kernel, and borrowed with `self` alone.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// How many bytes of what was touched stand on huge pages now; 0 where the kernel does not tell.
    #[must_use]
    pub fn huge_bytes(&self) -> usize {
        let table = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        huge_bytes_within(&table, self.start.as_ptr().addr(), self.len)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and every borrow of it has ended.
        let _ = unsafe { libc::munmap(self.mapped.as_ptr().cast::<c_void>(), self.mapped_len) };
    }
}

/// Adds up `AnonHugePages` of the mappings that `start` and the `len` bytes from there touch, at most `len`: the kernel
/// joins neighbours.
fn huge_bytes_within(smaps: &str, start: usize, len: usize) -> usize {
    let (mut is_ours, mut huge_bytes) = (false, 0);
    for line in smaps.lines() {
        let head = line.split(' ').next().unwrap_or_default();
        if let Some((low, high)) = head.split_once('-') {
            let number = |text| usize::from_str_radix(text, 16).unwrap_or(0);
            is_ours = number(low) < start + len && start < number(high);
        } else if is_ours && head == "AnonHugePages:" {
            let kib = line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok());
            huge_bytes += kib.unwrap_or(0) * 1_024;
        }
    }
    huge_bytes.min(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The safe twin: a vector of zeroes.
    #[test]
    fn behaves_as_a_vector() {
        for len in [0, 1, 4_096, 3 * HUGE_PAGE_BYTES + 1] {
            let mut pages = Pages::new(len).unwrap();
            assert!(pages.bytes().as_ptr().addr().is_multiple_of(HUGE_PAGE_BYTES));
            let mut twin = vec![0; len];
            assert!(pages.bytes() == twin, "{len}");
            for (at, (byte, twin)) in pages.bytes_mut().iter_mut().zip(&mut twin).enumerate() {
                (*byte, *twin) = (at as u8, at as u8);
            }
            assert!(pages.bytes() == twin, "{len}");
            assert!(pages.huge_bytes() <= len);
        }
    }

    #[test]
    fn goes_back_when_dropped() {
        let mapped = |address: usize| {
            let maps = fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().any(|line| {
                let (low, high) = line.split(' ').next().unwrap().split_once('-').unwrap();
                let number = |text| usize::from_str_radix(text, 16).unwrap();
                (number(low)..number(high)).contains(&address)
            })
        };
        // So large that nothing else is put there at once.
        let pages = Pages::new(1 << 32).unwrap();
        let address = pages.bytes().as_ptr().addr() + (1 << 31);
        assert!(mapped(address));
        drop(pages);
        assert!(!mapped(address));
    }

    #[test]
    fn is_refused_what_no_machine_has() {
        for len in [usize::MAX, usize::MAX / 2] {
            assert!(Pages::new(len).is_err());
        }
    }

    #[test]
    fn reads_the_kernels_table() {
        let table = "1000-5000 rw-p 0 00:00 0 \nRss: 16 kB\nAnonHugePages: 8 kB\n\
                     5000-9000 rw-p 0 00:00 0 [heap]\nAnonHugePages: 4 kB\n9000-a000 r--p 0 00:00 0 /x\nAnonHugePages: 4 kB\n";
        for (start, len, expected) in [
            (0x1000, 0x4000, 8_192),
            (0x1000, 0x8000, 12_288),
            (0x1000, 0x1000, 4_096),
            (0x5000, 0x4000, 4_096),
            (0xa000, 0x1000, 0),
        ] {
            assert_eq!(huge_bytes_within(table, start, len), expected, "{start:x}");
        }
    }
}
