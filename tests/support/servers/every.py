"""All S3 servers of the tests, by name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from tests.support.servers.ceph import running_ceph
from tests.support.servers.garage import running_garage
from tests.support.servers.minio import running_minio
from tests.support.servers.moto import running_moto
from tests.support.servers.rclone import running_rclone
from tests.support.servers.s3_server import S3Server
from tests.support.servers.s3mock import running_s3mock
from tests.support.servers.s3proxy import running_s3proxy
from tests.support.servers.s3rver import running_s3rver
from tests.support.servers.seaweedfs import running_seaweedfs
from tests.support.servers.swift import running_swift
from tests.support.servers.versitygw import running_versitygw

Running = Callable[[Path], AbstractContextManager[S3Server]]

SERVERS: Final[dict[str, Running]] = {
    "ceph": running_ceph,
    "garage": running_garage,
    "minio": running_minio,
    "moto": running_moto,
    "rclone": running_rclone,
    "s3mock": running_s3mock,
    "s3proxy": running_s3proxy,
    "s3rver": running_s3rver,
    "seaweedfs": running_seaweedfs,
    "swift": running_swift,
    "versitygw": running_versitygw,
}
