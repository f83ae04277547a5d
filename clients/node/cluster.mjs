// A cluster of key-value engines under ioredis or iovalkey, while it changes: node cluster.mjs CLIENT HOST PORT
//
// After its everyday work it says so with a line, and goes on writing while slots move and nodes fail. A line from outside says that
// the cluster has settled: from then on nothing that was acknowledged may be missing.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { setTimeout as pause } from "node:timers/promises";

const [client, host, port] = [process.argv[2], process.argv[3], Number(process.argv[4])];
const { Cluster } = await import(client);
const r = new Cluster([{ host, port }], { clusterRetryStrategy: () => 50, retryDelayOnFailover: 50 });
r.on("error", () => {});
const own = (key) => `${client}:${key}`;

async function everyday() {
  for (let number = 0; number < 200; number++) {
    assert.equal(await r.set(own(`day:${number}`), number), "OK");
    assert.equal(await r.get(own(`day:${number}`)), String(number));
  }
  const pipeline = r.pipeline();
  for (let number = 0; number < 200; number++) pipeline.incrby(own(`{sum}:${number % 20}`), number);
  assert.equal((await pipeline.exec()).filter(([error]) => error === null).length, 200);
  assert.equal(await r.mset({ [own("{m}a")]: 1, [own("{m}b")]: 2 }), "OK");
  assert.deepEqual(await r.mget(own("{m}a"), own("{m}b")), ["1", "2"]);
  await assert.rejects(r.mset({ [own("a")]: 1, [own("b")]: 2 }), /CROSSSLOT|same/);
  assert.equal(await r.eval("return redis.call('INCRBY', KEYS[1], ARGV[1])", 1, own("n"), 5), 5);
  assert.deepEqual(await r.multi().set(own("{t}"), 1).incr(own("{t}")).exec(), [[null, "OK"], [null, 2]]);
  const subscriber = new Cluster([{ host, port }]);
  await subscriber.subscribe(own("news"));
  const heard = new Promise((resolve) => subscriber.on("message", (_, message) => resolve(message)));
  await r.publish(own("news"), "hello");
  assert.equal(await heard, "hello");
  subscriber.disconnect();
}

// Writes until the cluster has settled. Errors are transient: they are counted, and each write is tried again.
async function load(settled) {
  const errors = {};
  let number = 0;
  while (!settled()) {
    try {
      await r.set(own(`load:${number % 2000}`), number);
      number++;
    } catch (error) {
      errors[error.name] = (errors[error.name] ?? 0) + 1;
      await pause(20);
    }
  }
  return [number, errors];
}

// What the client has not learned of the last change yet may fail once more, and not for ever.
async function insist(call) {
  for (let look = 0; ; look++) {
    try {
      return await call();
    } catch (error) {
      if (look === 200) throw error;
      await pause(100);
    }
  }
}

async function afterwards() {
  const keys = Array.from({ length: 1500 }, (_, number) => own(`after:${number}`));
  for (const key of keys) assert.equal(await insist(() => r.set(key, key)), "OK");
  for (const key of keys) assert.equal(await r.get(key), key);
  for (let number = 0; number < 200; number++) assert.equal(await r.get(own(`day:${number}`)), String(number));
}

await everyday();
console.log("ready");
let isSettled = false;
process.stdin.once("data", () => (isSettled = true));
const [written, errors] = await load(() => isSettled);
await afterwards();
const about = createRequire(import.meta.url)(`${client}/package.json`);
console.log(`${client} ${about.version}, cluster: ${written} writes while it changed, errors ${JSON.stringify(errors)}`);
process.exit(0);
