"""`seb apply` with queues and subscriptions."""

from __future__ import annotations

from tests.cli.conftest import Seb
from tests.cli.test_apply import changes, write

QUEUE = """
queues:
  work:
    topics: [orders.*, mails]
    ordering: key
    lease: 1m
    retry_max: 10m
    dead_letter: work.dead
"""


def test_a_queue_is_made_changed_and_pruned(seb: Seb) -> None:
    path = write(seb, QUEUE)
    assert "+ queue work" in seb.good("apply", path).out
    assert changes(seb, path) == []
    changed = write(seb, QUEUE.replace("lease: 1m", "max_deliveries: 9"))
    told = seb.good("apply", changed).out
    assert "~ queue work" in told
    assert "lease 1m -> " in told
    settings = seb.good("queues", "show", "work", "--json").json["settings"]
    assert (settings["lease_ms"], settings["max_deliveries"]) == (30_000, 9)
    assert settings["retry"]["max_ms"] == 600_000
    assert changes(seb, write(seb, seb.good("apply", "--export").out)) == []
    for text, words in (
        ("{}", "topics is missing"),
        ("{topics: }", "topics is missing"),
        ("{topics: [a], lease: soon}", "'soon'"),
        ("{topics: [a], ordering: all}", "'all' is none of none key"),
        ("{topics: [a], retry: 1s}", "unknown name"),
    ):
        assert words in seb.refused("apply", write(seb, f"queues: {{a: {text}}}"), code=78)
    empty = write(seb, "queues: {}")
    assert "- queue work" in seb.good("apply", empty, "--prune", "--yes").out


def test_the_queue_of_a_subscription_is_not_pruned(seb: Seb) -> None:
    seb.good("subscriptions", "set", "push", "--topic", "t", "--to", "http://127.0.0.1:9/")
    kept = "queues: {}\nsubscriptions: {push: {topics: [t], url: 'http://127.0.0.1:9/'}}\n"
    assert changes(seb, write(seb, kept), "--prune") == []
    seb.good("apply", write(seb, "queues: {}\nsubscriptions: {}\n"), "--prune", "--yes")
    assert seb.good("queues").out == "no queues\n"


def test_what_was_made_for_something_in_the_file_stays_with_it(seb: Seb) -> None:
    """Dead letters, Kafka's partitions, and what MQTT keeps."""
    kept = ("orders.eu.kafka-1", "work.dead", "mqtt-sessions", "mqtt-retained")
    for topic in ("orders.eu", "other.kafka-1", *kept):
        seb.good("topics", "create", topic)
    path = write(seb, QUEUE + "topics: {orders.eu: {}, mqtt: {}}\n")
    told = seb.good("apply", path, "--prune", "--yes").out
    assert [line for line in told.splitlines() if line.startswith("- topic")] == [
        "- topic other.kafka-1"
    ]
    seb.good("apply", write(seb, "queues: {}\ntopics: {}\n"), "--prune", "--yes")
    assert seb.good("topics").out == "no topics\n"


def test_offsets_of_sessions_and_subscriptions_are_not_pruned(seb: Seb) -> None:
    seb.good("topics", "create", "t")
    for group in ("mqtt.7ckd4wpx.meter", "mqtt-share.7ckd4wpx._x0", "ds.bots", "lake"):
        seb.good("groups", "commit", group, "t=0")
    told = seb.good("apply", write(seb, "groups: {}\n"), "--prune", "--yes").out
    assert [line for line in told.splitlines() if line.startswith("- ")] == ["- group lake"]


SUBSCRIPTION = """
subscriptions:
  mails:
    url: https://shop.example/hooks
    topics: [orders.*, mails]
    body: records
    batch: 100
    timeout: 15s
    secret_file: {secret}
"""


def test_a_subscription_is_made_changed_and_pruned(seb: Seb) -> None:
    secret = seb.folder / "mails.secret"
    path = write(seb, SUBSCRIPTION.format(secret=secret))
    assert str(secret) in seb.refused("apply", path, code=78)
    secret.write_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
    assert "+ subscription mails" in seb.good("apply", path).out
    assert changes(seb, path) == []
    secret.unlink()
    changed = write(seb, SUBSCRIPTION.format(secret=secret).replace("batch: 100", "batch: 50"))
    assert "~ subscription mails  batch 100 -> 50" in seb.good("apply", changed).out
    shown = seb.good("subscriptions", "show", "mails", "--json").json
    assert (shown["secrets"], shown["settings"]["batch"]) == (1, 50)
    exported = seb.good("apply", "--export").out
    assert changes(seb, write(seb, exported)) == []
    for text, words in (("topics: [a]", "url is missing"), ("url: x", "topics is missing")):
        told = seb.refused("apply", write(seb, f"subscriptions: {{a: {{{text}}}}}"), code=78)
        assert words in told
    empty = write(seb, "subscriptions: {}")
    assert "- subscription mails" in seb.good("apply", empty, "--prune", "--yes").out
