//! A long list: short sequences in a row, with a summary.
//!
//! Nodes are kept in runs of up to [`RUN_NODES_MAX`], and each run knows how many elements it has. The n-th element is found
//! by walking the runs, then the nodes of one run, then one node. A list of a million elements of ten bytes has a dozen
//! runs; one of half a million nodes has 4,000. Adding or removing a node moves at most the other nodes of its run.
//!
//! When elements are removed here and there, neighbours in a run that have become small are put together, so that a list
//! keeps few nodes for its bytes.

use std::collections::VecDeque;

use super::{End, Fill};
use crate::memory::packed::{Packed, Place};

/// The most nodes of one run. Few in tests, so that they have many runs.
const RUN_NODES_MAX: usize = if cfg!(test) { 4 } else { 128 };

/// Nodes that lie next to each other.
#[derive(Debug, Clone, Default)]
struct Run {
    /// None is empty.
    nodes: VecDeque<Packed>,
    /// How many elements they have together.
    len: usize,
}

/// Where an element is, or behind the last element of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub(super) run: usize,
    pub(super) node: usize,
    /// Within the node.
    pub(super) n: usize,
}

/// The nodes of a long list.
#[derive(Debug, Clone, Default)]
pub(super) struct Nodes {
    /// None is empty.
    runs: VecDeque<Run>,
    /// How many elements they have together.
    len: usize,
}

impl Nodes {
    /// A list of one node, or none if that is empty.
    pub(super) fn new(node: Packed) -> Self {
        let mut nodes = Self::default();
        if !node.is_empty() {
            nodes.add_node(End::Back, node);
        }
        nodes
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes_held(&self) -> usize {
        let of_run = |run: &Run| {
            let payload: usize = run.nodes.iter().map(Packed::bytes_held).sum();
            payload + run.nodes.capacity() * size_of::<Packed>()
        };
        self.runs.iter().map(of_run).sum::<usize>() + self.runs.capacity() * size_of::<Run>()
    }

    /// All nodes, in order.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Packed> {
        self.runs.iter().flat_map(|run| &run.nodes)
    }

    /// The only node, if there is just one.
    pub(super) fn only(&self) -> Option<&Packed> {
        let run = self.runs.front().filter(|_| self.runs.len() == 1)?;
        run.nodes.front().filter(|_| run.nodes.len() == 1)
    }

    /// Takes the only node out.
    pub(super) fn into_only(mut self) -> Packed {
        let node = self.runs.pop_front().and_then(|mut run| run.nodes.pop_front());
        node.expect("asked for only when there is one")
    }

    pub(super) fn node(&self, at: At) -> Option<&Packed> {
        self.runs.get(at.run)?.nodes.get(at.node)
    }

    /// The first place of the node after.
    pub(super) fn next_node(&self, at: At) -> Option<At> {
        let run = self.runs.get(at.run)?;
        let next = if at.node + 1 < run.nodes.len() {
            At { run: at.run, node: at.node + 1, n: 0 }
        } else {
            At { run: at.run + 1, node: 0, n: 0 }
        };
        (next.run < self.runs.len()).then_some(next)
    }

    /// The last place of the node before.
    pub(super) fn previous_node(&self, at: At) -> Option<At> {
        let (run, node) = if at.node > 0 {
            (at.run, at.node - 1)
        } else {
            let run = at.run.checked_sub(1)?;
            (run, self.runs[run].nodes.len() - 1)
        };
        Some(At { run, node, n: self.runs[run].nodes[node].len() })
    }

    /// Where the element at an index below the length is.
    pub(super) fn locate(&self, index: usize) -> At {
        assert!(index < self.len, "only elements that are there are looked for");
        let mut run = 0;
        let mut n = index;
        if index < self.len / 2 {
            while n >= self.runs[run].len {
                n -= self.runs[run].len;
                run += 1;
            }
        } else {
            run = self.runs.len() - 1;
            let mut start = self.len - self.runs[run].len;
            while start > index {
                run -= 1;
                start -= self.runs[run].len;
            }
            n = index - start;
        }
        let mut node = 0;
        while n >= self.runs[run].nodes[node].len() {
            n -= self.runs[run].nodes[node].len();
            node += 1;
        }
        At { run, node, n }
    }

    /// Adds an element at an end.
    pub(super) fn push(&mut self, end: End, element: &[u8], fill: Fill) {
        if self.end_run(end).is_some_and(|run| run.push(end, element, fill)) {
            self.len += 1;
        } else {
            self.add_node(end, single(element));
        }
    }

    /// Adds a node that is not empty.
    pub(super) fn add_node(&mut self, end: End, node: Packed) {
        let len = node.len();
        if self.end_run(end).is_none_or(|run| run.nodes.len() >= RUN_NODES_MAX) {
            match end {
                End::Front => self.runs.push_front(Run::default()),
                End::Back => self.runs.push_back(Run::default()),
            }
        }
        let run = self.end_run(end).expect("there is one with room now");
        match end {
            End::Front => run.nodes.push_front(node),
            End::Back => run.nodes.push_back(node),
        }
        run.len += len;
        self.len += len;
    }

    fn end_run(&mut self, end: End) -> Option<&mut Run> {
        match end {
            End::Front => self.runs.front_mut(),
            End::Back => self.runs.back_mut(),
        }
    }

    /// Adds an element before the one at a place, or behind the last of a node.
    pub(super) fn insert(&mut self, at: At, element: &[u8], fill: Fill) {
        let run = &mut self.runs[at.run];
        let node_len = run.nodes[at.node].len();
        run.len += 1;
        self.len += 1;
        if fill.takes(&run.nodes[at.node], element) {
            let node = &mut run.nodes[at.node];
            return node.insert(place(node, at.n), element);
        }
        if at.n == 0 {
            match at.node.checked_sub(1).map(|before| &mut run.nodes[before]) {
                Some(before) if fill.takes(before, element) => before.push_back(element),
                _ => run.nodes.insert(at.node, single(element)),
            }
        } else if at.n == node_len {
            match run.nodes.get_mut(at.node + 1) {
                Some(after) if fill.takes(after, element) => after.push_front(element),
                _ => run.nodes.insert(at.node + 1, single(element)),
            }
        } else {
            run.split_node(at, element, fill);
        }
        self.split_run(at.run);
    }

    /// A run that has too many nodes becomes two.
    fn split_run(&mut self, place: usize) {
        let run = &mut self.runs[place];
        if run.nodes.len() <= RUN_NODES_MAX {
            return;
        }
        let nodes = run.nodes.split_off(run.nodes.len() / 2);
        let len = nodes.iter().map(Packed::len).sum();
        run.len -= len;
        self.runs.insert(place + 1, Run { nodes, len });
    }

    /// Puts an element in the place of the one at an index.
    pub(super) fn replace(&mut self, index: usize, element: &[u8], fill: Fill) {
        let at = self.locate(index);
        let node = &mut self.runs[at.run].nodes[at.node];
        let old = place(node, at.n);
        let bytes = node.byte_len() - node.get(old).entry_bytes();
        if fill.allows(bytes, node.len() - 1, element) {
            return node.replace(old, element);
        }
        self.insert(at, element, fill);
        self.remove_range(index + 1, 1);
    }

    /// Removes `count` elements from an index on. There are as many.
    pub(super) fn remove_range(&mut self, index: usize, count: usize) {
        if count == 0 {
            return;
        }
        let mut at = self.locate(index);
        let mut left = count;
        self.len -= count;
        while left > 0 {
            let run = &mut self.runs[at.run];
            if at.node == 0 && at.n == 0 && run.len <= left {
                left -= run.len;
                self.runs.remove(at.run);
                continue;
            }
            let node = &mut run.nodes[at.node];
            let removed = if at.n == 0 && node.len() <= left {
                let len = node.len();
                run.nodes.remove(at.node);
                len
            } else {
                let removed = node.remove_many(place(node, at.n), left);
                at.node += 1;
                removed
            };
            left -= removed;
            run.len -= removed;
            at.n = 0;
            if at.node >= run.nodes.len() {
                at = At { run: at.run + 1, node: 0, n: 0 };
            }
        }
    }

    /// Removes elements that equal these bytes, up to a count, the nearest to an end first; how many that were.
    pub(super) fn remove_equal(&mut self, from: End, unwanted: &[u8], count_max: usize, fill: Fill) -> usize {
        let mut removed = 0;
        for step in 0..self.runs.len() {
            let place = match from {
                End::Front => step,
                End::Back => self.runs.len() - 1 - step,
            };
            if removed == count_max {
                break;
            }
            removed += self.runs[place].remove_equal(from, unwanted, count_max - removed, fill);
        }
        self.runs.retain(|run| run.len > 0);
        self.len -= removed;
        removed
    }
}

impl Run {
    /// Adds an element to the node at an end, if that takes it.
    fn push(&mut self, end: End, element: &[u8], fill: Fill) -> bool {
        let node = match end {
            End::Front => self.nodes.front_mut(),
            End::Back => self.nodes.back_mut(),
        };
        let Some(node) = node else { return false };
        if !fill.takes(node, element) {
            node.shrink_to_fit();
            return false;
        }
        match end {
            End::Front => node.push_front(element),
            End::Back => node.push_back(element),
        }
        self.len += 1;
        true
    }

    /// Makes two nodes of one and puts an element between their elements. The length of the run is for the caller.
    fn split_node(&mut self, at: At, element: &[u8], fill: Fill) {
        let node = &mut self.nodes[at.node];
        let mut tail = node.split_off(place(node, at.n));
        if fill.takes(node, element) {
            node.push_back(element);
        } else if fill.takes(&tail, element) {
            tail.push_front(element);
        } else {
            self.nodes.insert(at.node + 1, single(element));
            self.nodes.insert(at.node + 2, tail);
            return;
        }
        self.nodes.insert(at.node + 1, tail);
    }

    fn remove_equal(&mut self, from: End, unwanted: &[u8], count_max: usize, fill: Fill) -> usize {
        let mut removed = 0;
        for step in 0..self.nodes.len() {
            let left = count_max - removed;
            if left == 0 {
                break;
            }
            let node = match from {
                End::Front => &mut self.nodes[step],
                End::Back => {
                    let place = self.nodes.len() - 1 - step;
                    &mut self.nodes[place]
                }
            };
            let skip = match from {
                End::Front => 0,
                End::Back => count_equal(node, unwanted).saturating_sub(left),
            };
            removed += node.remove_equal(unwanted, skip, left);
        }
        self.len -= removed;
        if removed > 0 {
            self.nodes.retain(|node| !node.is_empty());
            for place in (1..self.nodes.len()).rev() {
                self.join(place, fill);
            }
        }
        removed
    }

    /// Puts a node behind the one before it, if they fill at most half of what one node may have.
    fn join(&mut self, node: usize, fill: Fill) {
        if node == 0 || node >= self.nodes.len() {
            return;
        }
        let (first, second) = (&self.nodes[node - 1], &self.nodes[node]);
        if fill.is_half(first.byte_len() + second.byte_len(), first.len() + second.len()) {
            let second = self.nodes.remove(node).expect("it was just looked at");
            self.nodes[node - 1].append(&second);
        }
    }
}

fn count_equal(node: &Packed, wanted: &[u8]) -> usize {
    let wanted = wanted.into();
    node.iter().filter(|piece| *piece == wanted).count()
}

/// The place of the n-th element, or the end.
fn place(node: &Packed, n: usize) -> Place {
    node.nth(n).unwrap_or(node.end())
}

fn single(element: &[u8]) -> Packed {
    let mut node = Packed::new();
    node.push_back(element);
    node
}

#[cfg(test)]
impl Nodes {
    /// Checks what the fields promise.
    pub(super) fn check(&self) {
        assert_eq!(self.len, self.runs.iter().map(|run| run.len).sum::<usize>());
        for run in &self.runs {
            assert!((1..=RUN_NODES_MAX).contains(&run.nodes.len()));
            assert_eq!(run.len, run.nodes.iter().map(Packed::len).sum::<usize>());
            assert!(run.nodes.iter().all(|node| !node.is_empty()));
        }
    }
}
