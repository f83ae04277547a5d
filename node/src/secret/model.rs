//! The rotation's rules, explored completely: three servers, two of which lead, every order of events.
//!
//! What can happen in each state: a message arrives, and its answer too or not; a leader stops waiting for an answer, or
//! gives its attempt up because its time is over; after that the reservation expires, at one server and not at another; a
//! server restarts, with its secrets and without its reservation and its rotation; an idle leader begins an attempt.
//! Messages may arrive in any order, arbitrarily late or never. The rules themselves are [`Holder`] and [`Lead`], the code that runs in servers; [`Lead`]'s steps at its own
//! server take no time.
//!
//! What must hold in every state that can be reached: any two servers have a secret in common; and once nothing is under
//! way any more, a rotation that some server leads alone leaves one secret everywhere.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, VecDeque};
use std::hash::{Hash as _, Hasher as _};

use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use super::Answer;
use super::holder::{Action, Holder, Reservation, after};
use super::lead::{Lead, Next};

const SERVERS: usize = 3;
const LEADERS: usize = 2;

/// Which rules the servers follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rules {
    /// Each step names a reservation.
    Reserved,
    /// Each step counts, whoever sends it: as it was before.
    Unreserved,
}

fn id(server: usize) -> ServerId {
    ServerId::from_bytes([server as u8; 16])
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Message {
    to: usize,
    reservation: Reservation,
    action: Action,
    /// Of the leader's rounds, so that a late answer does not count in another one.
    round: u8,
}

/// A leader that waits for answers of other servers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Leading {
    lead: Lead,
    round: u8,
    answers: Vec<(ServerId, Answer)>,
    /// Who has not answered.
    waits: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    held: [Vec<u64>; SERVERS],
    holders: [Holder; SERVERS],
    leading: [Option<Leading>; LEADERS],
    /// Attempts that were begun; the next one is named so, and brings that key.
    attempts: u64,
    restarts: u8,
    under_way: BTreeSet<Message>,
}

impl State {
    fn new() -> Self {
        Self {
            held: core::array::from_fn(|_| vec![0]),
            holders: [Holder::default(); SERVERS],
            leading: [None, None],
            attempts: 0,
            restarts: 0,
            under_way: BTreeSet::new(),
        }
    }

    fn take(&mut self, rules: Rules, server: usize, reservation: Reservation, action: Action) -> Answer {
        let held = &self.held[server];
        let next = match rules {
            Rules::Reserved => self.holders[server].handle(held, reservation, action, Instant::ORIGIN),
            Rules::Unreserved => after(held, action),
        }?;
        self.held[server] = next.unwrap_or_else(|| self.held[server].clone());
        Ok(self.held[server].clone())
    }

    /// Does what the leader wants until it waits for others or is done. It may release the others then, or not: a
    /// reservation ends at any time.
    fn lead(&mut self, rules: Rules, leader: usize, mut lead: Lead, mut round: u8, mut next: Next) {
        while let Next::Tell(servers, action) = next {
            if action == Action::Release {
                break;
            }
            round += 1;
            let (reservation, mut answers, mut waits) = (lead.reservation, Vec::new(), Vec::new());
            for to in (0..SERVERS).filter(|server| servers.contains(&id(*server))) {
                if to == leader {
                    answers.push((id(to), self.take(rules, to, reservation, action)));
                } else {
                    self.under_way.insert(Message { to, reservation, action, round });
                    waits.push(to);
                }
            }
            if !waits.is_empty() {
                self.leading[leader] = Some(Leading { lead, round, answers, waits });
                return;
            }
            next = lead.handle(answers);
        }
        self.leading[leader] = None;
    }

    fn begin(&mut self, rules: Rules, leader: usize) {
        self.attempts += 1;
        let others = (0..SERVERS).filter(|server| *server != leader).map(id).collect();
        let reservation = Reservation { leader: id(leader), attempt: self.attempts, lasts_ms: 1 };
        let (lead, next) = Lead::begin(id(leader), others, reservation, self.attempts);
        self.lead(rules, leader, lead, 0, next);
    }

    /// The leader has an answer, or waits no more for it.
    fn answer(&mut self, rules: Rules, leader: usize, server: usize, answer: Answer) {
        let Some(mut leading) = self.leading[leader].take() else { return };
        leading.waits.retain(|waited| *waited != server);
        leading.answers.push((id(server), answer));
        leading.answers.sort();
        if leading.waits.is_empty() {
            let next = leading.lead.handle(leading.answers);
            self.lead(rules, leader, leading.lead, leading.round, next);
        } else {
            self.leading[leader] = Some(leading);
        }
    }

    fn deliver(&mut self, rules: Rules, message: &Message, is_answered: bool) {
        self.under_way.remove(message);
        let answer = self.take(rules, message.to, message.reservation, message.action);
        // Why somebody refuses makes no difference to a leader: fewer states.
        let answer = answer.map_err(|_| String::new());
        let leader = (0..LEADERS).find(|leader| {
            let leading = self.leading[*leader].as_ref();
            leading.is_some_and(|leading| {
                let is_asked = leading.lead.reservation == message.reservation && leading.round == message.round;
                is_asked && leading.waits.contains(&message.to)
            })
        });
        if let (Some(leader), true) = (leader, is_answered) {
            self.answer(rules, leader, message.to, answer);
        }
    }

    /// Whether a leader goes on with this attempt.
    fn leads(&self, reservation: Reservation) -> bool {
        self.leading.iter().flatten().any(|leading| leading.lead.reservation == reservation)
    }

    /// Leaves out what can make no difference to any secret any more, so that fewer states have to be looked at: steps
    /// that will be refused, which a leader cannot tell from steps that were lost; and reservations that stand for
    /// nothing but a refusal, which it cannot tell from an answer that was lost.
    fn simplify(&mut self) {
        let active: Vec<Reservation> = self.leading.iter().flatten().map(|leading| leading.lead.reservation).collect();
        let leads = |reservation| active.contains(&reservation);
        let holders = &self.holders;
        self.under_way.retain(|message| match message.action {
            Action::Reserve => leads(message.reservation),
            _ => holders[message.to].granted() == Some(message.reservation),
        });
        for (server, holder) in self.holders.iter_mut().enumerate() {
            let is_used = holder.granted().is_none_or(|granted| {
                let names = |message: &Message| message.to == server && message.reservation == granted;
                leads(granted) || self.under_way.iter().any(names)
            });
            if !is_used {
                holder.expire();
            }
        }
    }

    /// All states that can come next.
    fn nexts(&self, rules: Rules, bounds: Bounds) -> Vec<Self> {
        let mut nexts = Vec::new();
        let mut add = |change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            if rules == Rules::Reserved {
                next.simplify();
            }
            nexts.push(next);
        };
        for message in &self.under_way {
            add(&|next| next.deliver(rules, message, true));
            add(&|next| next.deliver(rules, message, false));
        }
        for leader in 0..LEADERS {
            match &self.leading[leader] {
                Some(leading) => {
                    for &server in &leading.waits {
                        add(&|next| next.answer(rules, leader, server, Err(String::new())));
                    }
                    add(&|next| next.leading[leader] = None);
                }
                None if self.attempts < bounds.attempts => add(&|next| next.begin(rules, leader)),
                None => {}
            }
        }
        for server in 0..SERVERS {
            if self.holders[server].granted().is_some_and(|granted| !self.leads(granted)) {
                add(&|next| next.holders[server].expire());
            }
            if self.restarts < bounds.restarts {
                add(&|next| {
                    next.restarts += 1;
                    next.holders[server].expire();
                    if let Some(leading) = next.leading.get_mut(server) {
                        *leading = None;
                    }
                });
            }
        }
        nexts
    }

    fn is_split(&self) -> bool {
        let common = |a: &Vec<u64>, b: &Vec<u64>| a.iter().any(|key| b.contains(key));
        self.held.iter().any(|a| self.held.iter().any(|b| !common(a, b)))
    }

    /// Whether some server can leave one secret everywhere, alone and undisturbed.
    fn can_be_finished(&self, rules: Rules) -> bool {
        (0..SERVERS).any(|leader| {
            let mut alone = Self { held: self.held.clone(), ..Self::new() };
            alone.attempts = 90;
            let others: Vec<ServerId> = (0..SERVERS).filter(|server| *server != leader).map(id).collect();
            let reservation = Reservation { leader: id(leader), attempt: 90, lasts_ms: 1 };
            let (mut lead, mut next) = Lead::begin(id(leader), others, reservation, 90);
            while let Next::Tell(servers, action) = next {
                let told = (0..SERVERS).filter(|server| servers.contains(&id(*server)));
                let answers = told.map(|server| (id(server), alone.take(rules, server, reservation, action)));
                next = lead.handle(answers.collect());
            }
            let is_one = alone.held.iter().all(|held| held.len() == 1 && *held == alone.held[0]);
            is_one && matches!(next, Next::Done(Ok(_)))
        })
    }
}

/// How much happens in one run.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    attempts: u64,
    restarts: u8,
}

/// Explores every state; how many there are, or the first that is bad.
fn explore(rules: Rules, bounds: Bounds) -> Result<usize, Box<State>> {
    let fingerprint = |state: &State| {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        hasher.finish()
    };
    let (mut seen, mut finished) = (BTreeSet::new(), BTreeSet::new());
    let mut waiting = VecDeque::from([State::new()]);
    seen.insert(fingerprint(&waiting[0]));
    while let Some(state) = waiting.pop_front() {
        if state.is_split() || finished.insert(state.held.clone()) && !state.can_be_finished(rules) {
            return Err(Box::new(state));
        }
        for next in state.nexts(rules, bounds) {
            if seen.insert(fingerprint(&next)) {
                waiting.push_back(next);
            }
        }
    }
    Ok(seen.len())
}

#[test]
fn two_leaders_never_leave_two_secrets() {
    // Three attempts without a restart have 178,816 states, and hold as well; they take too long for every day.
    match explore(Rules::Reserved, Bounds { attempts: 2, restarts: 1 }) {
        Ok(states) => assert!(states >= 10_000, "only {states} states: is the model still one?"),
        Err(state) => panic!("{state:#?}"),
    }
}

/// The rule of before: the model finds what it did.
#[test]
fn without_reservations_the_cluster_splits() {
    let state =
        explore(Rules::Unreserved, Bounds { attempts: 2, restarts: 0 }).expect_err("two leaders disturb each other");
    assert!(state.is_split() || !state.can_be_finished(Rules::Unreserved), "{state:#?}");
}

#[test]
fn a_rotation_alone_succeeds() {
    let mut state = State::new();
    state.begin(Rules::Reserved, 0);
    while let Some(message) = state.under_way.first().cloned() {
        state.deliver(Rules::Reserved, &message, true);
    }
    assert_eq!(state.held, [vec![1], vec![1], vec![1]]);
    // Reserved by somebody who has gone: refused until it has expired.
    let gone = Reservation { leader: id(1), attempt: 7, lasts_ms: 10_000 };
    assert!(state.take(Rules::Reserved, 2, gone, Action::Reserve).is_ok());
    state.begin(Rules::Reserved, 0);
    while let Some(message) = state.under_way.first().cloned() {
        state.deliver(Rules::Reserved, &message, true);
    }
    assert_eq!(state.held, [vec![1], vec![1], vec![1]], "nothing was replaced");
}
