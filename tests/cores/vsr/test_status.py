"""The table of statuses: what it allows, that nothing passes it by, and that the page shows it."""

import ast
from pathlib import Path

import pytest

from appliance.cores.vsr.status import SILENT, STATUS, Event, Status
from tests.cores.vsr.group import Group

TOP = Path(__file__).parents[3]
CORE = TOP / "appliance/cores/vsr"
PAGE = TOP / "docs/protocol.md"


def test_the_page_shows_the_table() -> None:
    section = PAGE.read_text().split("\n## Statuses\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in section.splitlines()]
    shown = {
        (Status[before.upper()], Event[row[0].upper()]): Status[row[2].upper()]
        for row in rows[2:]
        if len(row) == 4 and row[0] != "event" and row[0] != "---"
        for before in row[1].split(", ")
    }
    assert shown == STATUS


def test_whatever_is_at_work_can_halt_and_nothing_leaves_a_halt() -> None:
    assert {before for before, event in STATUS if event == Event.HALTED} == (
        set(Status) - {Status.HALTED}
    )
    assert Status.HALTED not in {before for before, _ in STATUS}
    assert set(Status) - set(STATUS.values()) == {Status.RECOVERING}, "where each life begins"
    assert {event for _, event in STATUS} == set(Event)


def test_who_is_silent_for_good_comes_back_by_no_event() -> None:
    ended = {Status.HALTED, Status.REMOVED}
    assert ended < set(SILENT)
    assert all(after in ended for (before, _), after in STATUS.items() if before in ended)


def test_the_status_is_assigned_in_one_place() -> None:
    assigned = []
    for path in sorted(CORE.glob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and node.attr == "status":
                    if isinstance(node.ctx, ast.Store):
                        assigned.append((path.stem, function.name))
    assert assigned == [("member", "__init__"), ("member", "enter")]


def test_an_event_that_the_table_does_not_have_is_a_bug() -> None:
    core = Group(replica_count=3).core(0)
    before = core.status
    assert before in (Status.NORMAL, Status.VIEW_CHANGE)
    with pytest.raises(AssertionError, match="OPENED_WITHOUT_HEAD"):
        core.enter(Event.OPENED_WITHOUT_HEAD)
    assert core.status == before
    core.halt("DIVERGED", "a test")
    core.enter(Event.OPENED_WITHOUT_HEAD)
    core.enter(Event.VIEW_JOINED)
    assert core.status == Status.HALTED, "whoever halted stays halted"
