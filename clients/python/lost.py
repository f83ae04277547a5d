"""Drives that are lost, replaced and damaged under boto3: every object stays readable, and is healed.

Usage: lost.py READY ROUNDS [SEED]    READY is the file with the line that `ashlar up --json` has printed.

Objects of 4 KiB to 4 MiB are put once. In each round all four drives of one server are lost at once, or any four of the sixteen: as many
as objects and their index may lose. Their folders are taken away, their servers killed with SIGKILL, and `up` starts them again with
empty ones. All objects are read, the lost drives are given up (by hand where one may be the last that has a part of a disk, of which
there is none here), and their shards made anew elsewhere; the next round takes others. After the rounds every block with data on each drive has a byte flipped, one drive after the other: nothing wrong is served, and
all is repaired before the next. When every drive has been replaced or damaged, nothing is left of what was put first but what was healed.
"""

import concurrent.futures
import glob
import hashlib
import json
import os
import random
import re
import shutil
import signal
import sys
import time
import urllib.request

from botocore.exceptions import BotoCoreError, ClientError
from s3client import client

READY = json.load(open(sys.argv[1]))
ROUNDS = int(sys.argv[2])
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1
SERVERS = READY["servers"]
COUNT = len(SERVERS)
OBJECTS = 150
SIZES = (4 << 10, 4 << 10, 4 << 10, 100_000, 1 << 20, 4 << 20)
BUCKET = "lost"
THREADS = 8
# A server is back; a missing drive is given up after a minute, and what was on it is made anew.
BACK_MAX, HEALED_MAX = 120, 400
# Those that may be given up are by then.
GIVEN_UP_MAX = 100
# Nothing is told of healing for so long: it is done. A pass begins 5 s after the last change.
QUIET = 15
BLOCK = 4 << 10
# Superblocks and the like, whose damage is another matter.
HEAD = 1 << 20


def clients():
    """One for each server. New ones for each check: a client stops to repeat what failed once it has repeated too much."""
    return [client(READY, number, 12, connect_timeout=5, max_pool_connections=THREADS) for number in range(COUNT)]


CLIENTS = clients()


def ask(number, path):
    with urllib.request.urlopen(f"http://{SERVERS[number]['address']}{path}", timeout=5) as page:
        return json.load(page)


def patiently(what, seconds, attempt):
    """What `attempt` gives once it gives something."""
    until = time.time() + seconds
    while True:
        try:
            result = attempt()
            if result:
                return result
        except (OSError, ClientError, BotoCoreError):
            pass
        assert time.time() < until, f"{what}: not within {seconds} s"
        time.sleep(0.5)


def put_all(chance):
    digests = {}
    for number in range(OBJECTS):
        key, body = f"object-{number}", chance.randbytes(chance.choice(SIZES))
        CLIENTS[number % COUNT].put_object(Bucket=BUCKET, Key=key, Body=body)
        digests[key] = hashlib.sha256(body).digest()
    return digests


def check(digests, when):
    readers = clients()

    def one(job):
        number, (key, digest) = job
        body = readers[number % COUNT].get_object(Bucket=BUCKET, Key=key)["Body"].read()
        assert hashlib.sha256(body).digest() == digest, f"{when}: {key} is not what was put"

    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(one, enumerate(digests.items())))


def folders(number):
    return sorted(glob.glob(os.path.join(SERVERS[number]["data"], "drive*")))


def lines():
    """How often servers have told of healing."""
    count = 0
    for server in SERVERS:
        with open(f"{server['data']}.log", errors="replace") as log:
            count += len(re.findall(r"made anew|objects have shards|were compared", log.read()))
    return count


def to_heal():
    """How many objects the servers say are to be healed."""
    count = 0
    for server in SERVERS:
        with urllib.request.urlopen(f"http://{server['address']}/metrics", timeout=5) as page:
            count += int(re.search(r"^ashlar_objects_to_heal (\d+)", page.read().decode(), re.M)[1])
    return count


def until_healed():
    """Until nothing is to be healed, and nothing was told of healing for a while."""
    began = time.time()
    seen, since = lines(), time.time()
    while time.time() - since < QUIET:
        assert time.time() < began + HEALED_MAX, f"healing does not end: {to_heal()} objects are left"
        time.sleep(1)
        now = lines()
        if now != seen or to_heal() > 0:
            seen, since = now, time.time()
    return since - began


def give_up_missing():
    """As `ashlar drives remove ID --lost` does."""
    token = open(os.path.join(SERVERS[0]["data"], "admin.token")).read().strip()
    for drive in ask(0, "/v1/drives"):
        if drive["state"] == "missing":
            url = f"http://{SERVERS[0]['address']}/v1/drives/{drive['id']}?force"
            request = urllib.request.Request(url, method="DELETE", headers={"Authorization": f"Bearer {token}"})
            urllib.request.urlopen(request, timeout=20).close()


def states():
    return [drive["state"] for drive in ask(0, "/v1/drives")]


def is_index_whole():
    return all(group["whole"] for group in ask(0, "/v1/groups") if group["index"])


def lose(number, lost, digests):
    began = time.time()
    for server in sorted({server for server, _ in lost}):
        process = patiently("a server says its process id", BACK_MAX, lambda server=server: ask(server, "/v1/status"))["pid"]
        away = []
        for _, folder in (pair for pair in lost if pair[0] == server):
            away.append(f"{os.path.dirname(folder)}/away-{os.path.basename(folder)}")
            os.rename(folder, away[-1])
        os.kill(process, signal.SIGKILL)
        for folder in away:
            shutil.rmtree(folder)
    for server in range(COUNT):
        patiently(f"server {server} is back", BACK_MAX, lambda server=server: ask(server, "/health/ready")["status"] == "ready")
    patiently("the bucket answers", BACK_MAX, lambda: CLIENTS[0].head_bucket(Bucket=BUCKET))
    check(digests, f"round {number}, {len(lost)} drives lost")
    read = time.time() - began
    given_up = lambda: (lambda now: "missing" not in now and now.count("active") == DRIVES)(states())
    try:
        patiently("lost drives are given up", GIVEN_UP_MAX, given_up)
    except AssertionError:
        give_up_missing()
        patiently("lost drives are given up by hand", HEALED_MAX, given_up)
    until_healed()
    patiently("the index has all copies", HEALED_MAX, is_index_whole)
    check(digests, f"round {number}, healed")
    print(f"round {number}: {len(lost)} drives lost, all read {read:.0f} s later, healed within {time.time() - began:.0f} s", flush=True)


def rot(folder, digests, when):
    """Flips a byte of every block with data in the file of the drive's shards, while the server runs."""
    flipped, nothing = 0, bytes(BLOCK)
    with open(os.path.join(folder, "blobs"), "r+b", buffering=0) as file:
        for at in range(HEAD, os.fstat(file.fileno()).st_size, BLOCK):
            block = os.pread(file.fileno(), BLOCK, at)
            if block != nothing:
                place = BLOCK // 3
                os.pwrite(file.fileno(), bytes([block[place] ^ 0x55]), at + place)
                flipped += 1
        os.fsync(file.fileno())
    check(digests, when)
    seconds = until_healed()
    print(f"{when}: {flipped} blocks damaged, all read, told of healing for {seconds:.0f} s", flush=True)


def main():
    chance = random.Random(SEED)
    CLIENTS[0].create_bucket(Bucket=BUCKET)
    digests = put_all(chance)
    # A put is acknowledged with a shard or two missing if their drives were slow. They are made anew soon.
    until_healed()
    patiently("the index has all copies", HEALED_MAX, is_index_whole)
    check(digests, "at the beginning")
    for number in range(1, ROUNDS + 1):
        if number % 2:
            server = number // 2 % COUNT
            lost = [(server, folder) for folder in folders(server)]
        else:
            lost = chance.sample([(server, folder) for server in range(COUNT) for folder in folders(server)], 4)
        lose(number, lost, digests)
    for server in range(COUNT):
        for folder in folders(server):
            rot(folder, digests, f"{os.path.basename(folder)} of server {server + 1}")
    check(digests, "at the end")
    print(f"{OBJECTS} objects, {ROUNDS} rounds: every object is what was put")


DRIVES = sum(len(folders(number)) for number in range(COUNT))

if __name__ == "__main__":
    main()
