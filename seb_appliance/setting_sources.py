"""Reads the settings from flags, `SEB_*` variables and the settings file, and checks them.

A flag wins over a variable, a variable over the file, the file over the default; an unknown name is
an error in each of them. No other module of this package reads the environment.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from seb_appliance.addresses import is_loopback
from seb_appliance.errors import ConfigurationError
from seb_appliance.quantities import format_duration, format_size
from seb_appliance.setting_kinds import Setting, Value
from seb_appliance.settings import SETTINGS, Settings

CONFIG_VARIABLE: Final = "SEB_CONFIG"

_ORIGIN: Final = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?|\*")
_BY_NAME: Final = {setting.name: setting for setting in SETTINGS}


def load(
    *,
    flags: Mapping[str, str | bool] | None = None,
    environment: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Settings:
    """The settings of this process. `flags` holds those that were given, by name.

    `environment` None means the process's own; `config` None means SEB_CONFIG, else no file.
    Raises ConfigurationError that names the setting and where it stands.
    """
    given = os.environ if environment is None else environment
    variables = {name: value for name, value in given.items() if name.startswith("SEB_")}
    if config is None and CONFIG_VARIABLE in variables:
        config = Path(variables[CONFIG_VARIABLE])
    values: dict[str, Any] = {setting.attribute: setting.default for setting in SETTINGS}
    sources = {setting.name: "default" for setting in SETTINGS}
    for source, found in (
        (str(config), _from_file(config) if config is not None else {}),
        ("environment", _from_environment(variables)),
        ("flag", flags or {}),
    ):
        for name, raw in found.items():
            setting = _BY_NAME[name]
            where = {"environment": setting.variable, "flag": setting.flag}.get(source, source)
            values[setting.attribute] = _value(setting, raw, where)
            sources[name] = where
    settings = _fitted(Settings(**values, sources=sources))
    _check_relations(settings)
    return settings


def profiles_file(environment: Mapping[str, str] | None = None) -> Path:
    """Where this user's profiles are: of the XDG base directories, the one for settings."""
    variables = os.environ if environment is None else environment
    configured = Path(variables.get("XDG_CONFIG_HOME", ""))
    if not configured.is_absolute():  # a relative one counts as none, says the XDG specification
        configured = Path(variables.get("HOME", "") or Path.home()) / ".config"
    return configured / "seb" / "config.toml"


def environment_without_settings(*, but: tuple[str, ...] = ()) -> dict[str, str]:
    """This process's variables, without ours: for an appliance that is told everything. `but`: how
    the names begin that are kept."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SEB_") or name.startswith(but)
    }


def service_manager_of() -> tuple[str, float | None]:
    """The address of the service manager's socket ("": there is none), and within how many seconds
    its watchdog wants to hear from this process (None: never); see sd_watchdog_enabled(3)."""
    watched_us, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    is_ours = watched_us.isdigit() and int(watched_us) > 0 and pid in ("", str(os.getpid()))
    return os.environ.get("NOTIFY_SOCKET", ""), int(watched_us) / 1e6 if is_ours else None


def whole_environment() -> dict[str, str]:
    """For a command of the user, which may call `seb`."""
    return dict(os.environ)


def _fitted(settings: Settings) -> Settings:
    """With linger = auto, whichever of linger_max and ack_timeout is not set fits the other one:
    the bucket has as long as with a fixed linger, and a start that set one of them succeeds."""
    if settings.linger_ms != "auto":
        return settings
    longest_ms, wait_ms = settings.linger_max_ms, settings.ack_timeout_ms
    if settings.sources["ack_timeout"] == "default":
        wait_ms += longest_ms
    elif settings.sources["linger_max"] == "default":
        longest_ms = min(longest_ms, wait_ms // 2)
    return replace(settings, linger_max_ms=longest_ms, ack_timeout_ms=wait_ms)


def _check_relations(settings: Settings) -> None:
    """What must hold between settings; BucketAddress.parse checks the bucket."""
    if settings.address.kind == "file":
        # The data directory may be deleted at any time, the bucket never: neither holds the other.
        data, bucket = settings.data.resolve(), settings.address.path.resolve()
        if data.is_relative_to(bucket) or bucket.is_relative_to(data):
            raise ConfigurationError(
                f"data ({settings.data}) and bucket ({settings.bucket}) must be separate: "
                "neither may be inside the other"
            )
    if settings.follow and settings.take_over:
        raise ConfigurationError("follow and take_over exclude each other; seb promote takes over")
    if settings.follow and settings.address.kind == "memory":
        raise ConfigurationError("follow needs a bucket that another process can write to")
    if settings.store_latency_ms and settings.address.kind == "s3":
        raise ConfigurationError("store_latency is for a directory or memory, not for s3://")
    linger, half_timeout = settings.window_linger_ms, settings.ack_timeout_ms // 2
    limit = f"half of ack_timeout ({format_duration(settings.ack_timeout_ms)})"
    if linger > half_timeout:
        raise ConfigurationError(f"linger ({format_duration(linger)}) must be at most {limit}")
    request, size = settings.max_request_bytes, format_size
    if settings.max_record_bytes > request:
        raise ConfigurationError(
            f"max_record_bytes ({size(settings.max_record_bytes)}) is more than "
            f"max_request_bytes ({size(request)})"
        )
    if 2 * request > settings.max_pending_bytes:
        raise ConfigurationError(
            f"max_pending_bytes ({size(settings.max_pending_bytes)}) must be at least twice "
            f"max_request_bytes ({size(request)}): one API key may hold half of it"
        )
    for origin in settings.web_origins:
        if not _ORIGIN.fullmatch(origin):
            raise ConfigurationError(
                f"cors_origins: {origin!r} is neither an origin, such as https://a.example, nor *"
            )
    if settings.durable_streams_open and not is_loopback(settings.host):
        raise ConfigurationError(
            "durable_streams_open needs no API key, so host must be a loopback address such as "
            f"127.0.0.1, not {settings.host!r}"
        )
    _check_values(settings)
    _check_syslog(settings)
    _check_ports(settings)
    if settings.linger_ms == "auto" and not linger <= settings.linger_max_ms <= half_timeout:
        raise ConfigurationError(
            f"linger_max ({format_duration(settings.linger_max_ms)}) must be at least the default "
            f"linger ({format_duration(linger)}) and at most {limit}"
        )


def _check_syslog(settings: Settings) -> None:
    if settings.syslog_listen is None:
        return
    try:
        _ = settings.syslog_address
    except ValueError as error:
        raise ConfigurationError(f"syslog_listen: {error}") from None
    by_certificate = settings.syslog_tls_certificate is not None
    if by_certificate != (settings.syslog_tls_client_ca is not None):
        raise ConfigurationError(
            "syslog_tls_certificate and syslog_tls_client_ca go together: set both, or neither"
        )
    if by_certificate == bool(settings.syslog_senders):
        raise ConfigurationError(
            "syslog_listen needs to know who may send: syslog_networks, or syslog_tls_certificate "
            "with syslog_tls_client_ca, but not both"
        )


def _is_unset(settings: Settings, name: str) -> bool:
    value = getattr(settings, name)
    return value is None or value is False or value == "off"  # port 0 is one: a free one


def _check_ports(settings: Settings) -> None:
    """Of MQTT and Kafka."""
    by_proxy = settings.mqtt_proxy_protocol != "off"
    is_far = settings.kafka_port is not None and not all(map(is_loopback, settings.kafka_hosts))
    for name, needed in (
        ("mqtt_host", "mqtt_port"),
        ("mqtt_tls_certificate", "mqtt_port"),
        ("mqtt_tls_client_ca", "mqtt_tls_certificate"),
        ("mqtt_proxy_protocol", "mqtt_port"),
        ("mqtt_proxy_protocol", "trusted_proxies"),
        ("mqtt_certificate_header", "mqtt_websocket"),
        ("mqtt_certificate_header", "trusted_proxies"),
        ("kafka_host", "kafka_port"),
        ("kafka_tls_certificate", "kafka_port"),
        ("kafka_tls_client_ca", "kafka_tls_certificate"),
    ):
        if not _is_unset(settings, name) and _is_unset(settings, needed):
            raise ConfigurationError(f"{name} needs {needed}")
    if by_proxy and settings.mqtt_tls_certificate is not None:
        raise ConfigurationError(
            "mqtt_proxy_protocol and mqtt_tls_certificate exclude each other: either the proxy has "
            "the certificate, or the appliance"
        )
    if is_far and settings.kafka_advertise is None:
        raise ConfigurationError(
            "kafka_port needs kafka_advertise, the host and port that clients connect to, since it "
            f"listens on {', '.join(settings.kafka_hosts)}"
        )


def _check_values(settings: Settings) -> None:
    """What is parsed when it is used: prices, budget, proxies."""
    if (settings.prices == "own") != (settings.own_prices is not None):
        raise ConfigurationError("prices = own and own_prices go together: set both, or neither")
    for name, check in (
        ("own_prices", lambda: settings.price_list),
        ("monthly_budget", lambda: settings.budget),
        ("trusted_proxies", lambda: settings.proxies),
        ("syslog_networks", lambda: settings.syslog_senders),
        ("push_networks", lambda: settings.push_receivers),
        ("kafka_advertise", lambda: settings.kafka_advertised),
        ("table_reader_key", lambda: settings.table_reader),
    ):
        try:
            check()
        except ValueError as error:
            raise ConfigurationError(f"{name}: {error}") from None
    budget, prices = settings.budget, settings.price_list
    if budget is not None and budget.currency != prices.currency:
        raise ConfigurationError(
            f"monthly_budget is in {budget.currency}, and the prices ({prices.name}) are in "
            f"{prices.currency}"
        )


def _from_environment(variables: Mapping[str, str]) -> dict[str, str]:
    known = {s.variable: s.name for s in SETTINGS if not s.flag_only}
    for variable in variables:
        if variable not in known and variable != CONFIG_VARIABLE:
            raise ConfigurationError(_unknown(f"variable {variable}", variable, known))
    return {known[v]: text for v, text in variables.items() if v != CONFIG_VARIABLE}


def _from_file(path: Path) -> dict[str, object]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read settings from {path} ({error.strerror})") from error
    except ValueError as error:  # no TOML, no UTF-8, or a number of thousands of digits
        raise ConfigurationError(f"{path} is not a TOML file: {error}") from error
    known = [s.name for s in SETTINGS if not (s.flag_only or s.variable_only)]
    for name in table:
        if name not in known:
            raise ConfigurationError(_unknown(f"setting {name!r} in {path}", name, known))
    return table


def _value(setting: Setting, raw: object, where: str) -> Value:
    """`raw` is text, or what TOML made of it."""
    try:
        if isinstance(raw, bool) and setting.kind == "switch":
            return raw
        if isinstance(raw, str) or (
            type(raw) is int and setting.kind in ("number", "duration", "size")
        ):
            return setting.parse(str(raw))
        raise ValueError(f"{raw!r} has the wrong type")  # noqa: TRY301
    except ValueError as error:
        shown = "its value is not valid" if setting.secret else str(error)
        raise ConfigurationError(f"{setting.name} ({where}): {shown}") from None


def _unknown(what: str, name: str, known: Mapping[str, str] | list[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"unknown {what}" + (f"; do you mean {near[0]}?" if near else "")
