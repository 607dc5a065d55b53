"""What real stores do with a PUT whose body is not the one that its headers speak of.

Where a store repeats x-amz-checksum-crc32c in its answer, the appliance leaves Content-MD5 out: it
takes for granted that such a store has checked it.
"""

import base64
import hashlib

import pytest
from crc32c import crc32c

from tests.support.servers.every import SERVERS
from tests.support.servers.raw_put import raw_put

pytestmark = pytest.mark.slow

SENT, MEANT = b"bytes that were damaged", b"bytes as they were sent"
CRC32C = "x-amz-checksum-crc32c"

# A wrong CRC-32C, a wrong MD5, a wrong SHA-256 in the signature (docs/COMPATIBILITY.md).
REFUSED = {
    "ceph": {"md5", "sha256"},
    "garage": {"crc32c", "md5", "sha256"},
    "minio": {"crc32c", "md5", "sha256"},
    "moto": set(),
    "rclone": {"md5"},
    "s3mock": {"crc32c", "md5"},
    "s3proxy": {"crc32c", "md5", "sha256"},
    "s3rver": set(),
    "seaweedfs": {"crc32c", "md5"},
    "swift": {"md5", "sha256"},
    "versitygw": {"crc32c", "md5", "sha256"},
}
REPEAT = {"garage", "minio", "s3mock", "seaweedfs", "versitygw"}


def md5(body):
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()


def crc(body):
    return base64.b64encode(crc32c(body).to_bytes(4, "big")).decode()


@pytest.fixture(params=SERVERS)
def server(request):
    return request.getfixturevalue(f"{request.param}_server")


def test_what_a_store_refuses_and_repeats(server):
    bucket = server.new_bucket().bucket
    attempts = {
        "crc32c": ({CRC32C: crc(MEANT)}, None),
        "md5": ({"Content-MD5": md5(MEANT)}, None),
        "sha256": ({}, MEANT),
    }
    refused = set()
    for name, (headers, signed) in attempts.items():
        status, _ = raw_put(server, f"/{bucket}/{name}", SENT, headers, signed)
        if status != 200:
            refused.add(name)
    status, answered = raw_put(server, f"/{bucket}/good", SENT, {CRC32C: crc(SENT)})
    repeats = answered.get(CRC32C) == crc(SENT)
    assert "crc32c" in refused or not repeats
    assert (server.name, refused, repeats) == (
        server.name, REFUSED[server.name], server.name in REPEAT,
    )  # fmt: skip
    with server.client() as client:
        there = client.list_objects_v2(Bucket=bucket).get("Contents", [])
    assert {item["Key"] for item in there} & refused == set()
