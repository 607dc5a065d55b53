"""One-replica OpenStack Swift with its S3 layer (s3api): a real store without create-only PUT.

It answers 501 to the condition. Its configuration lies in a folder of ours: neither root nor
/etc/swift is needed.
"""

from __future__ import annotations

import contextlib
import getpass
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers.s3_server import S3Server, free_port, need, processes, run

_PROGRAMS = (
    "memcached",
    "swift-account-server",
    "swift-container-server",
    "swift-object-server",
    "swift-proxy-server",
    "swift-ring-builder",
)
_PARTS = ("account", "container", "object")
# The servers read /etc/swift/swift.conf unless they are told another folder before they start.
_LAUNCH = """\
import sys
from swift.common.utils import set_swift_dir
set_swift_dir(sys.argv[1])
from swift.common.wsgi import run_wsgi
sys.exit(run_wsgi(sys.argv[2], sys.argv[3]))
"""
_COMMON = """\
[DEFAULT]
swift_dir = {folder}
bind_ip = 127.0.0.1
bind_port = {port}
user = {user}
workers = 0
log_level = WARNING
"""
_BACKEND = """\
devices = {folder}/devices
mount_check = false
[pipeline:main]
pipeline = {part}-server
[app:{part}-server]
use = egg:swift#{part}
recon_cache_path = {folder}/recon
"""
_PROXY = """\
[pipeline:main]
pipeline = catch_errors cache s3api tempauth slo dlo versioned_writes proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:{memcached_port}
[filter:s3api]
use = egg:swift#s3api
s3_acl = false
check_bucket_owner = false
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
[filter:versioned_writes]
use = egg:swift#versioned_writes
allow_versioned_writes = true
"""


@contextlib.contextmanager
def running_swift(folder: Path) -> Iterator[S3Server]:
    """Takes a few seconds. `processes`: memcached, account, container, object, proxy."""
    need(*_PROGRAMS)
    (folder / "devices/d1").mkdir(parents=True)
    (folder / "recon").mkdir()
    (folder / "swift.conf").write_text(
        "[swift-hash]\nswift_hash_path_suffix = tests\nswift_hash_path_prefix = tests\n"
    )
    user = getpass.getuser()  # they would change to the user "swift"
    memcached_port, proxy_port = free_port(), free_port()
    with processes(folder) as started:
        started.start(
            "memcached",
            ["memcached", "-u", "nobody", "-l", "127.0.0.1", "-p", str(memcached_port), "-m", "32"],
        )
        for part in _PARTS:
            port = free_port()
            _build_ring(folder, part, port)
            text = _COMMON + _BACKEND
            conf = folder / f"{part}.conf"
            conf.write_text(text.format(folder=folder, port=port, user=user, part=part))
            started.start(part, _launch(folder, conf, f"{part}-server"))
        conf = folder / "proxy.conf"
        conf.write_text(
            (_COMMON + _PROXY).format(
                folder=folder, port=proxy_port, user=user, memcached_port=memcached_port
            )
        )
        started.start("proxy", _launch(folder, conf, "proxy-server"))
        started.wait_for_http(proxy_port)
        yield S3Server("swift", proxy_port, "test:tester", "testing", started.by_name)


def _build_ring(folder: Path, part: str, port: int) -> None:
    builder = folder / f"{part}.builder"
    run(["swift-ring-builder", builder, "create", "4", "1", "1"])
    run(["swift-ring-builder", builder, "add", f"r1z1-127.0.0.1:{port}/d1", "1"])
    run(["swift-ring-builder", builder, "rebalance"])


def _launch(folder: Path, conf: Path, section: str) -> list[str | Path]:
    return ["/usr/bin/python3", "-c", _LAUNCH, folder, conf, section]
