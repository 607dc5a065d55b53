"""`seb status`, and who may ask with which key."""

from __future__ import annotations

import pytest

from seb_appliance import __version__


def test_the_status_is_told_to_people_and_programs(seb):
    shown = seb.good("status").out
    assert "ready           yes" in shown
    assert "memory" in shown
    assert "1 API key\n" in shown
    assert "0 requests with an Idempotency-Key of 24 h; 0 producers" in shown
    found = seb.good("status", "--json").json
    assert found["version"] == __version__
    assert found["counts"]["api_keys"] == 1


def test_an_appliance_that_is_not_ready_ends_with_69(seb):
    seb.appliance.appliance.broker._writes.stopping = True
    try:
        told = seb("status")
    finally:
        seb.appliance.appliance.broker._writes.stopping = False
    assert told.code == 69
    assert "the appliance is stopping" in told.out


def test_no_appliance_ends_with_69_at_once(seb):
    told = seb.refused("status", "--url", "http://127.0.0.1:9", code=69)
    assert told.startswith("cannot reach an appliance at http://127.0.0.1:9")


def test_a_wrong_key_is_refused(seb):
    seb.key_file.write_text("seb_typo")
    assert seb.refused("status").endswith("(unauthenticated).")


@pytest.mark.parametrize("text", ["", "hello", "seb_a seb_b", "seb_a\nseb_b", "seb_ü"])
def test_a_file_without_a_key_is_told_and_not_shown(seb, text):
    seb.key_file.write_text(text)
    told = seb.refused("status", code=78)
    assert "does not hold an API key" in told
    assert "seb_a" not in told


def test_a_key_file_that_is_not_there_is_told(seb):
    told = seb.refused("status", "--key-file", str(seb.folder / "none"), code=78)
    assert "No such file" in told


def test_without_a_key_file_the_admin_key_of_the_data_directory_is_used(seb, monkeypatch):
    monkeypatch.delenv("SEB_KEY_FILE")
    monkeypatch.setenv("SEB_DATA", str(seb.folder))
    assert "admin.key does not exist" in seb.refused("status", code=78)
    (seb.folder / "admin.key").write_text(seb.appliance.admin_key)
    assert seb.good("status")


def test_the_admin_key_of_this_machine_is_not_sent_to_another(seb, monkeypatch):
    monkeypatch.delenv("SEB_KEY_FILE")
    monkeypatch.setenv("SEB_DATA", str(seb.folder))
    (seb.folder / "admin.key").write_text(seb.appliance.admin_key)
    told = seb.refused("status", "--url", "http://192.0.2.1:51313", code=78)
    assert told.startswith("no API key for http://192.0.2.1:51313")


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:51313", "ftp://127.0.0.1", "http://", "http://:1", "http://a:port", "http://a:0",
        "http://a?b", "http://a#b", "http://a b", "http://ä", "http://user:seb_x@a",
        "http://user:seb_x@",
    ],
)  # fmt: skip
def test_what_is_no_url_is_told(seb, url):
    told = seb.refused("status", "--url", url, code=78)
    assert "url" in told
    assert "seb_x" not in told
