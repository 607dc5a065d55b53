"""What a change of a setting would do, in words and money."""

from __future__ import annotations

from pathlib import Path

import pytest

from seb_appliance.ops.cost import effects
from seb_appliance.ops.cost.effects import Situation
from seb_appliance.ops.cost.prices import PROVIDERS

AWS = PROVIDERS["aws"]


def test_a_longer_window_saves_puts_and_acknowledges_later() -> None:
    found = effects.linger(Situation(AWS, entries_per_s=10, entry_price=5e-6), 100, 1_000)
    assert found.monthly == pytest.approx(-10 * 2_592_000 * 0.9 * 5e-6)
    assert found.words == (
        "up to 10 times fewer PUTs, up to 116.64 USD a month less, acknowledgement up to 900ms "
        "later"
    )


def test_a_shorter_window_costs_no_more_than_windows_fit_into_a_month() -> None:
    found = effects.linger(Situation(AWS, entries_per_s=1, entry_price=5e-6), 1_000, 100)
    assert found.monthly == pytest.approx(9 * 2_592_000 * 5e-6)
    assert found.words.startswith("up to 10 times as many PUTs, up to 116.64 USD a month more")
    busy = effects.linger(Situation(AWS, entries_per_s=10, entry_price=5e-6), 1_000, 100)
    assert busy.monthly == 0


def test_where_puts_are_free_no_window_saves_money() -> None:
    found = effects.linger(Situation(PROVIDERS["hetzner"], entries_per_s=1), 1_000, 10_000)
    assert (found.monthly, "negligible cost" in found.words) == (0, True)


def test_no_more_is_saved_than_the_month_costs() -> None:
    now = Situation(AWS, entries_per_s=10, entry_price=5e-6, size_bytes=10**12, bill=3.5)
    found = (effects.linger(now, 100, 1_000), effects.retention(now, retention_ms=1))
    assert [one.monthly for one in found] == [-3.5, -3.5]
    assert all("up to 3.50 USD a month less" in one.words for one in found)


def test_a_shorter_retention_says_what_goes() -> None:
    now = Situation(AWS, size_bytes=100 * 2**30, bytes_per_s=2**30 / 86_400)
    found = effects.retention(now, retention_ms=7 * 86_400_000)
    assert found.words == "about 93GiB of its records are deleted, up to 2.30 USD a month less"
    longer = effects.retention(now, retention_ms=200 * 86_400_000)
    assert longer.words.startswith("it grows to about 200GiB, up to 2.47 USD a month more")
    assert effects.retention(now, retention_bytes=2**30).setting == "retention_bytes"
    assert effects.retention(now).words.startswith("nothing is deleted; each month adds 30GiB")


def test_compression_is_told_by_what_it_did_before() -> None:
    now = Situation(AWS, bytes_per_s=10_000_000, compressed_part=0.2)
    assert effects.compression(now, on=True).words.startswith("new records take about 0.2 times")
    assert (
        effects.compression(now, on=True).monthly < 0 < effects.compression(now, on=False).monthly
    )
    unknown = Situation(AWS, bytes_per_s=1.0)
    assert "about as many bytes" in effects.compression(unknown, on=True).words


def test_a_busy_month_counts_the_lists_of_fencing_mode_b() -> None:
    assert effects.always_busy(AWS, 1_000, lists=False) == (
        "at 1s windows, always busy: 2.6 M requests a month, 12.96 USD (AWS S3 Standard, us-east-1)"
    )
    both = effects.always_busy(PROVIDERS["hetzner"], 1_000, lists=True)
    assert "5.2 M requests a month, 0.00 EUR and a fee of 4.99 (Hetzner" in both


def test_the_docs_have_the_sum_for_a_queue() -> None:
    """Three requests a record at SQS FIFO, 0.50 USD a million; a PUT a second here."""
    text = (Path(__file__).parents[3] / "docs/COST.md").read_text(encoding="utf-8")
    records, per_second, request = 1_000_000, 100, 0.50 / 1_000_000
    puts, put = records // per_second, AWS.class_of("PUT").per_million / 1_000_000
    assert f"| {puts:,} PUTs | {puts * put:.2f} USD |" in text
    assert f"| {3 * records:,} | {3 * records * request:.2f} USD |" in text
    assert f"| {3 * records // 10:,} | {0.3 * records * request:.2f} USD |" in text
    assert f"below {put / (3 * request):.1f} records/s one by one" in text
    assert f"\n{put / (0.3 * request):.0f} records/s in batches" in text
    assert f"costs two PUTs here: {2 * put * 1_000_000:.0f} USD a" in text
