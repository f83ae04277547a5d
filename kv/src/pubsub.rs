//! Messages to whoever listens: channels, patterns of channels, and channels that belong to a slot.
//!
//! A message is left in the mailbox of each subscriber, in the protocol that it speaks. Who does not fetch its messages is
//! dismissed before they fill the memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::client::{ClientId, Mailbox};
use crate::glob;
use crate::resp::{Protocol, Reply};

/// What one can subscribe to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    /// A channel by its name.
    Channel,
    /// All channels whose names match.
    Pattern,
    /// A channel that belongs to a slot.
    Shard,
}

type Subscribers = BTreeMap<ClientId, Arc<Mailbox>>;
/// Who listens, by what to.
type Lists = BTreeMap<(Topic, Box<[u8]>), Subscribers>;

/// A channel whose subscriptions have ended, who had them, and how many of its kind each still has.
type Ended = (Box<[u8]>, Vec<(Arc<Mailbox>, usize)>);

/// Who listens to what.
#[derive(Debug, Default)]
pub(crate) struct PubSub {
    /// How many topics have subscribers: mostly none, and then nobody locks.
    topics: AtomicUsize,
    lists: Mutex<Lists>,
}

/// One message in both protocols, each made when it is first needed.
#[derive(Default)]
struct Letter {
    forms: [Option<Vec<u8>>; 2],
}

impl Letter {
    /// Leaves it in a mailbox. Returns how many bytes it has there.
    fn leave(&mut self, mailbox: &Mailbox, words: &[&[u8]]) -> usize {
        let protocol = mailbox.protocol();
        let form = self.forms[usize::from(protocol == Protocol::Resp3)].get_or_insert_with(|| {
            let mut reply = Reply::new(protocol);
            reply.push(words.len());
            words.iter().for_each(|word| reply.bulk(word));
            std::mem::take(reply.buffer())
        });
        mailbox.put(form);
        form.len()
    }
}

impl PubSub {
    /// A client listens from now on. Says whether it did not before.
    pub(crate) fn subscribe(&self, client: ClientId, mailbox: &Arc<Mailbox>, topic: Topic, name: &[u8]) -> bool {
        let mut lists = self.lists();
        let is_new = lists.entry((topic, name.into())).or_default().insert(client, Arc::clone(mailbox)).is_none();
        self.topics.store(lists.len(), Ordering::Release);
        is_new
    }

    /// Whether anybody listens to anything.
    #[inline]
    pub(crate) fn is_heard(&self) -> bool {
        self.topics.load(Ordering::Acquire) > 0
    }

    /// A client listens no more.
    pub(crate) fn unsubscribe(&self, client: ClientId, topic: Topic, name: &[u8]) {
        let mut lists = self.lists();
        let place = (topic, name.into());
        if let Some(subscribers) = lists.get_mut(&place) {
            subscribers.remove(&client);
            if subscribers.is_empty() {
                lists.remove(&place);
            }
        }
        self.topics.store(lists.len(), Ordering::Release);
    }

    /// Leaves a message for everybody who listens. Returns how many that are.
    pub(crate) fn publish(&self, channel: &[u8], message: &[u8]) -> usize {
        if !self.is_heard() {
            return 0;
        }
        let lists = self.lists();
        let (mut letter, mut count) = (Letter::default(), 0);
        for mailbox in lists.get(&(Topic::Channel, channel.into())).into_iter().flat_map(BTreeMap::values) {
            letter.leave(mailbox, &[b"message", channel, message]);
            count += 1;
        }
        for ((topic, pattern), subscribers) in &*lists {
            if *topic == Topic::Pattern && glob::matches(pattern, channel, false) {
                let mut letter = Letter::default();
                for mailbox in subscribers.values() {
                    letter.leave(mailbox, &[b"pmessage", pattern, channel, message]);
                }
                count += subscribers.len();
            }
        }
        count
    }

    /// The same for a channel that belongs to a slot. Returns as well how many bytes that are.
    pub(crate) fn publish_shard(&self, channel: &[u8], message: &[u8]) -> (usize, usize) {
        let lists = self.lists();
        let (mut letter, mut count, mut bytes) = (Letter::default(), 0, 0);
        for mailbox in lists.get(&(Topic::Shard, channel.into())).into_iter().flat_map(BTreeMap::values) {
            bytes += letter.leave(mailbox, &[b"smessage", channel, message]);
            count += 1;
        }
        (count, bytes)
    }

    /// Ends all subscriptions to the shard channels that are chosen. Returns who had them, and how many each still has.
    pub(crate) fn take_shard_channels(&self, is_chosen: impl Fn(&[u8]) -> bool) -> Vec<Ended> {
        let mut lists = self.lists();
        let is_gone = |(topic, name): &(Topic, Box<[u8]>)| *topic == Topic::Shard && is_chosen(name);
        let gone: Vec<(Topic, Box<[u8]>)> = lists.keys().filter(|place| is_gone(place)).cloned().collect();
        let ended = gone.into_iter().map(|place| {
            let subscribers = lists.remove(&place).unwrap_or_default();
            let left = |client: &ClientId| {
                let sharded = lists.iter().filter(|((topic, _), _)| *topic == Topic::Shard);
                sharded.filter(|(_, others)| others.contains_key(client)).count()
            };
            let told = subscribers.iter().map(|(client, mailbox)| (Arc::clone(mailbox), left(client))).collect();
            (place.1, told)
        });
        let ended = ended.collect();
        self.topics.store(lists.len(), Ordering::Release);
        ended
    }

    /// Names of a kind that have subscribers, and how many each.
    pub(crate) fn topics(&self, topic: Topic) -> Vec<(Box<[u8]>, usize)> {
        let lists = self.lists();
        let of_kind = lists.iter().filter(|((kind, _), _)| *kind == topic);
        of_kind.map(|((_, name), subscribers)| (name.clone(), subscribers.len())).collect()
    }

    /// How many listen to one name.
    pub(crate) fn subscribers(&self, topic: Topic, name: &[u8]) -> usize {
        self.lists().get(&(topic, name.into())).map_or(0, BTreeMap::len)
    }

    /// Clients that are meant and listen to something that is not allowed.
    pub(crate) fn listeners(
        &self,
        is_meant: impl Fn(ClientId) -> bool,
        is_allowed: impl Fn(Topic, &[u8]) -> bool,
    ) -> BTreeSet<ClientId> {
        let lists = self.lists();
        let forbidden = lists.iter().filter(|((topic, name), _)| !is_allowed(*topic, name));
        forbidden.flat_map(|(_, subscribers)| subscribers.keys()).copied().filter(|client| is_meant(*client)).collect()
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
