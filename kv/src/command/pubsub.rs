//! SUBSCRIBE, PUBLISH and what belongs to them.

use super::call::{Call, Run, Trace};
use super::help;
use crate::error::Error;
use crate::glob;
use crate::pubsub::Topic;

pub(super) const RUNS: &[(&str, Run)] = &[
    ("subscribe", |call| subscribe(call, Topic::Channel)),
    ("psubscribe", |call| subscribe(call, Topic::Pattern)),
    ("ssubscribe", |call| subscribe(call, Topic::Shard)),
    ("unsubscribe", |call| unsubscribe(call, Topic::Channel)),
    ("punsubscribe", |call| unsubscribe(call, Topic::Pattern)),
    ("sunsubscribe", |call| unsubscribe(call, Topic::Shard)),
    ("publish", publish),
    ("spublish", spublish),
    ("pubsub|channels", |call| channels(call, Topic::Channel)),
    ("pubsub|shardchannels", |call| channels(call, Topic::Shard)),
    ("pubsub|numsub", |call| subscribers(call, Topic::Channel)),
    ("pubsub|shardnumsub", |call| subscribers(call, Topic::Shard)),
    ("pubsub|numpat", patterns),
    ("pubsub|help", |call| help::write(call, "PUBSUB", HELP)),
];

const HELP: &[(&str, &str)] = &[
    ("CHANNELS [<pattern>]", "Name the channels that somebody listens to, or those that fit."),
    ("NUMPAT", "Count the patterns that somebody listens to."),
    ("NUMSUB [<channel> ...]", "Count who listens to channels by their names, not by patterns."),
    ("SHARDCHANNELS [<pattern>]", "Name the shard channels that somebody listens to, or those that fit."),
    ("SHARDNUMSUB [<shardchannel> ...]", "Count who listens to shard channels."),
];

/// What confirmations are called.
const fn verb(topic: Topic, is_begin: bool) -> &'static str {
    match (topic, is_begin) {
        (Topic::Channel, true) => "subscribe",
        (Topic::Channel, false) => "unsubscribe",
        (Topic::Pattern, true) => "psubscribe",
        (Topic::Pattern, false) => "punsubscribe",
        (Topic::Shard, true) => "ssubscribe",
        (Topic::Shard, false) => "sunsubscribe",
    }
}

/// Confirms one subscription, or its end. Valkey counts channels and patterns together.
fn confirm(call: &mut Call<'_, '_>, topic: Topic, is_begin: bool, name: Option<&[u8]>) {
    let is_counted = |other: Topic| (other == Topic::Shard) == (topic == Topic::Shard);
    let count = call.client.subscriptions.iter().filter(|(other, _)| is_counted(*other)).count();
    call.reply.push(3);
    call.reply.bulk(verb(topic, is_begin).as_bytes());
    match name {
        Some(name) => call.reply.bulk(name),
        None => call.reply.null(),
    }
    call.reply.count(count);
}

fn subscribe(call: &mut Call<'_, '_>, topic: Topic) -> Result<(), Error> {
    if topic == Topic::Shard && !call.may_wait {
        return Err(Error::new("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"));
    }
    let was_heard = call.engine.pubsub.is_heard();
    for name in call.args.from(1) {
        if call.client.subscriptions.insert((topic, name.into())) {
            call.engine.pubsub.subscribe(call.client.id, &call.client.mailbox, topic, name);
        }
        confirm(call, topic, true, Some(name));
    }
    call.client.publish_subscriptions();
    if let Some(cluster) = call.engine.cluster().filter(|_| !was_heard) {
        cluster.control.listens();
    }
    Ok(())
}

fn unsubscribe(call: &mut Call<'_, '_>, topic: Topic) -> Result<(), Error> {
    let names: Vec<Box<[u8]>> = if call.args.len() > 1 {
        call.args.from(1).map(Into::into).collect()
    } else {
        let own = call.client.subscriptions.iter().filter(|(other, _)| *other == topic);
        own.map(|(_, name)| name.clone()).collect()
    };
    if names.is_empty() {
        confirm(call, topic, false, None);
    }
    for name in names {
        call.engine.pubsub.unsubscribe(call.client.id, topic, &name);
        call.client.subscriptions.remove(&(topic, name.clone()));
        confirm(call, topic, false, Some(&name));
    }
    call.client.publish_subscriptions();
    Ok(())
}

/// Ends all subscriptions of the client without a word.
pub(super) fn unsubscribe_all(call: &mut Call<'_, '_>) {
    for (topic, name) in std::mem::take(&mut call.client.subscriptions) {
        call.engine.pubsub.unsubscribe(call.client.id, topic, &name);
    }
    call.client.publish_subscriptions();
}

fn publish(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let count = call.engine.pubsub.publish(&call.args[1], &call.args[2]);
    pass_on(call, false);
    call.reply.count(count);
    Ok(())
}

fn spublish(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let count = call.engine.hear_shard(call.settings, &call.args[1], &call.args[2]);
    pass_on(call, true);
    call.reply.count(count);
    Ok(())
}

/// Subscribers elsewhere get the message too: at other nodes of a cluster, replicas among them, or else at replicas.
fn pass_on(call: &mut Call<'_, '_>, is_sharded: bool) {
    match call.engine.cluster() {
        Some(cluster) => {
            cluster.control.publish(&call.args[1], &call.args[2], is_sharded);
            call.effects.trace = Trace::Nothing;
        }
        None => call.effects.trace = Trace::ToReplicas,
    }
}

fn channels(call: &mut Call<'_, '_>, topic: Topic) -> Result<(), Error> {
    if call.args.len() > 3 {
        return Err(Error::wrong_subcommand("PUBSUB", &call.args[1]));
    }
    let pattern = call.args.get(2);
    let topics = call.engine.pubsub.topics(topic);
    let wanted = topics.iter().filter(|(name, _)| pattern.is_none_or(|pattern| glob::matches(pattern, name, false)));
    let names: Vec<&[u8]> = wanted.map(|(name, _)| &**name).collect();
    call.reply.array(names.len());
    names.iter().for_each(|name| call.reply.bulk(name));
    Ok(())
}

fn subscribers(call: &mut Call<'_, '_>, topic: Topic) -> Result<(), Error> {
    let names = call.args.from(2);
    call.reply.array(names.len() * 2);
    for name in names {
        call.reply.bulk(name);
        call.reply.count(call.engine.pubsub.subscribers(topic, name));
    }
    Ok(())
}

fn patterns(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.reply.count(call.engine.pubsub.topics(Topic::Pattern).len());
    Ok(())
}
