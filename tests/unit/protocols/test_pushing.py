"""Where requests of subscriptions may go, how long they take, and when a receiver is left alone."""

from __future__ import annotations

import asyncio
import email.utils
import ipaddress
import ssl
import subprocess
import threading
from types import SimpleNamespace

import msgspec
import pytest

from seb_appliance import limits
from seb_appliance.broker.log_clock import LogClock
from seb_appliance.broker.shares import Shares
from seb_appliance.protocols.durable_streams.delivering import is_done
from seb_appliance.protocols.subscriptions import limits as push_limits
from seb_appliance.protocols.subscriptions.addresses import Target, is_permitted
from seb_appliance.protocols.subscriptions.delivering import Sent, Worker, retry_after_s
from seb_appliance.protocols.subscriptions.sending import DeliveryError, Sender
from seb_appliance.protocols.subscriptions.subscriptions import StoredSubscription, Subscription
from tests.support.fakes import START_US, FakeClock, settle
from tests.support.receiver import receiving

LOCAL = (ipaddress.ip_network("127.0.0.0/8"),)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1",
        "169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "192.88.99.1",
        "198.18.0.1",
        "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
        "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1",
        "ff02::1",
        "2001:db8::1", "3fff::1", "5f00::1", "2001::1", "::1.1.1.1",
        "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1",
        "64:ff9b::10.0.0.1", "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::1",
        "2001:0:4136:e378:8000:63bf:f5ff:fffe", "localhost", "",
    ],
)  # fmt: skip
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert not is_permitted(address, ())


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
)
def test_a_public_address_is_permitted(address: str) -> None:
    assert is_permitted(address, ())


def test_the_operator_permits_networks_and_nothing_beside_them() -> None:
    networks = tuple(map(ipaddress.ip_network, ("10.20.0.0/16", "fd00:1::/32")))
    for address in ("10.20.3.4", "::ffff:10.20.3.4", "fd00:1::9"):
        assert is_permitted(address, networks)
    for address in ("10.21.0.1", "::ffff:10.21.0.1", "fd00:2::9", "127.0.0.1"):
        assert not is_permitted(address, networks)


class Names:
    """A resolver that answers what a test says, in turn; the last answer for ever."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    def __call__(self, host: str, port: int) -> list[str]:
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


async def post(sender: Sender, url: str, timeout_s: float = 10.0) -> int:
    head = b"Content-Type: text/plain\r\n"
    return (await sender.post(Target.of(url), head, b"x", timeout_s)).status


async def test_a_name_that_means_another_address_a_moment_later_leads_nowhere() -> None:
    async with receiving() as receiver:
        names = Names(["127.0.0.1"], ["10.0.0.1"], ["169.254.169.254", "::1"])
        sender = Sender(LOCAL, resolve=names)
        url = f"http://rebinding.test:{receiver.port}/"
        assert await post(sender, url) == 204
        assert names.asked == 1  # what was checked is what was connected to
        for _ in range(2):
            with pytest.raises(DeliveryError, match="neither public nor in push_networks"):
                await post(sender, url)
        assert [one.headers["host"] for one in receiver.got] == [f"rebinding.test:{receiver.port}"]
        sender.close()


async def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    async with receiving() as receiver:
        sender = Sender(LOCAL, resolve=Names(["10.0.0.1", "127.0.0.2", "127.0.0.1"]))
        assert await post(sender, f"http://many.test:{receiver.port}/") == 204
        sender.close()


async def test_only_some_addresses_of_a_name_are_tried() -> None:
    async with receiving() as receiver:
        others = [f"127.0.0.{i + 2}" for i in range(push_limits.ADDRESSES_MAX)]
        sender = Sender(LOCAL, resolve=Names([*others, "127.0.0.1"]))
        with pytest.raises(DeliveryError):
            await post(sender, f"http://many.test:{receiver.port}/")
        sender.close()


async def test_a_resolver_that_hangs_is_asked_once_for_a_name() -> None:
    answers, asked = threading.Event(), list[str]()

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        if host == "hangs.test":
            answers.wait(20)
        return ["127.0.0.1"]

    async with receiving() as receiver:
        sender = Sender(LOCAL, resolve=resolve)
        hanging = [
            asyncio.create_task(post(sender, f"http://hangs.test:{receiver.port}/"))
            for _ in range(2 * limits.PUSH_LOOKUPS_MAX)
        ]
        assert await post(sender, f"http://quick.test:{receiver.port}/") == 204
        with pytest.raises(DeliveryError, match="no answer within"):
            await post(sender, f"http://hangs.test:{receiver.port}/", 0.01)
        answers.set()
        assert await asyncio.gather(*hanging) == [204] * len(hanging)
        assert sorted(asked) == ["hangs.test", "quick.test"]
        sender.close()


async def test_names_of_one_owner_whose_resolver_hangs_hold_up_nobody_else() -> None:
    answers = threading.Event()

    def resolve(host: str, port: int) -> list[str]:
        if host != "good.test":
            answers.wait(20)
        return ["127.0.0.1"]

    async with receiving() as receiver:
        lookups = Shares("push_lookups", limits.PUSH_LOOKUPS_MAX, "names")
        sender = Sender(LOCAL, lookups, resolve=resolve)

        async def send(name: str, owner: str) -> int:
            target = Target.of(f"http://{name}.test:{receiver.port}/")
            return (await sender.post(target, b"", b"x", 10.0, owner=owner)).status

        hanging = [
            asyncio.create_task(send(f"slow{i}", "hostile"))
            for i in range(2 * limits.PUSH_LOOKUPS_MAX)
        ]
        await settle()
        assert await send("good", "good") == 204
        answers.set()
        assert await asyncio.gather(*hanging) == [204] * len(hanging)
        assert lookups.used == 0
        sender.close()


async def test_a_name_that_does_not_exist_is_told() -> None:
    def resolve(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    sender = Sender((), resolve=resolve)
    with pytest.raises(DeliveryError, match=r"absent\.test cannot be resolved"):
        await post(sender, "http://absent.test/")
    sender.close()


async def test_a_receiver_without_an_answer_costs_no_more_than_the_timeout() -> None:
    async with receiving() as receiver:
        receiver.usual = None
        sender = Sender(LOCAL)
        with pytest.raises(DeliveryError, match=r"no answer within 0\.05 s"):
            await post(sender, receiver.url, 0.05)
        receiver.answers.append(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nslo")
        assert await post(sender, receiver.url) == 200  # its body does not matter
        sender.close()


async def test_an_answer_without_an_end_is_not_read_to_it() -> None:
    async with receiving() as receiver:
        sender = Sender(LOCAL)
        chunk = b"4000\r\n" + b"a" * 0x4000 + b"\r\n"
        receiver.answers.append(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + 64 * chunk
        )
        answered = await sender.post(Target.of(receiver.url), b"", b"x", 10.0)
        assert answered.status == 200
        bytes_max = push_limits.ANSWER_HEAD_BYTES_MAX + push_limits.ANSWER_BODY_BYTES_MAX
        assert len(answered.body) <= bytes_max + 4 * limits.KIB
        sender.close()


async def test_tls_verifies_the_name_of_the_url(tmp_path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
               "-subj", "/CN=shop.test", "-addext", "subjectAltName=DNS:shop.test",
               "-keyout", "key", "-out", "cert"]  # fmt: skip
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    ours = ssl.create_default_context(cafile=str(tmp_path / "cert"))
    async with receiving(theirs) as receiver:
        sender = Sender(LOCAL, resolve=Names(["127.0.0.1"]), tls=lambda: ours)
        assert await post(sender, f"https://shop.test:{receiver.port}/") == 204
        with pytest.raises(DeliveryError, match="certificate is not valid"):
            await post(sender, f"https://other.test:{receiver.port}/")
        sender.close()
        assert len(receiver.got) == 1


def test_a_receiver_may_ask_for_an_hour_at_most() -> None:
    now_s = START_US // 1_000_000
    for said, expected in (
        ("0", 0.0),
        ("120", 120.0),
        ("99999999999999999999", push_limits.RETRY_AFTER_S_MAX),
        (email.utils.formatdate(now_s + 60, usegmt=True), 60.0),
        (email.utils.formatdate(now_s - 60, usegmt=True), 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", push_limits.RETRY_AFTER_S_MAX),
        ("", None), ("soon", None), ("-1", None), ("1.5", None), ("²", None),
        ("Fri, 99 Dec 9999 23:59:59 GMT", None),
    ):  # fmt: skip
        assert retry_after_s({"retry-after": said}, START_US) == expected, said
    assert retry_after_s({}, START_US) is None


def worker(clock: FakeClock, calls: list[tuple[str, object]], **settings: object) -> Worker:
    url = "https://shop.example/"
    stored = StoredSubscription(url=url, secrets=(), **settings)  # type: ignore[arg-type]

    async def disable(name: str, why: str) -> None:
        calls.append(("disabled", why))

    async def note(name: str, since_us: int) -> None:
        calls.append(("noted", since_us))

    broker = SimpleNamespace(clock=clock, log_clock=LogClock(clock, lambda: 0))
    room = Shares("pushes", 10, "requests")
    tools = SimpleNamespace(broker=broker, disable=disable, note_failing=note, on_its_way=room)
    return Worker(Subscription("mails", stored, Target.of(url), 0), tools)  # type: ignore[arg-type]


def test_the_pauses_grow_while_a_receiver_fails() -> None:
    clock = FakeClock()
    failing, pauses = worker(clock, [], concurrency=2), []
    for _ in range(10):
        failing._fails()
        pauses.append(failing._rests_until_s - clock.now_s)
        clock.now_s = max(clock.now_s, failing._rests_until_s)
    assert pauses[2:] == [4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0, 60.0]
    assert max(pauses[:2]) <= 0  # it may be the record


async def test_while_a_receiver_fails_one_request_at_a_time_finds_out_whether_it_works() -> None:
    acked: list[object] = []

    async def ack(*given: object) -> None:
        acked.append(given)

    clock = FakeClock()
    probing = worker(clock, [], concurrency=3)
    probing._tools.broker.queues = SimpleNamespace(ack=ack, token=None)  # type: ignore[assignment]
    probing._sending.add(None)  # type: ignore[arg-type]
    probing._fails()
    waiting = asyncio.create_task(probing._wait_for_room())
    await settle()
    assert not waiting.done()
    delivered = Sent(0, "msg", "t", 0, 0, 1, 1, 204, 1, "delivered", "")
    await probing._end(probing.subscription, [], (delivered, None))
    probing._moved.set()
    await waiting
    assert acked


def failed(clock: FakeClock) -> Sent:
    return Sent(clock.wall_us(), "msg", "t", 0, 1, 1, 1, 500, 1, "failed", "down")


async def test_a_subscription_that_only_fails_is_disabled_after_days() -> None:
    clock, calls = FakeClock(), list[tuple[str, object]]()
    failing = worker(clock, calls, disable_after_ms=2 * 86_400_000)
    failing._fails()
    since_us = failing.failing_since_us
    for hours in (0.5, 1, 46.4, 0.2):
        clock.now_s += hours * 3_600
        failing._fails()
        await failing._look_at_failing(failed(clock))
    assert calls[0] == ("noted", since_us)
    (why,) = [why for what, why in calls if what == "disabled"]
    assert why == "Every request failed for 2.0 days: 500 down"


async def test_a_clock_that_jumps_disables_no_subscription() -> None:
    clock, calls = FakeClock(), list[tuple[str, object]]()
    failing = worker(clock, calls)
    failing._fails()
    clock.wall_offset_us = 3_650 * 86_400_000_000
    clock.now_s += 60
    failing._fails()
    await failing._look_at_failing(failed(clock))
    assert calls == []


async def test_what_was_noted_of_a_failure_counts_after_a_restart_until_it_works() -> None:
    clock, calls = FakeClock(), list[tuple[str, object]]()
    since_us = START_US - 6 * 86_400_000_000
    failing = worker(clock, calls, failing_since_us=since_us)
    failing._fails()
    await failing._look_at_failing(failed(clock))
    assert [what for what, _ in calls] == ["disabled"]
    await failing._works()
    assert calls[-1] == ("noted", 0)
    assert failing.failing_since_us == 0


async def test_a_stop_gives_requests_on_their_way_some_time() -> None:
    stopping, ends = worker(FakeClock(), []), asyncio.Event()
    quick, slow = asyncio.create_task(asyncio.sleep(0)), asyncio.create_task(ends.wait())
    stopping._sending |= {quick, slow}  # type: ignore[arg-type]
    await stopping.stop(0.01)
    assert (quick.cancelled(), slow.cancelled()) == (False, True)


def test_settings_that_an_older_release_stored_are_read() -> None:
    stored = msgspec.json.decode(
        b'{"url":"https://a.example/","secrets":["x"]}', type=StoredSubscription
    )
    assert (stored.state, stored.body, stored.batch) == ("active", "value", 1)


@pytest.mark.parametrize(
    "answer", [b"", b"[" * 9_000, b"\xff", b'{"done":"\xff"}', b'{"done":1}', b'{"\xff":[]}']
)
def test_a_webhook_of_streams_that_answers_anything_else_is_not_done(answer: bytes) -> None:
    assert not is_done(answer)
