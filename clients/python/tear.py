"""Overwrites under boto3 while servers are killed: no acknowledged object is lost, and conditional puts have one winner.

Usage: tear.py READY ROUNDS [SEED]    READY is the file with the line that `ashlar up --json` has printed.

In each round eight threads overwrite 64 keys with objects of 4 KiB and of 4 MiB, a part of them by compare-and-set on the entity
tag, and race for new keys with If-None-Match. Meanwhile one server, several or all are killed with SIGKILL; `up` starts them
again. When all are back, each key is read at every server and must have the object that was acknowledged last, or one of those that
were put after it without an answer. In each round some must have been acknowledged: drives that are full would prove nothing.
`TEAR_4MIB_OF` is how many of a hundred objects have 4 MiB [default: 3: what is replaced in the last minute before a kill takes
space for hours].
"""

import concurrent.futures
import hashlib
import json
import os
import random
import signal
import sys
import threading
import time
import urllib.request

from botocore.exceptions import BotoCoreError, ClientError
from s3client import client

READY = json.load(open(sys.argv[1]))
ROUNDS = int(sys.argv[2])
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1
LARGE_OF = int(os.environ.get("TEAR_4MIB_OF", "3"))
COUNT = len(READY["servers"])
KEYS = 64
THREADS = 8
SMALL, LARGE = 4 << 10, 4 << 20
# A server that was killed is back, and its placement groups with it.
BACK_MAX = 120
# How long the writers go on before and after the kill, seconds.
BEFORE, AFTER = (0.5, 3.0), (1.0, 4.0)
BUCKET = "tear"


# A retry of boto3 would repeat a conditional put that was done: one try for writers.
OPTIONS = {"connect_timeout": 5, "max_pool_connections": THREADS}
WRITERS = [client(READY, number, 1, **OPTIONS) for number in range(COUNT)]
READERS = [client(READY, number, 12, **OPTIONS) for number in range(COUNT)]


def status(number, path):
    with urllib.request.urlopen(f"http://{READY['servers'][number]['address']}{path}", timeout=5) as page:
        return json.load(page)


def pid(number):
    # A loaded machine may need more than one question.
    until = time.time() + BACK_MAX
    while True:
        try:
            return status(number, "/v1/status")["pid"]
        except OSError:
            assert time.time() < until, f"server {number} does not say its process id"


def digest(body):
    return hashlib.sha256(body).hexdigest()


class Ledger:
    """What each key may have: one lock for a key, so that its writes have an order."""

    def __init__(self):
        self.locks = {f"key-{number}": threading.Lock() for number in range(KEYS)}
        self.acknowledged, self.open, self.etags = {}, {key: set() for key in self.locks}, {}
        self.counts = {"acknowledged": 0, "failed": 0, "races": 0, "without a winner": 0}
        self.wrong, self.last_failure = [], None
        self.lock = threading.Lock()

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def accuse(self, what):
        with self.lock:
            self.wrong.append(what)
        print(f"WRONG: {what}", flush=True)


def overwrite(ledger, chance):
    key = f"key-{chance.randrange(KEYS)}"
    body = chance.randbytes(LARGE if chance.randrange(100) < LARGE_OF else SMALL)
    with ledger.locks[key]:
        known = ledger.etags.get(key)
        condition = {"IfMatch": known} if known and not ledger.open[key] and chance.randrange(4) == 0 else {}
        ledger.open[key].add(digest(body))
        try:
            put = chance.choice(WRITERS).put_object(Bucket=BUCKET, Key=key, Body=body, **condition)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] < 500:
                ledger.accuse(f"{key}: {error}")
            ledger.last_failure = error
            ledger.count("failed")
            return
        except BotoCoreError as error:
            # Written or not: either is right from now on.
            ledger.last_failure = error
            ledger.count("failed")
            time.sleep(0.05)
            return
        ledger.acknowledged[key], ledger.open[key], ledger.etags[key] = digest(body), set(), put["ETag"]
        ledger.count("acknowledged")


def race(ledger, name):
    """All servers are asked at once to make one key. At most one says that it did."""

    def try_one(number):
        body = f"{name} by {number}".encode()
        try:
            WRITERS[number].put_object(Bucket=BUCKET, Key=name, Body=body, IfNoneMatch="*")
            return number, "won"
        except ClientError as error:
            code = error.response["ResponseMetadata"]["HTTPStatusCode"]
            return number, "lost" if code in (409, 412) else "open"
        except BotoCoreError:
            return number, "open"

    with concurrent.futures.ThreadPoolExecutor(COUNT) as pool:
        results = dict(pool.map(try_one, range(COUNT)))
    winners = [number for number, result in results.items() if result == "won"]
    maybe = [number for number, result in results.items() if result == "open"]
    ledger.count("races")
    if len(winners) > 1 or (not winners and not maybe):
        ledger.accuse(f"{name}: {len(winners)} winners of a conditional put: {results}")
    if not winners:
        ledger.count("without a winner")
    return name, winners, maybe


def check_race(ledger, raced):
    name, winners, maybe = raced
    allowed = {f"{name} by {number}".encode() for number in (winners or maybe)}
    try:
        body = READERS[0].get_object(Bucket=BUCKET, Key=name)["Body"].read()
    except READERS[0].exceptions.NoSuchKey:
        if winners:
            ledger.accuse(f"{name}: the object of the winner is gone")
        return
    if body not in allowed:
        ledger.accuse(f"{name}: {body!r} did not win")


def check_key(ledger, number, key):
    allowed = ledger.open[key] | {ledger.acknowledged.get(key)}
    try:
        body = READERS[number].get_object(Bucket=BUCKET, Key=key)["Body"].read()
    except READERS[number].exceptions.NoSuchKey:
        if key in ledger.acknowledged:
            ledger.accuse(f"{key}: an acknowledged object is gone at server {number}")
        return
    except (ClientError, BotoCoreError) as error:
        ledger.accuse(f"{key}: server {number}: {error}")
        return
    if digest(body) not in allowed:
        ledger.accuse(f"{key}: server {number} has {len(body)} bytes that were overwritten, or never put")


def wait_until_back():
    until = time.time() + BACK_MAX
    for number in range(COUNT):
        while True:
            try:
                if status(number, "/health/ready")["status"] == "ready":
                    READERS[number].head_bucket(Bucket=BUCKET)
                    break
            except (OSError, ClientError, BotoCoreError):
                pass
            assert time.time() < until, f"server {number} does not come back"
            time.sleep(0.3)


def victims(chance):
    count = chance.choice((1, 1, 2, 3, COUNT, COUNT))
    return chance.sample(range(COUNT), min(count, COUNT))


def one_round(ledger, number, chance):
    is_over, raced = threading.Event(), []

    def write(seed):
        mine = random.Random(seed)
        while not is_over.is_set():
            overwrite(ledger, mine)

    def race_on():
        count = 0
        while not is_over.is_set():
            raced.append(race(ledger, f"race-{number}-{count}"))
            count += 1
            time.sleep(0.2)

    before = ledger.counts["acknowledged"]
    threads = [threading.Thread(target=write, args=(chance.random(),)) for _ in range(THREADS)]
    threads.append(threading.Thread(target=race_on))
    for thread in threads:
        thread.start()
    time.sleep(chance.uniform(*BEFORE))
    killed = victims(chance)
    for process in [pid(victim) for victim in killed]:
        os.kill(process, signal.SIGKILL)
    time.sleep(chance.uniform(*AFTER))
    is_over.set()
    for thread in threads:
        thread.join()
    if ledger.counts["acknowledged"] == before:
        ledger.accuse(f"round {number}: no put was acknowledged, not even before the kill: {ledger.last_failure}")
    began = time.time()
    wait_until_back()
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        jobs = [(server, key) for server in range(COUNT) for key in ledger.locks]
        list(pool.map(lambda job: check_key(ledger, *job), jobs))
        list(pool.map(lambda one: check_race(ledger, one), raced))
    print(f"round {number}: {len(killed)} killed, all read {time.time() - began:.0f} s later, {ledger.counts}", flush=True)


def main():
    # A thread that ends by an error would make the run easier than it says.
    threading.excepthook = lambda args: (sys.__excepthook__(args.exc_type, args.exc_value, args.exc_traceback), os._exit(1))
    chance = random.Random(SEED)
    READERS[0].create_bucket(Bucket=BUCKET)
    ledger = Ledger()
    for number in range(1, ROUNDS + 1):
        one_round(ledger, number, chance)
    print(f"tear: {ROUNDS} rounds, seed {SEED}, {COUNT} servers: {ledger.counts}, {len(ledger.wrong)} wrong", flush=True)
    assert not ledger.wrong, ledger.wrong[:5]


main()
