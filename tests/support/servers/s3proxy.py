"""S3Proxy over a folder (Apache jclouds' successor backend `filesystem-nio2`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers.s3_server import S3Server, built_program, free_port, need, processes

_CONFIGURATION = """\
s3proxy.endpoint=http://127.0.0.1:{port}
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity=test
s3proxy.credential=testtest
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir={folder}/data
"""
_LOGS = '<configuration><root level="WARN"/></configuration>'  # otherwise each byte that it reads


@contextlib.contextmanager
def running_s3proxy(folder: Path) -> Iterator[S3Server]:
    need("java")
    jars = built_program("s3proxy/*")
    (folder / "data").mkdir(parents=True)
    port = free_port()
    conf = folder / "s3proxy.conf"
    conf.write_text(_CONFIGURATION.format(port=port, folder=folder))
    logs = folder / "logback.xml"
    logs.write_text(_LOGS)
    with processes(folder) as started:
        started.start(
            "s3proxy",
            [
                *("java", "-Xmx512m", f"-Dlogback.configurationFile={logs}", "-cp", jars),
                *("org.gaul.s3proxy.Main", "--properties", conf),
            ],
        )
        started.wait_for_http(port, timeout_s=180)
        yield S3Server("s3proxy", port, "test", "testtest", started)
