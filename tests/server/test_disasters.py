"""The runbooks of docs/OPERATIONS.md: their commands run while a producer writes to S3."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.runbooks import Machine, Producer, blocks, machine_on, producing
from tests.support.servers.moto import running_moto
from tests.support.servers.s3_server import S3Server, free_port

# They take ten to forty seconds of a core each: `make slow` has room for two.
others = pytest.mark.neighbours
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]
TIDY = {"tidy_bytes": "4KiB", "tidy_young": "0ms", "segment_bytes": "1MiB"}
TIME = "2026-11-21T10:00"  # of the page
NO_OBJECT = "the object is not in the bucket"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    with running_moto(tmp_path / "moto") as running:
        for name in ("orders", "backup"):
            new_bucket(running, name)
        yield running


def new_bucket(server: S3Server, name: str) -> None:
    """With versioning, so that the appliance uses mode B: moto's conditional PUT has races."""
    with server.client() as client:
        client.create_bucket(Bucket=name)
        client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})


def keys_of(server: S3Server, part: str) -> list[str]:
    with server.client() as client:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket="orders")
        keys = [info["Key"] for page in pages for info in page.get("Contents", [])]
    return [key for key in keys if part in key]


def delete(server: S3Server, keys: list[str]) -> None:
    with server.client() as client:
        for at in range(0, len(keys), 1000):
            chosen = [{"Key": key} for key in keys[at : at + 1000]]
            client.delete_objects(Bucket="orders", Delete={"Objects": chosen})  # type: ignore[typeddict-item]


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def require_all(machine: Machine, producer: Producer) -> None:
    """Each record that was acknowledged is there, once and in order."""
    producer.wait_for(5)
    producer.stop()
    found = machine.values(producer.topic)
    assert found[: len(producer.acknowledged)] == producer.acknowledged
    assert len(found) <= len(producer.acknowledged) + 1  # one may be stored and not answered


def wait_until(machine: Machine, pattern: str, command: str) -> None:
    deadline_s = time.monotonic() + 60
    while machine.run(command) or not re.search(pattern, machine.said):
        assert time.monotonic() < deadline_s, (machine.said, machine.journal)
        time.sleep(0.1)


def switched(machine: Machine, other: str) -> None:
    (switch,) = blocks("Switch to another bucket")
    assert machine.run(switch, {"s3://OTHER/seb": other}) == 0, machine.said + machine.journal


@contextmanager
def on_bucket(
    server: S3Server, folder: Path, **settings: str
) -> Iterator[tuple[Machine, Producer]]:
    with (
        machine_on(server, folder / "machine", **(settings or TIDY)) as machine,
        producing(machine) as producer,
    ):
        yield machine, producer


def test_deleted_objects_come_back_with_versioning(server: S3Server, tmp_path: Path) -> None:
    undelete = blocks("The objects were deleted")[0]
    began = now()[:16]
    with on_bucket(server, tmp_path) as (machine, producer):
        delete(server, keys_of(server, "seb/"))
        producer.wait_for(5)  # it does not notice
        assert machine.run("seb fsck --quick --bucket-only") == 65
        assert machine.run(undelete, {TIME: began}) == 0, machine.said
        assert re.search(r"verdict +clean", machine.said), machine.said
        require_all(machine, producer)


@others
def test_without_versioning_a_copy_and_what_is_in_memory_come_back(
    server: S3Server, tmp_path: Path
) -> None:
    _, beside = blocks("The objects were deleted")
    with on_bucket(server, tmp_path, tidier="off") as (machine, producer):
        assert machine.run("seb clone --into s3://backup/seb") == 0, machine.said
        producer.wait_for(20)
        delete(server, keys_of(server, "seb/"))
        producer.wait_for(5)
        producer.stop()  # as by the stop of caddy
        assert machine.run(beside, {"51314": str(free_port())}) == 0, machine.said
        switched(machine, "s3://backup/seb")
        producer.start()
        require_all(machine, producer)


@others
def test_entries_that_a_lifecycle_rule_removed(server: S3Server, tmp_path: Path) -> None:
    notice, go_on, *_ = blocks("A lifecycle rule removed or moved objects")
    rule = {"ID": "old", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 9}}
    with on_bucket(server, tmp_path) as (machine, producer):
        wait_until(machine, r"[1-9]\d* objects", "seb status")
        with server.client() as client:
            client.put_bucket_lifecycle_configuration(
                Bucket="orders",
                LifecycleConfiguration={"Rules": [rule]},  # type: ignore[typeddict-item,list-item]
            )
        assert machine.run("seb doctor") == 0
        assert "lifecycle rules of bucket orders expire or move objects" in machine.said
        delete(server, keys_of(server, "/packed/")[:1] + keys_of(server, "/segments/")[:1])
        delete(server, keys_of(server, "/journal/")[2:4])
        shutil.rmtree(machine.folder / "var" / "cache", ignore_errors=True)  # it is written to
        with pytest.raises(urllib.error.HTTPError) as refused:
            machine.values("orders.eu")
        refused.value.close()
        assert refused.value.code == 500
        assert machine.run(notice) == 65, machine.said
        for _ in range(2):
            producer.wait_for(5)
            assert machine.run("seb snapshot") == 0
        assert machine.run("seb fsck --bucket-only") == 65
        lost = re.findall(r"records_lost: .*topic orders.eu, offsets (\d+) to (\d+)", machine.said)
        assert "log_broken" not in machine.said
        first, last = min(int(a) for a, _ in lost), max(int(b) for _, b in lost)
        forked = go_on if first else go_on.partition("\n")[2]  # nothing is before it
        numbers = {"100": str(first), "200": str(last + 1)}
        assert machine.run("seb groups reset lake --topics orders.eu --to latest --yes") == 0
        assert machine.run(forked, numbers) == 0, machine.said
        assert machine.run("seb fsck --bucket-only") == 0, machine.said
        producer.stop()
        assert machine.values("orders.eu") == producer.acknowledged[last + 1 :]
        assert NO_OBJECT in machine.journal


@others
def test_objects_that_were_moved_to_an_archive(server: S3Server, tmp_path: Path) -> None:
    *_, restore, put_back = blocks("A lifecycle rule removed or moved objects")
    with on_bucket(server, tmp_path) as (machine, producer):
        wait_until(machine, r"[1-9]\d* objects", "seb status")
        (moved,) = (keys_of(server, "/packed/") + keys_of(server, "/segments/"))[:1]
        with server.client() as client:
            client.copy_object(
                Bucket="orders", Key=moved, CopySource=f"orders/{moved}", StorageClass="GLACIER"
            )
        assert machine.run("seb fsck --bucket-only") != 0
        assert "a lifecycle rule moved it to an archive" in machine.said
        assert machine.run(restore) == 0, machine.said
        assert machine.run(put_back) == 0, machine.said
        require_all(machine, producer)


@pytest.mark.parametrize(
    "old", [pytest.param("disabled afterwards", marks=others), "disabled before"]
)
def test_credentials_change(server: S3Server, tmp_path: Path, old: str) -> None:
    (change,) = blocks("The credentials change")
    iam = Iam(server)
    first, second = iam.new_key(), iam.new_key()
    iam.check_credentials()
    with (
        machine_on(
            server,
            tmp_path / "machine",
            s3_access_key_id=first[0],
            s3_secret_access_key=first[1],
            ack_timeout="2s",
            shutdown_grace="1s",
        ) as machine,
        producing(machine) as producer,
    ):
        if old == "disabled before":
            iam.disable(first, by=second)
            wait_until(machine, "InvalidAccessKeyId", "! seb status")
            wait_until(machine, "has been failing for", f"cat {machine.folder / 'journal'}")
        new = {"NEW_ID": second[0], "NEW_SECRET": second[1]}
        assert machine.run(change, new) == 0, machine.said + machine.journal
        iam.disable(first, by=second)
        require_all(machine, producer)


class Iam:
    """Access keys of moto, which it checks if it is told to."""

    def __init__(self, server: S3Server) -> None:
        self._server = server
        self._options = {
            "endpoint_url": f"http://127.0.0.1:{server.port}",
            "region_name": "us-east-1",
        }
        policy = (
            '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}'
        )
        with self._client("test", "testtest") as client:
            client.create_user(UserName="seb")
            client.put_user_policy(UserName="seb", PolicyName="all", PolicyDocument=policy)

    @contextmanager
    def _client(self, key_id: str, secret: str):  # type: ignore[no-untyped-def]
        import boto3

        client = boto3.client(
            "iam", aws_access_key_id=key_id, aws_secret_access_key=secret, **self._options
        )
        try:
            yield client
        finally:
            client.close()

    def new_key(self) -> tuple[str, str]:
        with self._client("test", "testtest") as client:
            made = client.create_access_key(UserName="seb")["AccessKey"]
        return made["AccessKeyId"], made["SecretAccessKey"]

    def disable(self, key: tuple[str, str], by: tuple[str, str]) -> None:
        with self._client(*by) as client:
            known = client.list_access_keys(UserName="seb")["AccessKeyMetadata"]
            if key[0] in [one["AccessKeyId"] for one in known]:
                client.delete_access_key(UserName="seb", AccessKeyId=key[0])

    def check_credentials(self) -> None:
        url = f"http://127.0.0.1:{self._server.port}/moto-api/reset-auth"
        plain = {"Content-Type": "text/plain"}
        with urllib.request.urlopen(urllib.request.Request(url, b"0", plain)) as answer:
            assert answer.status == 200


@others
def test_another_provider(server: S3Server, tmp_path: Path) -> None:
    (move,) = blocks("Another provider")
    with (
        running_moto(tmp_path / "new") as new,
        on_bucket(server, tmp_path) as (machine, producer),
    ):
        new_bucket(new, "orders-new")
        etc = machine.folder / "etc"
        settings = (etc / "seb.toml").read_text()
        for old, other in (
            ("s3://orders/seb", "s3://orders-new/seb"),
            (str(machine.folder / "var"), str(machine.folder / "var" / "new")),
            (f"127.0.0.1:{server.port}", f"127.0.0.1:{new.port}"),
        ):
            settings = settings.replace(old, other)
        (etc / "new.toml").write_text(settings)
        assert machine.run(move) == 0, machine.said + machine.journal
        require_all(machine, producer)
        assert machine.run("seb status") == 0
        assert "s3://orders-new/seb" in machine.said


@others
def test_the_wrong_appliance(server: S3Server, tmp_path: Path) -> None:
    (back,) = blocks("The wrong appliance was started")
    with on_bucket(server, tmp_path) as (machine, producer):
        port = f"--port {free_port()}"
        wrong = (
            f"seb serve --data ./wrong --take-over {port} > wrong.log 2>&1 & echo $! > wrong.pid"
        )
        assert machine.run(wrong) == 0
        pid = (machine.folder / "wrong.pid").read_text().strip()
        try:
            wait_until(machine, "fenced", f"cat {machine.folder / 'journal'}")
        finally:
            subprocess.run(["kill", pid], check=True)
        wait_until(machine, "", f"! kill -0 {pid}")
        assert machine.run(back) == 0, machine.said + machine.journal
        require_all(machine, producer)


@others
def test_garbage_in_one_topic(server: S3Server, tmp_path: Path) -> None:
    past, cut, _ = blocks("A producer wrote garbage")
    numbers = {"orders.eu": "orders.us", "--at 100": "--at 2", "200": "4"}
    with on_bucket(server, tmp_path) as (machine, producer):
        for value in ("good-0", "good-1", "bad-0", "bad-1", "good-2"):
            machine.ask("/v1/topics/orders.us/records", value.encode())
        assert machine.run(past, numbers) == 0, machine.said
        assert machine.run(cut, numbers) == 0, machine.said
        assert machine.values("orders.us.clean") == ["good-0", "good-1", "good-2"]
        require_all(machine, producer)


@others
def test_everything_as_of_a_time(server: S3Server, tmp_path: Path) -> None:
    *_, restore = blocks("A producer wrote garbage")
    with on_bucket(server, tmp_path) as (machine, producer):
        producer.stop()
        good = len(producer.acknowledged)
        began_s, moment = time.monotonic(), ""
        while time.monotonic() < began_s + 0.5:  # the log's clock may differ a little from ours
            moment = moment or (now() if time.monotonic() > began_s + 0.25 else "")
        for number in range(20):
            machine.ask("/v1/topics/orders.eu/records", f"bad-{number}".encode())
        assert machine.run(restore, {f"{TIME}:00Z": moment}) == 0, machine.said
        switched(machine, "s3://orders/seb-before")
        assert machine.values("orders.eu") == producer.acknowledged[:good]
        producer.start()
        require_all(machine, producer)
