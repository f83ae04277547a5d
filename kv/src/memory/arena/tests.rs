use super::*;
use crate::memory::draws::Draws;

/// A record of the model: fills its cell with bytes of its own.
struct Record {
    handle: Handle,
    len: usize,
    mark: u8,
}

/// Records drawn at random, and the most cells of each class that were in use at once.
struct Model {
    arena: Arena,
    draws: Draws,
    records: Vec<Record>,
    live: Vec<u32>,
    peak: Vec<u32>,
}

impl Model {
    fn new(seed: u64) -> Self {
        let counts = vec![0; class_of(CELL_BYTES_MAX) + 1];
        Self { arena: Arena::new(), draws: Draws(seed), records: Vec::new(), live: counts.clone(), peak: counts }
    }

    /// Mostly short, some long.
    fn draw_len(&mut self) -> usize {
        let limit = [40, 40, 40, 200, 200, 1_000, CELL_BYTES_MAX, 20_000][self.draws.below(8)];
        self.draws.below(limit + 1)
    }

    fn count(&mut self, len: usize, by: i32) {
        if len <= CELL_BYTES_MAX {
            let live = &mut self.live[class_of(len)];
            *live = live.checked_add_signed(by).expect("what is freed was there");
            let peak = &mut self.peak[class_of(len)];
            *peak = (*peak).max(*live);
        }
    }

    fn alloc(&mut self) {
        let (len, mark) = (self.draw_len(), self.draws.next() as u8);
        let handle = self.arena.alloc(len);
        self.arena.cell_mut(handle)[..len].fill(mark);
        self.count(len, 1);
        self.records.push(Record { handle, len, mark });
    }

    fn free(&mut self) {
        let record = self.records.swap_remove(self.draws.below(self.records.len()));
        self.check(&record);
        self.arena.free(record.handle);
        self.count(record.len, -1);
    }

    fn check(&self, record: &Record) {
        let cell = self.arena.cell(record.handle);
        assert!(cell.len() >= record.len);
        assert!(cell[..record.len].iter().all(|byte| *byte == record.mark), "another record wrote into this one");
    }

    fn check_all(&self) {
        self.records.iter().for_each(|record| self.check(record));
        assert_eq!(self.arena.len(), self.records.len());
        for (class, known) in self.arena.classes.iter().enumerate() {
            let first = (FIRST_CHUNK_BYTES_MAX / cell_bytes_of(class)).clamp(1, FIRST_CELLS_MAX) as u32;
            let bound = self.peak[class] + (self.peak[class] / 4).max(first);
            assert!(known.cells <= bound, "class {class}: {} cells, {} at once", known.cells, self.peak[class]);
        }
        let chunk_bytes: usize = self.arena.chunks.iter().map(|chunk| chunk.cells.len()).sum();
        assert_eq!(chunk_bytes, self.arena.chunk_bytes);
        let used: usize = self.records.iter().map(|record| self.arena.cell_len(record.handle)).sum();
        assert_eq!((self.arena.bytes_used(), self.arena.bytes_spare()), (used, chunk_bytes - used));
    }
}

#[test]
fn a_hundred_thousand_steps_against_a_model() {
    let mut model = Model::new(1);
    for step in 0..100_000 {
        // Grows to some thousands, falls to none, and so on.
        let is_growing = step / 10_000 % 2 == 0;
        let grows = model.draws.below(10) < if is_growing { 7 } else { 2 };
        if grows || model.records.is_empty() {
            model.alloc();
        } else {
            model.free();
        }
        if step % 1_000 == 0 {
            model.check_all();
        }
    }
    while !model.records.is_empty() {
        model.free();
    }
    model.check_all();
    assert_eq!(model.arena.chunk_bytes, 0, "empty chunks go back");
}

#[test]
fn a_cell_is_the_smallest_of_its_classes() {
    let sizes: Vec<usize> = (0..=class_of(CELL_BYTES_MAX)).map(cell_bytes_of).collect();
    assert_eq!(sizes[..16], [16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 144]);
    assert_eq!(sizes.last(), Some(&CELL_BYTES_MAX));
    for len in 0..=CELL_BYTES_MAX {
        let expected = sizes.iter().find(|size| **size >= len);
        assert_eq!(Some(&cell_bytes_of(class_of(len))), expected, "for {len} bytes");
    }
}

#[test]
fn numbers_are_used_again() {
    let mut arena = Arena::new();
    for len in [16, 100, 5_000] {
        let first: Vec<Handle> = (0..3_000).map(|_| arena.alloc(len)).collect();
        let chunks = arena.chunks.len();
        first.iter().for_each(|handle| arena.free(*handle));
        assert_eq!((arena.chunk_bytes, arena.vacant_count as usize), (0, chunks));
        let mut again: Vec<Handle> = (0..3_000).map(|_| arena.alloc(len)).collect();
        assert_eq!(arena.chunks.len(), chunks);
        again.sort_unstable();
        again.dedup();
        assert_eq!(again.len(), 3_000, "no cell is given out twice");
        again.iter().for_each(|handle| arena.free(*handle));
    }
}

#[test]
fn a_freed_cell_is_the_next_to_be_given_out() {
    let mut arena = Arena::new();
    let handles: Vec<Handle> = (0..100).map(|_| arena.alloc(24)).collect();
    arena.free(handles[50]);
    assert_eq!(arena.alloc(20), handles[50]);
}

#[test]
fn small_arenas_stay_small_and_chunks_bounded() {
    let mut arena = Arena::new();
    assert_eq!(arena.bytes_held(), 0);
    arena.alloc(50);
    assert!(arena.bytes_held() <= 1024, "{} bytes", arena.bytes_held());
    for _ in 0..100_000 {
        let _ = arena.alloc(50);
    }
    let used = 100_001 * 56;
    assert!(arena.bytes_held() <= used + 2 * CHUNK_BYTES_MAX + used / 100, "{} bytes", arena.bytes_held());
    assert!(arena.chunks.iter().all(|chunk| chunk.cells.len() <= CHUNK_BYTES_MAX));
}

#[test]
fn what_fits() {
    // Length of the record, length of the next, whether it stays.
    let cases = [
        (8, 0, true),
        (8, 16, true),
        (8, 17, false),
        (30, 0, true),
        (64, 64, true),
        (64, 32, true),
        (64, 31, false),
        (64, 65, false),
        (5_000, 5_000, true),
        (5_000, 2_500, true),
        (5_000, 5_001, false),
        (5_000, 100, false),
    ];
    for (len, next, expected) in cases {
        let mut arena = Arena::new();
        let handle = arena.alloc(len);
        assert_eq!(arena.fits(handle, next), expected, "{len} to {next}");
    }
}

#[test]
fn a_resized_record_keeps_what_it_starts_with() {
    let mut arena = Arena::new();
    let lens = [10, 100, 99, 4_000, 4_096, 4_097, 5_000, 100_000, 99_000, 20_000, 4_500, 300, 3, 60_000, 0];
    let mut handle = arena.alloc(0);
    let mut kept = 0;
    let neighbours: Vec<Handle> = lens.iter().map(|len| arena.alloc(*len)).collect();
    neighbours.iter().for_each(|neighbour| arena.cell_mut(*neighbour).fill(0xff));
    for len in lens {
        handle = arena.resize(handle, len);
        kept = kept.min(len);
        assert!(arena.cell(handle)[..kept].iter().enumerate().all(|(at, byte)| *byte == at as u8), "{len} bytes");
        arena.cell_mut(handle)[..len].iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
        kept = len;
        let chunk_bytes: usize = arena.chunks.iter().map(|chunk| chunk.cells.len()).sum();
        assert_eq!(chunk_bytes, arena.chunk_bytes);
        let used: usize = neighbours.iter().chain([&handle]).map(|handle| arena.cell_len(*handle)).sum();
        assert_eq!(arena.bytes_used(), used);
    }
    assert_eq!(arena.len(), lens.len() + 1);
    assert!(neighbours.iter().all(|neighbour| arena.cell(*neighbour).iter().all(|byte| *byte == 0xff)));
}

#[test]
fn a_long_record_grows_in_few_steps() {
    let mut arena = Arena::new();
    let mut handle = arena.alloc(CELL_BYTES_MAX + 1);
    let mut growths = 0;
    for len in (5_000..1_000_000).step_by(100) {
        let before = arena.cell(handle).len();
        handle = arena.resize(handle, len);
        growths += u32::from(arena.cell(handle).len() != before);
        assert!(arena.cell(handle).len() <= len + len / 4);
    }
    assert!(growths <= 30, "{growths} growths");
}
