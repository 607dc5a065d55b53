"""Who asks, where proxies speak for others."""

from __future__ import annotations

import ipaddress

import pytest

from seb_appliance.api.server.auth import forwarded_for, is_local, peer_address
from seb_appliance.errors import ConfigurationError
from seb_appliance.setting_sources import load

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
