"""A server's drive is lost and comes back empty: objects stay readable and are whole again on the new drive.

Usage: lost_drive.py READY DATA    READY is the file with the line that `ashlar up --json` has printed, DATA its directory.
Three servers: after the last one's drive was made anew, each object is read while another server is stopped.
"""

import glob
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import time

from s3client import client

READY = json.load(open(sys.argv[1]))
DATA = sys.argv[2]
SERVERS = READY["servers"]
OBJECTS = 40
# A missing drive is given up after a minute; what lay on it is made anew within seconds after that.
HEALED_MAX = 240


def body(number):
    seed = hashlib.sha256(str(number).encode()).digest()
    return seed * ((4096, 300_000, 2_500_000)[number % 3] // len(seed))


def read_all(number, count):
    s3 = client(READY, number, 12)
    for key in range(count):
        got = s3.get_object(Bucket="lost", Key=f"key-{key}")["Body"].read()
        assert got == body(key), f"key-{key} is not what was put"


def logs():
    text = "\n".join(open(path, errors="replace").read() for path in glob.glob(f"{DATA}/*.log"))
    # Without the terminal's colours.
    return re.sub("\x1b\\[[0-9;]*m", "", text)


def pid(number):
    return SERVERS[number]["pid"]


def main():
    s3 = client(READY, 0, 12)
    s3.create_bucket(Bucket="lost")
    for key in range(OBJECTS):
        s3.put_object(Bucket="lost", Key=f"key-{key}", Body=body(key))
    folder = sorted(path for path in glob.glob(f"{DATA}/*/drive"))[-1]
    os.kill(pid(2), signal.SIGKILL)
    shutil.rmtree(folder)
    print(f"removed {folder}", flush=True)
    began = time.monotonic()
    while "the missing drive is given up" not in logs():
        read_all(0, 6)
        assert time.monotonic() - began < HEALED_MAX, "the drive was not given up"
        time.sleep(2)
    given_up = time.monotonic() - began
    s3.put_object(Bucket="lost", Key=f"key-{OBJECTS}", Body=body(OBJECTS))
    while f"healed={OBJECTS} waiting=0 failed=0" not in logs():
        read_all(1, 6)
        assert time.monotonic() - began < HEALED_MAX, "the objects were not healed"
        time.sleep(2)
    healed = time.monotonic() - began
    # With one parity shard each object needs the one on the new drive as soon as another server is away.
    for other in (0, 1):
        os.kill(pid(other), signal.SIGSTOP)
        try:
            read_all(2, OBJECTS + 1)
        finally:
            os.kill(pid(other), signal.SIGCONT)
        time.sleep(10)
    print(f"{OBJECTS} objects: the drive was given up after {given_up:.0f} s, all were whole after {healed:.0f} s", flush=True)


main()
