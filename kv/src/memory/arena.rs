//! Bytes of records in cells of memory, named by handles of 32 bits.
//!
//! A process with ten million keys can neither pay an allocation for each (16 bytes of bookkeeping and a pointer of 8)
//! nor lose a third of its memory to rounding. So cells of one size lie side by side in chunks, and a [`Handle`] is the
//! number of a chunk and of a cell in it.
//!
//! Model
//! - Sizes of cells: multiples of 8 from 16 to 128, then eight steps a doubling up to [`CELL_BYTES_MAX`]. A longer
//!   record has a chunk of its own.
//! - A chunk has at most [`CHUNK_BYTES_MAX`] bytes. A new one holds a quarter of the cells that its size has already,
//!   so small arenas stay small.
//! - The free cells of a chunk are a chain through the cells themselves. A link is stored as the distance from the next
//!   cell, so that fresh memory, which is zero, is a chain of all cells in order and is not touched before it is used.
//! - Chunks with a free cell are a list for each size. A chunk whose last cell is freed goes back to the allocator, and
//!   its number is used again.
//!
//! Waste
//! - Inside a cell: at most 8 bytes up to 128, then less than an eighth of the record; below 16 bytes, up to 16.
//! - Free cells: no chunk is made while its size has a free cell. So a size never has more cells than five quarters
//!   of the most that were in use at once, and one chunk of its fewest cells. Cells that are freed stay with their size
//!   until their whole chunk is free: nothing moves.
//! - Bookkeeping: 32 bytes a chunk.
//!
//! Deliberately absent: the length of what is in a cell (a record knows its own), erasing (a cell comes with old bytes),
//! compaction, and a check that a handle is in use.

use std::mem::size_of;

/// The longest record that shares a chunk with others, in bytes.
pub const CELL_BYTES_MAX: usize = 4096;

/// The most that a chunk of several cells has, in bytes.
pub const CHUNK_BYTES_MAX: usize = 32 * 1024;

/// The longest record, in bytes.
pub const RECORD_BYTES_MAX: usize = u32::MAX as usize;

/// How many chunks an arena can number.
pub const CHUNKS_MAX: usize = 1 << (32 - CELL_BITS);

/// Bits of a handle that number a cell in its chunk.
const CELL_BITS: u32 = 10;

/// How many cells a chunk has at most.
const CELLS_MAX: usize = 1 << CELL_BITS;

/// The first chunk of a size has up to so many cells, and no more than [`FIRST_CHUNK_BYTES_MAX`].
const FIRST_CELLS_MAX: usize = 16;

/// The most that the first chunk of a size has, in bytes, if that is a cell at all.
const FIRST_CHUNK_BYTES_MAX: usize = 512;

/// No chunk: the end of a list.
const NONE: u32 = u32::MAX;

/// Where a record is in its [`Arena`]: the number of a chunk and of a cell in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle(u32);

impl Handle {
    /// The handle with this number, as [`Handle::raw`] gave it.
    #[inline]
    #[must_use]
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// The number to keep in a table.
    #[inline]
    #[must_use]
    pub const fn raw(self) -> u32 {
        self.0
    }

    const fn new(chunk: u32, cell: u16) -> Self {
        Self(chunk << CELL_BITS | cell as u32)
    }

    #[inline]
    const fn chunk(self) -> u32 {
        self.0 >> CELL_BITS
    }

    #[inline]
    const fn cell(self) -> u16 {
        (self.0 & (CELLS_MAX as u32 - 1)) as u16
    }
}

/// Cells of one size, or one long record, or nothing (a number that waits for its next use).
#[derive(Debug, Clone)]
struct Chunk {
    /// All cells. Empty exactly when the number is unused.
    cells: Box<[u8]>,
    /// The size of each cell. A long record has one cell of all bytes.
    cell_bytes: u32,
    /// The first free cell, or as many as there are cells when none is free.
    free: u16,
    /// Cells in use.
    live: u16,
    /// The next chunk with a free cell of this size, or the next unused number.
    next: u32,
    /// The chunk before in the list of chunks with a free cell.
    previous: u32,
}

impl Chunk {
    fn new(cell_bytes: usize, cells: usize) -> Self {
        assert!(cells <= CELLS_MAX, "a handle has room for the number of a cell");
        let cell_bytes_u32 = u32::try_from(cell_bytes).expect("a record has at most 2^32 - 1 bytes");
        Self {
            cells: vec![0; cell_bytes * cells].into_boxed_slice(),
            cell_bytes: cell_bytes_u32,
            free: 0,
            live: 0,
            next: NONE,
            previous: NONE,
        }
    }

    #[inline]
    fn start_of(&self, cell: u16) -> usize {
        usize::from(cell) * self.cell_bytes as usize
    }

    fn is_full(&self) -> bool {
        self.start_of(self.free) >= self.cells.len()
    }

    fn cell_count(&self) -> usize {
        self.cells.len() / self.cell_bytes as usize
    }

    /// Takes the first free cell.
    fn take(&mut self) -> u16 {
        let cell = self.free;
        let at = self.start_of(cell);
        let distance = u16::from_le_bytes([self.cells[at], self.cells[at + 1]]);
        self.free = cell.wrapping_add(1).wrapping_add(distance);
        self.live += 1;
        cell
    }

    /// Puts a cell in front of the free ones.
    fn put(&mut self, cell: u16) {
        let at = self.start_of(cell);
        let distance = self.free.wrapping_sub(cell).wrapping_sub(1);
        self.cells[at..at + 2].copy_from_slice(&distance.to_le_bytes());
        self.free = cell;
        self.live -= 1;
    }
}

/// What is known of the cells of one size.
#[derive(Debug, Clone, Copy)]
struct Class {
    /// The first chunk with a free cell.
    open: u32,
    /// Cells in all chunks of this size, in use or not.
    cells: u32,
}

/// Records in cells. An empty one allocates nothing.
#[derive(Debug, Clone)]
pub struct Arena {
    /// By number; those without bytes are unused.
    chunks: Vec<Chunk>,
    /// By class, up to the highest that was ever used.
    classes: Vec<Class>,
    /// The first unused number below `chunks.len()`.
    vacant: u32,
    /// Unused numbers below `chunks.len()`.
    vacant_count: u32,
    /// Records.
    live: usize,
    /// Bytes in all chunks.
    chunk_bytes: usize,
    /// Bytes of the cells in use.
    cell_bytes: usize,
}

impl Default for Arena {
    fn default() -> Self {
        Self::new()
    }
}

impl Arena {
    /// An arena without records.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            classes: Vec::new(),
            vacant: NONE,
            vacant_count: 0,
            live: 0,
            chunk_bytes: 0,
            cell_bytes: 0,
        }
    }

    /// A cell with room for so many bytes. What is in it is old.
    ///
    /// # Panics
    /// When the record is longer than [`RECORD_BYTES_MAX`], or without [`Arena::has_room`].
    pub fn alloc(&mut self, len: usize) -> Handle {
        self.live += 1;
        if len > CELL_BYTES_MAX {
            let mut chunk = Chunk::new(len, 1);
            (chunk.free, chunk.live) = (1, 1);
            self.cell_bytes += len;
            return Handle::new(self.add_chunk(chunk), 0);
        }
        let class = class_of(len);
        let number = self.open_chunk(class);
        let chunk = &mut self.chunks[number as usize];
        let cell = chunk.take();
        self.cell_bytes += chunk.cell_bytes as usize;
        if chunk.is_full() {
            self.unlink(class, number);
        }
        Handle::new(number, cell)
    }

    /// Gives a cell back. Its handle means nothing from here on, until it is given out again.
    pub fn free(&mut self, handle: Handle) {
        self.live -= 1;
        let number = handle.chunk();
        let chunk = &mut self.chunks[number as usize];
        assert!(chunk.live > 0, "a cell in use is freed");
        self.cell_bytes -= chunk.cell_bytes as usize;
        if chunk.cell_bytes as usize > CELL_BYTES_MAX {
            self.remove_chunk(number);
            return;
        }
        let was_full = chunk.is_full();
        chunk.put(handle.cell());
        let (is_empty, class) = (chunk.live == 0, class_of(chunk.cell_bytes as usize));
        if is_empty {
            let cells = u32::try_from(chunk.cell_count()).expect("at most 1,024 cells");
            self.classes[class].cells -= cells;
            if !was_full {
                self.unlink(class, number);
            }
            self.remove_chunk(number);
        } else if was_full {
            self.link(class, number);
        }
    }

    /// The bytes of a cell: those asked for, and up to the end of the cell.
    ///
    /// # Panics
    /// When the arena never gave out the chunk of this handle.
    #[inline]
    #[must_use]
    pub fn cell(&self, handle: Handle) -> &[u8] {
        let chunk = &self.chunks[handle.chunk() as usize];
        &chunk.cells[chunk.start_of(handle.cell())..][..chunk.cell_bytes as usize]
    }

    /// The bytes of a cell, to write.
    ///
    /// # Panics
    /// When the arena never gave out the chunk of this handle.
    #[inline]
    #[must_use]
    pub fn cell_mut(&mut self, handle: Handle) -> &mut [u8] {
        let chunk = &mut self.chunks[handle.chunk() as usize];
        let start = chunk.start_of(handle.cell());
        &mut chunk.cells[start..][..chunk.cell_bytes as usize]
    }

    /// Has a cell brought near that is read soon, without waiting for it: nothing depends on the byte that this reads.
    #[inline]
    pub fn touch(&self, handle: Handle) {
        std::hint::black_box(self.cell(handle)[0]);
    }

    /// Whether a record of so many bytes should stay in this cell: it has room, and less than half of it is wasted.
    #[inline]
    #[must_use]
    pub fn fits(&self, handle: Handle, len: usize) -> bool {
        let cell_bytes = self.chunks[handle.chunk() as usize].cell_bytes as usize;
        len <= cell_bytes && (len >= cell_bytes / 2 || cell_bytes <= 32)
    }

    /// A cell with room for so many bytes that starts with what this one starts with. The old handle is freed, unless it
    /// is the one that comes back. A long record that grows gets a quarter more than it had, so that many small
    /// additions copy it a few times only.
    ///
    /// # Panics
    /// As [`Arena::alloc`].
    pub fn resize(&mut self, handle: Handle, len: usize) -> Handle {
        if self.fits(handle, len) {
            return handle;
        }
        let old_bytes = self.cell(handle).len();
        if old_bytes > CELL_BYTES_MAX && len > CELL_BYTES_MAX {
            self.resize_chunk(handle.chunk(), len);
            return handle;
        }
        let moved = self.alloc(len);
        let numbers = [handle.chunk() as usize, moved.chunk() as usize];
        let [from, to] = self.chunks.get_disjoint_mut(numbers).expect("cells of two sizes are in two chunks");
        let kept = old_bytes.min(len);
        let (source, target) = (from.start_of(handle.cell()), to.start_of(moved.cell()));
        to.cells[target..][..kept].copy_from_slice(&from.cells[source..][..kept]);
        self.free(handle);
        moved
    }

    /// Forgets all records and gives all memory back.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Records.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.live
    }

    /// Whether there is no record.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Whether so many more records of any length can be given a cell.
    #[must_use]
    pub fn has_room(&self, records: usize) -> bool {
        self.chunks.len() - self.vacant_count as usize + records <= CHUNKS_MAX
    }

    /// Bytes taken from the allocator, without its own bookkeeping.
    #[must_use]
    pub const fn bytes_held(&self) -> usize {
        self.chunk_bytes + self.chunks.capacity() * size_of::<Chunk>() + self.classes.capacity() * size_of::<Class>()
    }

    /// Bytes of the cells that records lie in, their rest included.
    #[inline]
    #[must_use]
    pub const fn bytes_used(&self) -> usize {
        self.cell_bytes
    }

    /// Bytes of free cells: taken from the allocator, and there for the next records.
    #[inline]
    #[must_use]
    pub const fn bytes_spare(&self) -> usize {
        self.chunk_bytes - self.cell_bytes
    }

    /// The bytes of the cell that a record of so many bytes lies in.
    #[inline]
    #[must_use]
    pub const fn cell_len(&self, handle: Handle) -> usize {
        self.chunks.as_slice()[handle.chunk() as usize].cell_bytes as usize
    }

    /// A chunk of this class with a free cell.
    fn open_chunk(&mut self, class: usize) -> u32 {
        if class >= self.classes.len() {
            self.classes.resize(class + 1, Class { open: NONE, cells: 0 });
        }
        let Class { open, cells: held } = self.classes[class];
        if open != NONE {
            return open;
        }
        let cell_bytes = cell_bytes_of(class);
        let cells_max = (CHUNK_BYTES_MAX / cell_bytes).min(CELLS_MAX);
        let cells_min = (FIRST_CHUNK_BYTES_MAX / cell_bytes).clamp(1, FIRST_CELLS_MAX);
        let cells = (held as usize / 4).clamp(cells_min, cells_max);
        let number = self.add_chunk(Chunk::new(cell_bytes, cells));
        self.classes[class].cells += u32::try_from(cells).expect("at most 1,024 cells");
        self.link(class, number);
        number
    }

    /// Puts a chunk in front of those with a free cell.
    fn link(&mut self, class: usize, number: u32) {
        let next = self.classes[class].open;
        let chunk = &mut self.chunks[number as usize];
        (chunk.previous, chunk.next) = (NONE, next);
        if next != NONE {
            self.chunks[next as usize].previous = number;
        }
        self.classes[class].open = number;
    }

    /// Takes a chunk out of those with a free cell.
    fn unlink(&mut self, class: usize, number: u32) {
        let Chunk { next, previous, .. } = self.chunks[number as usize];
        match previous {
            NONE => self.classes[class].open = next,
            previous => self.chunks[previous as usize].next = next,
        }
        if next != NONE {
            self.chunks[next as usize].previous = previous;
        }
    }

    /// Numbers a chunk.
    fn add_chunk(&mut self, chunk: Chunk) -> u32 {
        self.chunk_bytes += chunk.cells.len();
        if self.vacant != NONE {
            let number = self.vacant;
            let place = &mut self.chunks[number as usize];
            self.vacant = place.next;
            self.vacant_count -= 1;
            *place = chunk;
            return number;
        }
        assert!(self.chunks.len() < CHUNKS_MAX, "a handle has room for the number of a chunk");
        let number = u32::try_from(self.chunks.len()).expect("fewer than 2^22 chunks");
        self.chunks.push(chunk);
        number
    }

    /// Gives the bytes of a chunk back and its number up.
    fn remove_chunk(&mut self, number: u32) {
        let chunk = &mut self.chunks[number as usize];
        self.chunk_bytes -= chunk.cells.len();
        *chunk = Chunk { cells: Box::default(), cell_bytes: 0, free: 0, live: 0, next: self.vacant, previous: NONE };
        self.vacant = number;
        self.vacant_count += 1;
    }

    /// Gives a long record more bytes, or fewer.
    fn resize_chunk(&mut self, number: u32, len: usize) {
        let chunk = &mut self.chunks[number as usize];
        let old_bytes = chunk.cells.len();
        let bytes = if len > old_bytes { len.max(old_bytes + old_bytes / 4).min(RECORD_BYTES_MAX) } else { len };
        assert!(len <= bytes, "a record has at most 2^32 - 1 bytes");
        let mut cells = std::mem::take(&mut chunk.cells).into_vec();
        cells.reserve_exact(bytes.saturating_sub(old_bytes));
        cells.resize(bytes, 0);
        chunk.cells = cells.into_boxed_slice();
        chunk.cell_bytes = u32::try_from(bytes).expect("a record has at most 2^32 - 1 bytes");
        self.chunk_bytes = self.chunk_bytes - old_bytes + bytes;
        self.cell_bytes = self.cell_bytes - old_bytes + bytes;
    }
}

/// Classes of multiples of eight: 16 to 128.
const CLASSES_OF_EIGHTS: usize = 15;

/// The class of the smallest cells that hold a record of so many bytes, at most [`CELL_BYTES_MAX`].
#[inline]
const fn class_of(len: usize) -> usize {
    if len <= 128 {
        return if len <= 16 { 0 } else { len.div_ceil(8) - 2 };
    }
    let last = len - 1;
    let doubling = last.ilog2() - 7;
    CLASSES_OF_EIGHTS + doubling as usize * 8 + (last >> (doubling + 4)) - 8
}

/// The size of the cells of a class, in bytes.
const fn cell_bytes_of(class: usize) -> usize {
    if class < CLASSES_OF_EIGHTS {
        return 16 + 8 * class;
    }
    let step = class - CLASSES_OF_EIGHTS;
    (9 + step % 8) << (4 + step / 8)
}

#[cfg(test)]
mod tests;
