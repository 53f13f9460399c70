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
