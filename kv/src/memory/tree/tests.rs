use super::*;
use crate::memory::draws::Draws;

impl Tree {
    /// Checks what the fields promise.
    fn check(&self) {
        if self.is_empty() {
            assert_eq!(self.leaves.nodes.len(), 0);
            return;
        }
        let mut leaves = Vec::new();
        let count = self.check_below(self.root, self.levels, true, &mut leaves);
        assert_eq!(count, self.len);
        assert_eq!(leaves.len(), self.leaves.nodes.len() - self.leaves.free.len());
        let mut previous = NONE;
        for (place, node) in leaves.iter().enumerate() {
            let leaf = self.leaves.get(*node);
            assert_eq!(leaf.previous, previous);
            assert_eq!(leaf.next, leaves.get(place + 1).copied().unwrap_or(NONE));
            previous = *node;
        }
    }

    fn check_below(&self, node: u32, levels: u32, is_last: bool, leaves: &mut Vec<u32>) -> usize {
        let fill = self.fill(node, levels);
        let fill_min = if is_last { 1 } else { FILL_MIN };
        assert!((fill_min..=FAN).contains(&fill), "{fill}");
        if levels == 0 {
            leaves.push(node);
            return fill;
        }
        let mut total = 0;
        for (slot, branch) in self.inners.get(node).iter().enumerate() {
            assert_eq!(branch.first, self.first(branch.node, levels - 1));
            let count = self.check_below(branch.node, levels - 1, is_last && slot + 1 == fill, leaves);
            assert_eq!(branch.count as usize, count);
            total += count;
        }
        total
    }

    fn add(&mut self, value: u32) {
        self.insert(item(value), |other| is_before(other, value));
    }
}

/// Of each four, all have the same number.
fn item(value: u32) -> Item {
    Item::new(u64::from(value / 4) << 20, Handle::from_raw(value))
}

fn is_before(other: Item, value: u32) -> bool {
    let number = item(value).number();
    other.number() < number || (other.number() == number && other.handle().raw() < value)
}

fn raw(handles: impl Iterator<Item = Handle>) -> Vec<u32> {
    handles.map(Handle::raw).collect()
}

fn check_against(tree: &Tree, model: &[u32], draws: &mut Draws) {
    tree.check();
    assert_eq!(tree.len(), model.len());
    let wanted = u32::try_from(draws.below(1 << 20)).unwrap();
    assert_eq!(tree.partition_point(|other| is_before(other, wanted)), model.partition_point(|other| *other < wanted));
    let rank = draws.below(model.len() + 2);
    assert_eq!(tree.nth(rank).map(Handle::raw), model.get(rank).copied());
    let start = draws.below(model.len() + 1);
    let end = (start + draws.below(300)).min(model.len());
    assert_eq!(raw(tree.iter(start..end)), model[start..end]);
    let backward: Vec<u32> = model[start..end].iter().rev().copied().collect();
    assert_eq!(raw(tree.iter(start..end).rev()), backward);
    let mut both = tree.iter(start..end);
    let (mut front, mut back) = (Vec::new(), Vec::new());
    while let Some(handle) = both.next() {
        front.push(handle.raw());
        back.extend(both.next_back().map(Handle::raw));
    }
    front.extend(back.into_iter().rev());
    assert_eq!(front, model[start..end]);
}

#[test]
fn a_tree_does_what_a_sorted_vector_does() {
    let mut levels_max = 0;
    for seed in 0..12 {
        let mut draws = Draws(seed);
        let (mut tree, mut model) = (Tree::new(), Vec::<u32>::new());
        // Waves of growth and shrinking reach all heights in both directions.
        for wave in 0..6 {
            let bias = if wave % 2 == 0 { 8 } else { 3 };
            for step in 0..2500 {
                step_of(bias, &mut draws, &mut tree, &mut model);
                levels_max = levels_max.max(tree.levels);
                if step % 50 == 0 {
                    check_against(&tree, &model, &mut draws);
                }
            }
        }
        tree.remove_range(0..usize::MAX, |_| {});
        tree.check();
    }
    assert_eq!(levels_max, 2);
}

fn step_of(bias: usize, draws: &mut Draws, tree: &mut Tree, model: &mut Vec<u32>) {
    if draws.below(10) < bias {
        for _ in 0..4 {
            let value = u32::try_from(draws.below(1 << 20)).unwrap();
            tree.add(value);
            model.insert(model.partition_point(|other| *other < value), value);
        }
    } else if draws.below(40) > 0 {
        for _ in 0..4 {
            let rank = draws.below(model.len() + 1);
            let expected = (rank < model.len()).then(|| model.remove(rank));
            assert_eq!(tree.remove_at(rank).map(Handle::raw), expected);
        }
    } else {
        let start = draws.below(model.len() + 1);
        let end = (start + draws.below(500)).min(model.len());
        let mut removed = Vec::new();
        tree.remove_range(start..end, |handle| removed.push(handle.raw()));
        assert_eq!(removed, model.drain(start..end).collect::<Vec<_>>());
    }
}

#[test]
fn ascending_handles_fill_their_leaves() {
    let mut tree = Tree::new();
    for value in 0..200_000 {
        tree.add(value);
    }
    tree.check();
    assert_eq!(tree.leaves.nodes.len(), 200_000_usize.div_ceil(FAN));
    assert!(tree.bytes_held() < 200_000 * 14, "{}", tree.bytes_held());
    assert_eq!(raw(tree.iter(199_990..usize::MAX)), (199_990..200_000).collect::<Vec<_>>());
}

#[test]
fn handles_that_ascend_in_the_middle_leave_no_node_nearly_empty() {
    let mut tree = Tree::new();
    for value in (0..1000).chain(1_000_000..1_001_000).chain(1000..100_000) {
        tree.add(value);
    }
    tree.check();
}

#[test]
fn descending_handles_are_in_order_too() {
    let mut tree = Tree::new();
    for value in (0..50_000).rev() {
        tree.add(value);
    }
    tree.check();
    assert_eq!(raw(tree.iter(0..usize::MAX)), (0..50_000).collect::<Vec<_>>());
}

#[test]
fn a_step_asks_for_few_handles() {
    let mut tree = Tree::new();
    let mut draws = Draws(3);
    for _ in 0..200_000 {
        tree.add(u32::try_from(draws.below(1 << 30)).unwrap());
    }
    assert!(tree.bytes_held() < 200_000 * 25, "{}", tree.bytes_held());
    let mut asked = 0;
    for _ in 0..1000 {
        let value = u32::try_from(draws.below(1 << 30)).unwrap();
        tree.insert(item(value), |other| {
            asked += 1;
            is_before(other, value)
        });
    }
    assert!(asked < 1000 * 24, "{asked}");
}

#[test]
fn an_empty_tree_answers() {
    let mut tree = Tree::new();
    assert_eq!((tree.nth(0), tree.remove_at(0), tree.partition_point(|_| true)), (None, None, 0));
    assert_eq!(tree.iter(0..10).count(), 0);
    tree.add(1);
    assert_eq!(tree.remove_at(0), Some(Handle::from_raw(1)));
    assert_eq!(tree.bytes_held(), 0);
}
