"""A support bundle has what helps, and nothing that is secret."""

import base64
import json
import stat
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from appliance.__main__ import tigerchat as tigerchat_group
from appliance.base.errors import StorageError
from appliance.base.limits import MIB
from appliance.commands import support as support_verb
from appliance.drivers.chat.access import local_token
from appliance.drivers.host.node_folder import (
    FARM_OPERATOR_PASSWORD_FILE,
    FARM_PASSWORD_FILE,
    METRICS_KEY_FILE,
    SIGNING_KEY_FILE,
    TLS_KEY_FILE,
    TOKEN_KEY_FILE,
)
from appliance.formats.join_code import JoinCode, encode_join_code
from appliance.node import support
from tests.commands.conftest import Chat
from tests.system.local_site import LocalSite

USER, BODY = "zebulon-quartermaine", "what zebulon said is nobody else's business"


def line(message: str, *, age_s: float = 0, name: str = "tigerchat-edge-0") -> dict[str, Any]:
    """An entry of the journal."""
    moment = datetime.now(UTC) - timedelta(seconds=age_s)
    return {"__REALTIME_TIMESTAMP": moment, "SYSLOG_IDENTIFIER": name, "MESSAGE": message}


def planted(site: LocalSite) -> dict[str, str]:
    """Secrets, each as it could stand in a text, by what it is."""
    node, found = site.place(0), {}
    for name in (
        *(SIGNING_KEY_FILE, TLS_KEY_FILE, METRICS_KEY_FILE),
        *(FARM_PASSWORD_FILE, FARM_OPERATOR_PASSWORD_FILE),
    ):
        if (node / name).exists():
            raw = (node / name).read_bytes()
            found[f"{name} in hexadecimal"] = raw.hex()
            found[f"{name} in base64"] = base64.b64encode(raw).decode()
            found[f"{name} in base64 of addresses"] = base64.urlsafe_b64encode(raw).decode()
    for name in (METRICS_KEY_FILE, "../" + TOKEN_KEY_FILE):
        words = (node / name).read_text().split()
        found[f"{name} as it is"] = max(words, key=len)
    found["a line of a private key"] = (node / TLS_KEY_FILE).read_text().splitlines()[1]
    found["a token"] = local_token(site.folder, USER, {"*": ["read"]}, 600)
    found["a token for the metrics"] = "5nF3kq9yW0cLr7tVbZxP2aQdEo8hJmUs"
    found["the secret of the console"] = "Lp4-quiet-otter-9931"
    found["a join code"] = encode_join_code(
        JoinCode("10.0.0.1", 7500, bytes(16), bytes(range(32)), b"secret-of-a-join")
    )
    found["a password in an address"] = "hdfs:opensesame"
    found["a conversation"] = "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MDEy"
    found["a message"], found["a user"] = BODY, USER
    assert len(found) >= 20
    return found


def told(secrets: dict[str, str]) -> list[dict[str, Any]]:
    """A journal in which each of them stands."""
    forms = (" in hexadecimal", " in base64", " of addresses")
    messages = [f"read {text} there" for what, text in secrets.items() if what.endswith(forms)]
    messages += [
        f"loaded {secrets['a line of a private key']}",
        f"refused {secrets['a token']} of a stranger",
        f"Authorization: Bearer {secrets['a token for the metrics']}",
        f"https://[::1]:7480/console   one-time secret: {secrets['the secret of the console']}",
        f"print the code {secrets['a join code']} once",
        f"https://{secrets['a password in an address']}@name-node:9870/tc is away",
        f"tigerchat-session: {secrets['a conversation']}",
    ]
    messages += [f"key {text}" for what, text in secrets.items() if what.endswith("as it is")]
    return [line(message) for message in messages]


def made(site: LocalSite, out: Path) -> Result:
    words = ["support", "--node-folder", str(site.place(0)), "--out", str(out)]
    return CliRunner().invoke(tigerchat_group, words, catch_exceptions=True)


def parts_of(out: Path) -> dict[str, bytes]:
    with tarfile.open(out) as archive:
        found = {}
        for entry in archive:
            file = archive.extractfile(entry)
            assert file is not None and entry.name.startswith("bundle/")
            found[entry.name.removeprefix("bundle/")] = file.read()
        return found


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support_verb, "RATE_S", 0.01)


def test_a_bundle_has_each_part_and_nothing_of_what_is_secret(
    serving: LocalSite, chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat("room", "create", "support")
    chat("send", "support", BODY, "--user", USER)
    secrets = planted(serving)
    monkeypatch.setattr(support, "journal_entries", lambda: iter(told(secrets)))
    out = tmp_path / "bundle.tar.gz"
    result = made(serving, out)
    assert result.exit_code == 0, result.output
    assert stat.S_IMODE(out.stat().st_mode) == 0o600 and out.stat().st_size < 50 * MIB
    parts = parts_of(out)
    assert set(parts) == {
        *("README.txt", "version.json", "site.toml", "settings.json", "status.json"),
        *("machine.json", "preflight.json", "disks.json", "log.txt"),
        *("superblock-0.jsonl", "log-headers-0.jsonl"),
    }
    for name, text in parts.items():
        for what, secret in secrets.items():
            assert secret.encode() not in text, f"{what} is in {name}"
    assert len(parts["log.txt"].splitlines()) == len(told(secrets))
    assert parts["log.txt"].count(support.LEFT_OUT) >= len(told(secrets))
    assert json.loads(parts["settings.json"])["index"] == 0
    assert {row["kind"] for row in map(json.loads, parts["log-headers-0.jsonl"].splitlines())} == {
        "wal",
        "slot",
    }
    assert json.loads(parts["status.json"])["shards"]
    assert "is there already" in str(made(serving, out).exception)
    assert parts_of(out) == parts


def test_what_cannot_be_had_is_told_and_the_rest_comes(serving: LocalSite) -> None:
    def away() -> dict[str, Any]:
        raise StorageError("nobody answers")

    parts = dict(support.bundle(serving.place(0), away))
    assert parts["status.json.missing"] == b"StorageError: nobody answers\n"
    assert "superblock-0.jsonl" in parts and "status.json" not in parts


def test_a_bundle_that_breaks_off_leaves_nothing(
    serving: LocalSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> Iterator[tuple[str, bytes]]:
        yield "README.txt", b"so far"
        raise StorageError("the disk is gone")

    monkeypatch.setattr(support_verb, "bundle", breaks)
    out = tmp_path / "bundle.tar.gz"
    assert "the disk is gone" in str(made(serving, out).exception)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert made(serving, out).exit_code == 0


def test_a_bundle_is_bounded_and_says_what_has_no_room(
    serving: LocalSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(support, "SIZE_MAX", 20_000)
    monkeypatch.setattr(support, "journal_entries", lambda: iter([line("x" * 30_000)]))
    parts = dict(support.bundle(serving.place(0), dict))
    assert "log.txt" not in parts and b"'log.txt'" in parts["README.txt"]
    assert "site.toml" in parts


def test_the_journal_is_that_of_our_processes_of_a_day_oldest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def entries() -> Iterator[dict[str, Any]]:
        yield line("newest")
        yield line("of somebody else", name="sshd")
        yield line("older", age_s=80_000, name="tigerchat-replica-0")
        yield line("too old", age_s=90_000)
        raise AssertionError("nothing is read behind the first that is too old")

    lines = support.log_text(entries()).decode().splitlines()
    assert [text.split(" ", 1)[1] for text in lines] == [
        "tigerchat-replica-0: older",
        "tigerchat-edge-0: newest",
    ]
    monkeypatch.setattr(support, "LOG_SIZE_MAX", 150)
    many = [line(f"line {number}", age_s=number) for number in range(9)]
    kept = support.log_text(iter(many)).decode().splitlines()
    assert [text.rsplit(" ", 1)[1] for text in kept] == ["1", "0"]
