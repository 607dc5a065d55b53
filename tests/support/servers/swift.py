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
    "swift-object-updater",
    "swift-proxy-server",
)
_PARTS = ("account", "container", "object")
# The servers read /etc/swift/swift.conf unless they are told another folder before they start.
_LAUNCH = """\
import sys
from swift.common.utils import set_swift_dir
set_swift_dir(sys.argv[1])
if sys.argv[3] == "object-updater":
    from swift.common.daemon import run_daemon
    from swift.obj.updater import ObjectUpdater
    sys.exit(run_daemon(ObjectUpdater, sys.argv[2]))
from swift.common.wsgi import run_wsgi
sys.exit(run_wsgi(sys.argv[2], sys.argv[3]))
"""
_RINGS = """\
import sys
from swift.common.ring import RingBuilder
folder, *named = sys.argv[1:]
for part, port in zip(named[::2], named[1::2]):
    builder = RingBuilder(4, 1, 1)
    device = {"id": 0, "region": 1, "zone": 1, "device": "d1", "weight": 1.0}
    builder.add_dev({**device, "ip": "127.0.0.1", "port": int(port)})
    builder.rebalance()
    builder.get_ring().save(f"{folder}/{part}.ring.gz")
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
# What could not be listed at once, because the container server did not answer, is listed later.
_UPDATER = """\
devices = {folder}/devices
mount_check = false
[object-updater]
interval = 1
recon_cache_path = {folder}/recon
"""
_PROXY = """\
[pipeline:main]
pipeline = catch_errors cache s3api tempauth slo dlo versioned_writes proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
error_suppression_interval = 1
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
    """Takes a few seconds. `processes`: memcached, account, container, object, updater,
    proxy."""
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
        ports = {part: free_port() for part in _PARTS}
        _build_rings(folder, ports)
        for part, port in ports.items():
            text = _COMMON + _BACKEND
            conf = folder / f"{part}.conf"
            conf.write_text(text.format(folder=folder, port=port, user=user, part=part))
            started.start(part, _launch(folder, conf, f"{part}-server"))
        conf = folder / "updater.conf"
        conf.write_text((_COMMON + _UPDATER).format(folder=folder, port=0, user=user))
        started.start("updater", _launch(folder, conf, "object-updater"))
        conf = folder / "proxy.conf"
        conf.write_text(
            (_COMMON + _PROXY).format(
                folder=folder, port=proxy_port, user=user, memcached_port=memcached_port
            )
        )
        started.start("proxy", _launch(folder, conf, "proxy-server"))
        started.wait_for_http(proxy_port)
        yield S3Server("swift", proxy_port, "test:tester", "testing", started)


def _build_rings(folder: Path, ports: dict[str, int]) -> None:
    """Where each part is, as swift-ring-builder would write it, in one process instead of nine."""
    named = [text for part, port in ports.items() for text in (part, str(port))]
    run(["/usr/bin/python3", "-c", _RINGS, folder, *named])


def _launch(folder: Path, conf: Path, section: str) -> list[str | Path]:
    return ["/usr/bin/python3", "-c", _LAUNCH, folder, conf, section]
