"""What is measured: one frozen value, from options and presets, checked."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from seb_appliance import limits
from seb_appliance.errors import ConfigurationError
from seb_appliance.quantities import counted

Workload = Literal["produce", "consume", "e2e", "mixed", "fan"]
BodyKind = Literal["single", "json", "ndjson", "batch"]

WORKLOADS: Final = ("produce", "consume", "e2e", "mixed", "fan")
BODY_KINDS: Final = ("single", "json", "ndjson", "batch")

# What others publish at a fixed rate; the rate is in records a second. A connection has one request
# on its way, so that so many records over 25 of them must go several at a time.
PRESETS: Final[dict[str, dict[str, Any]]] = {
    "256B@3000": {"record_bytes": 256, "rate": 3_000.0},
    "1KiB@3000": {"record_bytes": 1_024, "rate": 3_000.0},
    "5KiB@2000": {"record_bytes": 5 * 1_024, "rate": 2_000.0},
    "1KiB@20000": {
        "record_bytes": 1_024,
        "rate": 20_000.0,
        "connections": 25,
        "body": "batch",
        "records_per_request": 32,
    },
    "1MiB@100": {"record_bytes": limits.MIB, "rate": 100.0, "connections": 32},
}
CONNECTIONS: Final = 16
CONNECTIONS_AT_A_RATE: Final = 256  # idle ones cost nothing; too few make requests wait for one

# producers:consumers on one topic; each consumer gets the records of all producers.
TOPOLOGIES: Final[dict[str, tuple[int, int]]] = {
    "1:1": (1, 1),
    "20:1": (20, 1),
    "1:20": (1, 20),
    "20x20": (20, 20),
}

# Of MQTT, publishers and subscribers; each subscriber gets the messages of all publishers.
MQTT_SHAPES: Final[dict[str, tuple[int, int]]] = {
    "in": (256, 0),
    "fan-in": (100, 1),
    "fan-out": (1, 100),
    "mesh": (20, 20),
}
MQTT_OTHERS: Final = ("mosquitto", "nats-server")  # brokers to measure beside

_STORED_BYTES_PER_S: Final = 512 * limits.MIB

CONNECTIONS_MAX: Final = 8_000
FOLLOWERS_MAX: Final = 2_000  # connections that wait at a log end
DURATION_MS_MAX: Final = 3_600_000
SAMPLES_MAX: Final = 50_000_000  # latencies kept, four bytes each
RECORD_BYTES_MIN: Final = 33  # a record has 32 bytes of identification (accounts.py)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`rate`: records a second from all producers together, None: each connection sends its next
    request when the last one is answered. `connections` produce (in `consume`: read); `consumers`
    each get every record."""

    workload: Workload
    body: BodyKind = "single"
    record_bytes: int = 1_024
    records_per_request: int = 1
    connections: int = CONNECTIONS
    consumers: int = 1
    topics: int = 1
    rate: float | None = None
    duration_s: float = 10.0
    warm_up_s: float = 1.0

    @property
    def requests_per_s(self) -> float | None:
        return None if self.rate is None else self.rate / self.records_per_request

    @property
    def stored_bytes_max(self) -> int:
        """About what a fast appliance stores meanwhile; 0 when that is not what is measured."""
        if self.workload == "consume":
            return 0
        per_s = _STORED_BYTES_PER_S if self.rate is None else self.rate * self.record_bytes
        return int((self.duration_s + self.warm_up_s) * per_s)

    @property
    def title(self) -> str:
        """The configuration in a line, for people."""
        pace = "as fast as it goes" if self.rate is None else f"{self.rate:,.0f} records/s"
        parts = [
            f"{self.records_per_request:,} x {_size(self.record_bytes)} per request ({self.body})",
            counted(self.connections, "connection"),
        ]
        if self.workload not in ("produce", "consume"):
            parts.append(counted(self.consumers, "consumer"))
        parts += [counted(self.topics, "topic"), pace, f"{self.duration_s:g} s"]
        return ", ".join(parts)

    def check(self) -> Plan:
        """Itself. Raises ConfigurationError that says what cannot be."""
        if self.body == "single" and self.records_per_request != 1:
            raise ConfigurationError(
                "--body raw has one record per request: use --body batch, ndjson or json"
            )
        smallest = RECORD_BYTES_MIN
        if not smallest <= self.record_bytes <= limits.RECORD_BYTES_MAX:
            raise ConfigurationError(
                f"--record-bytes is {smallest} bytes (a record carries its producer, "
                "number and checksum) to 16MiB"
            )
        request_bytes = self.records_per_request * self.record_bytes
        if request_bytes > limits.REQUEST_BYTES_MAX:
            raise ConfigurationError(f"a request of {_size(request_bytes)} is over 16 MiB")
        if self.rate is not None:
            samples = self.rate / self.records_per_request * self.duration_s
            if self.workload == "consume":
                raise ConfigurationError(
                    "--rate cannot be used with consume, which reads as fast as it can"
                )
            if samples > SAMPLES_MAX:
                raise ConfigurationError(f"{samples:,.0f} requests are too many to keep")
        if self.consumers * self.topics > FOLLOWERS_MAX and self.follows:
            raise ConfigurationError(
                f"{self.consumers} consumers of {self.topics:,} topics need more than "
                f"{FOLLOWERS_MAX:,} connections"
            )
        return self

    @property
    def follows(self) -> bool:
        """Whether consumers wait at the log end for what the producers send."""
        return self.workload in ("e2e", "fan")


def _size(size: int) -> str:
    for unit, factor in (("MiB", limits.MIB), ("KiB", limits.KIB)):
        if size >= factor:
            return f"{size / factor:g} {unit}"
    return f"{size} B"


# When the next request is to be sent: at fixed times, or when the last one was answered.


STEP_S: Final = 0.00025


class Schedule:
    """`per_s` None: a request is due whenever somebody can send it (a closed loop)."""

    def __init__(self, per_s: float | None) -> None:
        self._per_s = per_s
        self._begin_s = 0.0
        self._end_s = 0.0
        self._taken = 0

    @property
    def is_open_loop(self) -> bool:
        return self._per_s is not None

    def begin(self, begin_s: float, end_s: float) -> None:
        """Requests are due from `begin_s` to before `end_s`."""
        self._begin_s, self._end_s = begin_s, end_s

    def end(self, now_s: float) -> None:
        """Nothing is due after now."""
        self._end_s = min(self._end_s, now_s)

    @property
    def next_s(self) -> float:
        """When the next request is due; never again: infinity."""
        due_s = self._begin_s + (self._taken / self._per_s if self._per_s else 0.0)
        return due_s if due_s < self._end_s else float("inf")

    def take(self, now_s: float) -> float | None:
        """The time for which a request that can be sent now was intended; None when none is due.
        However late it is sent, its latency counts from there."""
        if self._per_s is None:
            return now_s if now_s < self._end_s else None
        due_s = self._begin_s + self._taken / self._per_s
        if due_s > now_s or due_s >= self._end_s:
            return None
        self._taken += 1
        return due_s

    def late(self, now_s: float) -> list[float]:
        """Take all that is due and was not sent."""
        found = []
        while self.is_open_loop and (due_s := self.take(now_s)) is not None:
            found.append(due_s)
        return found


class Pacer:
    """Calls `wake` on the event loop each time that a request becomes due while `wanted` says that
    somebody can send one. A thread, because an event loop's timers are whole milliseconds."""

    def __init__(
        self,
        schedule: Schedule,
        wake: Callable[[], None],
        wanted: Callable[[], bool],
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._schedule = schedule
        self._wake = wake
        self._wanted = wanted
        self._clock = clock
        self._sleep = sleep
        self._loop = asyncio.get_running_loop()
        self._is_over = False
        self._is_waking = False
        self._thread = threading.Thread(target=self._run, name="pacer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over = True
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over:
            wait_s = self._schedule.next_s - self._clock()
            if wait_s > 0:
                self._sleep(min(wait_s, 0.05))
                continue
            if not self._is_waking and self._wanted():
                self._is_waking = True
                self._loop.call_soon_threadsafe(self._woken)
            self._sleep(STEP_S)

    def _woken(self) -> None:
        self._is_waking = False
        self._wake()
