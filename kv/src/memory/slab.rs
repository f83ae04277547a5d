//! Values under small numbers that stay the same while others come and go.
//!
//! Values lie in pages, so that growing moves none of them: no step costs more than one page.

/// Values a page.
const PAGE: usize = 256;

/// Values under numbers.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    pages: Vec<Vec<Option<T>>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { pages: Vec::new(), free: Vec::new(), len: 0 }
    }
}

impl<T> Slab<T> {
    /// How many values there are.
    #[cfg(test)]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Bytes of places without a value: taken from the allocator, and there for the next values.
    pub(crate) const fn bytes_spare(&self) -> usize {
        self.free.len() * (size_of::<Option<T>>() + size_of::<u32>())
    }

    /// Keeps a value.
    ///
    /// # Panics
    /// There are 2^32 of them.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        if let Some(number) = self.free.pop() {
            *self.place(number) = Some(value);
            return number;
        }
        if self.pages.last().is_none_or(|page| page.len() == PAGE) {
            self.pages.push(Vec::with_capacity(if self.pages.is_empty() { 4 } else { PAGE }));
        }
        let before = (self.pages.len() - 1) * PAGE;
        let page = self.pages.last_mut().expect("one was just made if there was none");
        page.push(Some(value));
        u32::try_from(before + page.len() - 1).expect("a shard holds fewer than 2^32 objects")
    }

    /// The value under a number.
    ///
    /// # Panics
    /// There is none.
    pub(crate) fn get(&self, number: u32) -> &T {
        let number = number as usize;
        self.pages[number / PAGE][number % PAGE].as_ref().expect("the number names a value")
    }

    /// The value under a number, to change.
    ///
    /// # Panics
    /// There is none.
    pub(crate) fn get_mut(&mut self, number: u32) -> &mut T {
        self.place(number).as_mut().expect("the number names a value")
    }

    /// Takes a value out; its number names nothing until it is given out again.
    ///
    /// # Panics
    /// There is none.
    pub(crate) fn remove(&mut self, number: u32) -> T {
        let value = self.place(number).take().expect("the number names a value");
        self.free.push(number);
        self.len -= 1;
        if self.len == 0 {
            *self = Self::default();
        }
        value
    }

    fn place(&mut self, number: u32) -> &mut Option<T> {
        let number = number as usize;
        &mut self.pages[number / PAGE][number % PAGE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_and_are_used_again() {
        let mut slab = Slab::default();
        let numbers: Vec<u32> = (0..1_000).map(|value| slab.insert(value)).collect();
        for (value, number) in numbers.iter().enumerate().step_by(2) {
            assert_eq!(slab.remove(*number), value);
        }
        assert_eq!(slab.len(), 500);
        let again: Vec<u32> = (0..500).map(|value| slab.insert(value + 5_000)).collect();
        assert!(again.iter().all(|number| numbers.contains(number)));
        *slab.get_mut(again[3]) += 1;
        assert_eq!((*slab.get(again[3]), *slab.get(numbers[1]), slab.len()), (5_004, 1, 1_000));
    }
}
