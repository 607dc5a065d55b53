"""Every setting, declared once, and the settings that are in effect.

The fields of `Settings` declare name, kind, default, range and meaning; `SETTINGS` is made of them
and feeds the command line's flags, the `SEB_*` variables, the settings file, the table in
docs/OPERATIONS.md and `seb doctor`. Values are read and checked in setting_sources.py.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from seb_appliance import limits
from seb_appliance.errors import ConfigurationError
from seb_appliance.ops.cost.prices import PROVIDERS, Money, Prices, own_prices, provider_at
from seb_appliance.quantities import READERS, format_value, size_bytes, switch

Kind = Literal["text", "path", "number", "switch", "duration", "size"]
Value = str | Path | int | bool | None

_GIB: Final = 1024 * limits.MIB


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `range` is inclusive, in ms for durations and in bytes for sizes.

    A `secret` is never shown and has no flag (flags are in every process list). A `flag_only`
    setting is a decision about one start and has neither a variable nor a place in the file; a
    `variable_only` one is for our tests. A `client` setting is for the commands that talk HTTP to
    an appliance (`seb topics`, …), and no flag of `seb serve`. A `word` is kept as it is.
    """

    name: str
    kind: Kind
    default: Value
    help: str
    range: tuple[int, int] | None = None
    choices: tuple[str, ...] = ()
    default_words: str = ""  # what None means
    secret: bool = False
    flag_only: bool = False
    variable_only: bool = False
    client: bool = False
    word: str = ""  # that may stand where a value does

    @property
    def attribute(self) -> str:
        """Its field in `Settings`: durations carry their unit there."""
        return f"{self.name}_ms" if self.kind == "duration" else self.name

    @property
    def has_flag(self) -> bool:
        return not (self.secret or self.variable_only)

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "SEB_" + self.name.upper()

    def parse(self, text: str) -> Value:
        """The value that `text` means. Raises ValueError with half a sentence."""
        if self.word and text == self.word:
            return text
        if self.kind == "switch":
            return switch(text, lenient=True)
        if self.kind in ("text", "path"):
            return self._checked_text(text)
        number: int = READERS[self.kind](text)
        if self.range is not None and not self.range[0] <= number <= self.range[1]:
            raise ValueError(f"{text!r} is outside {self.range_words}")
        return number

    def _checked_text(self, text: str) -> Value:
        if not text or "\0" in text:
            raise ValueError(f"{text!r} is not a value")
        if self.choices and text not in self.choices:
            raise ValueError(f"{text!r} is none of {', '.join(self.choices)}")
        return Path(text) if self.kind == "path" else text

    def words(self, value: Value) -> str:
        """`value` for people; a secret is only said to be there."""
        if value is None:
            return self.default_words
        if self.secret:
            return "(set, not shown)"
        if self.word and value == self.word:
            return self.word
        return format_value(self.kind, value)

    @property
    def range_words(self) -> str:
        if self.choices:
            return ", ".join(self.choices)
        if self.range is None:
            return "on, off" if self.kind == "switch" else ""
        also = f", or {self.word}" if self.word else ""
        return f"{self.words(self.range[0])} to {self.words(self.range[1])}{also}"


def _setting(
    kind: Kind,
    default: Value,
    help: str,  # noqa: A002 - as the flag's
    range: tuple[int, int] | None = None,  # noqa: A002
    **options: Any,
) -> Any:
    """The field of `Settings` that declares a setting."""
    setting = {"kind": kind, "default": default, "help": help, "range": range, **options}
    return field(metadata=setting, repr=not options.get("secret", False))


_text = partial(_setting, "text")
_path = partial(_setting, "path")
_number = partial(_setting, "number")
_switch = partial(_setting, "switch")
_duration = partial(_setting, "duration")
_size = partial(_setting, "size")


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """A parsed `bucket` setting. `path` is for directories, `name` and `prefix` are for S3,
    `ready_bytes` for memory: how much of it to take at the start."""

    kind: Literal["file", "s3", "memory"]
    path: Path = Path()
    name: str = ""
    prefix: str = ""  # without slashes at its ends
    ready_bytes: int = 0

    @classmethod
    def parse(cls, text: str) -> BucketAddress:
        """Raises ConfigurationError that shows the right forms."""
        kind, _, rest = text.partition(":")
        if kind == "file" and rest:
            return cls("file", path=Path(rest.removeprefix("//")))
        if kind == "s3" and rest.startswith("//"):
            name, _, prefix = rest[2:].partition("/")
            if name:
                return cls("s3", name=name, prefix=prefix.strip("/"))
        if kind == "memory":
            try:
                return cls("memory", ready_bytes=size_bytes(rest) if rest else 0)
            except ValueError:
                pass  # said below
        raise ConfigurationError(
            f"bucket {text!r} is none of file:DIRECTORY, s3://BUCKET/PREFIX and memory:"
        )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings in effect; a duration is in ms. `sources`: where each value came from."""

    bucket: str = _text(
        "file:./seb-data/bucket",
        "Where the journal lives: file:DIRECTORY, s3://BUCKET/PREFIX, or memory: for a try.",
    )
    data: Path = _path(  # noqa: RUF009 - a field
        Path("./seb-data/local"),
        "Directory of this machine's own files: SQLite, cache, admin key. May be lost.",
    )
    host: str = _text("127.0.0.1", "Address to listen on.")
    port: int = _number(51313, "Port to listen on; 0 takes a free one.", (0, 65_535))
    linger_ms: int | Literal["auto"] | None = _duration(
        None,
        "How long a window stays open to gather records of others; a topic may set its own. "
        "auto: the default, stretched as monthly_budget asks.",
        (0, limits.LINGER_MS_MAX),
        default_words="10ms on a directory or in memory, 1s on S3",
        word="auto",
    )
    linger_max_ms: int = _duration(
        limits.LINGER_MS_MAX, "How far linger = auto may stretch it.", (10, limits.LINGER_MS_MAX)
    )
    monthly_budget: str | None = _text(
        None,
        "What the bucket may cost a calendar month, as 5 EUR, in the currency of the prices.",
        default_words="none",
    )
    prices: str = _text(
        "auto",
        "Whose prices the bucket's requests and bytes are counted at; auto: by its address.",
        choices=("auto", "aws", "hetzner", "r2", "b2", "own", "none"),
    )
    own_prices: str | None = _text(
        None,
        "For prices = own: a currency and amounts, as EUR fee=4.99 put=5 get=0.4 storage=0.02.",
        default_words="none",
    )
    early_flush: bool = _switch(
        False, "Close the window at once when only one caller waits on an idle system (more PUTs)."
    )
    auto_create_topics: bool = _switch(
        True, "Producing to a missing topic creates it, if the API key may manage it."
    )
    take_over: bool = _switch(
        False,
        "Fence the appliance that uses this bucket now and become its writer.",
        flag_only=True,
    )
    follow: bool = _switch(
        False, "Be a standby of the appliance that writes to this bucket, until seb promote."
    )
    follow_poll_ms: int = _duration(
        1_000,
        "How long a standby that has read everything waits before it looks for the next entry.",
        (100, 60_000),
    )
    ack_timeout_ms: int = _duration(
        limits.ACK_TIMEOUT_MS_DEFAULT,
        "How long a producer waits for the bucket before it is told 504 outcome_unknown.",
        (100, limits.ACK_TIMEOUT_MS_MAX),
    )
    shutdown_grace_ms: int = _duration(
        20_000, "How long a stop may take to store and answer what is waiting.", (0, 600_000)
    )
    max_record_bytes: int = _size(
        limits.RECORD_BYTES_DEFAULT,
        "Largest value of a record; a topic may set its own, up to 16MiB.",
        (1, limits.RECORD_BYTES_MAX),
    )
    compression: Literal["none", "zstd"] = _text(
        "zstd",
        "How the records of a topic that sets none itself are stored; zstd only where it pays.",
        choices=("none", "zstd"),
    )
    max_request_bytes: int = _size(
        limits.REQUEST_BYTES_MAX,
        "Largest body of a request, after inflating.",
        (1, limits.REQUEST_BYTES_MAX),
    )
    max_pending_bytes: int = _size(
        limits.PENDING_BYTES_DEFAULT,
        "Memory for what waits for the bucket, at least twice max_request_bytes: an API key "
        "may hold half; past it writes get 429 share_exceeded or 503 overloaded.",
        (limits.MIB, 16 * _GIB),
    )
    max_reading_bytes: int = _size(
        limits.READ_BYTES_DEFAULT,
        "Memory for answers to readers that are being made or sent; an API key may hold half.",
        (limits.FETCH_BYTES_MAX, 16 * _GIB),
    )
    cache_bytes: int = _size(
        _GIB,
        "Disk for records that were fetched from S3 before; a directory needs no cache.",
        (0, 1024 * _GIB),
    )
    tidier: bool = _switch(
        True, "Merge journal entries into segments, keep to topics' retention, remove what is gone."
    )
    segment_bytes: int = _size(
        limits.SEGMENT_BYTES_DEFAULT,
        "How large a segment becomes, and how much the tidier reads at once.",
        (limits.SEGMENT_SECTION_BYTES, limits.SEGMENT_BYTES_MAX),
    )
    tidy_bytes: int = _size(
        limits.TIDY_TRIGGER_BYTES_DEFAULT,
        "Journal entries are merged once so many bytes of them wait.",
        (limits.KIB, limits.SEGMENT_BYTES_MAX),
    )
    tidy_after_ms: int = _duration(
        limits.TIDY_AFTER_MS_DEFAULT,
        "They are merged as well once the oldest of at least 64 is so old.",
        (0, 30 * 86_400_000),
    )
    tidy_young_ms: int = _duration(
        limits.TIDY_YOUNG_MS,
        "Younger entries stay as they are: readers that follow the log find them in memory.",
        (0, 86_400_000),
    )
    garbage_grace_ms: int = _duration(
        limits.GARBAGE_GRACE_MS_DEFAULT,
        "How long a segment stays in the bucket after the last record in it is gone.",
        (0, 30 * 86_400_000),
    )
    log_level: str = _text(
        "info", "How much is logged to stderr.", choices=("debug", "info", "warning", "error")
    )
    log_format: Literal["text", "json"] = _text(
        "text",
        "One line each: for people, or a JSON object for programs.",
        choices=("text", "json"),
    )
    cors_origins: str | None = _text(
        None,
        "Web pages of these origins may use /v1 from a browser: https://a.example, with "
        "commas between several, or * for all.",
        default_words="none",
    )
    trusted_proxies: str | None = _text(
        None,
        "Proxies whose X-Forwarded-For says who asks: addresses and networks, as 127.0.0.1 or "
        "10.0.0.0/8, with commas between several. For log-ins and the audit.",
        default_words="none",
    )
    # Of the Durable Streams protocol.
    durable_streams_open: bool = _switch(
        False,
        "Whoever reaches /v1/stream needs no API key there. On a loopback host only.",
        flag_only=True,
    )
    metrics_public: bool = _switch(
        False, "Serve /metrics without an API key to other machines too."
    )
    otlp_endpoint: str | None = _text(
        None,
        "URL of an OpenTelemetry collector (OTLP over HTTP), as "
        "http://127.0.0.1:4318/v1/traces, for traces of requests that came with a traceparent; "
        "needs the extra otel.",
        default_words="none",
    )
    store_latency_ms: int = _duration(
        0,
        "Delay of each request to a bucket that is a directory or memory, as if it were far "
        "away: for measuring.",
        (0, limits.STORE_LATENCY_MS_MAX),
    )
    s3_endpoint: str | None = _text(
        None,
        "URL of the S3 server, for any store but AWS.",
        default_words="AWS, or what the AWS configuration says",
    )
    s3_region: str | None = _text(
        None,
        "Region of the bucket.",
        default_words="what the AWS configuration says, else us-east-1",
    )
    s3_access_key_id: str | None = _text(
        None, "Who we are to the S3 server.", default_words="what the AWS configuration says"
    )
    s3_secret_access_key: str | None = _text(
        None,
        "The secret that goes with it. Has no flag: flags are in every process list.",
        default_words="what the AWS configuration says",
        secret=True,
    )
    s3_checksums: str = _text(
        "when_required",
        "Checksums of the S3 client; many stores refuse when_supported, which AWS likes.",
        choices=("when_required", "when_supported"),
    )
    s3_immediate_list: bool = _switch(
        False,
        "The store's LIST is known to show at once what was PUT (Ceph, Backblaze B2): "
        "--take-over in fencing mode B then need not wait 60s.",
    )
    s3_connect_timeout_ms: int = _duration(
        3_000, "How long a connection to the S3 server may take.", (100, 60_000)
    )
    s3_read_timeout_ms: int = _duration(
        10_000,
        "How long the S3 server may be silent before a request counts as unanswered.",
        (100, 300_000),
    )
    url: str = _text(
        "http://127.0.0.1:51313",
        "Where the appliance is, for the commands that talk to it.",
        client=True,
    )
    key_file: Path | None = _path(  # noqa: RUF009 - a field
        None,
        "File that holds the API key with which they talk.",
        default_words="admin.key in the data directory, for an appliance on this machine",
        client=True,
    )
    profile: str | None = _text(
        None,
        "Which of your profiles says where it is and with which API key (docs/CLI.md).",
        default_words="the one that `seb profiles use` named",
        client=True,
    )
    fail: str = _text(
        "", "Kill this process at a failpoint (tests of crashes).", variable_only=True
    )
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def address(self) -> BucketAddress:
        return BucketAddress.parse(self.bucket)

    @property
    def window_linger_ms(self) -> int:
        """`linger_ms`, or the default for this kind of bucket; `auto` begins with that."""
        if isinstance(self.linger_ms, int):
            return self.linger_ms
        return 1_000 if self.address.kind == "s3" else 10

    @property
    def web_origins(self) -> frozenset[str]:
        """`cors_origins`, one by one."""
        return frozenset(self.cors_origins.split(",")) if self.cors_origins else frozenset()

    @property
    def proxies(self) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
        """`trusted_proxies`, one by one."""
        named = self.trusted_proxies.split(",") if self.trusted_proxies else []
        return tuple(map(ipaddress.ip_network, named))

    @property
    def budget(self) -> Money | None:
        """`monthly_budget`."""
        return None if self.monthly_budget is None else Money.parse(self.monthly_budget)

    @property
    def price_list(self) -> Prices:
        """What the bucket's requests and bytes are counted at."""
        if self.own_prices is not None:
            return own_prices(self.own_prices)
        if self.prices != "auto":
            return PROVIDERS[self.prices]
        is_s3 = self.address.kind == "s3"
        return PROVIDERS[provider_at(is_s3=is_s3, endpoint=self.s3_endpoint)]


SETTINGS: Final[tuple[Setting, ...]] = tuple(
    Setting(name=declared.name.removesuffix("_ms"), **declared.metadata)
    for declared in fields(Settings)
    if declared.metadata
)
