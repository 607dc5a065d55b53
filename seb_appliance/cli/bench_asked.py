"""From the options of `seb bench` to what is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seb_appliance.bench.plan import CONNECTIONS_AT_A_RATE, PRESETS, TOPOLOGIES, Plan
from seb_appliance.cli.reaching import url_and_key
from seb_appliance.settings import Settings, environment_without_settings
from seb_appliance.start_errors import ConfigurationError, StartError

if TYPE_CHECKING:
    from seb_appliance.bench.processes import EmbeddedOptions
    from seb_appliance.bench.session import Session
    from seb_appliance.bench.targets import Target


def make_session(settings: Settings, asked: dict[str, Any]) -> Session:
    """What is to be measured. Raises StartError, ConfigurationError."""
    _need_parts()
    from seb_appliance.bench.session import Session

    plan = make_plan(asked)
    if asked["against"] and (plan.workload not in ("produce", "consume") or plan.rate is not None):
        raise ConfigurationError("--against is for produce and consume without --rate")
    own = None
    if asked["embedded"]:
        if asked["target"] != "seb":
            raise ConfigurationError("--embedded starts an appliance, no seb-go")
        own = _embedded(asked, plan)
    else:
        for name in ("store", "directory", "linger", "store_latency"):
            if asked[name] is not None:
                flag = name.replace("_", "-")
                raise ConfigurationError(f"--{flag} is for --embedded; a running one has its own")
    return Session(
        plan=plan,
        target=None if own is not None else _target(settings, asked["target"]),
        embedded=own,
        against_null=asked["against"] is not None,
        keep_topics=asked["keep"],
    )


def make_plan(asked: dict[str, Any]) -> Plan:
    """What the options say; those that are given win over a preset and a topology.

    Raises ConfigurationError."""
    workload = asked["workload"]
    chosen: dict[str, Any] = {}
    if asked["preset"] is not None:
        chosen |= PRESETS[asked["preset"]]
    if asked["topology"] is not None and workload != "fan":
        raise ConfigurationError("--topology is for fan")
    if workload == "fan":
        chosen["connections"], chosen["consumers"] = TOPOLOGIES[asked["topology"] or "1:1"]
    for name in ("body", "record_bytes", "records_per_request", "connections", "consumers"):
        if asked[name] is not None:
            chosen[name] = asked[name]
    for name in ("topics", "rate"):
        if asked[name] is not None:
            chosen[name] = asked[name]
    for name in ("duration", "warm_up"):
        if asked[name] is not None:
            chosen[f"{name}_s"] = asked[name] / 1000
    if workload == "consume":
        if asked["consumers"] is not None:
            raise ConfigurationError("the readers of consume are its --connections")
        chosen.pop("rate", None)
        if asked["rate"] is not None:
            raise ConfigurationError("consume reads as fast as it goes: leave --rate out")
    if workload == "produce" and asked["consumers"] is not None:
        raise ConfigurationError("produce has no --consumers; mixed, e2e and fan have")
    if "rate" in chosen:
        chosen.setdefault("connections", CONNECTIONS_AT_A_RATE)
    return Plan(workload=workload, **chosen).check()


def _embedded(asked: dict[str, Any], plan: Plan) -> EmbeddedOptions:
    from seb_appliance.bench.machine import this_machine
    from seb_appliance.bench.processes import EmbeddedOptions

    flags: list[str] = []
    for name in ("linger", "store_latency"):
        if asked[name] is not None:
            flags += [f"--{name.replace('_', '-')}", asked[name]]
    memory_bytes = this_machine().memory_bytes or 0
    return EmbeddedOptions(
        store=asked["store"] or "disk",
        ready_bytes=min(plan.stored_bytes_max, memory_bytes // 4),
        directory=asked["directory"],
        flags=tuple(flags),
        environment=environment_without_settings(),
    )


def _target(settings: Settings, kind: str) -> Target:
    from seb_appliance.addresses import parse_url
    from seb_appliance.bench.go_target import GoTarget
    from seb_appliance.bench.targets import Address, SebTarget

    url, token = url_and_key(settings, ours=kind == "seb")
    parts = parse_url(url)
    secured = parts.scheme == "https"
    assert parts.hostname is not None
    address = Address(
        parts.hostname, parts.port or (443 if secured else 80), parts.path.rstrip("/"), secured
    )
    return SebTarget(address, token) if kind == "seb" else GoTarget(address, token)


def _need_parts() -> None:
    """Raises StartError when the extra is not installed."""
    try:
        import hdrh.histogram  # noqa: F401
    except ModuleNotFoundError as error:
        raise StartError(
            f"this needs {error.name}, which is not installed: pip install 'seb-appliance[bench]'"
        ) from error
