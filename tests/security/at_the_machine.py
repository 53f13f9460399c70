"""The operator of a node that is attacked: signs in, looks, imports, reads, takes a key away."""

import asyncio
import io
import json
import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
import zipfile
from pathlib import Path

from appliance.drivers.chat.token import load_key, sign
from appliance.drivers.host.identity import jwks_of, make_token_key
from appliance.drivers.host.node_folder import open_node
from tests.patience import HUNG_S
from tests.roles.edge_site import EdgeSite, insecure, until
from tests.roles.replica_group import REPO

LOOK_EVERY_S = 0.5
MAIL = b"From x\nDate: Mon, 1 Mar 2004 10:05:00 +0000\nContent-Type: text/html\n\n"


def tigerchat(*words: object) -> "subprocess.CompletedProcess[str]":
    """A command, as the operator runs it, who leaves the nodes their processor."""
    return subprocess.run(
        ["nice", "-n", "19", sys.executable, "-m", "appliance", *map(str, words)],
        cwd=REPO,
        env={**os.environ, "PYTHONPATH": str(REPO)},
        capture_output=True,
        text=True,
        timeout=HUNG_S,
        check=False,
    )


class Operator:
    """Sits at the machine of a site's first node; its console runs within."""

    def __init__(self, site: EdgeSite, folder: Path) -> None:
        self._folder = folder  # for what he has from elsewhere
        self._site, node = site, open_node(site.node(0))
        self.port = node.node.console_port
        self._jwks = site.node(0) / "jwks.json"
        self._kept = json.loads(self._jwks.read_text())
        self._issuer, self._audience = node.site.token_issuer, node.site.token_audience
        self.looks: list[float] = []  # s that each took
        self.took: dict[str, float] = {}  # s, by command
        self._cookie = ""

    def __enter__(self) -> "Operator":
        self._process = subprocess.Popen(
            [sys.executable, "-m", "appliance", "start", "console"]
            + ["--node-folder", str(self._site.node(0))],
            cwd=REPO,
            env={**os.environ, "PYTHONPATH": str(REPO)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._secret = self._process.stdout.readline().rpartition("secret: ")[2].strip()
        until(self._listens, "the console listens")
        return self

    def _listens(self) -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", self.port)) == 0

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    # --- at the console

    def _ask(self, path: str, body: dict[str, str] | None = None) -> tuple[bytes, str]:
        """Body and cookie of what the console answers, as this machine's browser asks."""
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json", "cookie": self._cookie},
        )
        tls: ssl.SSLContext = insecure()
        with urllib.request.urlopen(request, context=tls, timeout=HUNG_S) as answer:
            return answer.read(), answer.headers.get("set-cookie", "").partition(";")[0]

    def sign_in(self) -> None:
        _, self._cookie = self._ask("/console/sign-in", {"secret": self._secret})
        assert self._cookie

    async def watch(self, until: float) -> None:
        """Look at the console again and again; how long each look took is kept."""
        while time.monotonic() < until:
            started = time.monotonic()
            shown, _ = await asyncio.to_thread(self._ask, "/console/status")
            self.looks.append(time.monotonic() - started)
            assert "connection_events" in json.loads(shown)
            await asyncio.sleep(LOOK_EVERY_S)

    def counted(self) -> dict[str, int]:
        """What came to the console's port, by name."""
        return json.loads(self._ask("/console/status")[0])["connection_events"]

    # --- keys

    def token_of_another_key(self, user: str, rights: dict[str, list[str]]) -> str:
        """Signed with a key of its own, which the first node knows from now on."""
        pem = make_token_key()
        other = json.loads(jwks_of(pem))
        self._jwks.write_text(json.dumps({"keys": self._kept["keys"] + other["keys"]}))
        return sign(
            load_key(pem.encode(), "a key of its own"),
            issuer=self._issuer,
            audience=self._audience,
            user=user,
            rights=rights,
            ttl_s=3600,
        )

    def take_key_away(self) -> None:
        self._jwks.write_text(json.dumps(self._kept))

    # --- commands

    def import_hostile(self) -> None:
        """A mail that is dear to read is read, and a zip that unpacks to too much is refused."""
        mail, bomb = self._folder / "hostile.mbox", self._folder / "bomb.zip"
        mail.write_bytes(MAIL + b"<style\n" * 57_000)
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as made:
            made.writestr("channels.json", "[]")
            for day in range(1, 20):
                made.writestr(f"general/2020-01-{day:02}.json", b" " * 5_000_000 + b"[]")
        bomb.write_bytes(data.getvalue())
        for kind, path, code in (("mbox", mail, 0), ("slack", bomb, 1)):
            started = time.monotonic()
            ran = tigerchat("import", kind, path, "--room", "old", "--local", self._site.folder)
            self.took[f"import {kind}"] = time.monotonic() - started
            assert ran.returncode == code, ran
        assert "unpacks to too much" in ran.stderr, ran

    def reads(self, room: str) -> list[str]:
        """Bodies of a room by `tail --json`, of which no line commands a terminal."""
        ran = tigerchat(
            "tail", room, "--no-follow", "--json", "--last", 1_000_000, "--local", self._site.folder
        )
        assert ran.returncode == 0, ran
        lines = ran.stdout.splitlines()
        assert all(line.isascii() and line.isprintable() for line in lines)
        return [json.loads(line)["body"] for line in lines]
