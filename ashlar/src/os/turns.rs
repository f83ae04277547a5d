//! Whose turn it is to write.
//!
//! What a small write costs is the system call and the segment, not its bytes. A worker that has more connections to write to
//! than a few therefore writes to a few, oldest first, then reads what has come and runs what is ready, and so on: those
//! in line gather messages meanwhile, and fewer writes carry them all. Nothing waits for time to pass. A worker that has
//! only few to write to in a turn of its runtime lets none of them wait.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

/// Connections that write in one turn of a worker's runtime.
const WRITERS_PER_TURN: usize = 8;
/// Or this part of those in line, where that is more: whoever enters a line that stays as long leaves it after so many turns. In
/// one that empties it takes more of them, which are short then: about fifty at the end of a thousand.
const TURNS_IN_LINE: usize = 16;

thread_local! {
    static LINE: RefCell<Line> = const { RefCell::new(Line::new()) };
}

/// The connections of one worker that wait for their turn, and how many more may write without.
#[derive(Debug)]
struct Line {
    waiting: VecDeque<Waker>,
    /// The number of the first in line; lower ones have had their turn.
    first: u64,
    /// Who may write at once, in this turn of the runtime.
    free: usize,
    usher: Usher,
}

/// The task that lets those in line pass.
#[derive(Debug)]
enum Usher {
    /// There is none on this thread, and no line.
    Absent,
    /// It is not needed: nobody stands in line.
    Asleep(Waker),
    /// Comes once a turn of the runtime.
    Awake,
}

impl Line {
    const fn new() -> Self {
        Self { waiting: VecDeque::new(), first: 0, free: 0, usher: Usher::Absent }
    }

    /// Whether the holder of `ticket` may write now; if not, it has a place in line.
    fn poll_turn(&mut self, ticket: &mut Option<u64>, task: &Waker) -> Poll<()> {
        if matches!(self.usher, Usher::Absent) {
            return Poll::Ready(());
        }
        if let Some(number) = *ticket {
            let place = number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
            return match place.and_then(|place| self.waiting.get_mut(place)) {
                Some(waker) => {
                    waker.clone_from(task);
                    Poll::Pending
                }
                None => {
                    *ticket = None;
                    Poll::Ready(())
                }
            };
        }
        if let Some(free) = self.free.checked_sub(1) {
            self.free = free;
            return Poll::Ready(());
        }
        if let Usher::Asleep(usher) = core::mem::replace(&mut self.usher, Usher::Awake) {
            usher.wake();
        }
        *ticket = Some(self.first + self.waiting.len() as u64);
        self.waiting.push_back(task.clone());
        Poll::Pending
    }

    /// A new turn of the runtime: how many of those in line may pass.
    fn next_turn(&mut self) -> usize {
        let writers = WRITERS_PER_TURN.max(self.waiting.len() / TURNS_IN_LINE);
        let passing = writers.min(self.waiting.len());
        self.free = writers - passing;
        self.usher = Usher::Awake;
        passing
    }

    /// The first in line may pass.
    fn pass(&mut self) -> Option<Waker> {
        let first = self.waiting.pop_front();
        self.first += u64::from(first.is_some());
        first
    }
}

/// A connection's place in the line of its worker, if it has one. A connection keeps its worker.
#[derive(Debug, Default)]
pub(super) struct Ticket(Option<u64>);

impl Ticket {
    /// Whether the connection may write now. If not, its task is woken when it may.
    pub(super) fn poll_turn(&mut self, cx: &Context<'_>) -> Poll<()> {
        LINE.with_borrow_mut(|line| line.poll_turn(&mut self.0, cx.waker()))
    }
}

/// Lets the next ones in line pass. The usher of this thread says it once a turn of its runtime, and may sleep while there is no
/// line: see [`poll_line`].
pub(super) fn next_turn() {
    for _ in 0..LINE.with_borrow_mut(Line::next_turn) {
        let first = LINE.with_borrow_mut(Line::pass);
        first.into_iter().for_each(Waker::wake);
    }
}

/// Ready if somebody stands in line; else the task that asks, the usher of this thread, is woken when somebody does.
pub(super) fn poll_line(cx: &Context<'_>) -> Poll<()> {
    LINE.with_borrow_mut(|line| {
        if line.waiting.is_empty() {
            line.usher = Usher::Asleep(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    })
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// A line that lets `free` write at once.
    fn line(free: usize) -> Line {
        Line { free, usher: Usher::Awake, ..Line::new() }
    }

    /// Lets as many ask; their tickets, of which those that may write are empty.
    fn ask(line: &mut Line, count: usize) -> Vec<Option<u64>> {
        let mut tickets = vec![None; count];
        for ticket in &mut tickets {
            let _ = line.poll_turn(ticket, Waker::noop());
        }
        tickets
    }

    fn turn(line: &mut Line) -> usize {
        (0..line.next_turn()).filter_map(|_| line.pass()).count()
    }

    #[test]
    fn a_few_write_at_once_and_the_others_in_order() {
        let mut line = line(WRITERS_PER_TURN);
        let mut tickets = ask(&mut line, 3 * WRITERS_PER_TURN);
        let (free, waiting) = tickets.split_at_mut(WRITERS_PER_TURN);
        assert!(free.iter().all(Option::is_none) && waiting.iter().all(Option::is_some));
        for passing in waiting.chunks_mut(WRITERS_PER_TURN) {
            assert!(passing.iter_mut().all(|ticket| line.poll_turn(ticket, Waker::noop()).is_pending()), "not yet");
            assert_eq!(turn(&mut line), WRITERS_PER_TURN);
            let mut late = None;
            assert!(line.poll_turn(&mut late, Waker::noop()).is_pending(), "behind those who came before");
            assert!(passing.iter_mut().all(|ticket| line.poll_turn(ticket, Waker::noop()).is_ready()));
        }
        assert_eq!((turn(&mut line), line.free), (2, WRITERS_PER_TURN - 2));
    }

    #[test]
    fn nobody_stands_in_line_for_long() {
        let mut line = line(0);
        let mut first = ask(&mut line, 1_000).pop().unwrap();
        let mut turns = 0;
        while line.poll_turn(&mut first, Waker::noop()).is_pending() {
            let passed = turn(&mut line);
            ask(&mut line, passed);
            turns += 1;
        }
        assert!(turns <= TURNS_IN_LINE + 1, "{turns}");
    }

    #[test]
    fn who_asks_again_keeps_its_place_and_is_woken_last_where_it_asked_last() {
        let (mut line, mut ticket) = (line(0), None);
        assert!(line.poll_turn(&mut ticket, Waker::noop()).is_pending());
        let woken = std::sync::Arc::new(Flag::default());
        assert!(line.poll_turn(&mut ticket, &Waker::from(woken.clone())).is_pending());
        assert_eq!(line.waiting.len(), 1);
        assert_eq!(line.next_turn(), 1);
        line.pass().unwrap().wake();
        assert!(woken.0.load(std::sync::atomic::Ordering::Relaxed));
    }

    #[derive(Default)]
    struct Flag(std::sync::atomic::AtomicBool);

    impl std::task::Wake for Flag {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }

    #[test]
    fn without_an_usher_there_is_no_line() {
        let mut tickets = [None; 100];
        assert!(tickets.iter_mut().all(|ticket| Line::new().poll_turn(ticket, Waker::noop()).is_ready()));
    }

    /// Forty tasks that write at every turn: all go on, and none more often than the others.
    #[test]
    fn the_usher_lets_all_pass_alike() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let counts = runtime.block_on(async {
            drop(tokio::spawn(async {
                loop {
                    poll_fn(|cx| poll_line(cx)).await;
                    tokio::task::yield_now().await;
                    next_turn();
                }
            }));
            tokio::task::yield_now().await;
            let tasks = (0..40).map(|_| {
                tokio::spawn(async {
                    let mut ticket = Ticket::default();
                    for _ in 0..100 {
                        poll_fn(|cx| ticket.poll_turn(cx)).await;
                    }
                    LINE.with_borrow(|line| line.first)
                })
            });
            let mut ends = Vec::new();
            for task in tasks.collect::<Vec<_>>() {
                ends.push(task.await.unwrap());
            }
            ends
        });
        let (first, last) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(last - first <= 80, "{counts:?}");
    }
}
