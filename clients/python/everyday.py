"""Everyday work of redis-py against the key-value engine: python3 everyday.py HOST PORT."""

import sys
import threading
import time

import redis
from redis.cache import CacheConfig


def strings(r):
    assert r.set("s", "value") is True
    assert r.get("s") == "value"
    assert r.set("s", "other", nx=True) is None
    assert r.getset("s", "new") == "value"
    assert r.append("s", "er") == 5 and r.strlen("s") == 5
    assert r.setrange("s", 1, "EW") == 5 and r.getrange("s", 0, 2) == "nEW"
    assert r.incr("n") == 1 and r.incrby("n", 9) == 10 and r.decrby("n", 3) == 7
    assert r.incrbyfloat("f", 1.5) == 1.5
    assert r.mset({"a": 1, "b": 2}) is True and r.mget("a", "b", "none") == ["1", "2", None]
    assert r.setbit("bits", 7, 1) == 0 and r.bitcount("bits") == 1
    assert r.delete("a", "b", "none") == 2 and r.exists("a", "s") == 1
    raises(redis.ResponseError, r.incr, "s")


def hashes(r):
    assert r.hset("h", mapping={"name": "Ada", "born": 1815}) == 2
    assert r.hgetall("h") == {"name": "Ada", "born": "1815"}
    assert r.hincrby("h", "born", 1) == 1816 and r.hget("h", "none") is None
    assert r.hmget("h", "name", "none") == ["Ada", None] and sorted(r.hkeys("h")) == ["born", "name"]
    assert r.hexpire("h", 100, "born") == [1] and 0 < r.httl("h", "born")[0] <= 100
    assert r.hdel("h", "born") == 1 and r.hlen("h") == 1


def lists(r):
    assert r.rpush("l", *range(5)) == 5 and r.lpush("l", "first") == 6
    assert r.lrange("l", 0, -1) == ["first", "0", "1", "2", "3", "4"]
    assert r.lpop("l") == "first" and r.rpop("l", 2) == ["4", "3"]
    assert r.linsert("l", "BEFORE", "1", "half") == 4 and r.lpos("l", "half") == 1
    assert r.lmove("l", "m", "LEFT", "RIGHT") == "0" and r.lindex("m", 0) == "0"
    assert r.blpop("none", timeout=0.01) is None
    threading.Timer(0.05, lambda: r.rpush("later", "job")).start()
    assert r.blpop(["none", "later"], timeout=20) in [("later", "job"), ["later", "job"]]


def sets(r):
    assert r.sadd("x", "a", "b", "c") == 3 and r.sadd("y", "b", "c", "d") == 3
    assert r.sinter("x", "y") == {"b", "c"} and r.sunion("x", "y") == {"a", "b", "c", "d"}
    assert r.sdiffstore("z", "x", "y") == 1 and r.smembers("z") == {"a"}
    assert r.sismember("x", "a") == 1 and r.smismember("x", "a", "d") == [1, 0]
    assert r.spop("z") == "a" and r.scard("z") == 0


def sorted_sets(r):
    assert r.zadd("z", {"ann": 7, "bob": 9, "cid": 8.5}) == 3
    assert pairs(r.zrange("z", 0, -1, withscores=True)) == [("ann", 7.0), ("cid", 8.5), ("bob", 9.0)]
    assert r.zincrby("z", 5, "ann") == 12.0 and r.zrevrank("z", "ann") == 0
    assert r.zrangebyscore("z", 8, "(9") == ["cid"] and r.zscore("z", "none") is None
    assert r.zadd("z", {"bob": 1}, gt=True, ch=True) == 0
    assert pairs(r.zpopmin("z")) == [("cid", 8.5)] and r.zcard("z") == 2
    r.zadd("lex", {name: 0 for name in "abcd"})
    assert r.zrange("lex", "[b", "(d", bylex=True) == ["b", "c"]
    r.geoadd("g", (13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania"))
    assert 166000 < r.geodist("g", "Palermo", "Catania") < 167000


def streams(r):
    first = r.xadd("s", {"n": 1}, id="1-1")
    assert first == "1-1" and r.xadd("s", {"n": 2}) > first and r.xlen("s") == 2
    assert r.xrange("s", count=1) == [("1-1", {"n": "1"})]
    assert r.xgroup_create("s", "g", id="0") is True
    raises(redis.ResponseError, r.xgroup_create, "s", "g")
    read = entries(r.xreadgroup("g", "me", {"s": ">"}, count=1))
    assert read == [("1-1", {"n": "1"})], read
    assert r.xpending("s", "g")["pending"] == 1
    assert r.xclaim("s", "g", "you", 0, ["1-1"]) == [("1-1", {"n": "1"})]
    assert r.xack("s", "g", "1-1") == 1 and r.xpending("s", "g")["pending"] == 0
    assert r.xinfo_groups("s")[0]["name"] == "g" and r.xinfo_stream("s")["length"] == 2
    assert r.xtrim("s", maxlen=1, approximate=False) == 1 and r.xdel("s", "9-9") == 0


def pipelines_and_transactions(r):
    with r.pipeline(transaction=False) as pipe:
        for number in range(100):
            pipe.incrby("sum", number)
        assert pipe.execute()[-1] == 4950
    with r.pipeline() as pipe:
        assert pipe.set("t", 1).incr("t").get("t").execute() == [True, 2, "2"]
    with r.pipeline() as pipe:
        pipe.watch("t")
        value = int(pipe.get("t"))
        r.set("t", 100)
        pipe.multi()
        pipe.set("t", value + 1)
        raises(redis.WatchError, pipe.execute)
    assert r.transaction(lambda pipe: (pipe.multi(), pipe.incr("t")), "t") == [101]
    with r.pipeline() as pipe:
        replies = pipe.set("t", "text").incr("t").set("u", 1).execute(raise_on_error=False)
        assert isinstance(replies[1], redis.ResponseError) and r.get("u") == "1"


def scripts(r):
    assert r.eval("return {KEYS[1], ARGV[1], 3}", 1, "k", "a") == ["k", "a", 3]
    add = r.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
    assert add(keys=["c"], args=[5]) == 5 and add(keys=["c"], args=[5]) == 10
    raises(redis.ResponseError, r.eval, "return redis.call('LPUSH', KEYS[1], 1)", 1, "c")
    assert r.eval("local v = redis.pcall('LPUSH', KEYS[1], 1); return v.err ~= nil", 1, "c") == 1
    raises(redis.exceptions.NoScriptError, r.evalsha, "0" * 40, 0)


def publish_and_subscribe(r):
    with r.pubsub(ignore_subscribe_messages=True) as sub:
        sub.subscribe("news")
        sub.psubscribe("n*")
        until(lambda: r.pubsub_numsub("news") == [("news", 1)] and r.pubsub_numpat() == 1)
        assert r.publish("news", "hello") == 2
        got = [message_of(sub), message_of(sub)]
        assert [(m["type"], m["channel"], m["data"]) for m in got] == [
            ("message", "news", "hello"),
            ("pmessage", "news", "hello"),
        ], got


def scans_and_expiry(r):
    for number in range(1000):
        r.set(f"scan:{number}", number)
    assert len(set(r.scan_iter("scan:*", count=50))) == 1000
    r.sadd("set", *range(500))
    r.hset("hash", mapping={number: number for number in range(500)})
    r.zadd("zset", {str(number): number for number in range(500)})
    assert len(set(r.sscan_iter("set"))) == 500 and len(dict(r.hscan_iter("hash"))) == 500
    assert len(dict(r.zscan_iter("zset"))) == 500
    assert r.expire("set", 100) is True and 0 < r.ttl("set") <= 100 and r.persist("set") is True
    assert r.set("soon", 1, px=20) is True
    until(lambda: r.get("soon") is None)
    assert r.ttl("soon") == -2 and r.type("set") == "set" and r.object("encoding", "hash") is not None
    assert r.rename("set", "set2") is True and r.dbsize() == 1003
    assert r.restore("copy", 0, raw(r).dump("zset")) == b"OK" or r.zcard("copy") == 500


def introspection(r):
    assert r.ping() is True and r.echo("x") == "x"
    assert r.client_setname("everyday") is True and r.client_getname() == "everyday"
    assert any(client["name"] == "everyday" for client in r.client_list())
    assert "redis_version" in r.info("server") and r.config_get("maxmemory").keys() == {"maxmemory"}
    assert r.command_count() > 200 and r.memory_usage("none") is None
    assert r.time()[0] > 1_600_000_000


def client_side_cache(host, port):
    # redis-py has its cache only with servers that call themselves redis; to it we are Valkey, which tracks keys in the same way.
    redis.connection.CacheProxyConnection.DEFAULT_SERVER_NAME = "valkey"
    with redis.Redis(host, port, protocol=3, decode_responses=True, cache_config=CacheConfig()) as r, redis.Redis(
        host, port, decode_responses=True
    ) as other:
        r.flushdb()
        r.set("cached", "one")
        assert r.get("cached") == "one" and r.get("cached") == "one"
        assert r.get_cache().size >= 1
        other.set("cached", "two")
        until(lambda: r.get("cached") == "two")


def message_of(sub):
    found = []
    until(lambda: found.append(sub.get_message(timeout=1)) or found[-1] is not None)
    return found[-1]


def entries(reply):
    """The entries of the one stream that was read: RESP2 gives pairs, RESP3 a map."""
    (stream,) = reply.items() if isinstance(reply, dict) else reply
    read = stream[1]
    return read[0] if read and isinstance(read[0], list) and not isinstance(read[0][0], str) else read


def pairs(reply):
    return [tuple(pair) if not isinstance(pair[0], (list, tuple)) else tuple(pair[0]) for pair in ([reply] if reply and isinstance(reply[0], str) else reply)]


def raw(r):
    settings = dict(r.connection_pool.connection_kwargs, decode_responses=False)
    return redis.Redis(host=settings["host"], port=settings["port"])


def until(is_so):
    for _ in range(2000):
        if is_so():
            return
        time.sleep(0.01)
    raise AssertionError("waited in vain")


def raises(kind, call, *arguments):
    try:
        call(*arguments)
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


CASES = [
    strings, hashes, lists, sets, sorted_sets, streams, pipelines_and_transactions, scripts, publish_and_subscribe,
    scans_and_expiry, introspection,
]


def main(host, port):
    for protocol in (2, 3):
        with redis.Redis(host, port, protocol=protocol, decode_responses=True) as r:
            for case in CASES:
                r.flushall()
                case(r)
                print(f"redis-py {redis.__version__}, RESP{protocol}: {case.__name__}")
    client_side_cache(host, port)
    print(f"redis-py {redis.__version__}, RESP3: client_side_cache")


main(sys.argv[1], int(sys.argv[2]))
