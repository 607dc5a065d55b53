"""The pages of subscriptions: what an admin sets is what a receiver gets."""

from __future__ import annotations

import ipaddress
import re

import pytest
from standardwebhooks import Webhook

from seb_appliance.protocols.subscriptions.running import Subscriptions
from tests.support.appliance import RunningAppliance
from tests.support.receiver import answer, receiving
from tests.ui.pages import Visitor

pytestmark = pytest.mark.asyncio(loop_scope="module")
PAGE = "/ui/subscriptions/mails"
QUEUE = "/ui/queues/mails"


async def test_a_subscription_is_made_tested_changed_replayed_and_deleted(
    seb: RunningAppliance, admin: Visitor
) -> None:
    sender = seb.appliance.beside[Subscriptions]._tools.sender
    sender._networks = (ipaddress.ip_network("127.0.0.0/8"),)
    async with receiving() as receiver:
        assert "There is no subscription yet" in (await admin.get("/ui/subscriptions")).text
        form = {"url": receiver.url, "topics": "m.*, mails", "body": "value", "timeout_ms": "20s"}
        made = await admin.post("/ui/new-subscription", subscription="mails", **form)
        assert made.status_code == 201
        secret = re.search(r'<code id="secret">([^<]*)</code>', made.text)
        assert secret is not None
        receiver.answers.append(answer(201, body=b"hello"))
        assert (await admin.post(f"{PAGE}/test")).status_code == 303
        page = (await admin.get(PAGE)).text
        assert "answered with 201" in page
        assert "hello" in page
        assert secret[1] not in page
        assert 'value="m.*, mails"' in page
        assert f'href="{QUEUE}"' in page
        assert f'href="{PAGE}"' in (await admin.get(QUEUE)).text
        assert receiver.url.partition("?")[0] in (await admin.get("/ui/subscriptions")).text

        wrong = await admin.post(PAGE, **form | {"timeout_ms": "2m"})
        assert (wrong.status_code, "Timeout of a request" in wrong.text) == (422, True)
        assert (await admin.post(PAGE, **form | {"rate": "50"})).status_code == 303
        await seb.client.post("/v1/topics/mails/records", content=b"{}")
        got = (await receiver.arrived(2))[1]
        Webhook(secret[1]).verify(got.body, got.headers)
        assert (await admin.post(f"{PAGE}/replay", offset="earliest")).status_code == 303
        await receiver.arrived(3)

        wrong = await admin.post(f"{PAGE}/headers", headers="no colon")
        assert (wrong.status_code, "A header is a line" in wrong.text) == (422, True)
        headers = "X-Kind: a:b\r\n\r\nAuthorization: Bearer word-of-mine\r\n"
        assert (await admin.post(f"{PAGE}/headers", headers=headers)).status_code == 303
        page = (await admin.get(PAGE)).text
        assert ("Authorization, X-Kind" in page, "word-of-mine" in page) == (True, False)
        assert (await admin.post(f"{PAGE}/replay", offset="earliest")).status_code == 303
        got = (await receiver.arrived(4))[3]
        assert (got.headers["x-kind"], got.headers["authorization"]) == (
            "a:b",
            "Bearer word-of-mine",
        )

        rotated = await admin.post(f"{PAGE}/rotate", secret="")
        assert rotated.status_code == 201
        assert "End the previous secret" in (await admin.get(PAGE)).text
        assert (await admin.post(f"{PAGE}/end-previous")).status_code == 303
        for verb, state in (("pause", "paused"), ("resume", "active")):
            assert (await admin.post(f"{PAGE}/{verb}")).status_code == 303
            found = (await seb.client.get("/v1/subscriptions/mails")).json()
            assert (found["state"], found["settings"]["rate"]) == (state, 50)
        refused = await admin.post(f"{PAGE}/delete", name="other")
        assert (refused.status_code, "nothing was deleted" in refused.text) == (422, True)
        assert (await admin.post(f"{PAGE}/delete", name="mails")).status_code == 303
        assert (await admin.get(PAGE)).status_code == 404
        assert PAGE not in (await admin.get(QUEUE)).text
