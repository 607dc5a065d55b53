"""Produces, consumes and commits with the client that openapi-python-client made; run by its
virtual environment."""

import os

from seb_client import AuthenticatedClient
from seb_client.api.groups import commit_offsets, consume_in_group
from seb_client.api.records import consume, produce
from seb_client.models import Envelope, NewOffsets, NewOffsetsOffsets, Problem, Record

client = AuthenticatedClient(base_url=os.environ["SEB_URL"], token=os.environ["SEB_API_KEY"])
records = [Record(value={"n": n}, key=f"k{n}") for n in range(3)]
stored = produce.sync("py", client=client, body=Envelope(records))
assert (stored.offset, stored.count) == (0, 3), stored

# Every default is sent: that is what such a client does.
read = consume.sync("py", client=client)
assert [record.value for record in read.records] == ['{"n":0}', '{"n":1}', '{"n":2}'], read
assert [record.key for record in read.records] == ["k0", "k1", "k2"], read

read = consume_in_group.sync("g", "py", client=client)
assert (read.lag_records, read.committed_offset) == (3, None), read
to_commit = NewOffsetsOffsets.from_dict({"py": read.next_offset})
committed = commit_offsets.sync("g", client=client, body=NewOffsets(to_commit))
assert committed.offsets.to_dict() == {"py": 3}, committed
assert consume_in_group.sync("g", "py", client=client).records == []

refused = consume.sync("missing", client=client)
assert isinstance(refused, Problem), refused
assert refused.code == "topic_not_found", refused
print("done")
