// A cluster of key-value engines under one of these clients, while it changes: node cluster.mjs CLIENT HOST PORT
//
// After its everyday work it says so with a line, and goes on writing while slots move and nodes fail. A line from outside says that
// the cluster has settled: from then on nothing that was acknowledged may be missing.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";

const clients = {
  ioredis: "./cluster-ioredis.mjs",
  iovalkey: "./cluster-ioredis.mjs",
  redis: "./cluster-redis.mjs",
  "@valkey/valkey-glide": "./cluster-glide.mjs",
};
const [client, host, port] = [process.argv[2], process.argv[3], Number(process.argv[4])];
// Several clients run at a time: each has keys of its own.
const own = (key) => `node:${client}:${key}`;
const { connect, everyday } = await import(clients[client]);
const r = await connect(client, host, port);

// Writes until the cluster has settled. Errors are transient: they are counted, and each write is tried again.
async function load(settled) {
  const errors = {};
  let [number, last, longest] = [0, performance.now(), 0];
  while (!settled()) {
    try {
      await r.set(own(`load:${number % 2000}`), String(number));
      number++;
      longest = Math.max(longest, performance.now() - last);
      last = performance.now();
    } catch (error) {
      errors[error.name] = (errors[error.name] ?? 0) + 1;
      await pause(20);
    }
  }
  return [number, Math.max(longest, performance.now() - last) / 1000, errors];
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

for (let number = 0; number < 200; number++) {
  assert.equal(await r.set(own(`day:${number}`), String(number)), "OK");
  assert.equal(await r.get(own(`day:${number}`)), String(number));
}
await everyday(r, own, (options) => connect(client, host, port, options));
console.log("ready");
let isSettled = false;
process.stdin.once("data", () => (isSettled = true));
// Nobody waits for it any longer.
process.stdin.once("end", () => process.exit(1));
const [written, longest, errors] = await load(() => isSettled);
await afterwards();
const about = JSON.parse(readFileSync(new URL(`node_modules/${client}/package.json`, import.meta.url)));
const said = `${client} ${about.version}, cluster: ${written} writes while it changed, ${longest.toFixed(1)} s without one`;
console.log(`${said}, errors ${JSON.stringify(errors)}`);
process.exit(0);
