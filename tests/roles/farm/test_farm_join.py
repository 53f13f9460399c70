"""A farm that begins with one member and grows by codes; what a code does not do."""

import asyncio
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.cores.raft.http_head import Fields, RequestHead
from appliance.cores.raft.invitation import (
    USED,
    Code,
    Invited,
    digest_of,
    parse_code,
    validate_join,
)
from appliance.roles.farm import founding
from appliance.roles.farm.guests import invite, read_invitations
from tests import forked
from tests.patience import HUNG_S
from tests.ports import FreePorts
from tests.system.local_site import wait_until

SECRET = "ab" * 32
CODE = Code("farm", "tcp://127.0.0.1:1", b"p" * 32, SECRET)


# Between two times that a code is asked about which its member may not have seen yet.
AGAIN_SOON = {"appliance.roles.farm.founding._AGAIN_S": 0.05}


def farm(*words: object, code: int = 0) -> str:
    done = forked.run(["farm", *words], constants=AGAIN_SOON)
    assert done.returncode == code, done.stdout + done.stderr
    return (done.stdout + done.stderr).strip()


class Growing:
    """Members in folders of their own, each a process."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self.folder, self.ports = folder, ports
        self.processes: dict[int, forked.Started] = {}

    def place(self, member: int) -> Path:
        return self.folder / f"m{member}"

    def start(self, member: int, *words: str) -> None:
        """Have it run; it listens, or has ended."""
        told = ["farm", "serve", "--imported", *words, "--folder", self.place(member)]
        told += ["--id", member, "--log-level", "warning"]
        with (self.folder / f"log{member}").open("ab") as log:
            process = forked.start(told, environment=os.environ, output=log.fileno())
        self.processes[member] = process
        address = ("127.0.0.1", self.ports[member - 1])

        def listens() -> bool:
            with contextlib.suppress(OSError), socket.create_connection(address, HUNG_S):
                return True
            return False

        wait_until(lambda: listens() or process.poll() is not None, HUNG_S, f"{member} listens")

    def invite(self, by: int) -> str:
        return farm("invite", "--folder", self.place(by), "--id", by)

    def join(self, member: int, code: str, expected: int = 0) -> str:
        endpoint = f"tcp://127.0.0.1:{self.ports[member - 1]}"
        return farm(
            "join", code, "--folder", self.place(member), "--endpoint", endpoint, code=expected
        )

    def servers(self, member: int) -> set[int]:
        """Whom its log says to belong to the farm."""
        said = farm("dump", "--state", "--folder", self.place(member)).splitlines()
        return set(json.loads(said[1])["servers"]) if len(said) > 1 else set()

    def until_listed(self, by: int, members: set[int]) -> None:
        wait_until(lambda: self.servers(by) == members, HUNG_S, lambda: str(self.servers(by)))

    def end(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            assert process.wait(HUNG_S) == 0


@pytest.fixture
def growing(tmp_path: Path, free_ports: FreePorts) -> Iterator[Growing]:
    made = Growing(tmp_path, free_ports(3))
    yield made
    made.end()


def test_a_farm_grows_by_codes_that_count_once_and_restarts_know_the_guests(
    growing: Growing,
) -> None:
    farm("init", "--folder", growing.place(1), "--listen", f"127.0.0.1:{growing.ports[0]}")
    growing.start(1)
    code = growing.invite(1)
    assert "--id 2" in growing.join(2, code)
    assert growing.place(2).joinpath("password").stat().st_mode & 0o777 == 0o600
    growing.start(2, "--join")
    growing.until_listed(1, {1, 2})
    assert "was used, has expired" in growing.join(3, code, expected=1)
    assert list(read_invitations(growing.place(1)).values()) == [USED]
    for member in (1, 2):  # who came by code is known from the log, on every member
        process = growing.processes.pop(member)
        process.send_signal(signal.SIGTERM)
        assert process.wait(HUNG_S) == 0
    growing.start(1)
    growing.start(2, "--join")
    shutil.rmtree(growing.place(3))
    assert "--id 3" in growing.join(3, growing.invite(2))  # any member may invite
    growing.start(3, "--join")
    for member in (1, 2, 3):
        growing.until_listed(member, {1, 2, 3})


def test_a_code_that_its_member_has_not_seen_yet_is_asked_about_again(
    growing: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`farm invite` says the code at once, and the member looks for it in its own time."""
    farm("init", "--folder", growing.place(1), "--listen", f"127.0.0.1:{growing.ports[0]}")
    growing.start(1)
    code = dataclasses.replace(parse_code(growing.invite(1)), secret=SECRET)
    fetch, refused = founding._fetch, []

    async def fetch_and_let_see(*words: Any) -> Any:
        answer = await fetch(*words)
        if answer is None:
            refused.append(words)
            invite(growing.place(1), SECRET, 60)  # the member sees it from now on
        return answer

    monkeypatch.setattr(founding, "_fetch", fetch_and_let_see)
    endpoint = f"tcp://127.0.0.1:{growing.ports[1]}"
    growing.place(2).mkdir()
    assert asyncio.run(founding.join(code, growing.place(2), endpoint)) == 2
    assert refused, "the first answer was no"


def request(**changes: str) -> RequestHead:
    fields = {
        "authorization": f"Invitation {SECRET}",
        "farm-endpoint": "tcp://10.0.0.1:7",
        "farm-pin": "cd" * 32,
    }
    fields.update({name.replace("_", "-"): value for name, value in changes.items()})
    return RequestHead("GET", "/x", Fields(tuple(fields.items())))


def test_an_invitation_counts_once_and_until_it_expires() -> None:
    known = {digest_of(SECRET): 1000}
    assert validate_join("farm", known, request(), 1000) == "invitation_expired"
    found = validate_join("farm", known, request(), 999)
    assert found == Invited("farm", digest_of(SECRET), "tcp://10.0.0.1:7", b"\xcd" * 32)
    assert validate_join("farm", known, request(), 999) == "invitation_used"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"authorization": f"Invitation {'cd' * 32}"}, "invitation_unknown"),
        ({"authorization": f"Digest {SECRET}"}, "invitation_malformed"),
        ({"authorization": "Invitation " + SECRET.upper()}, "invitation_malformed"),
        ({"authorization": ""}, "invitation_malformed"),
        ({"farm_endpoint": "10.0.0.1:7"}, "invitation_malformed"),
        ({"farm_endpoint": "tcp://a_b:7"}, "invitation_malformed"),
        ({"farm_pin": "cd"}, "invitation_malformed"),
    ],
)
def test_what_is_no_invitation_is_refused_by_name_and_uses_none(
    changes: dict[str, str], reason: str
) -> None:
    known = {digest_of(SECRET): 1000}
    assert validate_join("farm", known, request(**changes), 0) == reason
    assert known == {digest_of(SECRET): 1000}


def test_a_code_comes_back_from_its_text_and_nothing_else_is_one() -> None:
    text = CODE.text()
    assert parse_code(text) == CODE
    for bad in ("", text[:-3], "x" + text, text * 20, "bnVsbA", "[]"):
        with pytest.raises(Exception, match="no code of a farm"):
            parse_code(bad)
