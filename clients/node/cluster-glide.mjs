// What cluster.mjs asks of valkey-glide.
import assert from "node:assert/strict";
import { ClusterBatch, ClusterScanCursor, GlideClusterClient, Logger, Script } from "@valkey/valkey-glide";

// Its log goes where the lines go that are waited for.
Logger.setLoggerConfig("off");

export async function connect(_, host, port, options) {
  return GlideClusterClient.createClient({ addresses: [{ host, port }], ...options });
}

export async function everyday(r, own, another) {
  const pipeline = new ClusterBatch(false);
  for (let number = 0; number < 200; number++) pipeline.incrBy(own(`sum:${number % 20}`), number);
  assert.equal((await r.exec(pipeline, true)).at(-1), 1090);
  // It sends to each node what is its own.
  const many = Object.fromEntries(Array.from({ length: 100 }, (_, number) => [own(`many:${number}`), String(number)]));
  assert.equal(await r.mset(many), "OK");
  assert.deepEqual(await r.mget(Object.keys(many)), Object.values(many));
  assert.equal(await r.del(Object.keys(many)), 100);
  assert.equal(await r.hset(own("{h}"), { a: "1", b: "2" }), 2);
  assert.equal(await r.hget(own("{h}"), "b"), "2");
  const add = new Script("return redis.call('INCRBY', KEYS[1], ARGV[1])");
  assert.equal(await r.invokeScript(add, { keys: [own("n")], args: ["5"] }), 5);
  assert.deepEqual(await r.exec(new ClusterBatch(true).set(own("{t}"), "1").incr(own("{t}")), true), ["OK", 2]);
  const seen = new Set();
  for (let cursor = new ClusterScanCursor(), keys; !cursor.isFinished(); keys.forEach((key) => seen.add(key)))
    [cursor, keys] = await r.scan(cursor, { match: own("day:*"), count: 500 });
  assert.equal(seen.size, 200);
  const channelsAndPatterns = { 0: new Set([own("news")]), 2: new Set([own("shard")]) };
  const subscriber = await another({ pubsubSubscriptions: { channelsAndPatterns } });
  await r.publish("hello", own("news"));
  assert.equal((await subscriber.getPubSubMessage()).message, "hello");
  await r.publish("hello", own("shard"), true);
  assert.equal((await subscriber.getPubSubMessage()).channel, own("shard"));
  subscriber.close();
}
