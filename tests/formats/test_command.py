"""What each command's header holds: fields read back where their layout has them, one rule a
command, and the table of docs/formats.md.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from appliance.cores.vsr import replica
from appliance.formats import command as cmd
from appliance.formats import envelope as env
from appliance.formats import session as ses
from appliance.formats.command import CLIENT, COMMANDS
from appliance.formats.envelope import Header, Message

DOCUMENT = Path(__file__).parents[2] / "docs" / "formats.md"
CLUSTER = b"cluster of tests"
NONCE = b"drawn by someone"

# Of each command that has a rule: a header at its limits, then one change each that breaks it, with
# words of the refusal.
RULES: dict[int, tuple[dict[str, Any], list[tuple[dict[str, Any], str]]]] = {
    env.PREPARE: (
        {"op": 1, "operation": env.OPERATION_NOOP},
        [
            ({"op": 0}, "root"),
            ({"operation": env.OPERATION_RESERVED}, "placeholder"),
            ({"commit_num": 1}, "committed before"),
        ],
    ),
    env.COMMIT: (
        {"op": 7, "commit_num": 7, "body": bytes(32)},
        [
            ({"body": bytes(31)}, "no checkpoint's id"),
            ({"body": bytes(33)}, "no checkpoint's id"),
            ({"commit_num": 6}, "beyond what is committed"),
        ],
    ),
    env.DO_VIEW_CHANGE: (
        {"op": 9, "commit_num": 9, "aux": 3, "view": 4, "area": cmd.DoViewChange.pack(0, 0, 9)},
        [
            ({"commit_num": 10}, "head below"),
            ({"area": cmd.DoViewChange.pack(0, 0, 10)}, "checkpoint beyond"),
            ({"aux": 4}, "still to begin"),
        ],
    ),
    env.START_VIEW: (
        {"op": 9, "commit_num": 9, "area": cmd.StartView.pack(bytes(16), 9)},
        [
            ({"commit_num": 10}, "head below"),
            ({"area": cmd.StartView.pack(bytes(16), 10)}, "checkpoint beyond"),
        ],
    ),
    env.END_EPOCH: (
        {"body": bytes(128)},
        [({"body": b""}, "not one header"), ({"body": bytes(256)}, "not one header")],
    ),
    env.REQUEST_START_VIEW: (
        {"area": cmd.RequestStartView.pack(bytes(15) + b"\1")},
        [({"area": bytes(16) + b"\1" * 8}, "no nonce")],
    ),
    env.REQUEST_HEADERS: (
        {"op": 5, "area": cmd.RequestHeaders.pack(5)},
        [({"op": 4}, "ends before it begins")],
    ),
    env.REQUEST_PREPARE: ({"op": 1}, [({"op": 0}, "root")]),
    env.HEADERS: (
        {"body": bytes(64 * 128)},
        [
            ({"body": b""}, "no header"),
            ({"body": bytes(65 * 128)}, "more than 64"),
            ({"body": bytes(127)}, "whole headers"),
        ],
    ),
    env.REQUEST_CHUNK: (
        {"body": bytes(32 * 48)},
        [
            ({"body": b""}, "no chunk"),
            ({"body": bytes(33 * 48)}, "more than 32"),
            ({"body": bytes(47)}, "whole ids"),
        ],
    ),
    env.CHUNK: ({"body": bytes(48)}, [({"body": bytes(47)}, "no room")]),
}
BROKEN = [
    (command, {**good, **change}, words)
    for command, (good, changes) in RULES.items()
    for change, words in changes
]


def header(command: int, **fields: Any) -> Header:
    return env.make(command, cluster=CLUSTER, shard=3, **fields)


@pytest.mark.parametrize("command", RULES, ids=env.COMMAND_NAMES.get)
def test_a_header_at_the_limits_of_its_rule_is_good(command: int) -> None:
    assert cmd.invalid(header(command, **RULES[command][0])) is None


@pytest.mark.parametrize(("command", "fields", "words"), BROKEN)
def test_a_header_beyond_them_is_refused_in_words(
    command: int, fields: dict[str, Any], words: str
) -> None:
    wrong = cmd.invalid(header(command, **fields))
    assert wrong is not None and words in wrong


def test_other_commands_and_none_of_ours_have_no_rule() -> None:
    for command in range(256):
        if command not in RULES:
            assert cmd.invalid(header(command, op=0, commit_num=9, aux=9)) is None


@pytest.mark.parametrize("command", COMMANDS, ids=env.COMMAND_NAMES.get)
def test_an_area_is_read_as_its_layout_has_it(command: int) -> None:
    row: Any = COMMANDS[command]
    fields = [name for name in row.area.names if name != "reserved"]
    assert row.area.itemsize == 24
    if not fields:
        return
    values = [
        (i + 1) << 56 | 5 if row.area[name].kind == "u" else bytes([i + 1]) * 16
        for i, name in enumerate(fields)
    ]
    area = row.pack(*values)
    read = np.frombuffer(header(command, area=area).area, row.area)[0]
    for name, value in zip(fields, values, strict=True):
        found = read[name]
        assert (int(found) if isinstance(value, int) else found.tobytes()) == value
        if hasattr(row, name):
            assert getattr(row, name)(area) == value
    if "reserved" in row.area.names:
        assert not any(read["reserved"].tobytes())
    if hasattr(row, "unpack"):
        assert list(row.unpack(area)) == values


def test_a_prepare_s_parent_and_time_are_those_of_its_area() -> None:
    made = header(env.PREPARE, op=1, area=cmd.Prepare.pack(NONCE, 1 << 60))
    assert (made.parent, made.timestamp) == (NONCE, 1 << 60)


def test_the_client_of_a_message_is_found_wherever_it_stands() -> None:
    block = ses.encode(ses.SessionBlock(NONCE, 1, 0, bytes(16), bytes(16), bytes(32)))
    for command in (env.REQUEST, env.REPLY):
        for body in (block, memoryview(block)):
            assert cmd.client_of(Message(header(command, body=body), body)) == NONCE
    for command, pack in (
        (env.PING_CLIENT, cmd.PingClient.pack),
        (env.PONG_CLIENT, cmd.PongClient.pack),
        (env.EVICTION, cmd.Eviction.pack),
    ):
        assert cmd.client_of(Message(header(command, area=pack(NONCE, 7)))) == NONCE


def test_directions_are_those_that_receivers_know() -> None:
    by_clients = {code for code, row in COMMANDS.items() if CLIENT in row.sent_by}
    assert by_clients == env.COMMANDS_CLIENT == set(replica._CLIENT)
    assert cmd.COMMANDS_TO_CLIENT == {env.REPLY, env.EVICTION, env.PONG_CLIENT}
    assert set(COMMANDS) - {env.PING_CLIENT} == cmd.COMMANDS_MEMBER
    between = {
        code
        for code, row in COMMANDS.items()
        if set(row.sent_by) - {CLIENT} and set(row.sent_to) - {CLIENT}
    }
    assert between == set(replica._MEMBER)


def test_every_command_stands_in_the_table_with_its_direction_and_fields() -> None:
    wanted = []
    for code, name in env.COMMAND_NAMES.items():
        row = COMMANDS[code]
        assert row.area.names is not None
        area = [f"`{n}` {row.area[n].itemsize}" for n in row.area.names if n != "reserved"]
        said = [f"`{word}`" if word else "" for word in (row.aux, row.op)]
        wanted.append(
            (f"0x{code:02X}", name, ", ".join(row.sent_by), ", ".join(row.sent_to), *said)
            + (", ".join(area),)
        )
    rows = re.findall(r"^\| 0x.*\|$", DOCUMENT.read_text(), re.M)
    assert [tuple(cell.strip() for cell in row.split("|")[1:8]) for row in rows] == wanted
