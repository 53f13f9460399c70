"""Each field of a member is stored where the table of owners says, and nowhere else."""

from pathlib import Path

import pytest

from tests.tidy.test_tidy import found
from tools import tidy, tidy_owners

HOME = tidy_owners.OWNED[0]
VOTES = HOME.replace("member.py", "votes.py")
REPLICA = HOME.replace("member.py", "replica.py")
MEMBER = """class Member:
    def __init__(self):
        self.op = 0
        self._begin()

    def _begin(self):
        self.votes = 0

    def move(self):
        self.op = 1
"""
ADD = "def add(member: Member) -> None:\n    member.votes += 1\n"
FILES = {HOME: MEMBER, VOTES: ADD, REPLICA: "class Replica(Member):\n    pass\n"}


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidy_owners, "OWNERS", {"member": "op", "votes": "votes"})
    monkeypatch.setattr(tidy_owners, "STILL_SHARED", 0)
    monkeypatch.setattr(tidy, "STILL_LARGE", [])  # it tells of the files of this tree


# name -> (file, what stands there, line)
STORES = {
    "by_another_module": (REPLICA, "def f(member: Member) -> None:\n    member.votes = 2\n", 2),
    "by_another_name": (
        REPLICA,
        "def f(member: Member) -> None:\n    own = member\n    own.votes |= 2\n",
        3,
    ),
    "of_a_replica": (REPLICA, "def f(core: Replica) -> None:\n    del core.op\n", 2),
    "by_an_heir": (REPLICA, "class Replica(Member):\n    def f(self):\n        self.op = 2\n", 3),
    "after_it_was_made": (HOME, MEMBER + "        self.votes = 0\n", 11),
    "of_a_field_without_a_row": (HOME, MEMBER + "        self.view = 0\n", 11),
    "of_such_a_field_by_an_heir": (
        REPLICA,
        "class Replica(Member):\n    def __init__(self):\n        self.view = 2\n",
        3,
    ),
}


@pytest.mark.parametrize("name", STORES)
def test_tidy_finds_a_store(name: str, tmp_path: Path) -> None:
    assert found(tmp_path, FILES) == []
    path, text, line = STORES[name]
    assert found(tmp_path, {path: text}) == [(path, line, "owner")]


@pytest.mark.parametrize(
    "rows",
    [
        {"member": "op", "votes": "votes", "": "gone"},
        {"member": "op", "votes replica": "votes"},  # no longer, and so is no shared field
    ],
)
def test_a_row_tells_of_what_is_there(
    rows: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidy_owners, "OWNERS", rows)
    monkeypatch.setattr(tidy_owners, "STILL_SHARED", len([row for row in rows if " " in row]))
    assert found(tmp_path, FILES) == [(HOME, 1, "owner")]


@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_fields_of_several_owners_become_fewer_and_not_more(
    allowed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidy_owners, "OWNERS", {"member": "op", "replica votes": "votes"})
    monkeypatch.setattr(tidy_owners, "STILL_SHARED", allowed)
    files = FILES | {REPLICA: "def f(member: Member) -> None:\n    member.votes = 2\n"}
    assert found(tmp_path, files) == [(HOME, 1, "owner")] * (allowed != 1)
