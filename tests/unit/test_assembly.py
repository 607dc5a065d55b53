"""What the settings mean to a start."""

from __future__ import annotations

import pytest

from seb_appliance.ops.serve.assembly import _start_options
from seb_appliance.setting_sources import load


@pytest.mark.parametrize(
    ("environment", "known"),
    [
        ({"SEB_BUCKET": "s3://b"}, False),
        ({"SEB_BUCKET": "s3://b", "SEB_S3_IMMEDIATE_LIST": "on"}, True),
        ({"SEB_BUCKET": "file:./b"}, True),
        ({"SEB_BUCKET": "memory:"}, True),
    ],
)
def test_a_listing_is_trusted_on_this_machine_or_when_the_operator_says_so(
    environment: dict[str, str], known: bool
) -> None:
    assert _start_options(load(environment=environment)).list_is_known is known
