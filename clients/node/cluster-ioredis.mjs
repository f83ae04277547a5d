// What cluster.mjs asks of ioredis and iovalkey.
import assert from "node:assert/strict";

export async function connect(library, host, port) {
  const { Cluster } = await import(library);
  const r = new Cluster([{ host, port }], { clusterRetryStrategy: () => 50, retryDelayOnFailover: 50 });
  r.on("error", () => {});
  return r;
}

export async function everyday(r, own, another) {
  const pipeline = r.pipeline();
  for (let number = 0; number < 200; number++) pipeline.incrby(own(`{sum}:${number % 20}`), number);
  assert.equal((await pipeline.exec()).filter(([error]) => error === null).length, 200);
  assert.equal(await r.mset({ [own("{m}a")]: 1, [own("{m}b")]: 2 }), "OK");
  assert.deepEqual(await r.mget(own("{m}a"), own("{m}b")), ["1", "2"]);
  await assert.rejects(r.mset({ [own("a")]: 1, [own("b")]: 2 }), /CROSSSLOT|same/);
  assert.equal(await r.eval("return redis.call('INCRBY', KEYS[1], ARGV[1])", 1, own("n"), 5), 5);
  assert.deepEqual(await r.multi().set(own("{t}"), 1).incr(own("{t}")).exec(), [[null, "OK"], [null, 2]]);
  const subscriber = await another();
  await subscriber.subscribe(own("news"));
  const heard = new Promise((resolve) => subscriber.on("message", (_, message) => resolve(message)));
  await r.publish(own("news"), "hello");
  assert.equal(await heard, "hello");
  subscriber.disconnect();
}
