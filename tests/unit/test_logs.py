"""The log as JSON lines, and as lines of text."""

from __future__ import annotations

import json
import logging
import sys

from seb_appliance.ops.host.runtime import FIELDS, JsonLines, TextLines


def line(message: str, *arguments: object, **more: object) -> dict[str, object]:
    record = logging.LogRecord("seb.x", logging.WARNING, __file__, 1, message, arguments, None)
    for name, value in more.items():
        setattr(record, name, value)
    text = JsonLines().format(record)
    assert "\n" not in text
    return json.loads(text)


def test_a_line_is_an_object_with_its_fields():
    found = line("no %s\n", "snapshot", **{FIELDS: {"seq": 7, "bucket": "s3://ä"}})
    assert str(found.pop("time")).endswith("+00:00")
    assert found == {
        "level": "warning",
        "logger": "seb.x",
        "message": "no snapshot\n",
        "seq": 7,
        "bucket": "s3://ä",
    }


def test_an_exception_stays_on_its_line():
    try:
        int("why")
    except ValueError:
        found = line("failed", exc_info=sys.exc_info())
    assert "ValueError: invalid" in str(found["exception"])


def test_a_line_of_text_ends_where_its_record_ends():
    named = "\x1b]0;x\x07\nseb: all is well"
    record = logging.LogRecord("seb", logging.WARNING, __file__, 1, "no %s", (named,), None)
    told = TextLines("%(levelname)s %(message)s").format(record)
    assert told == "WARNING no \\x1b]0;x\\x07\\nseb: all is well"
