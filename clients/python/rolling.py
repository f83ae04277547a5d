"""Servers restarted one after another under redis-py or valkey-py as they are: python3 rolling.py CLIENT HOST PORT.

Four threads write with the client's own settings, and try nothing again. A line from outside says that all servers are back: then no
write may have failed, and everything that was acknowledged is there.
"""

import importlib
import sys
import threading

WRITERS = 4
KEYS = 2000
PREFIX = sys.argv[1] + ":rolling:"


def write(r, writer, acknowledged, failed, over):
    number = 0
    while not over.is_set():
        number += 1
        key = PREFIX + f"{writer}:{number % KEYS}"
        try:
            r.set(key, number)
            acknowledged[key] = number
        except Exception as error:  # noqa: BLE001: whatever a client makes of a server that stops
            failed.append(f"{type(error).__name__}: {error}")
    acknowledged["count"] = number


def main(client, host, port):
    module = importlib.import_module(client)
    kind = module.RedisCluster if client == "redis" else module.ValkeyCluster
    r = kind(host=host, port=port, decode_responses=True)
    over, failed, acknowledged = threading.Event(), [], [{} for _ in range(WRITERS)]
    writers = [threading.Thread(target=write, args=(r, number, acknowledged[number], failed, over)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    print("ready", flush=True)
    sys.stdin.readline()
    over.set()
    for writer in writers:
        writer.join()
    written = sum(of.pop("count") for of in acknowledged)
    lost = [key for of in acknowledged for key, number in of.items() if int(r.get(key) or 0) < number]
    print(f"{client}-py {module.__version__}, rolling restart: {len(failed)} of {written} writes failed, {len(lost)} lost", failed[:3])
    sys.exit(1 if failed or lost else 0)


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
