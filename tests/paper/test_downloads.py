"""Data sets from the network are compared with what they should be before they are used."""

from __future__ import annotations

import gzip
import hashlib
import io
from dataclasses import replace
from unittest import mock

import pytest

import ornstein as orn
from ornstein.paper import data

WANTED = b"1;2\n3;4\n"


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A data set that is nowhere on this machine, and the cache that it would come into."""
    monkeypatch.delenv("ORNSTEIN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    known = data.SOURCES["skin"]
    known = replace(known, file="some.txt", sha256=hashlib.sha256(WANTED).hexdigest(), packaged="")
    monkeypatch.setitem(data.SOURCES, "skin", known)
    return tmp_path / "ornstein" / "some.txt.gz"


def received(contents):
    return mock.patch("urllib.request.urlopen", lambda url, timeout: io.BytesIO(contents))


def test_a_download_of_other_bytes_is_refused_and_not_kept(source):
    with received(WANTED + b"5;6\n"), pytest.raises(orn.FileError, match=r"SHA-256 .* instead of"):
        data.content("skin")
    assert not source.exists()
    with received(WANTED):
        assert data.content("skin") == WANTED
    assert data.content("skin") == WANTED  # without the network


def test_a_cache_of_other_bytes_is_refused(source):
    source.parent.mkdir()
    source.write_bytes(gzip.compress(b"other"))
    with pytest.raises(orn.FileError, match=r"is not the some\.txt expected"):
        data.content("skin")
