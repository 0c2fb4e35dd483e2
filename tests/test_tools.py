"""The tools that write files: what they wrote is current, and they notice a change."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import generated
import mkdocs_hooks
import pytest
import rooms
import which_family

import ornstein as orn

CONTRACT = rooms.CONTRACT.read_text(encoding="utf-8")
PICTURE = rooms.drawing(CONTRACT)


def changed(old, new):
    assert CONTRACT.count(old) == 1
    return CONTRACT.replace(old, new)


def words(picture):
    return ["".join(text.itertext()) for text in ET.fromstring(picture).findall("{*}text")]


def test_the_picture_of_the_rooms_is_current():
    assert generated.is_current(rooms.PATH, PICTURE), "run make format"


def test_the_picture_shows_every_room_with_its_words():
    shown = words(PICTURE)
    for room, knows in rooms.KNOWS.items():
        assert room in shown
        assert knows in shown


def test_the_picture_shows_the_exceptions():
    assert "   posterior.posterior → verdict.*" in words(PICTURE)
    exceptions = (
        "ignore_imports =\n    ornstein.posterior.posterior -> ornstein.verdict.*\n"
        "    ornstein.posterior.posterior -> ornstein.critique.*\n"
        "    ornstein.posterior.posterior -> ornstein.interfaces.report\n"
        "    ornstein.posterior.last_layer -> ornstein.interfaces.networks.attach\n\n"
    )
    assert "   posterior.posterior → verdict.*" not in words(rooms.drawing(changed(exceptions, "")))


def test_the_picture_names_the_other_contracts():
    contracts = [line for line in CONTRACT.splitlines() if line.startswith("name = ")]
    assert len(contracts) == 5
    notes = [f"   {line.removeprefix('name = ')}." for line in contracts[2:]]
    assert set(notes) <= set(words(PICTURE))


def test_a_room_without_words_is_refused():
    with pytest.raises(ValueError, match=r"what these rooms know: \['attic'\]"):
        rooms.drawing(changed("    sampling\n", "    attic\n    sampling\n"))


def test_words_without_a_room_are_refused():
    with pytest.raises(ValueError, match=r"no room: \['cluster'\]"):
        rooms.drawing(changed(" | cluster\n", "\n"))


def test_a_room_that_moves_changes_the_picture():
    assert rooms.drawing(changed(" | cluster\n", "\n    cluster\n")) != PICTURE


def test_words_too_long_for_a_box_are_refused(monkeypatch):
    monkeypatch.setitem(
        rooms.KNOWS, "cluster", "more words than one half of the width can ever hold"
    )
    with pytest.raises(ValueError, match="cluster"):
        rooms.drawing(CONTRACT)


def test_check_fails_in_a_sentence_and_writes_nothing(tmp_path, capsys):
    path = tmp_path / "file"
    assert generated.write_or_check(path, "new", ["--check"]) == 1
    assert "is not current" in capsys.readouterr().out
    assert not path.exists()
    assert generated.write_or_check(path, "new", []) == 0
    assert generated.write_or_check(path, "new", ["--check"]) == 0


def test_formulas_become_mathml():
    page = (
        '<p>The law <span class="arithmatex">\\(\\Sigma = A^{-1}/N\\)</span>, where'
        '<div class="arithmatex">\\[ a &lt; b \\]</div></p>'
    )
    found = mkdocs_hooks.with_formulas(page)
    assert "arithmatex" not in found and found.count("<math") == 2
    assert 'display="inline"' in found and 'display="block"' in found
    # what is no formula stays as it is
    assert mkdocs_hooks.with_formulas("<p>a (b) [c]</p>") == "<p>a (b) [c]</p>"


def test_every_family_is_shown_and_its_example_ends_trusted():
    page = which_family.PAGE.read_text(encoding="utf-8")
    sections = dict(part.split("\n", 1) for part in page.split("\n## ")[1:])
    assert {*sections} == {*orn.families.TABLE}
    for example in which_family.EXAMPLES:
        said = sections[example.family]
        assert example.code in said and "Draws: trusted." in said
        assert (which_family.PICTURES / f"{example.family}.png").stat().st_size > 1000


@pytest.mark.nightly
@pytest.mark.parametrize("example", which_family.EXAMPLES, ids=lambda example: example.family)
def test_the_example_of_a_family_ends_trusted(example):
    assert example.fitted().check().level == "trusted"
