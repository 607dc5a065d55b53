"""Drives kcat, a command for people and scripts, with an older librdkafka in it."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from typing import IO

from tests.kafka.drivers.driving import Options, key_of, numbers, run, tell, told_to_stop
from tests.support.servers.s3_server import die_with_parent

_ASSIGNED = re.compile(r"% Group .* rebalanced .*: (assigned|revoked): (.*)")
_PART = re.compile(r"(\S+) \[(\d+)\]")


def kcat(options: Options, *arguments: str, **settings: str) -> subprocess.Popen[str]:
    """`settings` in librdkafka's names, with _ for the dot."""
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "anybody",
        "sasl.password": options["password"],
        "reconnect.backoff.max.ms": "500",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    command = ["kcat", "-b", options["brokers"]]
    command += [word for name, value in given.items() for word in ("-X", f"{name}={value}")]
    return subprocess.Popen(
        [*command, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )


def produce(options: Options) -> None:
    """It does not tell of single records: its exit code says that all were acknowledged. With -E it
    waits for a broker that is gone."""
    producing = kcat(
        options,
        *("-P", "-E", "-t", options["topic"], "-K", ":", "-z", options["codec"]),
        *("-H", f"from={options['sender']}"),
        enable_idempotence=str(options["idempotent"]).lower(),
        message_timeout_ms="120000",
        linger_ms="5",
    )
    assert producing.stdin is not None
    assert producing.stderr is not None
    sent = []
    for n in numbers(options):
        producing.stdin.write(f"{key_of(n)}:{n}\n")
        producing.stdin.flush()
        sent.append(n)
    producing.stdin.close()
    said = producing.stderr.read()
    assert producing.wait() == 0, said
    for n in sent:
        tell(acked=n)


def tell_records(lines: IO[str]) -> None:
    for line in lines:
        one = json.loads(line)
        headers = one.get("headers") or []
        sender = headers[headers.index("from") + 1] if "from" in headers else None
        where = [one["topic"], one["partition"], one["offset"]]
        tell(record=[*where, one["key"], one["payload"], sender])


def consume(options: Options) -> None:
    wanted = ("-c", str(options["count"]))
    reading = kcat(options, "-C", "-J", "-u", "-t", options["topic"], "-o", "beginning", *wanted)
    assert reading.stdout is not None
    tell_records(reading.stdout)
    assert reading.wait() == 0


def member(options: Options) -> None:
    stopping = told_to_stop()
    more = {"group_instance_id": options["instance"]} if options.get("instance") else {}
    reading = kcat(
        options,
        *("-J", "-u", "-G", options["group"], options["topic"]),
        auto_offset_reset="earliest",
        auto_commit_interval_ms="100",
        session_timeout_ms="6000",
        heartbeat_interval_ms="500",
        **more,
    )
    assert reading.stdout is not None
    threading.Thread(target=tell_records, args=[reading.stdout], daemon=True).start()
    threading.Thread(target=tell_assignments, args=[reading.stderr], daemon=True).start()
    stopping.wait()
    reading.terminate()  # it commits and leaves
    reading.wait(30)


def tell_assignments(lines: IO[str]) -> None:
    for line in lines:
        if (found := _ASSIGNED.match(line)) and found[1] == "assigned":
            tell(assigned=[[topic, int(part)] for topic, part in _PART.findall(found[2])])


if __name__ == "__main__":
    run({"produce": produce, "consume": consume, "member": member})
