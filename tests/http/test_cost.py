"""`GET /v1/cost`, and the cost in `/v1/status` and `/metrics`."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from seb_appliance.ops.cost.prices import PROVIDERS

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def at_aws_prices(seb, monkeypatch):
    monkeypatch.setattr(seb.appliance.cost, "prices", PROVIDERS["aws"])


async def cost(seb) -> dict:
    answer = await seb.client.get("/v1/cost")
    assert answer.status_code == 200
    return answer.json()


@pytest.mark.usefixtures("at_aws_prices")
async def test_an_append_is_a_put_of_its_topic(seb):
    before = await cost(seb)
    for _ in range(3):
        await seb.client.post("/v1/topics/billed/records", content=b"one")
    after = await cost(seb)
    puts = [
        {row["purpose"]: row["requests"] for row in found["purposes"]}["journal"]["PUT"]
        for found in (before, after)
    ]
    assert puts[1] - puts[0] == 3
    (billed,) = [row for row in after["topics"] if row["topic"] == "billed"]
    assert billed["entries"] == 3
    assert after["this_month"] == pytest.approx(sum(row["amount"] for row in after["lines"]))
    assert after["this_month"] - before["this_month"] == pytest.approx(3 * 5e-6, rel=0.2)
    assert after["stored_bytes"] > before["stored_bytes"]
    assert after["forecast"] >= after["this_month"]
    assert after["budget"] == {"monthly": None, "linger_ms": 1, "linger_why": ""}
    assert after["currency"] == "USD"


async def test_reads_snapshots_and_starts_are_told_apart(seb):
    await seb.client.put("/v1/topics/told")
    await seb.appliance.snapshots.publish_last()
    purposes = {row["purpose"]: row["requests"] for row in (await cost(seb))["purposes"]}
    assert purposes["start"]["PUT"] >= 1
    assert purposes["snapshot"]["PUT"] == purposes["snapshot"]["GET"] == 1
    assert purposes["journal"].keys() >= {"PUT"}


async def test_a_deleted_topic_is_among_the_others(seb):
    await seb.client.post("/v1/topics/gone/records", content=b"one")
    await seb.client.delete("/v1/topics/gone")
    topics = (await cost(seb))["topics"]
    assert "gone" not in {row["topic"] for row in topics}
    assert topics[-1]["topic"] is None
    assert topics[-1]["entries"] >= 1


async def test_the_status_has_a_line_of_it(seb):
    found, whole = (await seb.client.get("/v1/status")).json()["cost"], await cost(seb)
    assert found["currency"] == whole["currency"] == "EUR"
    assert found["this_month"] == found["forecast"] == 0
    assert (found["budget"], found["linger_ms"], found["failure"]) == (None, 1, "")


async def test_it_is_for_admin_keys_only(seb):
    grants = [{"operation": operation} for operation in ("produce", "consume", "manage")]
    made = await seb.client.post("/v1/api-keys", json={"name": "busy", "grants": grants})
    async with seb.client_with(made.json()["secret"]) as client:
        assert (await client.get("/v1/cost")).status_code == 403
    answer = await seb.client.get("/v1/cost?month=2026-10")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_parameter")


@pytest.mark.usefixtures("at_aws_prices")
async def test_all_metrics_are_read_by_a_parser_of_prometheus(seb):
    await seb.client.post("/v1/topics/metered/records", content=b"one")
    await seb.client.get("/v1/topics/metered/records?from=earliest")
    await seb.client.put("/v1/groups/meter/offsets", json={"offsets": {"metered": 0}})
    seb.appliance.cost.tick()  # what it does each minute
    text = (await seb.client.get("/metrics?names=true")).text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert all(family.documentation for family in families.values())
    latency = families["seb_store_request_seconds"]
    assert latency.type == "histogram"
    whole = {
        sample.labels["kind"]: sample.value
        for sample in latency.samples
        if sample.name.endswith("_count")
    }
    asked = families["seb_store_requests"].samples
    assert whole["PUT"] == sum(found.value for found in asked if found.labels["kind"] == "PUT")
    (lag,) = families["seb_group_lag_records"].samples
    assert (lag.labels, lag.value) == ({"group": "meter", "topic": "metered"}, 1)
    assert families["seb_fast_lane_requests"].samples[0].value >= 1
    assert families["seb_application_requests"].samples[0].value >= 1
    (month,) = families["seb_cost_month"].samples
    assert month.labels == {"currency": "USD"}
    assert month.value > 0
    assert len(text.splitlines()) < 700
