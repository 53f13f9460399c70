"""A room as a signed file: from a node that serves, checked by the product and without it."""

import asyncio
import contextlib
import dataclasses
import http.client
import io
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from appliance.base.limits import EXPORTS_OF_USER_MAX
from appliance.drivers.chat.access import local_token
from appliance.drivers.chat.client import Client
from appliance.drivers.chat.room_file import fetch
from appliance.drivers.host.node_folder import open_node
from appliance.formats.snapshot import parse
from tests.commands.conftest import Sentence, Tigerchat
from tests.system.local_site import TOP, LocalSite, wait_until

Chat = Callable[..., str]
RECORDS, AT_ONCE = 21_000, 500  # of three segments
CUT_AFTER = 4 << 20  # bytes that a relay lets through, the first time
VERIFIER = TOP / "docs/verify_room.py"


def checked_apart(file: Path, *keys: bytes) -> subprocess.CompletedProcess[str]:
    """By the program of the docs, which knows nothing of the product."""
    return subprocess.run(
        [sys.executable, "-I", VERIFIER, file, *(key.hex() for key in keys)],
        capture_output=True,
        text=True,
        check=False,
        cwd=file.parent,
    )


@pytest.fixture
def file(serving: LocalSite, chat: Chat, tmp_path: Path) -> Path:
    """Of a room with three messages and its making."""
    chat("room", "create", "kept")
    for text in ("one", "two: grüße", "three"):
        chat("send", "kept", text)
    chat("snapshot", "room", "kept", "--to", tmp_path / "kept.tig")
    return tmp_path / "kept.tig"


def test_a_room_is_a_file_that_whoever_has_a_key_can_check(
    serving: LocalSite, chat: Chat, file: Path
) -> None:
    keys = {node.name: node.public_key for node in serving.site.nodes}
    told = chat("snapshot", "verify", file)
    name = told.split()[-1]
    assert ": whole; room " in told and name in keys
    count = parse(file.read_bytes(), keys[name]).record_count
    assert count >= 4
    apart = checked_apart(file, *keys.values())
    assert apart.returncode == 0, apart.stdout + apart.stderr
    assert "'two: grüße'" in apart.stdout and f"whole; {count} records" in apart.stdout
    assert not file.with_name("kept.tig.part").exists()


def test_a_changed_byte_anywhere_and_another_key_are_found_by_both(
    tigerchat: Tigerchat, serving: LocalSite, file: Path
) -> None:
    raw = file.read_bytes()
    keys = [node.public_key for node in serving.site.nodes]
    for at in (0, 20, 33, 41, 48, 48 + 80, 48 + 2240 + 2130, len(raw) - 70, len(raw) - 1):
        file.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        assert checked_apart(file, *keys).returncode == 1, at
    file.write_bytes(raw[:-1])
    done = tigerchat("snapshot", "verify", file, "--local", serving.folder)
    assert done.returncode == 1 and "none of 3 keys fits" in done.stderr
    file.write_bytes(raw)
    strange = tigerchat("snapshot", "verify", file, "--key", bytes(32).hex())
    assert strange.returncode == 1 and "the signature is not of this file" in strange.stderr
    assert checked_apart(file, bytes(32)).returncode == 1


def test_an_older_end_of_the_room_is_a_file_too(
    serving: LocalSite, chat: Chat, file: Path, tmp_path: Path
) -> None:
    older = tmp_path / "older.tig"
    chat("snapshot", "room", "kept", "--until-op", "2", "--to", older)
    node = open_node(serving.place(0))
    keys = [other.public_key for other in node.site.nodes]
    assert checked_apart(older, *keys).returncode == 0
    size = (older.stat().st_size - 48 - 64) // 2240
    assert size == 2 and older.read_bytes()[48:-64] == file.read_bytes()[48 : 48 + 2 * 2240]


def test_mistakes_are_said_in_a_sentence(
    tigerchat: Tigerchat, sentence: Sentence, serving: LocalSite, file: Path
) -> None:
    site = ("--local", serving.folder)
    text = sentence(tigerchat("snapshot", "room", "kept", "--to", file, *site), 2)
    assert text == f"{file} exists; name a new file with --to"
    new = file.with_name("new.tig")
    text = sentence(tigerchat("snapshot", "room", "kepd", "--to", new, *site), 1)
    assert "there is no room 'kepd'; did you mean 'kept'?" in text
    words = ("snapshot", "room", "kept", "--until-op", 999, "--to", new)
    assert "until_op is 999; allowed: 1 to " in sentence(tigerchat(*words, *site), 1)
    text = sentence(tigerchat("snapshot", "verify", file, "--key", "abc"), 2)
    assert "--key is 'abc'; allowed: 64 hexadecimal digits" in text
    assert list(file.parent.glob("new*")) == []


async def write(site: LocalSite, room: str, count: int) -> UUID:
    access = site.access()
    async with Client(access.endpoints, access.token) as client:
        room_id = (await client.create_room(room)).room_id
        for at in range(0, count, AT_ONCE):
            waiting = [await client.post(room_id, f"{at + n}") for n in range(AT_ONCE)]
            await asyncio.gather(*waiting)
    return room_id


@contextmanager
def cutting(port: int) -> Iterator[int]:
    """A relay to `port` that cuts its first connection after `CUT_AFTER` bytes."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def carry(source: socket.socket, sink: socket.socket, left: int) -> None:
        with contextlib.suppress(OSError):
            while left > 0 and (data := source.recv(65536)):
                sink.sendall(data[:left])
                left -= len(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def relay() -> None:
        with contextlib.suppress(OSError):
            for left in (CUT_AFTER, 1 << 40):
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", port))
                for source, sink, most in ((client, server, 1 << 40), (server, client, left)):
                    threads.append(threading.Thread(target=carry, args=(source, sink, most)))
                    threads[-1].start()

    threads.append(threading.Thread(target=relay))
    threads[0].start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in threads:
            thread.join()


@pytest.fixture(scope="module")
def large(serving: LocalSite) -> UUID:
    """A room of as many messages: more than a reader who stands still is sent."""
    return asyncio.run(write(serving, "large", RECORDS))


def test_a_large_room_is_the_same_file_from_each_node_while_it_is_written_to(
    serving: LocalSite, large: UUID, tmp_path: Path
) -> None:
    room_id = large
    writer = threading.Thread(target=lambda: asyncio.run(write(serving, "large", 2000)))
    writer.start()
    access, files = serving.access(), []
    for endpoint in access.endpoints:
        files.append(io.BytesIO())
        fetch([endpoint], access.token, room_id, RECORDS, files[-1], time.sleep)
    writer.join()
    raw = [file.getvalue() for file in files]
    assert len({part[:-64] for part in raw}) == 1 and len({part[-64:] for part in raw}) == 3
    for node, part in zip(serving.site.nodes, raw, strict=True):
        assert parse(part, node.public_key).record_count == RECORDS
    endpoint = access.endpoints[0]
    with cutting(endpoint.port) as port:
        file = io.BytesIO()
        through = [dataclasses.replace(endpoint, port=port)]
        fetch(through, access.token, room_id, RECORDS, file, time.sleep)
        assert file.getvalue() == raw[0], "it goes on where it was cut"
    (tmp_path / "large.tig").write_bytes(raw[0])
    assert checked_apart(tmp_path / "large.tig", serving.site.nodes[0].public_key).returncode == 0


def asked(site: LocalSite, path: str, **headers: str) -> tuple[int, dict[str, Any]]:
    """Status, and the error that is told, of a request to the first node."""
    endpoint = site.access().endpoints[0]
    connection = http.client.HTTPSConnection(endpoint.host, endpoint.port, context=endpoint.tls)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        raw = answer.read()
        return answer.status, json.loads(raw)["error"] if answer.status >= 400 and raw else {}
    finally:
        connection.close()


def test_who_may_not_read_a_room_gets_no_file_of_it(
    serving: LocalSite, chat: Chat, file: Path
) -> None:
    room = parse_room(file)
    path = f"/v1/rooms/{room}/snapshot"
    assert asked(serving, path)[0] == 401
    assert asked(serving, path, authorization="Bearer e.y.J")[1]["name"] == "token_invalid"
    other = local_token(serving.folder, "other", {"elsewhere": ["read"]}, 600)
    status, told = asked(serving, path, authorization=f"Bearer {other}")
    assert (status, told["name"]) == (403, "forbidden")
    bearer = {"authorization": f"Bearer {serving.access().token()}"}
    assert asked(serving, path.replace(str(room), str(UUID(int=1))), **bearer)[0] == 404
    assert asked(serving, path.replace(str(room), "lobby"), **bearer)[0] == 400
    assert (
        asked(serving, path, range=f"bytes={file.stat().st_size + 2240 * 9}-", **bearer)[0] == 416
    )


def parse_room(file: Path) -> UUID:
    return UUID(int=int.from_bytes(file.read_bytes()[16:32], "little"))


def test_one_user_does_not_hold_all_files_that_are_made(serving: LocalSite, large: UUID) -> None:
    """Readers who take nothing: their third is told to wait, and another user is served."""
    path = f"/v1/rooms/{large}/snapshot"
    endpoint = serving.access().endpoints[0]
    with contextlib.ExitStack() as stack:
        for _ in range(EXPORTS_OF_USER_MAX):
            held = http.client.HTTPSConnection(endpoint.host, endpoint.port, context=endpoint.tls)
            stack.callback(held.close)
            bearer = f"Bearer {serving.access().token()}"
            held.request("GET", path, headers={"authorization": bearer})
            assert held.getresponse().status == 200
        status, told = asked(serving, path, authorization=bearer)
        assert (status, told["name"]) == (503, "busy")
        other = local_token(serving.folder, "other", {"*": ["read"]}, 600)
        assert asked(serving, path, authorization=f"Bearer {other}")[0] == 200

    def again() -> bool:
        return asked(serving, path, authorization=bearer)[0] == 200

    wait_until(again, 30, "who has gone holds nothing")
