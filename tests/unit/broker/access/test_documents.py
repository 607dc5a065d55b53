"""Documents of protocols: stored by the journal, named by kind, and bounded."""

from __future__ import annotations

import pytest

from seb_appliance import limits
from seb_appliance.broker.access.audit import Actor
from seb_appliance.broker.ports import DocumentRow
from seb_appliance.broker.shares import Shares
from seb_appliance.errors import BadRequestError, NotFoundError, ShareExceededError
from seb_appliance.formats.operations import AuditNoted, DocumentRemoved, DocumentSet
from tests.unit.broker.conftest import House

BY = Actor("opopopop", "192.0.2.9")


async def put(house: House, name: str, document: str = "{}", kind: str = "inlet") -> bool:
    shown = {"size": len(document)}
    return await house.done(house.broker.documents.put(kind, name, document, BY, shown))


async def test_a_document_is_in_force_when_it_is_stored(house: House) -> None:
    documents = house.broker.documents
    assert await put(house, "b", '{"a":1}') is True
    assert await put(house, "a") is True
    assert await put(house, "b", '{"a":2}') is False
    await put(house, "c", kind="other")
    assert [row.name for row in documents.of_kind("inlet")] == ["a", "b"]
    row = documents.get("inlet", "b")
    assert isinstance(row, DocumentRow)
    assert row.document == '{"a":2}'
    assert documents.get("inlet", "b") is row
    assert documents.get("inlet", "c") is None


async def test_the_audit_shows_what_is_no_secret(house: House) -> None:
    await put(house, "a", '{"secret":"x"}')
    event, note = house.journal.entries[-1].entry.contents.operations
    assert isinstance(event, DocumentSet)
    assert isinstance(note, AuditNoted)
    assert (note.action, note.subject_kind, note.subject) == ("inlet_created", "inlet", "a")
    assert (note.before, note.after) == (None, '{"size":14}')


async def test_a_removed_document_is_gone(house: House) -> None:
    documents = house.broker.documents
    await put(house, "a")
    await house.done(documents.remove("inlet", "a", BY))
    assert documents.of_kind("inlet") == []
    with pytest.raises(NotFoundError, match="inlet 'a'"):
        await house.done(documents.remove("inlet", "a", BY))


def only(house: House, most: int) -> Shares:
    """There may be so many."""
    shares = next(one for one in house.broker.shares if one.name == "documents")
    assert shares.limit == limits.DOCUMENTS_MAX
    shares.limit = most
    return shares


async def test_documents_are_bounded(house: House) -> None:
    only(house, 2)
    await put(house, "a")
    await put(house, "b")
    with pytest.raises(BadRequestError):
        await put(house, "c")
    assert await put(house, "b", "[]") is False


async def test_one_api_key_leaves_room_for_the_documents_of_others(house: House) -> None:
    shares = only(house, 4)
    mine, theirs = '{"owner":"k"}', '{"owner":"other"}'
    await put(house, "a", mine)
    await put(house, "b", mine)
    with pytest.raises(ShareExceededError):
        await put(house, "c", mine)
    await put(house, "d", theirs)
    await put(house, "b", theirs)
    assert (shares.held_by("k"), shares.held_by("other")) == (1, 2)
    await house.done(house.broker.documents.remove("inlet", "a", BY))
    assert (shares.held_by("k"), shares.used) == (0, 2)


async def test_what_a_protocol_keeps_for_itself_is_not_in_the_audit_and_not_counted(
    house: House,
) -> None:
    only(house, 1)
    documents, kind = house.broker.documents, "kafka_transactional_id"
    await house.done(documents.keep(kind, "k a", "1", "k"))
    await house.done(documents.keep(kind, "k b", "2", "k", ["k a", "k none", "k b"]))
    (set_, removed) = house.journal.entries[-1].entry.contents.operations
    assert set_ == DocumentSet(kind=kind, name="k b", document="2", set_us=set_.set_us)
    assert removed == DocumentRemoved(kind=kind, name="k a")
    assert [row.name for row in documents.of_kind(kind)] == ["k b"]
    assert await put(house, "a") is True
