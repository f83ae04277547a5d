// What cluster.mjs asks of node-redis.
import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import { createCluster } from "redis";

export async function connect(_, host, port) {
  const r = createCluster({ rootNodes: [{ socket: { host, port } }] });
  r.on("error", () => {});
  return r.connect();
}

export async function everyday(r, own, another) {
  // What is asked for in one turn is sent as a pipeline to each node.
  const sums = Array.from({ length: 200 }, (_, number) => r.incrBy(own(`sum:${number % 20}`), number));
  assert.equal((await Promise.all(sums)).at(-1), 1090);
  assert.deepEqual(await r.multi().incr(own("{p}")).incr(own("{p}")).execAsPipeline(), [1, 2]);
  // It sends to each slot what is its own.
  const many = Object.fromEntries(Array.from({ length: 100 }, (_, number) => [own(`many:${number}`), String(number)]));
  assert.equal(await r.mSet(many), "OK");
  assert.deepEqual(await r.mGet(Object.keys(many)), Object.values(many));
  assert.equal(await r.del(Object.keys(many)), 100);
  await assert.rejects(r.mSetNX({ [own("a")]: "1", [own("b")]: "2" }), /CROSSSLOT/);
  assert.equal(await r.hSet(own("{h}"), { a: "1", b: "2" }), 2);
  assert.deepEqual({ ...(await r.hGetAll(own("{h}"))) }, { a: "1", b: "2" });
  const add = "return redis.call('INCRBY', KEYS[1], ARGV[1])";
  assert.equal(await r.eval(add, { keys: [own("n")], arguments: ["5"] }), 5);
  assert.deepEqual(await r.multi().set(own("{t}"), "1").incr(own("{t}")).exec(), ["OK", 2]);
  const subscriber = await another();
  const heard = [];
  await subscriber.subscribe(own("news"), (message) => heard.push(message));
  await subscriber.sSubscribe(own("shard"), (message) => heard.push(message));
  await r.publish(own("news"), "hello");
  await r.sPublish(own("shard"), "hello");
  for (let look = 0; look < 2000 && heard.length < 2; look++) await pause(10);
  assert.deepEqual(heard, ["hello", "hello"]);
  subscriber.destroy();
}
