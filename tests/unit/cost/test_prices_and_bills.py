"""What usage costs, and how prices are read."""

from __future__ import annotations

import pytest

from seb_appliance.ops.cost.bill import bill
from seb_appliance.ops.cost.ledger import Month, Totals
from seb_appliance.ops.cost.prices import KINDS, PROVIDERS, Money, own_prices, provider_at

NOVEMBER = Month.of(1_793_491_200_000_000)
GB_MONTH = 1e9 * NOVEMBER.seconds


def test_a_month_is_the_calendars() -> None:
    assert Month("2026-11", 1_793_491_200_000_000, 1_796_083_200_000_000) == NOVEMBER
    assert NOVEMBER.seconds == 30 * 86_400
    assert Month.of(NOVEMBER.end_us - 1) == NOVEMBER
    assert Month.of(NOVEMBER.end_us).name == "2026-12"
    assert Month.of(Month.of(NOVEMBER.end_us).end_us).name == "2027-01"


@pytest.mark.parametrize("prices", PROVIDERS.values(), ids=PROVIDERS)
def test_each_kind_of_request_has_one_price(prices) -> None:
    for kind in KINDS:
        assert sum(kind in found.kinds for found in prices.classes) == 1


def test_requests_are_billed_by_class_and_split_by_purpose() -> None:
    used = Totals({"journal PUT": 2_000_000, "tidier PUT": 500_000, "read GET": 1_000_000})
    found = bill(PROVIDERS["aws"], used, NOVEMBER)
    assert found.requests_amount == pytest.approx(12.5 + 0.4)
    assert found.by_purpose == pytest.approx({"journal": 10.0, "tidier": 2.5, "read": 0.4})
    assert found.total == pytest.approx(12.9)


def test_what_is_included_costs_nothing() -> None:
    used = Totals({"journal PUT": 900_000, "tidier LIST": 300_000}, byte_seconds=12 * GB_MONTH)
    found = bill(PROVIDERS["r2"], used, NOVEMBER)
    assert found.requests_amount == pytest.approx(0.2 * 4.5)
    assert found.by_purpose == pytest.approx({"journal": 0.9 * 0.75, "tidier": 0.9 * 0.25})
    assert found.storage.amount == pytest.approx(2 * 0.015)


def test_a_flat_fee_covers_what_it_includes() -> None:
    used = Totals(
        {"journal PUT": 9_000_000}, received_bytes=int(500e9), byte_seconds=900 * GB_MONTH
    )
    assert bill(PROVIDERS["hetzner"], used, NOVEMBER).total == pytest.approx(4.99)
    more = Totals(byte_seconds=1_100 * GB_MONTH, received_bytes=int(1_200e9))
    total = bill(PROVIDERS["hetzner"], more, NOVEMBER).total
    assert total == pytest.approx(4.99 + 100 * 0.00499 + 200 * 0.001)


def test_egress_may_be_free_up_to_a_multiple_of_what_is_stored() -> None:
    used = Totals(byte_seconds=100 * GB_MONTH, received_bytes=int(400e9))
    found = bill(PROVIDERS["b2"], used, NOVEMBER)
    assert found.egress.included == pytest.approx(300)
    assert found.egress.amount == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("endpoint", "provider"),
    [
        (None, "aws"),
        ("https://s3.eu-central-1.amazonaws.com", "aws"),
        ("https://fsn1.your-objectstorage.com", "hetzner"),
        ("https://abc.r2.cloudflarestorage.com/x", "r2"),
        ("https://s3.eu-central-003.backblazeb2.com:443", "b2"),
        ("http://127.0.0.1:9000", "none"),
        ("https://notamazonaws.com", "none"),
    ],
)
def test_the_address_tells_the_provider(endpoint: str | None, provider: str) -> None:
    assert provider_at(is_s3=True, endpoint=endpoint) == provider
    assert provider_at(is_s3=False, endpoint=endpoint) == "none"


def test_own_prices_are_what_is_named_and_else_nothing() -> None:
    prices = own_prices("EUR put=5 get=0.4 storage=0.02 included_storage=10 fee=1.5")
    used = Totals(
        {"journal PUT": 1_000_000, "read GET": 1_000_000, "tidier LIST": 9_000_000},
        received_bytes=int(1e12),
        byte_seconds=20 * GB_MONTH,
    )
    assert prices.currency == "EUR"
    assert bill(prices, used, NOVEMBER).total == pytest.approx(5 + 0.4 + 0.2 + 1.5)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "currency"),
        ("put=5", "currency"),
        ("eur put=5", "currency"),
        ("EUR puts=5", "'puts=5' is none of put, list,"),
        ("EUR put", "'put' is not a name"),
        ("EUR put=-5", "'put=-5' is not a name"),
        ("EUR put=1e9", "'put=1e9' is not a name"),
    ],
)
def test_own_prices_that_make_no_sense_are_told(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        own_prices(text)


def test_money_is_an_amount_and_a_currency() -> None:
    assert Money.parse("5 EUR") == Money.parse("5EUR") == Money(5.0, "EUR")
    assert Money.parse("0.50 USD").amount == 0.5
    for text in ("5", "EUR 5", "5 eur", "-5 EUR", "5,00 EUR", "5 EURO", "nan EUR"):
        with pytest.raises(ValueError, match="is not an amount and a currency"):
            Money.parse(text)
