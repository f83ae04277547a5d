"""A boto3 client of one server of `ashlar up`, by what that printed with --json."""

import boto3
from botocore.config import Config


def client(ready, number, tries, **options):
    """`number` counts servers from 0; their S3 ports follow one another. `options` go to botocore's Config."""
    s3 = ready["s3"]
    host, port = s3["endpoint"].rsplit(":", 1)
    retries = {"max_attempts": tries, "mode": "standard"}
    return boto3.client(
        "s3",
        endpoint_url=f"{host}:{int(port) + number}",
        region_name="us-east-1",
        aws_access_key_id=s3["access_key"],
        aws_secret_access_key=s3["secret_key"],
        config=Config(signature_version="s3v4", retries=retries, read_timeout=60, **options),
    )
