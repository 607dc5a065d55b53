"""Who asks, where proxies speak for others; and how long a stream waits for its quota."""

from __future__ import annotations

import ipaddress

import pytest

from seb_appliance.api.server.auth import forwarded_for, is_local, peer_address, within_quota
from seb_appliance.broker.append.quotas import Meter
from seb_appliance.errors import ConfigurationError
from seb_appliance.formats.api_key_members import Quotas
from seb_appliance.setting_sources import load
from tests.support.fakes import FakeClock

TRUSTED = [ipaddress.ip_network(text) for text in ("127.0.0.1", "10.0.0.0/8", "::1")]


@pytest.mark.parametrize(
    ("peer", "lines", "expected"),
    [
        ("127.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        ("::1", ["192.0.2.1"], "192.0.2.1"),
        ("::ffff:127.0.0.1", ["::ffff:192.0.2.1"], "192.0.2.1"),
        ("127.0.0.1", ["2001:db8::7"], "2001:db8::7"),
        ("127.0.0.1", ["198.51.100.1, 192.0.2.1"], "192.0.2.1"),  # the first may be made up
        ("127.0.0.1", ["192.0.2.1, 10.1.2.3"], "192.0.2.1"),  # a chain of proxies
        ("127.0.0.1", ["192.0.2.1", "10.1.2.3"], "192.0.2.1"),
        ("127.0.0.1", ["10.1.2.3"], "10.1.2.3"),
        ("127.0.0.1", ["192.0.2.1, nonsense"], None),
        ("127.0.0.1", ["nonsense, 10.1.2.3"], "10.1.2.3"),
        ("127.0.0.1", [""], None),
        ("127.0.0.1", [], None),
        ("192.0.2.9", ["192.0.2.1"], None),  # says so itself
        ("", ["192.0.2.1"], None),
    ],
)
def test_only_a_trusted_proxy_says_who_asks(
    peer: str, lines: list[str], expected: str | None
) -> None:
    headers = [(b"x-forwarded-for", line.encode()) for line in lines]
    scope = {"client": (peer, 1), "headers": headers}
    assert forwarded_for(scope, TRUSTED) == expected  # type: ignore[arg-type]
    assert forwarded_for(scope, []) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("peer", "known", "local"),
    [
        ("::ffff:127.0.0.1", "127.0.0.1", True),
        ("::ffff:192.0.2.1", "192.0.2.1", False),
        ("::1", "::1", True),
        ("2001:db8::ffff:1", "2001:db8::ffff:1", False),
    ],
)
def test_a_client_by_ipv4_to_a_socket_of_both_kinds_has_its_ipv4_address(
    peer: str, known: str, local: bool
) -> None:
    scope = {"client": (peer, 1), "headers": []}
    assert peer_address(scope) == known  # type: ignore[arg-type]
    assert is_local(scope) is local  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["proxy.example", "10.0.0.1/8", "127.0.0.1, 10.0.0.1", ","])
def test_what_names_no_proxy_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(ConfigurationError, match="trusted_proxies"):
        load(flags={"trusted_proxies": text}, environment={})


@pytest.mark.parametrize(
    ("peer", "header", "local"),
    [
        ("127.0.0.1", ("host", "localhost"), True),
        ("127.0.0.1", ("host", "LocalHost:8080"), True),
        ("127.0.0.1", ("host", "127.0.0.1:8080"), True),
        ("::1", ("host", "[::1]"), True),
        ("127.0.0.1", ("host", "rebound.example"), False),  # a page's own name, which points here
        ("127.0.0.1", ("host", "192.0.2.1:8080"), False),
        ("127.0.0.1", ("x-forwarded-for", "127.0.0.1"), False),
        ("127.0.0.1", ("forwarded", "for=127.0.0.1"), False),
        (None, ("host", "localhost"), True),  # a Unix socket
        (None, ("host", "rebound.example"), False),
    ],
)
def test_a_process_of_this_machine_speaks_for_itself_and_to_this_machine(
    peer: str | None, header: tuple[str, str], local: bool
) -> None:
    name, value = header
    client = None if peer is None else (peer, 1)
    scope = {"client": client, "headers": [(name.encode(), value.encode())]}
    assert is_local(scope) is local  # type: ignore[arg-type]


async def test_a_stream_pauses_for_a_second_at_most_while_its_key_has_used_its_quota() -> None:
    clock = FakeClock()
    meter = Meter(Quotas(bytes_out_per_second=100), clock)
    paused_s: list[float] = []

    async def pause(seconds: float) -> None:
        paused_s.append(seconds)
        await clock.advance(seconds)

    async def paused(*, is_over_after: int = 99, **state: object) -> list[float]:
        paused_s.clear()
        await within_quota({"state": state}, lambda: len(paused_s) >= is_over_after, pause)  # type: ignore[typeddict-item]
        return paused_s

    assert await paused() == []
    assert await paused(seb_meter=meter) == []
    meter.charge_out(350)
    assert await paused(seb_meter=meter) == [1.0, 1.0, 0.5]
    meter.charge_out(900)
    assert await paused(seb_meter=meter, is_over_after=2) == [1.0, 1.0]
