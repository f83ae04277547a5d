"""Everyday work of boto3 and the AWS command line on objects, and writes while servers are killed.

Usage: objects.py READY    READY is the file with the line that `ashlar up --json` has printed.
"""

import concurrent.futures
import hashlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError

READY = json.load(open(sys.argv[1]))
S3 = READY["s3"]
HOST, PORT = S3["endpoint"].rsplit(":", 1)
# Every server answers for every object: the others listen at the ports after the first one's.
ENDPOINTS = [f"{HOST}:{int(PORT) + number}" for number in range(len(READY["servers"]))]


def client(endpoint, tries=12, key=S3, signature="s3v4"):
    # As many tries as the servers need to agree that one of them has failed.
    # boto3 presigns with Signature Version 2 unless it is told otherwise.
    config = Config(signature_version=signature, retries={"max_attempts": tries, "mode": "standard"}, connect_timeout=5, read_timeout=60)
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=key["access_key"],
        aws_secret_access_key=key["secret_key"],
        config=config,
    )


def is_refused(code, call, **arguments):
    try:
        call(**arguments)
    except ClientError as error:
        found = error.response["Error"]["Code"]
        assert found == code, f"{found} instead of {code}"
        return True
    return False


def refused(code, call, **arguments):
    assert is_refused(code, call, **arguments), f"{code} was expected"


def until_refused(code, call, **arguments):
    """What was changed holds at every server within seconds."""
    for _ in range(50):
        if is_refused(code, call, **arguments):
            return
        time.sleep(0.1)
    raise AssertionError(f"{code} was expected within 5 s")


def everyday(s3):
    s3.create_bucket(Bucket="everyday")
    assert "everyday" in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
    small = os.urandom(4096)
    put = s3.put_object(Bucket="everyday", Key="a/small", Body=small, ContentType="image/png", Metadata={"who": "me"})
    assert put["ETag"] == f'"{hashlib.md5(small).hexdigest()}"'
    for endpoint in ENDPOINTS:
        got = client(endpoint).get_object(Bucket="everyday", Key="a/small")
        assert got["Body"].read() == small and got["ContentType"] == "image/png" and got["Metadata"] == {"who": "me"}
    part = s3.get_object(Bucket="everyday", Key="a/small", Range="bytes=100-199")
    assert part["Body"].read() == small[100:200] and part["ContentRange"] == "bytes 100-199/4096"
    s3.put_object(Bucket="everyday", Key="empty", Body=b"")
    assert s3.head_object(Bucket="everyday", Key="empty")["ContentLength"] == 0
    refused("NoSuchKey", s3.get_object, Bucket="everyday", Key="none")
    refused("NoSuchBucket", s3.get_object, Bucket="nobody-has-this", Key="none")
    s3.copy_object(Bucket="everyday", Key="b/copy", CopySource={"Bucket": "everyday", "Key": "a/small"})
    assert s3.get_object(Bucket="everyday", Key="b/copy")["Body"].read() == small
    refused("PreconditionFailed", s3.put_object, Bucket="everyday", Key="b/copy", Body=b"x", IfNoneMatch="*")
    s3.put_object(Bucket="everyday", Key="b/copy", Body=b"x", IfMatch=put["ETag"])
    refused("PreconditionFailed", s3.put_object, Bucket="everyday", Key="b/copy", Body=b"y", IfMatch=put["ETag"])
    listed(s3)
    url = s3.generate_presigned_url("get_object", Params={"Bucket": "everyday", "Key": "a/small"})
    assert urllib.request.urlopen(url).read() == small
    refused("BucketNotEmpty", s3.delete_bucket, Bucket="everyday")
    keys = [found["Key"] for page in pages(s3, "everyday") for found in page.get("Contents", [])]
    s3.delete_objects(Bucket="everyday", Delete={"Objects": [{"Key": key} for key in keys]})
    s3.delete_bucket(Bucket="everyday")
    refused("NoSuchBucket", s3.list_objects_v2, Bucket="everyday")
    wrong = boto3.client(
        "s3",
        endpoint_url=S3["endpoint"],
        region_name="us-east-1",
        aws_access_key_id=S3["access_key"],
        aws_secret_access_key="wrong",
    )
    refused("SignatureDoesNotMatch", wrong.list_buckets)


def signed_by_version_2(_):
    for endpoint in ENDPOINTS:
        by_2, presigning = client(endpoint, signature="s3"), client(endpoint, signature=None)
        by_2.create_bucket(Bucket="by-version-2")
        name = "a b/ä+&=?#%(1)~*'"
        by_2.put_object(Bucket="by-version-2", Key=name, Body=b"small", ContentType="text/plain", Metadata={"Who": " me  too "})
        upload = by_2.create_multipart_upload(Bucket="by-version-2", Key="large")["UploadId"]
        part = by_2.upload_part(Bucket="by-version-2", Key="large", UploadId=upload, PartNumber=1, Body=b"l" * 300_000)
        parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
        by_2.complete_multipart_upload(Bucket="by-version-2", Key="large", UploadId=upload, MultipartUpload=parts)
        assert by_2.get_object(Bucket="by-version-2", Key=name)["Body"].read() == b"small"
        assert by_2.head_object(Bucket="by-version-2", Key=name)["Metadata"] == {"who": "me  too"}
        assert [o["Key"] for page in pages(by_2, "by-version-2") for o in page["Contents"]] == sorted([name, "large"])
        named = {"Bucket": "by-version-2", "Key": name}
        url = presigning.generate_presigned_url("get_object", Params={**named, "ResponseContentType": "a/b; c=d e"})
        assert "AWSAccessKeyId=" in url and "X-Amz-Signature" not in url, url
        reply = urllib.request.urlopen(url, timeout=10)
        assert reply.read() == b"small" and reply.headers["Content-Type"] == "a/b; c=d e"
        put = presigning.generate_presigned_url("put_object", Params={**named, "Metadata": {"by": "url"}}, ExpiresIn=60)
        request = urllib.request.Request(put, data=b"from a URL", method="PUT", headers={"Content-Type": ""})
        assert urllib.request.urlopen(request, timeout=10).status == 200
        assert by_2.get_object(**named)["Metadata"] == {"by": "url"}
        for wrong in (url.replace("Signature=", "Signature=x"), url.replace("Expires=", "Expires=1"), url + "&acl"):
            try:
                urllib.request.urlopen(wrong, timeout=10)
                raise AssertionError(f"{wrong} was served")
            except urllib.error.HTTPError as error:
                assert error.code == 403, error
        by_2.delete_objects(Bucket="by-version-2", Delete={"Objects": [{"Key": name}, {"Key": "large"}]})
        by_2.delete_bucket(Bucket="by-version-2")


def pages(s3, bucket, **arguments):
    return s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, **arguments)


def listed(s3):
    names = [f"list/{number // 10}/{number}" for number in range(57)] + ["list/ä ö+?&"]
    for name in names:
        s3.put_object(Bucket="everyday", Key=name, Body=name.encode())
    found = [o["Key"] for page in pages(s3, "everyday", Prefix="list/", PaginationConfig={"PageSize": 7}) for o in page["Contents"]]
    assert found == sorted(names), found
    folded = pages(s3, "everyday", Prefix="list/", Delimiter="/", PaginationConfig={"PageSize": 2})
    prefixes = [p["Prefix"] for page in folded for p in page.get("CommonPrefixes", [])]
    assert prefixes == [f"list/{number}/" for number in range(6)], prefixes
    first = s3.list_objects(Bucket="everyday", Prefix="list/", MaxKeys=10)
    assert first["IsTruncated"] and len(first["Contents"]) == 10


def admin(method, path):
    server = READY["servers"][0]
    token = open(os.path.join(server["data"], "admin.token")).read().strip()
    request = urllib.request.Request(f"http://{server['address']}{path}", method=method)
    request.add_header("Authorization", f"Bearer {token}")
    return json.load(urllib.request.urlopen(request, timeout=10))


def temporary(key, statement):
    """A client with temporary credentials of who has the key, which this statement narrows; at another server than made them."""
    config = Config(signature_version="s3v4", retries={"max_attempts": 12, "mode": "standard"})
    named = {"region_name": "us-east-1", "config": config}
    sts = boto3.client("sts", endpoint_url=ENDPOINTS[1], aws_access_key_id=key["access_key"], aws_secret_access_key=key["secret_key"], region_name="us-east-1")
    assert sts.get_caller_identity()["UserId"] == key["user"]
    policy = json.dumps({"Version": "2012-10-17", "Statement": statement})
    made = sts.assume_role(RoleArn="arn:aws:iam:::role/any-name", RoleSessionName="name", Policy=policy)["Credentials"]
    return boto3.client(
        "s3", endpoint_url=ENDPOINTS[2], aws_access_key_id=made["AccessKeyId"],
        aws_secret_access_key=made["SecretAccessKey"], aws_session_token=made["SessionToken"], **named,
    )


def users(s3):
    # The user is made with the first key, and is there at the second one.
    keys = [admin("PUT", "/v1/s3/users/ann") for _ in range(2)]
    s3.create_bucket(Bucket="anns")
    policy = {"Effect": "Allow", "Principal": {"AWS": "ann"}, "Action": ["s3:GetObject", "s3:PutObject*"], "Resource": "arn:aws:s3:::anns/*"}
    s3.put_bucket_policy(Bucket="anns", Policy=json.dumps({"Statement": policy}))
    config = Config(signature_version="s3v4", retries={"max_attempts": 12, "mode": "standard"})
    first, second = (
        boto3.client(
            "s3", endpoint_url=S3["endpoint"], region_name="us-east-1", config=config,
            aws_access_key_id=key["access_key"], aws_secret_access_key=key["secret_key"],
        )
        for key in keys
    )
    first.put_object(Bucket="anns", Key="key", Body=b"x")
    session = temporary(keys[0], {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::anns/*"})
    assert session.get_object(Bucket="anns", Key="key")["Body"].read() == b"x"
    refused("AccessDenied", session.put_object, Bucket="anns", Key="key", Body=b"y")
    tags = [{"Key": "stadt", "Value": "Köln"}]
    second.put_object_tagging(Bucket="anns", Key="key", Tagging={"TagSet": tags})
    assert s3.get_object_tagging(Bucket="anns", Key="key")["TagSet"] == tags
    refused("AccessDenied", second.delete_object, Bucket="anns", Key="key")
    admin("DELETE", f"/v1/s3/keys/{keys[0]['access_key']}")
    second.get_object(Bucket="anns", Key="key")
    until_refused("InvalidAccessKeyId", first.get_object, Bucket="anns", Key="key")
    until_refused("InvalidAccessKeyId", session.get_object, Bucket="anns", Key="key")


def multipart(s3):
    s3.create_bucket(Bucket="multipart")
    whole = os.urandom(13 << 20)
    upload = s3.create_multipart_upload(Bucket="multipart", Key="key", ContentType="text/x")["UploadId"]
    parts = []
    for number, begin in enumerate(range(0, len(whole), 5 << 20), 1):
        body = whole[begin : begin + (5 << 20)]
        put = s3.upload_part(Bucket="multipart", Key="key", UploadId=upload, PartNumber=number, Body=body)
        parts.append({"PartNumber": number, "ETag": put["ETag"]})
    assert len(s3.list_parts(Bucket="multipart", Key="key", UploadId=upload)["Parts"]) == 3
    complete = s3.complete_multipart_upload(
        Bucket="multipart", Key="key", UploadId=upload, MultipartUpload={"Parts": parts}
    )
    digests = b"".join(hashlib.md5(whole[begin : begin + (5 << 20)]).digest() for begin in range(0, len(whole), 5 << 20))
    assert complete["ETag"] == f'"{hashlib.md5(digests).hexdigest()}-3"', complete["ETag"]
    got = s3.get_object(Bucket="multipart", Key="key")
    assert got["Body"].read() == whole and got["ContentType"] == "text/x"
    upload = s3.create_multipart_upload(Bucket="multipart", Key="given-up")["UploadId"]
    s3.upload_part(Bucket="multipart", Key="given-up", UploadId=upload, PartNumber=1, Body=b"x")
    assert [u["Key"] for u in s3.list_multipart_uploads(Bucket="multipart")["Uploads"]] == ["given-up"]
    s3.abort_multipart_upload(Bucket="multipart", Key="given-up", UploadId=upload)
    s3.delete_object(Bucket="multipart", Key="key")
    s3.delete_bucket(Bucket="multipart")


def aws(*words):
    environment = os.environ | {
        "AWS_ENDPOINT_URL": S3["endpoint"],
        "AWS_ACCESS_KEY_ID": S3["access_key"],
        "AWS_SECRET_ACCESS_KEY": S3["secret_key"],
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_PAGER": "",
    }
    program = os.path.join(os.path.dirname(sys.executable), "aws")
    done = subprocess.run([sys.executable, program, "s3", *words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"aws s3 {words}: {done.stdout}{done.stderr}"
    return done.stdout


def command_line():
    with tempfile.TemporaryDirectory() as folder:
        small, big, back = (os.path.join(folder, name) for name in ("small", "big", "back"))
        for path, length in ((small, 4096), (big, 100 << 20)):
            with open(path, "wb") as out:
                out.write(random.Random(length).randbytes(length))
        aws("mb", "s3://photos")
        aws("cp", "--no-progress", small, "s3://photos/small")
        aws("cp", "--no-progress", big, "s3://photos/dir/big")
        lines = aws("ls", "--recursive", "s3://photos")
        assert "4096 small" in lines and f"{100 << 20} dir/big" in lines, lines
        aws("cp", "--no-progress", "s3://photos/dir/big", back)
        assert subprocess.run(["cmp", big, back]).returncode == 0
        aws("rm", "--recursive", "s3://photos")
        aws("rb", "s3://photos")


def changed_at_once(s3):
    """Many change one bucket at the same time, to the same, by way of all servers. Without retries none is told to try again."""
    s3.create_bucket(Bucket="changed")
    writers = [client(endpoint, tries=1) for endpoint in ENDPOINTS for _ in range(8)]
    with concurrent.futures.ThreadPoolExecutor(len(writers)) as pool:
        list(pool.map(lambda writer: writer.put_bucket_acl(Bucket="changed", ACL="public-read"), writers))
    s3.delete_bucket(Bucket="changed")


def locked(s3):
    """A version that one server has locked is kept by every other one from then on."""
    s3.create_bucket(Bucket="locked", ObjectLockEnabledForBucket=True)
    for number, endpoint in enumerate(ENDPOINTS):
        key, other = f"key-{number}", client(ENDPOINTS[number - 1])
        version = s3.put_object(Bucket="locked", Key=key, Body=b"kept")["VersionId"]
        client(endpoint).put_object_legal_hold(Bucket="locked", Key=key, LegalHold={"Status": "ON"})
        refused("AccessDenied", other.delete_object, Bucket="locked", Key=key, VersionId=version, BypassGovernanceRetention=True)
        other.delete_object(Bucket="locked", Key=key)
        s3.put_object_legal_hold(Bucket="locked", Key=key, VersionId=version, LegalHold={"Status": "OFF"})
        other.delete_object(Bucket="locked", Key=key, VersionId=version)


# A chunk of an encrypted object, and a block of it.
CHUNK, BLOCK = 65520, 16 * 65520


def of_client(key):
    return {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": key}


def of_source(key):
    return {"CopySourceSSECustomerAlgorithm": "AES256", "CopySourceSSECustomerKey": key}


KEY, OTHER = (of_client(hashlib.sha256(name).digest()) for name in (b"one", b"other"))
# What is read again after the servers were killed.
KEPT = os.urandom(2 * BLOCK + 12345)


def read(s3, key, **arguments):
    return s3.get_object(Bucket="encrypted", Key=key, **arguments)["Body"].read()


def encrypted(s3):
    s3.create_bucket(Bucket="encrypted")
    s3.put_object(Bucket="encrypted", Key="before", Body=b"plain")
    for length in (0, 1, CHUNK - 1, CHUNK, CHUNK + 1, BLOCK, BLOCK + 1):
        body = os.urandom(length)
        put = s3.put_object(Bucket="encrypted", Key="key", Body=body, **KEY)
        assert put["ETag"] == f'"{hashlib.md5(body).hexdigest()}"' and put["SSECustomerAlgorithm"] == "AES256"
        assert s3.head_object(Bucket="encrypted", Key="key", **KEY)["ContentLength"] == length
        assert s3.list_objects_v2(Bucket="encrypted", Prefix="key")["Contents"][0]["Size"] == length
        for endpoint in ENDPOINTS:
            assert read(client(endpoint), "key", **KEY) == body
        refused("InvalidRequest", s3.get_object, Bucket="encrypted", Key="key")
        refused("InvalidRequest", s3.get_object, Bucket="encrypted", Key="key", **OTHER)
        refused("400", s3.head_object, Bucket="encrypted", Key="key", **OTHER)
    s3.put_object(Bucket="encrypted", Key="kept", Body=KEPT, **KEY)
    for first in (0, CHUNK - 1, CHUNK, BLOCK - 1, BLOCK, 2 * BLOCK - 1, len(KEPT) - 1):
        for last in (first, first + 1, first + CHUNK, len(KEPT) + 5):
            found = read(s3, "kept", Range=f"bytes={first}-{last}", **KEY)
            assert found == KEPT[first : last + 1], (first, last)
    upload = s3.create_multipart_upload(Bucket="encrypted", Key="parts", **KEY)["UploadId"]
    named = {"Bucket": "encrypted", "Key": "parts", "UploadId": upload}
    parts = [os.urandom((5 << 20) + 1), os.urandom(5 << 20), b"end"]
    refused("InvalidRequest", s3.upload_part, PartNumber=1, Body=b"x", **named)
    refused("InvalidRequest", s3.upload_part, PartNumber=1, Body=b"x", **named, **OTHER)
    numbered = list(enumerate(parts, 1))
    etags = [s3.upload_part(PartNumber=number, Body=part, **named, **KEY)["ETag"] for number, part in numbered]
    done = {"Parts": [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]}
    s3.complete_multipart_upload(MultipartUpload=done, **named, **KEY)
    whole = b"".join(parts)
    assert read(s3, "parts", **KEY) == whole and read(s3, "parts", PartNumber=2, **KEY) == parts[1]
    edge = len(parts[0])
    assert read(s3, "parts", Range=f"bytes={edge - 9}-{edge + 9}", **KEY) == whole[edge - 9 : edge + 10]
    default = {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]}
    s3.put_bucket_encryption(Bucket="encrypted", ServerSideEncryptionConfiguration=default)
    for endpoint in ENDPOINTS:
        assert client(endpoint).get_bucket_encryption(Bucket="encrypted")
    s3.put_object(Bucket="encrypted", Key="default", Body=KEPT)
    assert s3.head_object(Bucket="encrypted", Key="default")["ServerSideEncryption"] == "AES256"
    assert read(s3, "default") == KEPT and read(s3, "before") == b"plain"
    assert "ServerSideEncryption" not in s3.head_object(Bucket="encrypted", Key="before")
    source = {"CopySource": {"Bucket": "encrypted", "Key": "kept"}, "Bucket": "encrypted"}
    s3.copy_object(Key="copy", **source, **of_source(KEY["SSECustomerKey"]))
    assert read(s3, "copy") == KEPT
    s3.copy_object(Key="back", Bucket="encrypted", CopySource={"Bucket": "encrypted", "Key": "copy"}, **OTHER)
    assert read(s3, "back", **OTHER) == KEPT
    refused("InvalidRequest", s3.copy_object, Key="copy", **source)
    kms = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "payroll"}
    named = {"Bucket": "encrypted", "Key": "kms", "Body": KEPT, **kms}
    refused("KMS.NotFoundException", s3.put_object, **named)
    refused("404", s3.head_object, Bucket="encrypted", Key="kms")
    admin("PUT", "/v1/s3/kms-keys/payroll")
    assert admin("GET", "/v1/s3/kms-keys") == [{"name": "payroll"}]
    s3.put_object(**named)
    for endpoint in ENDPOINTS:
        got = client(endpoint).get_object(Bucket="encrypted", Key="kms")
        assert got["Body"].read() == KEPT and kms.items() <= got.items()


def encrypted_after_kills(s3):
    for endpoint in ENDPOINTS:
        reader = client(endpoint)
        assert all(read(reader, key) == KEPT for key in ("default", "kms")) and read(reader, "kept", **KEY) == KEPT
        refused("InvalidRequest", reader.get_object, Bucket="encrypted", Key="kept", **OTHER)


def limited(s3):
    """A bucket takes as many bytes as its quota says, whichever server they come to."""
    s3.create_bucket(Bucket="limited")
    admin("PUT", "/v1/buckets/limited/quota?bytes=1000000")
    s3.put_object(Bucket="limited", Key="first", Body=bytes(600_000))
    for endpoint in ENDPOINTS:
        other = client(endpoint)
        until_refused("QuotaExceeded", other.put_object, Bucket="limited", Key="second", Body=bytes(600_000))
        s3.delete_object(Bucket="limited", Key="second")
        other.put_object(Bucket="limited", Key="first", Body=bytes(600_000))
    usage = [bucket["usage"] for bucket in admin("GET", "/v1/buckets") if bucket["name"] == "limited"]
    assert [(found["objects"], found["bytes"]) for found in usage] == [(1, 600_000)], usage
    admin("DELETE", "/v1/buckets/limited/quota")
    s3.put_object(Bucket="limited", Key="second", Body=bytes(600_000))
    healed_by_command()


def healed_by_command():
    """An operator has all shards of a bucket read."""
    found = admin("PUT", "/v1/buckets/limited/healing")
    until = time.monotonic() + 30
    while found["state"] == "running" and time.monotonic() < until:
        time.sleep(0.1)
        found = admin("GET", "/v1/buckets/limited/healing")
    assert (found["state"], found["looked_at"], found["failed"]) == ("done", 2, 0), found


def ending(s3):
    s3.create_bucket(Bucket="ending")
    refused("NoSuchLifecycleConfiguration", s3.get_bucket_lifecycle_configuration, Bucket="ending")
    tags = [{"Key": "k", "Value": "v"}]
    rules = [
        {"ID": "logs", "Filter": {"Prefix": "logs/"}, "Status": "Enabled", "Expiration": {"Days": 3}},
        {"ID": "tagged", "Filter": {"And": {"Prefix": "a/", "Tags": tags}}, "Status": "Enabled", "Expiration": {"Days": 9}},
        {
            "ID": "rest",
            "Filter": {"Prefix": ""},
            "Status": "Disabled",
            "NoncurrentVersionExpiration": {"NoncurrentDays": 5, "NewerNoncurrentVersions": 2},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
        },
    ]
    s3.put_bucket_lifecycle_configuration(Bucket="ending", LifecycleConfiguration={"Rules": rules})
    assert s3.get_bucket_lifecycle_configuration(Bucket="ending")["Rules"] == rules
    assert 'rule-id="logs"' in s3.put_object(Bucket="ending", Key="logs/1", Body=b"x")["Expiration"]
    s3.put_object(Bucket="ending", Key="a/1", Body=b"x", Tagging="k=v")
    assert 'rule-id="tagged"' in s3.head_object(Bucket="ending", Key="a/1")["Expiration"]
    assert "Expiration" not in s3.put_object(Bucket="ending", Key="a/2", Body=b"x")
    moved = {"ID": "m", "Filter": {}, "Status": "Enabled", "Transitions": [{"Days": 1, "StorageClass": "GLACIER"}]}
    put = s3.put_bucket_lifecycle_configuration
    refused("NotImplemented", put, Bucket="ending", LifecycleConfiguration={"Rules": [moved]})
    never = {"ID": "n", "Filter": {}, "Status": "Enabled", "Expiration": {"Days": 0}}
    refused("InvalidArgument", put, Bucket="ending", LifecycleConfiguration={"Rules": [never]})
    s3.delete_bucket_lifecycle(Bucket="ending")
    assert "Expiration" not in s3.head_object(Bucket="ending", Key="logs/1")


class Writers:
    """Writes of known content by several threads; what was acknowledged, and what may have been written, by key."""

    def __init__(self, s3, count):
        self.s3, self.is_over, self.lock = s3, False, threading.Lock()
        self.acknowledged, self.open, self.failed = {}, {}, 0
        self.threads = [threading.Thread(target=self.write, args=(number,)) for number in range(count)]
        for thread in self.threads:
            thread.start()

    def write(self, number):
        chance, count = random.Random(number), 0
        while not self.is_over:
            count += 1
            key = f"{number}/{chance.randrange(24)}"
            body = chance.randbytes(chance.choice((100, 4096, 300_000, 1_500_000)))
            digest = hashlib.sha256(body).hexdigest()
            with self.lock:
                self.open.setdefault(key, set()).add(digest)
            try:
                self.s3.put_object(Bucket="killed", Key=key, Body=body)
            except (ClientError, EndpointConnectionError):
                # It may have been written or not: either is right from now on.
                self.failed += 1
                continue
            with self.lock:
                self.acknowledged[key], self.open[key] = digest, set()

    def check(self, s3, key):
        body = s3.get_object(Bucket="killed", Key=key)["Body"].read()
        digest = hashlib.sha256(body).hexdigest()
        allowed = {self.acknowledged.get(key)} | self.open.get(key, set())
        return None if digest in allowed else f"{key}: {len(body)} bytes that were overwritten, or never written"

    def end(self):
        self.is_over = True
        for thread in self.threads:
            thread.join()


def pid(number):
    with urllib.request.urlopen(f"http://{READY['servers'][number]['address']}/v1/status", timeout=5) as page:
        return json.load(page)["pid"]


def killed(s3):
    s3.create_bucket(Bucket="killed")
    writers = Writers(s3, 4)
    for number in (1, 2):
        time.sleep(3)
        os.kill(pid(number), signal.SIGKILL)
        # It is started again by itself; whoever kills the next one before has killed two of three.
        until = time.time() + 90
        while True:
            try:
                url = f"http://{READY['servers'][number]['address']}/health/ready"
                if json.load(urllib.request.urlopen(url, timeout=5))["status"] == "ready":
                    break
            except OSError:
                pass
            assert time.time() < until, "a killed server does not come back"
            time.sleep(0.2)
        time.sleep(6)
    writers.end()
    wrong = []
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for endpoint in ENDPOINTS:
            reader = client(endpoint)
            wrong += [problem for problem in pool.map(lambda key: writers.check(reader, key), writers.acknowledged) if problem]
    print(f"boto3, two servers killed: {len(writers.acknowledged)} keys, {writers.failed} writes failed, {len(wrong)} wrong")
    assert not wrong, wrong[:5]


def woken(s3):
    """A server that was stopped for a while lets nobody in who was locked out meanwhile."""
    key = admin("PUT", "/v1/s3/users/sleeper")
    sleeper = client(ENDPOINTS[1], 1, key)
    for _ in range(50):
        if not is_refused("InvalidAccessKeyId", sleeper.list_buckets):
            break
        time.sleep(0.1)
    sleeper.list_buckets()
    stopped = pid(1)
    os.kill(stopped, signal.SIGSTOP)
    try:
        time.sleep(7)
        admin("DELETE", f"/v1/s3/keys/{key['access_key']}")
    finally:
        os.kill(stopped, signal.SIGCONT)
    refused("InvalidAccessKeyId", sleeper.list_buckets)


def stopped_in_order(s3):
    """A server that is stopped answers the upload that has begun, and takes nothing new meanwhile."""
    body = os.urandom(1 << 20)
    server = len(ENDPOINTS) - 1
    host, port = ENDPOINTS[server].removeprefix("http://").rsplit(":", 1)
    parameters = {"Bucket": "begun", "Key": "begun"}
    s3.create_bucket(Bucket="begun")
    url = client(ENDPOINTS[server]).generate_presigned_url("put_object", Params=parameters, HttpMethod="PUT")
    upload = http.client.HTTPConnection(host, int(port), timeout=60)
    upload.putrequest("PUT", url.removeprefix(ENDPOINTS[server]), skip_accept_encoding=True)
    upload.putheader("Content-Length", str(len(body)))
    upload.endheaders(body[: len(body) // 2])
    # What was sent has been taken when another request is answered.
    client(ENDPOINTS[server]).list_buckets()
    os.kill(pid(server), signal.SIGTERM)
    for _ in range(1000):
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError:
            break
        time.sleep(0.02)
    else:
        raise AssertionError("it still takes connections")
    upload.send(body[len(body) // 2 :])
    answer = upload.getresponse()
    assert answer.status == 200, f"{answer.status} {answer.read()}"
    assert s3.get_object(Bucket="begun", Key="begun")["Body"].read() == body


def root_key_replaced(s3):
    """Run last: S3 has the new key afterwards."""
    S3.update(admin("PUT", "/v1/s3/key"))
    until_refused("InvalidAccessKeyId", s3.list_buckets)
    for endpoint in ENDPOINTS:
        assert client(endpoint).list_buckets()["Buckets"]


def main():
    s3 = client(S3["endpoint"])
    for work in (everyday, signed_by_version_2, users, multipart, changed_at_once, locked, encrypted, limited, ending):
        work(s3)
        print(f"boto3 {boto3.__version__}: {work.__name__}", flush=True)
    command_line()
    print("aws: mb, cp, ls, rm, rb", flush=True)
    stopped_in_order(s3)
    print(f"boto3 {boto3.__version__}: {stopped_in_order.__name__}", flush=True)
    killed(s3)
    encrypted_after_kills(s3)
    print(f"boto3 {boto3.__version__}: {encrypted_after_kills.__name__}", flush=True)
    woken(s3)
    print(f"boto3 {boto3.__version__}: {woken.__name__}", flush=True)
    root_key_replaced(s3)
    print(f"boto3 {boto3.__version__}: {root_key_replaced.__name__}", flush=True)


main()
