"""Tokens that `token` signs are what the edge accepts; mistakes end in a sentence."""

import json
import time
from pathlib import Path

import pytest

from appliance.cores.edge.token import Tokens, parse_jwks
from appliance.formats.client.rights import ADMIN, READ, SEND
from appliance.formats.site import load_site
from tests.commands.conftest import Sentence, Tigerchat
from tests.system.local_site import LocalSite


@pytest.fixture(scope="module")
def verifier(serving: LocalSite) -> Tokens:
    keys = parse_jwks((serving.place(0) / "jwks.json").read_bytes())
    site = load_site(serving.folder / "site.toml")
    return Tokens(issuer=site.token_issuer, audience=site.token_audience, keys=keys)


def test_token_is_accepted_and_says_user_rights_and_time(
    tigerchat: Tigerchat, serving: LocalSite, verifier: Tokens
) -> None:
    done = tigerchat(
        "token",
        "--local",
        serving.folder,
        "--user",
        "alice",
        "--ttl",
        "2h",
        "--right",
        "*=read",
        "--right",
        "team-*=send,admin",
    )
    assert done.returncode == 0, done.stderr
    now = time.time()
    claims = verifier.verify(done.stdout.strip(), int(now * 1e6))
    assert claims.author == "alice"
    assert abs(claims.expires_us / 1e6 - now - 7200) < 30
    assert claims.rights_in("general") == READ
    assert claims.rights_in("team-x") == READ | SEND | ADMIN


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--right", "*=fly"], "--right is '*=fly'; allowed: PATTERN=RIGHT"),
        (["--right", "read"], "--right is 'read'"),
        (["--ttl", "long"], "--ttl is 'long'; allowed: a number and s, m, h or d"),
        (["--ttl", "0h"], "--ttl is '0h'"),
        (["--user", "x" * 200], "--user is"),
        (["--local", "/nowhere"], "site.toml is missing"),
    ],
)
def test_token_mistakes_are_one_sentence(
    tigerchat: Tigerchat, sentence: Sentence, serving: LocalSite, words: list[str], complaint: str
) -> None:
    done = tigerchat("token", "--local", serving.folder, "--user", "alice", *words)
    assert complaint in sentence(done, 2)


def test_token_without_its_key_says_so(
    tigerchat: Tigerchat, sentence: Sentence, serving: LocalSite, tmp_path: Path
) -> None:
    (tmp_path / "site.toml").write_text((serving.folder / "site.toml").read_text())
    done = tigerchat("token", "--local", tmp_path, "--user", "alice")
    assert "token.key: No such file" in sentence(done, 2)
    (tmp_path / "token.key").write_text("no key")
    assert "token.key can be read by others" in sentence(
        tigerchat("token", "--local", tmp_path, "--user", "alice"), 2
    )
    (tmp_path / "token.key").chmod(0o600)
    done = tigerchat("token", "--local", tmp_path, "--user", "alice")
    assert "token.key is no private key" in sentence(done, 2)


def test_token_for_reading_may_not_send_and_works_by_address(
    tigerchat: Tigerchat, sentence: Sentence, serving: LocalSite, tmp_path: Path
) -> None:
    assert tigerchat("room", "create", "rights", "--local", serving.folder).returncode == 0
    token = tigerchat("token", "--local", serving.folder, "--user", "bob", "--right", "*=read")
    (tmp_path / "token").write_text(token.stdout)
    (tmp_path / "ca.pem").write_text(serving.site.nodes[1].client_anchor)
    address = [
        "--url",
        f"wss://127.0.0.1:{serving.site.nodes[1].client_port}",
        "--token-file",
        tmp_path / "token",
        "--ca",
        tmp_path / "ca.pem",
    ]
    serving.wait_told()
    listed = tigerchat("room", "list", "--json", *address)
    assert listed.returncode == 0, listed.stderr
    assert "rights" in [json.loads(line)["name"] for line in listed.stdout.splitlines()]
    assert "forbidden (2020)" in sentence(tigerchat("send", "rights", "hi", *address), 1)


def test_address_without_a_token_is_a_mistake(tigerchat: Tigerchat, sentence: Sentence) -> None:
    done = tigerchat("room", "list", "--url", "wss://127.0.0.1:1")
    assert "--url needs --token-file" in sentence(done, 2)
