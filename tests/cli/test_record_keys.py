"""`seb record-keys …`"""

from __future__ import annotations

import base64

import pytest


@pytest.fixture
def stock(seb):
    seb("topics", "create", "stock", "--key-index", "history")
    lines = (
        b'{"key":"apple","value":"1"}\n{"key":"pear","value":"2"}\n{"key":"apple","value":"3"}\n'
    )
    lines += b'{"key_base64":"/w==","value_base64":"/v8="}\n'
    seb.good("produce", "stock", "--ndjson", stdin=lines)
    return "stock"


def test_record_keys_are_listed(seb, stock):
    told = seb.good("record-keys", "list", stock, "--fresh")
    assert [row[0] for row in told.rows] == ["apple", "pear", "base64:/w=="]
    told = seb.good("record-keys", "list", stock, "--prefix", "p", "--json").json
    assert [row["key"] for row in told["keys"]] == ["pear"]
    told = seb.good("record-keys", "list", stock, "--max", "2")
    assert [row[0] for row in told.rows] == ["apple", "pear"]


def test_the_newest_value_is_written_as_it_is(seb, stock):
    assert seb.good("record-keys", "latest", stock, "apple", "--fresh").raw == b"3\n"
    found = seb.good("record-keys", "latest", stock, "/w==", "--base64")
    assert found.raw == b"\xfe\xff\n"
    told = seb.refused("record-keys", "latest", stock, "none")
    assert told.endswith("(record_key_not_found).")


def test_a_deleted_key_has_a_history_that_ends_in_a_tombstone(seb, stock):
    assert "nothing was deleted" in seb.refused("record-keys", "delete", stock, "apple")
    told = seb.good("record-keys", "delete", stock, "apple", "--yes")
    assert told.out.startswith("apple deleted, at offset ")
    rows = seb.good("record-keys", "history", stock, "apple", "--fresh", "--max", "2").rows
    assert [row[-1] for row in rows] == ["-", "3"]
    found = seb.good("record-keys", "history", stock, "apple", "--before", "2", "--json").json
    assert [base64.b64encode(r["value"].encode()) for r in found["records"]] == [b"MQ=="]


def test_a_topic_without_an_index_is_told_what_to_set(seb):
    seb.good("topics", "create", "bare")
    assert seb.refused("record-keys", "list", "bare").endswith("(key_index_off).")
    shown = seb.good("topics", "change", "bare", "key_index=latest").out
    assert "key_index" in shown
    assert seb.refused("topics", "change", "bare", "key_index=all", code=78).startswith("key_index")
