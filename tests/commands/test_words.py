"""Words that are wrong: what may have been meant is said, and a path that may not be looked at."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from appliance.__main__ import main
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


OF_A_PLACE = ["member list --node-folder", "tail general --local", "inspect wal --volume"]


@contextmanager
def nobody() -> Iterator[None]:
    """As a user who may do nothing in particular; who runs the tests as such a one stays so."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("words", OF_A_PLACE)
def test_a_place_into_which_this_user_may_not_look_is_named_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    locked = tmp_path / "locked"
    (locked / "node").mkdir(parents=True)
    assert main([*words.split()[:-1], "--help"]) == 0  # all that it needs is imported by now
    capsys.readouterr()
    locked.chmod(0)
    try:
        with nobody():
            code = main([*words.split(), str(locked / "node")])
    finally:
        locked.chmod(0o700)
    (line,) = capsys.readouterr().err.splitlines()
    assert code == 1
    assert line.startswith(f"tigerchat: {locked / 'node'}") and "Permission denied" in line
    assert line.endswith("run as the user who owns it")


@pytest.mark.parametrize("words", OF_A_PLACE)
def test_a_path_that_is_none_is_refused_in_one_line(
    tigerchat: Tigerchat, sentence: Sentence, tmp_path: Path, words: str
) -> None:
    said = sentence(tigerchat(*words.split(), "a" * 300, cwd=tmp_path), 1)
    assert "File name too long" in said and said.endswith("correct the path")
