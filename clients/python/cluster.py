"""A cluster of key-value engines under redis-py or valkey-py, while it changes: python3 cluster.py CLIENT HOST PORT.

After its everyday work it says so with a line, and goes on writing while slots move and nodes fail. A line from outside says that
the cluster has settled: from then on nothing that was acknowledged may be missing.
"""

import binascii
import importlib
import sys
import threading
import time

SLOTS = 16384
# Several clients run at a time: each has keys of its own.
PREFIX = sys.argv[1] + ":"


def slot(key):
    tag = key[key.index("{") + 1 : key.index("}")] if "{" in key else key
    return binascii.crc_hqx(tag.encode(), 0) % SLOTS


def key_of_each_slot():
    keys, number = {}, 0
    while len(keys) < SLOTS:
        keys.setdefault(slot(str(number)), PREFIX + f"{{{number}}}")
        number += 1
    return [keys[number] for number in range(SLOTS)]


def everyday(r, module):
    for number in range(200):
        assert r.set(PREFIX + f"day:{number}", number) and r.get(PREFIX + f"day:{number}") == str(number)
    with r.pipeline() as pipe:
        for number in range(200):
            pipe.incrby(PREFIX + f"sum:{number % 20}", number)
        assert len(pipe.execute()) == 200
    assert r.mset_nonatomic({PREFIX + f"many:{number}": number for number in range(100)})
    assert r.mget_nonatomic([PREFIX + f"many:{number}" for number in range(100)]) == [str(number) for number in range(100)]
    assert r.hset(PREFIX + "{h}", mapping={"a": 1, "b": 2}) == 2 and r.hgetall(PREFIX + "{h}") == {"a": "1", "b": "2"}
    assert r.eval("return redis.call('INCRBY', KEYS[1], ARGV[1])", 1, PREFIX + "{h}:n", 5) == 5
    assert r.sadd(PREFIX + "{s}x", "a", "b") == 2 and set(r.sinter(PREFIX + "{s}x", PREFIX + "{s}x")) == {"a", "b"}
    try:
        r.execute_command("MSET", PREFIX + "a", 1, PREFIX + "b", 2)
        raise AssertionError("keys of two slots in one command")
    except module.exceptions.ResponseError:
        pass
    except Exception as error:  # noqa: BLE001: it looks at the slots itself
        assert "Cluster" in type(error).__name__, error
    assert len([key for key in r.scan_iter(match=PREFIX + "day:*", count=500)]) == 200


def load(r, errors, settled):
    """Writes until the cluster has settled. Errors are transient: they are counted, and each write is tried again."""
    number = 0
    while not settled.is_set():
        try:
            r.set(PREFIX + f"load:{number % 2000}", number)
            number += 1
        except Exception as error:  # noqa: BLE001: whatever a client makes of a node that is gone
            errors[type(error).__name__] = errors.get(type(error).__name__, 0) + 1
            time.sleep(0.02)
    return number


def insist(call):
    """What the client has not learned of the last change yet may fail once more, and not for ever."""
    for _ in range(200):
        try:
            return call()
        except Exception as error:  # noqa: BLE001
            last = error
            time.sleep(0.1)
    raise last


def afterwards(r):
    keys = key_of_each_slot()
    for first in range(0, SLOTS, 1024):
        some = keys[first : first + 1024]

        def write():
            with r.pipeline() as pipe:
                for key in some:
                    pipe.set(key, key)
                return pipe.execute()

        assert all(insist(write))
    for first in range(0, SLOTS, 1024):
        some = keys[first : first + 1024]
        with r.pipeline() as pipe:
            for key in some:
                pipe.get(key)
            assert pipe.execute() == some
    for number in range(200):
        assert r.get(PREFIX + f"day:{number}") == str(number)


def main(client, host, port):
    module = importlib.import_module(client)
    kind = module.RedisCluster if client == "redis" else module.ValkeyCluster
    r = kind(host=host, port=port, decode_responses=True)
    everyday(r, module)
    print("ready", flush=True)
    settled, errors = threading.Event(), {}
    threading.Thread(target=lambda: (sys.stdin.readline(), settled.set()), daemon=True).start()
    written = load(r, errors, settled)
    afterwards(r)
    print(f"{client}-py {module.__version__}, cluster: {written} writes while it changed, errors {errors}")


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
