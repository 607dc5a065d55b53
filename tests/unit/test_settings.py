"""Settings: one table, three places to set them, and no way to set what does not exist."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest

from seb_appliance.addresses import BucketAddress
from seb_appliance.errors import ConfigurationError
from seb_appliance.ops.cost.prices import Money
from seb_appliance.ops.serve.ui_facts import setting_rows
from seb_appliance.setting_sources import load
from seb_appliance.settings import SETTINGS, Settings


def config_file(folder: Path, text: str) -> Path:
    path = folder / "seb.toml"
    path.write_text(text)
    return path


def test_every_setting_is_a_field_of_the_settings_and_the_other_way_round() -> None:
    names = [f.name for f in fields(Settings) if f.name != "sources"]
    assert names == [s.attribute for s in SETTINGS]


def test_every_default_lies_in_its_own_range() -> None:
    for setting in SETTINGS:
        if setting.range is not None and setting.default is not None:
            assert setting.range[0] <= setting.default <= setting.range[1], setting.name
        if setting.choices:
            assert setting.default in setting.choices


def test_without_anything_given_the_defaults_are_in_force() -> None:
    settings = load(environment={})
    assert settings.bucket == "file:./seb-data/bucket"
    assert settings.port == 51313
    assert settings.ack_timeout_ms == 30_000
    assert settings.auto_create_topics is True
    assert set(settings.sources.values()) == {"default"}


def test_a_flag_wins_over_a_variable_and_a_variable_over_the_file(tmp_path: Path) -> None:
    path = config_file(tmp_path, 'port = 1\nhost = "::1"\nlinger = "5ms"\n')
    settings = load(
        flags={"port": "3"}, environment={"SEB_PORT": "2", "SEB_HOST": "::2"}, config=path
    )
    assert (settings.port, settings.host, settings.linger_ms) == (3, "::2", 5)
    assert settings.sources["port"] == "--port"
    assert settings.sources["host"] == "SEB_HOST"
    assert settings.sources["linger"] == str(path)


def test_the_settings_file_can_be_named_by_a_variable(tmp_path: Path) -> None:
    path = config_file(tmp_path, "early_flush = true\n")
    assert load(environment={"SEB_CONFIG": str(path)}).early_flush is True


def test_durations_and_sizes_are_read_with_their_units() -> None:
    settings = load(environment={"SEB_ACK_TIMEOUT": "2m", "SEB_MAX_RECORD_BYTES": "64KiB"})
    assert settings.ack_timeout_ms == 120_000
    assert settings.max_record_bytes == 65_536


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("SEB_PORT", "65536"),
        ("SEB_PORT", "-1"),
        ("SEB_PORT", "8O80"),
        ("SEB_PORT", "٣"),
        ("SEB_PORT", ""),
        ("SEB_ACK_TIMEOUT", "99ms"),
        ("SEB_LINGER", "10"),
        ("SEB_LINGER", "10 parsecs"),
        ("SEB_LINGER", "2m"),
        ("SEB_CACHE_BYTES", "1GB"),
        ("SEB_CACHE_BYTES", "9" * 40),
        ("SEB_EARLY_FLUSH", "perhaps"),
        ("SEB_COMPRESSION", "gzip"),
        ("SEB_LOG_LEVEL", "loud"),
        ("SEB_BUCKET", "orders"),
        ("SEB_BUCKET", "s3:orders"),
        ("SEB_BUCKET", "s3://"),
        ("SEB_BUCKET", "file:"),
        ("SEB_BUCKET", "memory:x"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(variable: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(environment={variable: text})
    assert variable.removeprefix("SEB_").lower() in caught.value.detail


def test_an_unknown_variable_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigurationError, match=r"SEB_LINGR.*SEB_LINGER"):
        load(environment={"SEB_LINGR": "1s"})


def test_an_unknown_name_in_the_file_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"'prot'.*port"):
        load(environment={}, config=config_file(tmp_path, "prot = 1"))


@pytest.mark.parametrize(
    "text",
    [
        "port = '", "port = true", "early_flush = 1", "port = 1.5", "host = 5", "[port]",
        "port = " + "9" * 5_000,
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_a_file_with_the_wrong_types_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError):
        load(environment={}, config=config_file(tmp_path, text))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        load(environment={}, config=tmp_path / "none.toml")


def test_taking_over_is_never_a_standing_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="SEB_TAKE_OVER"):
        load(environment={"SEB_TAKE_OVER": "true"})
    with pytest.raises(ConfigurationError, match="take_over"):
        load(environment={}, config=config_file(tmp_path, "take_over = true"))
    assert load(environment={}, flags={"take_over": True}).take_over is True


def test_a_failpoint_cannot_be_set_in_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="fail"):
        load(environment={}, config=config_file(tmp_path, 'fail = "K1:kill"'))


def test_a_secret_is_shown_nowhere() -> None:
    settings = load(environment={"SEB_S3_SECRET_ACCESS_KEY": "hush"})
    assert settings.s3_secret_access_key == "hush"
    assert "hush" not in repr(settings)
    setting = next(s for s in SETTINGS if s.name == "s3_secret_access_key")
    assert "hush" not in setting.words("hush")
    with pytest.raises(ConfigurationError) as caught:
        load(environment={"SEB_S3_SECRET_ACCESS_KEY": "hu\0sh"})
    assert "hu" not in caught.value.detail


@pytest.mark.parametrize(
    ("bucket", "data"), [("file:./a", "./a/b"), ("file:./a/b", "./a"), ("file:a", "./x/../a")]
)
def test_the_bucket_and_the_data_directory_lie_side_by_side(bucket: str, data: str) -> None:
    with pytest.raises(ConfigurationError, match="neither may be inside the other"):
        load(environment={"SEB_BUCKET": bucket, "SEB_DATA": data})


def test_a_request_must_be_able_to_wait() -> None:
    with pytest.raises(ConfigurationError, match="max_request_bytes"):
        load(environment={"SEB_MAX_PENDING_BYTES": "8MiB"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("file:./x", BucketAddress("file", path=Path("x"))),
        ("file:/x/y", BucketAddress("file", path=Path("/x/y"))),
        ("file:///x/y", BucketAddress("file", path=Path("/x/y"))),
        ("s3://orders", BucketAddress("s3", name="orders")),
        ("s3://orders/a/b/", BucketAddress("s3", name="orders", prefix="a/b")),
        ("memory:", BucketAddress("memory")),
        ("memory:64MiB", BucketAddress("memory", ready_bytes=64 * 2**20)),
    ],
)
def test_a_bucket_is_a_directory_an_s3_bucket_or_memory(text: str, expected: BucketAddress) -> None:
    assert BucketAddress.parse(text) == expected


@pytest.mark.parametrize(
    ("bucket", "linger_ms"), [("file:./b", 10), ("memory:", 10), ("s3://b", 1_000)]
)
def test_the_window_lingers_longer_where_a_put_costs(bucket: str, linger_ms: int) -> None:
    assert load(environment={"SEB_BUCKET": bucket}).window_linger_ms == linger_ms
    given = load(environment={"SEB_BUCKET": bucket, "SEB_LINGER": "0"})
    assert given.window_linger_ms == 0


def test_linger_may_be_auto_without_a_budget() -> None:
    assert load(flags={"linger": "auto"}, environment={}).linger_max_ms == 28_000


@pytest.mark.parametrize(
    ("flags", "longest_ms", "wait_ms"),
    [
        ({}, 28_000, 58_000),
        ({"linger_max": "30s"}, 30_000, 60_000),
        ({"linger_max": "10s"}, 10_000, 40_000),
        ({"ack_timeout": "1m"}, 28_000, 60_000),
        ({"ack_timeout": "30s"}, 15_000, 30_000),
        ({"ack_timeout": "10s"}, 5_000, 10_000),
        ({"linger_max": "30s", "ack_timeout": "1m"}, 30_000, 60_000),
    ],
)
def test_the_longest_linger_and_the_timeout_fit_each_other(
    flags: dict[str, str], longest_ms: int, wait_ms: int
) -> None:
    found = load(flags={"linger": "auto", **flags}, environment={})
    assert (found.linger_max_ms, found.ack_timeout_ms) == (longest_ms, wait_ms)


@pytest.mark.parametrize("linger", [{}, {"linger": "10s"}])
def test_a_fixed_linger_changes_no_timeout(linger: dict[str, str]) -> None:
    assert load(flags=linger, environment={}).ack_timeout_ms == 30_000


@pytest.mark.parametrize(("flags", "shown"), [({}, "10ms"), ({"linger": "auto"}, "auto")])
def test_the_settings_page_shows_the_linger_that_holds(flags: dict[str, str], shown: str) -> None:
    appliance = SimpleNamespace(settings=load(flags=flags, environment={}))
    (row,) = [one for one in setting_rows(appliance) if one.name == "linger"]  # type: ignore[arg-type]
    assert row.value == shown


def test_linger_may_be_auto_and_says_how_far_it_goes() -> None:
    budget = {"monthly_budget": "5 USD", "prices": "aws"}
    settings = load(flags={"linger": "auto", **budget}, environment={})
    assert settings.linger_ms == "auto"
    assert (settings.window_linger_ms, settings.linger_max_ms) == (10, 28_000)
    on_s3 = load(flags={"bucket": "s3://b", "linger": "auto", **budget}, environment={})
    assert on_s3.window_linger_ms == 1_000
    assert on_s3.budget == Money(5.0, "USD")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"monthly_budget": "5"}, "monthly_budget: '5' is not an amount and a currency"),
        (
            {"monthly_budget": "5 EUR", "prices": "aws"},
            "monthly_budget is in EUR, and the prices (AWS S3 Standard, us-east-1) are in USD",
        ),
        ({"prices": "own"}, "prices = own and own_prices go together"),
        ({"own_prices": "EUR put=5"}, "prices = own and own_prices go together"),
        ({"prices": "own", "own_prices": "EUR put=x"}, "own_prices: 'put=x' is not"),
        (
            {"linger": "auto", "linger_max": "10s", "ack_timeout": "10s"},
            "linger_max (10s) must be at least the default linger (10ms) and at most half",
        ),
    ],
)
def test_money_that_makes_no_sense_is_told(flags: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        load(flags=flags, environment={})


def test_prices_go_by_the_buckets_address_unless_they_are_named() -> None:
    def prices(**flags: str) -> str:
        return load(flags=flags, environment={}).price_list.name

    hetzner = {"bucket": "s3://b", "s3_endpoint": "https://fsn1.your-objectstorage.com"}
    assert prices(**hetzner) == "Hetzner Object Storage"
    assert prices(**hetzner, prices="r2") == "Cloudflare R2 Standard"
    assert prices(bucket="s3://b") == "AWS S3 Standard, us-east-1"
    assert prices() == "nothing is billed"
    assert prices(prices="own", own_prices="EUR put=5") == "own prices"
