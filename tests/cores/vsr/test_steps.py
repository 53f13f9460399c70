"""What follows an event: the table of steps, its order, and who tells of them."""

import ast
import inspect
import re
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from appliance.commands.simulate import run
from appliance.cores.vsr import commit
from appliance.cores.vsr import replica as dispatcher
from appliance.cores.vsr.replica import Replica
from appliance.cores.vsr.steps import STEPS, Step
from appliance.simulation.options import draw
from appliance.simulation.telling import Telling
from appliance.simulation.trace import Trace
from appliance.simulation.world import World
from tests.cores.vsr import group as group_module
from tests.cores.vsr.group import Group

PAGE = Path(__file__).parents[3] / "docs/protocol.md"
ORDER = (
    "superblock learn_durable vouch checkpoint state_sync backfill reported view_change votes "
    "acknowledge_tail acknowledge commit_max commit queue repair"
)


def due_in_words(step: Step) -> str:
    """A field that is looked at, or a function that is asked."""
    field = re.fullmatch(r"operator\.attrgetter\('([\w.]+)'\)", repr(step.due))
    return f"`{field[1]}`" if field else f"`{named(step.due)}`"


def named(function: Any) -> str:
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"


def test_the_page_shows_the_steps_in_their_order() -> None:
    section = PAGE.read_text().split("\n## What follows an event\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in section.splitlines()]
    shown = [(row[0], row[1], row[3]) for row in rows if len(row) == 4][2:]
    assert shown == [(s.name, due_in_words(s), f"`{named(s.act)}`") for s in STEPS]


def test_the_order_is_the_one_that_all_traces_were_made_with() -> None:
    assert [step.name for step in STEPS] == ORDER.split()


def written_out() -> list[tuple[str, str]]:
    """(when, what) of each line of `take_steps`."""
    source = textwrap.dedent(inspect.getsource(Replica.take_steps))
    (method,) = ast.parse(source).body
    assert isinstance(method, ast.FunctionDef)
    found = []
    for statement in method.body[1:-1]:
        assert isinstance(statement, ast.If) and not statement.orelse and len(statement.body) == 1
        (only,) = statement.body
        test: ast.expr = statement.test
        if isinstance(only, ast.Return):  # one that ends all is asked last
            assert isinstance(test, ast.BoolOp) and ast.unparse(only) == "return True"
            *before, call = test.values
            (test,) = before
        else:
            assert isinstance(only, ast.Expr)
            call = only.value
        assert isinstance(call, ast.Call) and ast.unparse(call.args) == "self"
        found.append((ast.unparse(test), ast.unparse(call.func)))
    assert ast.unparse(method.body[-1]) == "return False"
    return found


def due_in_code(step: Step) -> str:
    """What is written where the step stands: a field, what a function returns, or its call."""
    field = re.fullmatch(r"operator\.attrgetter\('([\w.]+)'\)", repr(step.due))
    if field:
        return f"self.{field[1]}"
    if step.due is commit.is_due:
        return "commit.is_due(self)"
    (function,) = ast.parse(inspect.getsource(step.due)).body
    assert isinstance(function, ast.FunctionDef)
    (answer,) = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    return re.sub(r"\bmember\b", "self", ast.unparse(answer.value or answer))


def test_the_round_is_the_table_written_out() -> None:
    shown = [(due, called(act)) for due, act in written_out()]
    assert shown == [(due_in_code(step), step.act) for step in STEPS]


def called(name: str) -> object:
    """What a name means in the dispatcher's module."""
    found: Any = dispatcher
    for part in name.split("."):
        found = getattr(found, part)
    return found


def test_a_step_that_moved_something_tells_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(group_module, "Replica", partial(Telling, told.append))
    group = Group(replica_count=3)
    group.put(group.opened(), requests=2)
    assert {"superblock", "acknowledge", "commit_max", "commit"} <= set(told)
    assert set(told) <= set(ORDER.split())
    assert "state_sync" not in told, "nobody lacked a state"


def test_who_tells_does_what_everybody_does() -> None:
    """The same world, by the table and by the round that is written out."""
    options = draw(5, "lite")
    silent, noting = World(options), World(options, wanted=range(1 << 40))
    digests = [run(world, until=150).digest for world in (silent, noting)]
    assert digests[0] == digests[1]
    assert any(" step " in line for line in noting.trace.kept)
    assert silent.trace.kept == []


def test_notes_are_text_beside_the_chain() -> None:
    silent, noting = Trace(), Trace(range(1, 3))
    assert noting.verbose and not silent.verbose
    for trace in (silent, noting):
        for time_us in range(4):
            trace.note(time_us, 1, "commit")
            trace.add(time_us, 0, 1)
    assert noting.digest() == silent.digest() and noting.count == silent.count
    assert [line.split()[-1] for line in noting.kept if " step " in line] == ["commit", "commit"]
    assert silent.kept == []
