"""A word that was mistyped: what may have been meant is said."""

from pathlib import Path

import pytest

from tests.commands.conftest import Sentence, Tigerchat


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("statsu",), "Did you mean 'status'?"),
        (("room", "lsit"), "Did you mean 'list'?"),
        (("ship", "verfy"), "Did you mean 'verify'?"),
    ],
)
def test_the_nearest_command_is_named(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path, words: tuple[str, ...], meant: str
) -> None:
    assert meant in sentence(tigerchat(*words, cwd=tmp_path), 2)


def test_a_word_like_no_command_gets_no_guess(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path
) -> None:
    said = sentence(tigerchat("xyzzy", cwd=tmp_path), 2)
    assert "No such command 'xyzzy'" in said and "Did you mean" not in said


@pytest.mark.parametrize(
    "words",
    [
        *("alarm list", "clock correct", "federation status", "member list", "retention show"),
        *("farm status", "node stop node-0", "ship status", "status"),
    ],
)
def test_a_site_and_one_node_of_it_are_not_named_at_once(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path, words: str
) -> None:
    both = ("--local", tmp_path / "run", "--node-folder", tmp_path / "node")
    said = sentence(tigerchat(*words.split(), *both, cwd=tmp_path), 2)
    assert "say --local DIR or --node-folder F, not both" in said
