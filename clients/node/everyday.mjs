// Everyday work of ioredis against the key-value engine: node everyday.mjs HOST PORT
import assert from "node:assert/strict";
import { once } from "node:events";
import { createRequire } from "node:module";
import { setTimeout as pause } from "node:timers/promises";
import Redis from "ioredis";

const [host, port] = [process.argv[2], Number(process.argv[3])];
const connect = (options) => new Redis({ host, port, ...options });

async function until(isSo) {
  for (let look = 0; look < 2000; look++) {
    if (await isSo()) return;
    await pause(10);
  }
  assert.fail("waited in vain");
}

const cases = {
  async strings(r) {
    assert.equal(await r.set("s", "value"), "OK");
    assert.equal(await r.get("s"), "value");
    assert.equal(await r.set("s", "other", "NX"), null);
    assert.equal(await r.incrby("n", 41), 41);
    assert.equal(await r.incrbyfloat("f", 0.5), "0.5");
    assert.equal(await r.mset({ a: 1, b: 2 }), "OK");
    assert.deepEqual(await r.mget("a", "b", "none"), ["1", "2", null]);
    assert.deepEqual(await r.getBuffer("s"), Buffer.from("value"));
    const binary = Buffer.from([0, 13, 10, 255]);
    await r.set("binary", binary);
    assert.deepEqual(await r.getBuffer("binary"), binary);
    await assert.rejects(r.incr("s"), /not an integer/);
    assert.equal(await r.del("a", "b"), 2);
  },
  async hashes(r) {
    assert.equal(await r.hset("h", { name: "Ada", born: 1815 }), 2);
    assert.deepEqual(await r.hgetall("h"), { name: "Ada", born: "1815" });
    assert.equal(await r.hincrby("h", "born", 1), 1816);
    assert.deepEqual(await r.hmget("h", "name", "none"), ["Ada", null]);
    assert.deepEqual(await r.hgetall("none"), {});
  },
  async lists(r) {
    assert.equal(await r.rpush("l", 0, 1, 2, 3), 4);
    assert.deepEqual(await r.lrange("l", 1, -1), ["1", "2", "3"]);
    assert.equal(await r.lpop("l"), "0");
    assert.equal(await r.lmove("l", "m", "LEFT", "RIGHT"), "1");
    const other = connect();
    const waiting = other.blpop("none", "later", 20);
    await until(async () => /blocked_clients:1/.test(await r.info("clients")));
    await r.rpush("later", "job");
    assert.deepEqual(await waiting, ["later", "job"]);
    other.disconnect();
  },
  async sets(r) {
    await r.sadd("x", "a", "b", "c");
    await r.sadd("y", "b", "c", "d");
    assert.deepEqual((await r.sinter("x", "y")).sort(), ["b", "c"]);
    assert.deepEqual((await r.sunion("x", "y")).sort(), ["a", "b", "c", "d"]);
    assert.deepEqual(await r.smismember("x", "a", "d"), [1, 0]);
    assert.equal(await r.scard("x"), 3);
  },
  async sortedSets(r) {
    assert.equal(await r.zadd("z", 7, "ann", 9, "bob", 8.5, "cid"), 3);
    assert.deepEqual(await r.zrange("z", 0, -1, "WITHSCORES"), ["ann", "7", "cid", "8.5", "bob", "9"]);
    assert.equal(await r.zincrby("z", 5, "ann"), "12");
    assert.equal(await r.zrevrank("z", "ann"), 0);
    assert.deepEqual(await r.zrangebyscore("z", 8, "(9"), ["cid"]);
    assert.deepEqual(await r.zpopmin("z"), ["cid", "8.5"]);
  },
  async streams(r) {
    assert.equal(await r.xadd("s", "1-1", "n", 1), "1-1");
    await r.xadd("s", "*", "n", 2);
    assert.deepEqual(await r.xrange("s", "-", "+", "COUNT", 1), [["1-1", ["n", "1"]]]);
    assert.equal(await r.xgroup("CREATE", "s", "g", "0"), "OK");
    await assert.rejects(r.xgroup("CREATE", "s", "g", "0"), /BUSYGROUP/);
    const read = await r.xreadgroup("GROUP", "g", "me", "COUNT", 1, "STREAMS", "s", ">");
    assert.deepEqual(read, [["s", [["1-1", ["n", "1"]]]]]);
    assert.deepEqual(await r.xpending("s", "g"), [1, "1-1", "1-1", [["me", "1"]]]);
    assert.equal(await r.xack("s", "g", "1-1"), 1);
    assert.equal(await r.xlen("s"), 2);
  },
  async pipelinesAndTransactions(r) {
    const pipeline = r.pipeline();
    for (let number = 0; number < 100; number++) pipeline.incrby("sum", number);
    assert.deepEqual((await pipeline.exec()).at(-1), [null, 4950]);
    assert.deepEqual(await r.multi().set("t", 1).incr("t").get("t").exec(), [[null, "OK"], [null, 2], [null, "2"]]);
    const other = connect();
    await r.watch("t");
    await other.set("t", 100);
    assert.equal(await r.multi().set("t", 3).exec(), null, "somebody else has changed it");
    const [, failed, written] = await r.multi().set("t", "text").incr("t").set("u", 1).exec();
    assert.match(failed[0].message, /not an integer/);
    assert.deepEqual(written, [null, "OK"]);
    other.disconnect();
  },
  async scripts(r) {
    r.defineCommand("add", { numberOfKeys: 1, lua: "return redis.call('INCRBY', KEYS[1], ARGV[1])" });
    assert.equal(await r.add("c", 5), 5);
    assert.equal(await r.add("c", 5), 10);
    assert.deepEqual(await r.eval("return {KEYS[1], ARGV[1], 3}", 1, "k", "a"), ["k", "a", 3]);
    await assert.rejects(r.eval("return redis.call('LPUSH', KEYS[1], 1)", 1, "c"), /WRONGTYPE/);
  },
  async publishAndSubscribe(r) {
    const sub = connect();
    assert.equal(await sub.subscribe("news", "more"), 2);
    assert.equal(await sub.psubscribe("n*"), 3);
    const [message, pattern] = [once(sub, "message"), once(sub, "pmessage")];
    assert.equal(await r.publish("news", "hello"), 2);
    assert.deepEqual(await message, ["news", "hello"]);
    assert.deepEqual(await pattern, ["n*", "news", "hello"]);
    assert.equal(await sub.unsubscribe("news"), 2);
    sub.disconnect();
  },
  async scansAndExpiry(r) {
    const pipeline = r.pipeline();
    for (let number = 0; number < 1000; number++) pipeline.set(`scan:${number}`, number).sadd("set", number);
    await pipeline.exec();
    const seen = new Set();
    for await (const keys of r.scanStream({ match: "scan:*", count: 50 })) keys.forEach((key) => seen.add(key));
    assert.equal(seen.size, 1000);
    const members = new Set();
    for await (const part of r.sscanStream("set")) part.forEach((member) => members.add(member));
    assert.equal(members.size, 1000);
    assert.equal(await r.expire("set", 100), 1);
    assert.ok((await r.ttl("set")) > 0);
    assert.equal(await r.set("soon", 1, "PX", 20), "OK");
    await until(async () => (await r.get("soon")) === null);
    const dumped = await r.dumpBuffer("set");
    assert.equal(await r.restore("copy", 0, dumped), "OK");
    assert.equal(await r.scard("copy"), 1000);
  },
  async connections(r) {
    assert.equal(await r.ping(), "PONG");
    assert.equal(await r.client("SETNAME", "everyday"), "OK");
    assert.match(await r.client("LIST"), /name=everyday/);
    const other = connect({ db: 3, connectionName: "third" });
    await other.set("only here", 1);
    assert.equal(await r.exists("only here"), 0);
    assert.equal(await other.client("GETNAME"), "third");
    // A connection that is ended comes back by itself.
    const back = once(other, "ready");
    await r.client("KILL", "ID", String(await other.client("ID")));
    await back;
    assert.equal(await other.get("only here"), "1");
    const watcher = connect();
    // Its own INFO, with which it finds out whether the server is ready, comes first.
    await watcher.ping();
    const monitor = await watcher.monitor();
    const line = once(monitor, "monitor");
    await r.get("watched");
    assert.deepEqual((await line)[1], ["get", "watched"]);
    monitor.disconnect();
    watcher.disconnect();
    other.disconnect();
  },
};

const r = connect();
const about = createRequire(import.meta.url)("ioredis/package.json");
for (const [name, run] of Object.entries(cases)) {
  await r.flushall();
  await run(r);
  console.log(`ioredis ${about.version}: ${name}`);
}
await r.quit();
