"""What operators alone may see or do: sign in, figures, reasons of health."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import argon2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request

from appliance.drivers.host.node_folder import NodeFolder, open_node
from appliance.drivers.network.metrics import Probes, Said
from appliance.drivers.network.operator_port import SIGN_IN_SIZE_MAX, secret_in
from appliance.drivers.network.origin import Hosts
from appliance.drivers.network.pages import Pages
from appliance.node.catalogue import ROLES
from appliance.roles.console.role import ConsoleRole
from tests.security.formatted import format_one
from tests.statuses import replica_status

KEY = b"k" * 43


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> NodeFolder:
    return open_node(format_one(tmp_path_factory.mktemp("operators")) / "node-0")


def request_of(body: bytes, **heads: str) -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    pairs = [(key.replace("_", "-").encode(), value.encode()) for key, value in heads.items()]
    return Request({"type": "http", "method": "POST", "headers": pairs}, receive)


def test_a_secret_counts_only_in_a_short_body_that_says_it_is_json() -> None:
    body = json.dumps({"secret": "ABCD"}).encode()
    assert asyncio.run(secret_in(request_of(body, content_type="application/json"))) == "ABCD"
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert asyncio.run(secret_in(request_of(body, content_type=kind))) is None, kind
    assert asyncio.run(secret_in(request_of(body))) is None
    long = json.dumps({"secret": "A" * SIGN_IN_SIZE_MAX}).encode()
    assert asyncio.run(secret_in(request_of(long, content_type="application/json"))) is None


def test_the_console_keeps_its_secret_under_a_hash_that_is_dear_to_guess(
    node: NodeFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    role = ConsoleRole(node, logging.getLogger("test"), ROLES)
    assert "one-time secret" not in capsys.readouterr().out  # before it listens
    role._sign_in.open()
    kept = argon2.extract_parameters(role._sign_in._hash)
    assert kept.type is argon2.Type.ID
    assert kept.memory_cost >= 19 * 1024 and kept.time_cost >= 2  # KiB; OWASP's least
    assert "one-time secret" in capsys.readouterr().out


async def status_of(app: Starlette, path: str, **heads: str) -> tuple[int, bytes]:
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    pairs = [(key.encode(), value.encode()) for key, value in heads.items()]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "headers": pairs,
        "query_string": b"",
    }
    await app(scope, receive, send)
    return said[0]["status"], b"".join(message.get("body", b"") for message in said)


@pytest.mark.parametrize(
    ("heads", "signed_in", "status"),
    [
        ({"authorization": f"Bearer {KEY.decode()}"}, False, 200),
        ({}, True, 200),
        ({}, False, 401),
        ({"authorization": "Bearer"}, False, 401),
        ({"authorization": "Bearer " + "k" * 42}, False, 401),
        ({"authorization": "Bearer " + "k" * 42 + "\u00e9"}, False, 401),
    ],
)
def test_figures_are_for_the_key_and_for_who_is_signed_in(
    heads: dict[str, str], signed_in: bool, status: int
) -> None:
    async def said() -> list[Said]:
        return [Said("replica", 0, 0, replica_status(op=5))]

    probes = Probes(KEY, allowed=lambda _: signed_in, said=said, ready=lambda: True)
    code, body = asyncio.run(status_of(Starlette(routes=probes.routes()), "/metrics", **heads))
    assert code == status
    assert (b"tigerchat_replica_op" in body) == (status == 200)


@pytest.mark.parametrize(
    ("ready", "answer"), [(True, (200, b"ready\n")), (False, (503, b"not ready\n"))]
)
def test_whether_a_node_is_ready_is_told_in_one_word(
    ready: bool, answer: tuple[int, bytes]
) -> None:
    async def said() -> list[Said]:
        return []

    probes = Probes(KEY, allowed=lambda _: False, said=said, ready=lambda: ready)
    assert asyncio.run(status_of(Starlette(routes=probes.routes()), "/readyz")) == answer


def test_strangers_are_told_in_one_word_that_a_node_does_not_serve(tmp_path: Path) -> None:
    why = "the replica of shard 3 is not attached"
    pages = Pages(tmp_path, nodes=list, hosts=Hosts(["x"]), secure=True, health=lambda: why)
    app = pages._config.loaded_app
    assert asyncio.run(status_of(app, "/healthz", host="x")) == (503, b"unavailable\n")
    assert asyncio.run(status_of(app, "/metrics", host="x"))[0] == 404


def test_on_this_machine_a_secret_opens_one_session_that_ends_when_it_is_left(
    node: NodeFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the console's socket, as its screen asks."""
    role = ConsoleRole(node, logging.getLogger("test"), ROLES)

    def asked(**request: object) -> dict[str, Any]:
        async def run() -> dict[str, Any]:
            said = role._on_request(dict(request))
            return said if isinstance(said, dict) else await said

        return asyncio.run(run())

    role._sign_in.open()
    secret = capsys.readouterr().out.split("one-time secret: ")[1].strip()
    for wrong in ("", "AAAA", 7, None):
        said = asked(secret=wrong)
        assert "session" not in said and said["error"], wrong
    said = asked(secret=secret)
    assert said["who"].startswith("console session ") and said["session"] not in said["who"]
    assert asked(session=said["session"]) == {"signed_in": True}
    assert asked(secret=secret)["error"] == "this is not the secret printed last"
    for other in ("", "made up", 7, None):
        assert asked(session=other) == {"signed_in": False}
    asked(leave=said["session"])
    assert asked(session=said["session"]) == {"signed_in": False}
    new = asked(renew=True)["new_secret"]
    assert new != secret and new in capsys.readouterr().out
    assert "session" in asked(secret=new)
