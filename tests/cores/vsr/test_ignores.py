"""Each handler of a message says first what it ignores, by a function beside it that changes
nothing."""

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from appliance.cores.vsr import normal, repair, replica
from appliance.cores.vsr.clock import Clock
from appliance.cores.vsr.journal import Journal
from appliance.cores.vsr.member import Entry, Member, Peer
from appliance.cores.vsr.sessions import Session, Sessions
from appliance.cores.vsr.timeout import Timeout
from appliance.formats import command as cmd
from appliance.formats import envelope as env
from tests.cores.vsr.group import Group

# Who another one is, and where it stands, is heard from everybody, whatever the status.
HEARD_ALWAYS = {env.PING, env.PONG}
# What the rule of the header leaves is always handled: a prepare by one of ROUTED, which ask;
# chunks are served as far as they are here.
BY_RULE = {env.PREPARE, env.REQUEST_CHUNK}
ROUTED = (normal.on_prepare, repair.on_repair_prepare)

# What a question may call: nothing of it changes anything.
ASKED = {
    *(
        "_session_of",
        "_wanted",
        "allowed",
        "any",
        "ck.decode_location",
        "cmd.RequestPrepare.digest",
    ),
    *("cmd.RequestReply.digest", "decode_entry", "log_list.is_of_log"),
    "member.geometry.prepare_max",
    *("member.journal.slot", "member.prepares.get", "ses.decode"),
}

Handler = Callable[[Member, Any], None]


def handlers() -> list[Handler]:
    tables = {**replica._MEMBER, **replica._CLIENT}
    always = HEARD_ALWAYS | BY_RULE
    found = [handler for command, handler in tables.items() if command not in always]
    return [*dict.fromkeys([*found, *ROUTED])]


def name_of(handler: Handler) -> str:
    """`on_prepare` is told by `ignores_prepare` what it ignores."""
    return handler.__name__.replace("on_", "ignores_", 1)


def home(handler: Handler) -> ModuleType:
    module = inspect.getmodule(handler)
    assert module is not None
    return module


def functions(module: ModuleType) -> list[ast.FunctionDef]:
    tree = ast.parse(Path(inspect.getsourcefile(module) or "").read_text())
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


def calls(statement: ast.AST) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def test_there_are_as_many_as_messages() -> None:
    assert len(handlers()) == 17
    assert cmd.RULES.keys() >= BY_RULE


@pytest.mark.parametrize("handler", handlers(), ids=lambda handler: str(handler.__name__))
def test_a_handler_asks_first_what_it_ignores(handler: Handler) -> None:
    """Before it, a handler only reads what it was given; and the function stands right above."""
    found = functions(home(handler))
    names = [function.name for function in found]
    at = names.index(handler.__name__)
    nearby = names[max(0, at - 2) : at]  # a private question may stand between
    assert name_of(handler) in nearby, f"{name_of(handler)} stands above {handler.__name__}"
    for statement in found[at].body:
        said = list(calls(statement))
        if name_of(handler) in said:
            break
        assert isinstance(statement, ast.Assign) or ast.get_docstring(found[at]), statement
        assert set(said) <= {"ses.decode", "env.decode_stored"}, said
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        assert all(isinstance(target, ast.Name) for target in targets)
    else:
        pytest.fail(f"{handler.__name__} never asks {name_of(handler)}")


@pytest.mark.parametrize("handler", handlers(), ids=lambda handler: str(handler.__name__))
def test_what_tells_it_sets_and_calls_nothing_that_sets(handler: Handler) -> None:
    (function,) = [f for f in functions(home(handler)) if f.name == name_of(handler)]
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Name):
            assert isinstance(node.ctx, ast.Load) or isinstance(node, ast.Name)
        assert not isinstance(node, ast.AugAssign | ast.Delete | ast.For | ast.While)
    assert set(calls(function)) <= ASKED


def test_reasons_are_words_that_are_counted() -> None:
    reasons = set()
    for handler in handlers():
        (function,) = [f for f in functions(home(handler)) if f.name == name_of(handler)]
        found = {
            node.value.value
            for node in ast.walk(function)
            if isinstance(node, ast.Return)
            and isinstance(node.value, ast.Constant)
            and node.value.value is not None
        }
        reasons |= found
    assert len(reasons) > 20
    assert all(reason.replace("_", "").isalpha() and reason.islower() for reason in reasons)


def standing(value: Any, depth: int = 0) -> Any:
    """What can be compared of a member's state."""
    if isinstance(value, Journal | Timeout | Peer | Sessions | Session | Entry | Clock):
        slots = getattr(value, "__slots__", None) or vars(value)
        return [standing(getattr(value, slot), depth + 1) for slot in slots]
    if isinstance(value, dict):
        return [(key, standing(one, depth + 1)) for key, one in value.items()]
    if isinstance(value, list | tuple) or type(value).__name__ == "deque":
        return [standing(one, depth + 1) for one in value]
    if isinstance(value, bytearray):
        return bytes(value)
    return value if isinstance(value, int | str | bytes | None) else id(value)


def test_no_state_moves_while_a_member_decides_what_to_ignore(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a group that loses messages, a primary and a disk's slots, whatever is decided."""
    decided: dict[str, set[str | None]] = {}

    def watched(ask: Callable[..., str | None]) -> Callable[..., str | None]:
        def asked(member: Member, *rest: Any) -> str | None:
            before = states(member)
            reason = ask(member, *rest)
            assert reason == ask(member, *rest)
            assert before == states(member), ask.__name__
            decided.setdefault(ask.__name__, set()).add(reason)
            return reason

        return asked

    def states(member: Member) -> list[Any]:
        return [standing(value) for value in vars(member).values()]

    for handler in handlers():
        module, name = home(handler), name_of(handler)
        monkeypatch.setattr(module, name, watched(getattr(module, name)))
    group = Group(replica_count=3, seed=7)
    session = group.opened()
    group.put(session, requests=3)
    first = group.primary
    assert first is not None
    group.crash(first)
    group.put(session, requests=3)
    group.restart(first)
    group.run(100)
    group.put(session, requests=3)
    assert decided["ignores_prepare_ok"] >= {None}
    assert decided["ignores_commit"] >= {None}
    assert decided["ignores_start_view_change"] >= {None}
    assert decided["ignores_do_view_change"] >= {None, "dvc_not_primary"}
    assert decided["ignores_request_prepare"] >= {None}
    assert len(decided) >= 10
