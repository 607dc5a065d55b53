"""Which producers are stalled, as told by when their requests come and are answered."""

from __future__ import annotations

from seb_appliance.protocols.kafka.stalling import INTERVAL_S, Stalling, Stored

IN_WINDOW = Stored(window_s=1.0, put_s=0.08)


class Producer:
    """A connection, on a clock of its own."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.stalling = Stalling(self.now_s)
        self.unanswered = 0

    def send(self, count: int = 1) -> None:
        for _ in range(count):
            self.stalling.took(self.now_s)
        self.unanswered += count

    def answer_all(self, stored: Stored | None = IN_WINDOW) -> None:
        for _ in range(self.unanswered):
            self.stalling.answered(self.now_s, "orders", stored)
        self.unanswered = 0

    def loop(self, in_flight: int, *, turns: int = 12, stored: Stored | None = IN_WINDOW) -> None:
        """Send as many as the client allows, and the next ones when they are answered."""
        for _ in range(turns):
            self.send(in_flight)
            self.now_s += 1.0
            self.answer_all(stored)
            self.now_s += 0.01

    def is_stalled(self) -> bool:
        return self.stalling.at(self.now_s) is not None


def test_a_client_that_always_has_as_many_requests_unanswered_as_it_may_is_stalled() -> None:
    for in_flight in (1, 5):
        producer = Producer()
        producer.loop(in_flight)
        found = producer.stalling.at(producer.now_s)
        assert found is not None
        assert (found.topic, found.in_flight, found.window_s) == ("orders", in_flight, 1.0)


def test_a_client_that_sends_at_its_own_rate_is_not_stalled() -> None:
    producer = Producer()
    for _ in range(20):
        for _ in range(5):
            producer.send()
            producer.now_s += 0.2
        producer.answer_all()
    assert not producer.is_stalled()


def test_a_client_that_pauses_between_its_requests_is_not_stalled() -> None:
    producer = Producer()
    for _ in range(20):
        producer.send()
        producer.now_s += 0.5
        producer.answer_all()
        producer.now_s += 0.5
    assert not producer.is_stalled()


def test_who_waits_for_the_bucket_longer_than_for_the_window_is_not_stalled() -> None:
    producer = Producer()
    producer.loop(5, stored=Stored(window_s=0.01, put_s=0.99))
    assert not producer.is_stalled()
    producer.loop(5, stored=None)  # all is refused
    assert not producer.is_stalled()


def test_a_stalled_producer_that_ends_or_gets_faster_is_not_stalled_any_more() -> None:
    producer = Producer()
    producer.loop(5)
    assert producer.is_stalled()
    producer.loop(5, turns=24, stored=Stored(window_s=0.01, put_s=0.08))
    assert not producer.is_stalled()
    producer.loop(5, turns=24)
    assert producer.is_stalled()
    producer.now_s += 2 * INTERVAL_S
    assert not producer.is_stalled()
