"""Every setting, declared once, and the settings that are in effect.

The fields of `Settings` declare name, kind, default, range and meaning; `SETTINGS` is made of them
and feeds the command line's flags, the `SEB_*` variables, the settings file, the table in
docs/OPERATIONS.md and `seb doctor`. Values are read and checked in setting_sources.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from seb_appliance import limits
from seb_appliance.addresses import BucketAddress, Network, host_and_port, networks, words
from seb_appliance.ops.cost.prices import PROVIDERS, Money, Prices, own_prices, provider_at
from seb_appliance.setting_kinds import Kind, Setting, Value

_GIB: Final = 1024 * limits.MIB


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


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings in effect; a duration is in ms. `sources`: where each value came from."""

    bucket: str = _text(
        "file:./seb-data/bucket",
        "Location of the journal: file:DIRECTORY, s3://BUCKET/PREFIX, or memory: for a trial.",
    )
    data: Path = _path(  # noqa: RUF009 - a field
        Path("./seb-data/local"),
        "Directory of local files: SQLite, cache, admin key. They can be rebuilt after a loss.",
    )
    host: str = _text("127.0.0.1", "Address to listen on.")
    port: int = _number(51313, "Port to listen on; 0 chooses a free port.", (0, 65_535))
    linger_ms: int | Literal["auto"] | None = _duration(
        None,
        "How long a window stays open to collect records; a topic may override it. "
        "auto: the default, and longer where few records come, or to stay within monthly_budget.",
        (0, limits.LINGER_MS_MAX),
        default_words="10ms on a directory or in memory, 1s on S3",
        word="auto",
    )
    linger_max_ms: int = _duration(
        limits.LINGER_AUTO_MS_DEFAULT,
        "Longest linger that linger = auto may choose; by default at most half of ack_timeout.",
        (10, limits.LINGER_AUTO_MS_MAX),
    )
    monthly_budget: str | None = _text(
        None,
        "Budget for the bucket per calendar month, such as 5 EUR, in the currency of the prices.",
        default_words="none",
    )
    prices: str = _text(
        "auto",
        "Price list for the bucket's requests and bytes; auto: chosen by the bucket's address.",
        choices=("auto", "aws", "hetzner", "r2", "b2", "gcs", "tigris", "own", "none"),
    )
    own_prices: str | None = _text(
        None,
        "For prices = own: currency and amounts, such as EUR fee=4.99 put=5 get=0.4 storage=0.02.",
        default_words="none",
    )
    early_flush: bool = _switch(
        False,
        "Close the window immediately when only one caller waits on an idle system (more PUTs).",
    )
    auto_create_topics: bool = _switch(
        True, "Producing to a missing topic creates it, if the API key may manage it."
    )
    take_over: bool = _switch(
        False,
        "Fence the appliance that uses this bucket and become its writer.",
        flag_only=True,
    )
    take_over_when_new: bool = _switch(
        False,
        "The first start with a data directory takes over like --take-over; later ones do not. "
        "For containers, whose data directory is lost with their machine.",
    )
    follow: bool = _switch(
        False, "Run as a standby of the appliance that writes to this bucket, until seb promote."
    )
    follow_poll_ms: int = _duration(
        1_000,
        "How long a standby waits between checks for a new entry.",
        (100, 60_000),
    )
    ack_timeout_ms: int = _duration(
        limits.ACK_TIMEOUT_MS_DEFAULT,
        "How long a producer waits for the bucket before the answer is 504 outcome_unknown; with "
        "linger = auto longer by linger_max, by default.",
        (100, limits.ACK_TIMEOUT_MS_MAX),
    )
    shutdown_grace_ms: int = _duration(
        20_000, "How long a shutdown may take to store and answer pending requests.", (0, 600_000)
    )
    max_record_bytes: int = _size(
        limits.RECORD_BYTES_DEFAULT,
        "Largest value of a record; a topic may override it, up to 16MiB.",
        (1, limits.RECORD_BYTES_MAX),
    )
    compression: Literal["none", "zstd"] = _text(
        "zstd",
        "Default compression of topics; zstd is applied only where it saves space.",
        choices=("none", "zstd"),
    )
    max_request_bytes: int = _size(
        limits.REQUEST_BYTES_MAX,
        "Largest request body, after decompression.",
        (1, limits.REQUEST_BYTES_MAX),
    )
    max_pending_bytes: int = _size(
        limits.PENDING_BYTES_DEFAULT,
        "Memory for writes that wait for the bucket, at least twice max_request_bytes. An API key "
        "may hold half. Writes beyond it get 429 share_exceeded or 503 overloaded.",
        (limits.MIB, 16 * _GIB),
    )
    max_reading_bytes: int = _size(
        limits.READ_BYTES_DEFAULT,
        "Memory for answers to readers. An API key may hold half.",
        (limits.FETCH_BYTES_MAX, 16 * _GIB),
    )
    cache_bytes: int = _size(
        _GIB,
        "Disk cache for records fetched from S3. A directory needs no cache.",
        (0, 1024 * _GIB),
    )
    tidier: bool = _switch(
        True, "Merge journal entries into segments, apply retention, remove deleted objects."
    )
    segment_bytes: int = _size(
        limits.SEGMENT_BYTES_DEFAULT,
        "Target size of a segment, and how much the tidier reads at once.",
        (limits.SEGMENT_SECTION_BYTES, limits.SEGMENT_BYTES_MAX),
    )
    tidy_bytes: int = _size(
        limits.TIDY_TRIGGER_BYTES_DEFAULT,
        "Merge journal entries when this many bytes of them wait.",
        (limits.KIB, limits.SEGMENT_BYTES_MAX),
    )
    tidy_after_ms: int = _duration(
        limits.TIDY_AFTER_MS_DEFAULT,
        "Merge at least 64 journal entries when the oldest reaches this age.",
        (0, 30 * 86_400_000),
    )
    tidy_young_ms: int = _duration(
        limits.TIDY_YOUNG_MS,
        "Do not merge entries younger than this: readers at the log end find them in memory.",
        (0, 86_400_000),
    )
    garbage_grace_ms: int = _duration(
        limits.GARBAGE_GRACE_MS_DEFAULT,
        "How long a segment stays in the bucket after its last record was removed.",
        (0, 30 * 86_400_000),
    )
    log_level: str = _text(
        "info", "Level of the log on stderr.", choices=("debug", "info", "warning", "error")
    )
    log_format: Literal["text", "json"] = _text(
        "text",
        "Log lines as text for people, or as JSON objects for programs.",
        choices=("text", "json"),
    )
    cors_origins: str | None = _text(
        None,
        "Origins of web pages that may use /v1 from a browser: https://a.example, separated by "
        "commas, or * for all.",
        default_words="none",
    )
    trusted_proxies: str | None = _text(
        None,
        "Proxies whose X-Forwarded-For header is trusted for log-ins and the audit: addresses "
        "and networks such as 127.0.0.1 or 10.0.0.0/8, separated by commas.",
        default_words="none",
    )
    durable_streams_open: bool = _switch(
        False,
        "Serve /v1/stream (Durable Streams) without API keys. Only on a loopback host.",
        flag_only=True,
    )
    metrics_public: bool = _switch(
        False, "Serve /metrics without an API key to other machines too."
    )
    otlp_endpoint: str | None = _text(
        None,
        "URL of an OpenTelemetry collector (OTLP over HTTP), such as "
        "http://127.0.0.1:4318/v1/traces, for traces of requests that have a traceparent. "
        "Needs the extra otel.",
        default_words="none",
    )
    syslog_listen: str | None = _text(
        None,
        "Address and port that receive syslog, such as 0.0.0.0:6514 (docs/INLETS.md).",
        default_words="none",
    )
    syslog_topic: str = _text("syslog", "Topic of the messages that arrive by syslog.")
    syslog_networks: str | None = _text(
        None,
        "Addresses and networks that may send syslog over TCP and UDP without TLS, such as "
        "10.0.0.0/8, separated by commas.",
        default_words="none",
    )
    syslog_tls_certificate: Path | None = _path(  # noqa: RUF009 - a field
        None,
        "PEM file with certificate and key: syslog is TLS over TCP then, and its senders need a "
        "client certificate.",
        default_words="none",
    )
    syslog_tls_client_ca: Path | None = _path(  # noqa: RUF009 - a field
        None, "PEM file with the authorities of these client certificates.", default_words="none"
    )
    mqtt_port: int | None = _number(
        None,
        "Port of MQTT 3.1.1 and 5 (docs/MQTT.md).",
        (0, 65_535),
        default_words="none",
    )
    mqtt_host: str | None = _text(
        None,
        "Addresses that `mqtt_port` listens on, separated by commas.",
        default_words="that of `host`",
    )
    mqtt_websocket: bool = _switch(
        False, "MQTT by WebSocket on the path /mqtt of the HTTP port, for browsers (docs/MQTT.md)."
    )
    mqtt_topic: str = _text(
        "mqtt", "Topic of the messages that arrive by MQTT; their MQTT topic is the record key."
    )
    mqtt_routes: str | None = _text(
        None,
        "Other topics for messages, as FILTER=TOPIC separated by commas: messages whose MQTT topic "
        "matches the filter are in this topic. With * as the topic each MQTT topic has its own: "
        "a/b is a.b (docs/MQTT.md).",
        default_words="none",
    )
    mqtt_tls_certificate: Path | None = _path(  # noqa: RUF009 - a field
        None, "PEM file with certificate and key: MQTT is TLS then.", default_words="none"
    )
    mqtt_tls_client_ca: Path | None = _path(  # noqa: RUF009 - a field
        None,
        "PEM file with authorities: MQTT clients need a certificate of theirs then, besides the "
        "API key.",
        default_words="none",
    )
    mqtt_proxy_protocol: Literal["off", "address", "certificate"] = _text(
        "off",
        "Connections of `mqtt_port` from trusted_proxies begin with a PROXY header. address: it "
        "names the client's address; certificate: its client certificate, too, whose common name "
        "is the id of the API key (docs/MQTT.md).",
        choices=("off", "address", "certificate"),
    )
    mqtt_certificate_header: str | None = _text(
        None,
        "Header in which trusted_proxies pass the subject of a client certificate to /mqtt, such "
        "as Client-Subject: its common name is the id of the API key (docs/MQTT.md).",
        default_words="none",
    )
    kafka_port: int | None = _number(
        None,
        "Port of the Kafka protocol (docs/KAFKA.md).",
        (0, 65_535),
        default_words="none",
    )
    kafka_host: str | None = _text(
        None,
        "Addresses that `kafka_port` listens on, separated by commas.",
        default_words="that of `host`",
    )
    kafka_advertise: str | None = _text(
        None,
        "Host and port that Kafka clients connect to, such as broker.example.org:9092. Needed "
        "where the port is not on loopback addresses alone.",
        default_words="the address of the port",
    )
    kafka_partitions: int = _number(
        1,
        "Partitions of a topic that a Kafka client makes by its first use.",
        (1, limits.KAFKA_PARTITIONS_MAX),
    )
    kafka_rebalance_delay_ms: int = _duration(
        limits.KAFKA_REBALANCE_DELAY_MS_DEFAULT,
        "How long a new consumer group of Kafka clients waits for more members after each one.",
        (0, limits.KAFKA_REBALANCE_DELAY_MS_MAX),
    )
    kafka_tls_certificate: Path | None = _path(  # noqa: RUF009 - a field
        None,
        "PEM file with certificate and key: the Kafka port is SASL_SSL then.",
        default_words="none",
    )
    kafka_tls_client_ca: Path | None = _path(  # noqa: RUF009 - a field
        None,
        "PEM file with authorities: Kafka clients need a certificate of theirs then, besides the "
        "API key.",
        default_words="none",
    )
    push_networks: str | None = _text(
        None,
        "Addresses and networks that subscriptions may send to although they are not public, such "
        "as 127.0.0.1 or 10.0.0.0/8, separated by commas (docs/PUSH.md).",
        default_words="none",
    )
    store_latency_ms: int = _duration(
        0,
        "Delay of each request to a directory or memory bucket, to simulate a remote store.",
        (0, limits.STORE_LATENCY_MS_MAX),
    )
    s3_endpoint: str | None = _text(
        None,
        "URL of the S3 server, for stores other than AWS.",
        default_words="AWS, or from the AWS configuration",
    )
    s3_region: str | None = _text(
        None,
        "Region of the bucket.",
        default_words="from the AWS configuration, else us-east-1",
    )
    s3_access_key_id: str | None = _text(
        None, "S3 access key ID.", default_words="from the AWS configuration"
    )
    s3_secret_access_key: str | None = _text(
        None,
        "S3 secret access key. It has no flag, because process lists show flags.",
        default_words="from the AWS configuration",
        secret=True,
    )
    s3_checksums: str = _text(
        "when_required",
        "when_supported: the store knows x-amz-checksum-crc32c, which takes less time than an MD5. "
        "It is always sent to AWS. Many other stores refuse it.",
        choices=("when_required", "when_supported"),
    )
    s3_immediate_list: bool = _switch(
        False,
        "The store's LIST shows a PUT immediately (Ceph, Backblaze B2), so that "
        "--take-over in fencing mode B need not wait 60s.",
    )
    s3_connect_timeout_ms: int = _duration(
        3_000, "Timeout for a connection to the S3 server.", (100, 60_000)
    )
    s3_read_timeout_ms: int = _duration(
        10_000,
        "Timeout for an answer of the S3 server.",
        (100, 300_000),
    )
    table_reader_key: str | None = _text(
        None,
        "ACCESS_KEY:SECRET that may only read tables/ in the bucket: the catalog hands it to "
        "everyone who may read a table (docs/TABLES.md). It has no flag.",
        default_words="none: readers have credentials of their own",
        secret=True,
    )
    secrets_key_file: Path | None = _path(  # noqa: RUF009 - a field
        None,
        "File with the keys that encrypt the secrets of inlets and subscriptions; the first key "
        "encrypts.",
        default_words="secrets.key in the data directory, created when it is needed",
    )
    url: str = _text(
        "http://127.0.0.1:51313",
        "URL of the appliance, for client commands.",
        client=True,
    )
    key_file: Path | None = _path(  # noqa: RUF009 - a field
        None,
        "File with the API key for client commands.",
        default_words="admin.key in the data directory, for an appliance on this machine",
        client=True,
    )
    profile: str | None = _text(
        None,
        "Profile with the URL and the API key of an appliance (docs/CLI.md).",
        default_words="the one chosen by `seb profiles use`",
        client=True,
    )
    fail: str = _text("", "Kill this process at a failpoint (crash tests).", variable_only=True)
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
    def proxies(self) -> tuple[Network, ...]:
        """`trusted_proxies`, one by one."""
        return networks(self.trusted_proxies)

    @property
    def syslog_senders(self) -> tuple[Network, ...]:
        """`syslog_networks`, one by one."""
        return networks(self.syslog_networks)

    @property
    def mqtt_hosts(self) -> list[str]:
        """`mqtt_host`, one by one."""
        return words(self.mqtt_host or self._as_host)

    @property
    def kafka_hosts(self) -> list[str]:
        """`kafka_host`, one by one."""
        return words(self.kafka_host or self._as_host)

    @property
    def _as_host(self) -> str:
        """Where other ports listen as HTTP does: a socket on :: takes IPv4, too, theirs do not."""
        return "::,0.0.0.0" if self.host == "::" else self.host

    @property
    def push_receivers(self) -> tuple[Network, ...]:
        """`push_networks`, one by one."""
        return networks(self.push_networks)

    @property
    def syslog_address(self) -> tuple[str, int]:
        """Host and port of `syslog_listen`. Raises ValueError."""
        return host_and_port(self.syslog_listen or "")

    @property
    def kafka_advertised(self) -> tuple[str, int] | None:
        """Host and port of `kafka_advertise`. Raises ValueError."""
        return None if self.kafka_advertise is None else host_and_port(self.kafka_advertise)

    @property
    def table_reader(self) -> tuple[str, str] | None:
        """Access key id and secret of `table_reader_key`. Raises ValueError."""
        if self.table_reader_key is None:
            return None
        access_key_id, _, secret = self.table_reader_key.partition(":")
        if not (access_key_id and secret):
            raise ValueError("it is not ACCESS_KEY:SECRET")
        return access_key_id, secret

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
