"""The socket of the HTTP server, and whether the ports of protocols can be used."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from typing import Final

from seb_appliance.errors import ConfigurationError, StartError
from seb_appliance.settings import Settings

_BACKLOG: Final = 2048


@contextlib.contextmanager
def listening(settings: Settings) -> Iterator[socket.socket]:
    """The listening socket. It is bound before the bucket is claimed, so that a start on a used
    port fences nobody."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    shown = f"[{settings.host}]" if family == socket.AF_INET6 else settings.host
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:  # :: takes IPv4 clients, too, whatever a sysctl says
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        listener.bind((settings.host, settings.port))
    except PermissionError:
        listener.close()
        raise StartError(
            f"cannot listen on {shown}:{settings.port} (permission denied). Choose a port "
            "above 1023 and put a reverse proxy in front."
        ) from None
    except OSError as error:
        listener.close()
        raise StartError(
            f"cannot listen on {shown}:{settings.port} ({error.strerror}). Choose another "
            "--port or --host."
        ) from error
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    with listener:
        yield listener


def check_ports(settings: Settings) -> None:
    """Raises ConfigurationError for a port or a certificate of a protocol that cannot be used.
    Called before the bucket is claimed, so that such a start fences nobody."""
    if settings.mqtt_port is not None:
        _check_port("mqtt_port", settings.mqtt_hosts, settings.mqtt_port)
    if settings.kafka_port is not None:
        _check_port("kafka_port", settings.kafka_hosts, settings.kafka_port)
    if settings.syslog_listen is not None:
        host, port = settings.syslog_address
        _check_port("syslog_listen", [host], port)
    for certificate, client_ca, setting in (
        (settings.mqtt_tls_certificate, settings.mqtt_tls_client_ca, "mqtt_tls_certificate"),
        (settings.kafka_tls_certificate, settings.kafka_tls_client_ca, "kafka_tls_certificate"),
        (settings.syslog_tls_certificate, settings.syslog_tls_client_ca, "syslog_tls_certificate"),
    ):
        if certificate is not None:
            from seb_appliance.protocols.sockets.listening import Tls

            Tls(certificate, client_ca, setting)


def _check_port(setting: str, hosts: Sequence[str], port: int) -> None:
    for host in hosts:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            socket.create_server((host, port), family=family).close()
        except OSError as error:
            raise ConfigurationError(f"{setting} {port}: {error}") from error
