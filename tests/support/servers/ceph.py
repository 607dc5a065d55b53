"""One-node Ceph with its S3 gateway (RGW): one monitor, one OSD on a file, one gateway.

A real store on a real disk, of the family that many providers run. Create-only PUT works, but in a
versioned bucket it silently overwrites (16.2).
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers.s3_server import S3Server, free_port, need, processes, run

_PROGRAMS = (
    "ceph",
    "ceph-authtool",
    "ceph-mon",
    "ceph-osd",
    "monmaptool",
    "radosgw",
    "radosgw-admin",
)
_CONFIGURATION = """\
[global]
fsid = {fsid}
mon_host = v2:127.0.0.1:{mon_port}/0
ms_bind_msgr1 = false
public_addr = 127.0.0.1
keyring = {folder}/keyring
osd_pool_default_size = 1
osd_pool_default_min_size = 1
mon_allow_pool_size_one = true
mon_data_avail_crit = 1
osd_crush_chooseleaf_type = 0
osd_pool_default_pg_num = 4
osd_pool_default_pgp_num = 4
osd_objectstore = bluestore
bluestore_block_size = 4294967296
osd_memory_target = 939524096
run_dir = {folder}/run
admin_socket = {folder}/run/$name.asok
log_file = {folder}/log/$name.log
mon_data = {folder}/mon
osd_data = {folder}/osd
rgw_data = {folder}/rgw
rgw_frontends = beast endpoint=127.0.0.1:{rgw_port}
rgw_enable_apis = s3
rgw_override_bucket_index_max_shards = 1
rgw_thread_pool_size = 32
rgw_run_sync_thread = false
"""


@contextlib.contextmanager
def running_ceph(folder: Path) -> Iterator[S3Server]:
    """Takes about 15 s. `processes`: mon, osd, rgw."""
    need(*_PROGRAMS)
    for name in ("mon", "osd", "rgw", "run", "log"):
        (folder / name).mkdir(parents=True)
    rgw_port = free_port()
    conf = folder / "ceph.conf"
    fsid = str(uuid.uuid4())
    mon_port = free_port()
    conf.write_text(
        _CONFIGURATION.format(fsid=fsid, folder=folder, mon_port=mon_port, rgw_port=rgw_port)
    )
    with processes(folder) as started:
        _prepare_monitor(folder, conf, fsid, mon_port)
        started.start("mon", ["ceph-mon", "-f", "-c", conf, "-i", "a"])
        osd_id = _prepare_osd(folder, conf)
        started.start(
            "osd",
            ["ceph-osd", "-f", "-c", conf, "-i", osd_id, "--keyring", folder / "osd/keyring"],
        )
        _prepare_gateway(folder, conf)
        started.start(
            "rgw",
            [
                "radosgw",
                "-f",
                "-c",
                conf,
                "-n",
                "client.rgw.a",
                "--keyring",
                folder / "rgw/keyring",
            ],
        )
        started.wait_for_http(rgw_port)
        yield S3Server("ceph", rgw_port, "test", "testtest", started)


def _prepare_monitor(folder: Path, conf: Path, fsid: str, mon_port: int) -> None:
    keyring, monmap = folder / "keyring", folder / "monmap"
    authtool = ["ceph-authtool", keyring, "--gen-key", "--cap", "mon", "allow *"]
    run([*authtool, "--create-keyring", "-n", "mon."])
    run([*authtool, "-n", "client.admin", "--cap", "osd", "allow *"])
    address = f"[v2:127.0.0.1:{mon_port}]"
    run(["monmaptool", "--create", "--fsid", fsid, "--addv", "a", address, monmap])
    run(
        [
            *("ceph-mon", "-c", conf, "-i", "a", "--mkfs"),
            *("--monmap", monmap, "--keyring", keyring),
        ]
    )


def _prepare_osd(folder: Path, conf: Path) -> str:
    """The id that the monitor gave it."""
    secret = run(["ceph-authtool", "--gen-print-key"]).strip()
    osd_uuid = str(uuid.uuid4())
    secrets_file = folder / "osd.json"
    secrets_file.write_text(json.dumps({"cephx_secret": secret}))
    osd_id = run(["ceph", "-c", conf, "osd", "new", osd_uuid, "-i", secrets_file]).strip()
    run(
        [
            *("ceph-osd", "-c", conf, "-i", osd_id, "--mkfs"),
            *("--key", secret, "--osd-uuid", osd_uuid),
        ]
    )
    (folder / "osd/keyring").write_text(f"[osd.{osd_id}]\n\tkey = {secret}\n")
    return osd_id


def _prepare_gateway(folder: Path, conf: Path) -> None:
    # Without cephx keys of its own the gateway hangs for 300 s.
    grants = ["mon", "allow rw", "osd", "allow rwx"]
    keyring = folder / "rgw/keyring"
    run(["ceph", "-c", conf, "auth", "get-or-create", "client.rgw.a", *grants, "-o", keyring])
    run(
        [
            *("radosgw-admin", "-c", conf, "user", "create", "--uid=test", "--display-name=test"),
            *("--access-key=test", "--secret=testtest"),
        ]
    )
