"""Every setting: its name, kind, default, range and meaning, once.

The tuple `SETTINGS` feeds the command line's flags, the `SEB_*` variables, the settings file, the
table in docs/OPERATIONS.md and `seb doctor`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from seb_appliance import limits
from seb_appliance.quantities import READERS, format_value, switch

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


SETTINGS: Final[tuple[Setting, ...]] = (
    Setting(
        "bucket",
        "text",
        "file:./seb-data/bucket",
        help="Where the journal lives: file:DIRECTORY, s3://BUCKET/PREFIX, or memory: for a try.",
    ),
    Setting(
        "data",
        "path",
        Path("./seb-data/local"),
        help="Directory of this machine's own files: SQLite, cache, admin key. May be lost.",
    ),
    Setting("host", "text", "127.0.0.1", "Address to listen on."),
    Setting(
        "port",
        "number",
        51313,
        range=(0, 65_535),
        help="Port to listen on; 0 takes a free one.",
    ),
    Setting(
        "linger",
        "duration",
        None,
        default_words="10ms on a directory or in memory, 1s on S3",
        range=(0, limits.LINGER_MS_MAX),
        word="auto",
        help="How long a window stays open to gather records of others; a topic may set its own. "
        "auto: the default, stretched as monthly_budget asks.",
    ),
    Setting(
        "linger_max",
        "duration",
        limits.LINGER_MS_MAX,
        range=(10, limits.LINGER_MS_MAX),
        help="How far linger = auto may stretch it.",
    ),
    Setting(
        "monthly_budget",
        "text",
        None,
        default_words="none",
        help="What the bucket may cost a calendar month, as 5 EUR, in the currency of the prices.",
    ),
    Setting(
        "prices",
        "text",
        "auto",
        choices=("auto", "aws", "hetzner", "r2", "b2", "own", "none"),
        help="Whose prices the bucket's requests and bytes are counted at; auto: by its address.",
    ),
    Setting(
        "own_prices",
        "text",
        None,
        default_words="none",
        help="For prices = own: a currency and amounts, as EUR fee=4.99 put=5 get=0.4 "
        "storage=0.02.",
    ),
    Setting(
        "early_flush",
        "switch",
        False,
        help="Close the window at once when only one caller waits on an idle system (more PUTs).",
    ),
    Setting(
        "auto_create_topics",
        "switch",
        True,
        help="Producing to a missing topic creates it, if the API key may manage it.",
    ),
    Setting(
        "take_over",
        "switch",
        False,
        flag_only=True,
        help="Fence the appliance that uses this bucket now and become its writer.",
    ),
    Setting(
        "follow",
        "switch",
        False,
        help="Be a standby of the appliance that writes to this bucket, until seb promote.",
    ),
    Setting(
        "follow_poll",
        "duration",
        1_000,
        range=(100, 60_000),
        help="How long a standby that has read everything waits before it looks for the next "
        "entry.",
    ),
    Setting(
        "ack_timeout",
        "duration",
        limits.ACK_TIMEOUT_MS_DEFAULT,
        range=(100, limits.ACK_TIMEOUT_MS_MAX),
        help="How long a producer waits for the bucket before it is told 504 outcome_unknown.",
    ),
    Setting(
        "shutdown_grace",
        "duration",
        20_000,
        range=(0, 600_000),
        help="How long a stop may take to store and answer what is waiting.",
    ),
    Setting(
        "max_record_bytes",
        "size",
        limits.RECORD_BYTES_DEFAULT,
        range=(1, limits.RECORD_BYTES_MAX),
        help="Largest value of a record; a topic may set its own, up to 16MiB.",
    ),
    Setting(
        "compression",
        "text",
        "zstd",
        choices=("none", "zstd"),
        help="How the records of a topic that sets none itself are stored; zstd only where it "
        "pays.",
    ),
    Setting(
        "max_request_bytes",
        "size",
        limits.REQUEST_BYTES_MAX,
        range=(1, limits.REQUEST_BYTES_MAX),
        help="Largest body of a request, after inflating.",
    ),
    Setting(
        "max_pending_bytes",
        "size",
        limits.PENDING_BYTES_DEFAULT,
        range=(limits.MIB, 16 * _GIB),
        help="Memory for what waits for the bucket, at least twice max_request_bytes: an API key "
        "may hold half; past it writes get 429 share_exceeded or 503 overloaded.",
    ),
    Setting(
        "max_reading_bytes",
        "size",
        limits.READ_BYTES_DEFAULT,
        range=(limits.FETCH_BYTES_MAX, 16 * _GIB),
        help="Memory for answers to readers that are being made or sent; an API key may hold half.",
    ),
    Setting(
        "cache_bytes",
        "size",
        _GIB,
        range=(0, 1024 * _GIB),
        help="Disk for records that were fetched from S3 before; a directory needs no cache.",
    ),
    Setting(
        "tidier",
        "switch",
        True,
        help="Merge journal entries into segments, keep to topics' retention, remove what is gone.",
    ),
    Setting(
        "segment_bytes",
        "size",
        limits.SEGMENT_BYTES_DEFAULT,
        range=(limits.SEGMENT_SECTION_BYTES, limits.SEGMENT_BYTES_MAX),
        help="How large a segment becomes, and how much the tidier reads at once.",
    ),
    Setting(
        "tidy_bytes",
        "size",
        limits.TIDY_TRIGGER_BYTES_DEFAULT,
        range=(limits.KIB, limits.SEGMENT_BYTES_MAX),
        help="Journal entries are merged once so many bytes of them wait.",
    ),
    Setting(
        "tidy_after",
        "duration",
        limits.TIDY_AFTER_MS_DEFAULT,
        range=(0, 30 * 86_400_000),
        help="They are merged as well once the oldest of at least 64 is so old.",
    ),
    Setting(
        "tidy_young",
        "duration",
        limits.TIDY_YOUNG_MS,
        range=(0, 86_400_000),
        help="Younger entries stay as they are: readers that follow the log find them in memory.",
    ),
    Setting(
        "garbage_grace",
        "duration",
        limits.GARBAGE_GRACE_MS_DEFAULT,
        range=(0, 30 * 86_400_000),
        help="How long a segment stays in the bucket after the last record in it is gone.",
    ),
    Setting(
        "log_level",
        "text",
        "info",
        choices=("debug", "info", "warning", "error"),
        help="How much is logged to stderr.",
    ),
    Setting(
        "log_format",
        "text",
        "text",
        choices=("text", "json"),
        help="One line each: for people, or a JSON object for programs.",
    ),
    Setting(
        "cors_origins",
        "text",
        None,
        help="Web pages of these origins may use /v1 from a browser: https://a.example, with "
        "commas between several, or * for all.",
        default_words="none",
    ),
    Setting(
        "trusted_proxies",
        "text",
        None,
        help="Proxies whose X-Forwarded-For says who asks: addresses and networks, as 127.0.0.1 or "
        "10.0.0.0/8, with commas between several. For log-ins and the audit.",
        default_words="none",
    ),
    Setting(
        "durable_streams_open",
        "switch",
        False,
        flag_only=True,
        help="Whoever reaches /v1/stream needs no API key there. On a loopback host only.",
    ),
    Setting(
        "metrics_public",
        "switch",
        False,
        help="Serve /metrics without an API key to other machines too.",
    ),
    Setting(
        "otlp_endpoint",
        "text",
        None,
        help="URL of an OpenTelemetry collector (OTLP over HTTP), as "
        "http://127.0.0.1:4318/v1/traces, for traces of requests that came with a traceparent; "
        "needs the extra otel.",
        default_words="none",
    ),
    Setting(
        "store_latency",
        "duration",
        0,
        range=(0, limits.STORE_LATENCY_MS_MAX),
        help="Delay of each request to a bucket that is a directory or memory, as if it were far "
        "away: for measuring.",
    ),
    Setting(
        "s3_endpoint",
        "text",
        None,
        default_words="AWS, or what the AWS configuration says",
        help="URL of the S3 server, for any store but AWS.",
    ),
    Setting(
        "s3_region",
        "text",
        None,
        default_words="what the AWS configuration says, else us-east-1",
        help="Region of the bucket.",
    ),
    Setting(
        "s3_access_key_id",
        "text",
        None,
        default_words="what the AWS configuration says",
        help="Who we are to the S3 server.",
    ),
    Setting(
        "s3_secret_access_key",
        "text",
        None,
        default_words="what the AWS configuration says",
        secret=True,
        help="The secret that goes with it. Has no flag: flags are in every process list.",
    ),
    Setting(
        "s3_checksums",
        "text",
        "when_required",
        choices=("when_required", "when_supported"),
        help="Checksums of the S3 client; many stores refuse when_supported, which AWS likes.",
    ),
    Setting(
        "s3_immediate_list",
        "switch",
        False,
        help="The store's LIST is known to show at once what was PUT (Ceph, Backblaze B2): "
        "--take-over in fencing mode B then need not wait 60s.",
    ),
    Setting(
        "s3_connect_timeout",
        "duration",
        3_000,
        range=(100, 60_000),
        help="How long a connection to the S3 server may take.",
    ),
    Setting(
        "s3_read_timeout",
        "duration",
        10_000,
        range=(100, 300_000),
        help="How long the S3 server may be silent before a request counts as unanswered.",
    ),
    Setting(
        "url",
        "text",
        "http://127.0.0.1:51313",
        client=True,
        help="Where the appliance is, for the commands that talk to it.",
    ),
    Setting(
        "key_file",
        "path",
        None,
        default_words="admin.key in the data directory, for an appliance on this machine",
        client=True,
        help="File that holds the API key with which they talk.",
    ),
    Setting(
        "profile",
        "text",
        None,
        default_words="the one that `seb profiles use` named",
        client=True,
        help="Which of your profiles says where it is and with which API key (docs/CLI.md).",
    ),
    Setting(
        "fail",
        "text",
        "",
        variable_only=True,
        help="Kill this process at a failpoint (tests of crashes).",
    ),
)
