"""Members of a farm as real processes on loopback, with TLS and pinned keys."""

import asyncio
import json
import os
import signal
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from appliance.cores.raft.dial import Challenges, Credentials
from appliance.drivers.host.identity import make_certificate
from appliance.drivers.network.farm_stream import Route
from appliance.drivers.network.tls import spki_digest
from appliance.formats.raft_legacy.configuration import Server, endpoint_address
from appliance.formats.raft_legacy.frame import Request
from appliance.roles.farm.client import FarmClient
from appliance.roles.farm.link import Keys
from appliance.roles.farm.settings import make_user, write_users
from tests import forked
from tests.patience import HUNG_S

PASSWORD = "a password of a test"
FARM = "farm"

Process = subprocess.Popen[bytes] | forked.Started


class Cluster:
    """Folders, ports, keys and users for members 1 to `count`; processes as they are started."""

    def __init__(
        self, folder: Path, ports: list[int], *, static: int, carrier: str = "tls"
    ) -> None:
        self.folder, self.carrier, self.static = folder, carrier, static
        self.ports = dict(enumerate(ports, 1))
        self.processes: dict[int, Process] = {}
        self.pins: dict[int, bytes] = {}
        self.options: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "password").write_text(PASSWORD + "\n")
        (folder / "password").chmod(0o600)
        rows = [self._row(f"node{i}", "member", i) for i in self.ports]
        rows += [self._row("admin", "administrator", 0), self._row("poster", "client", 0)]
        rows.append(self._row("gateway", "shared", 0))  # posts statuses of any id
        write_users(folder / "users.json", rows)
        for member in self.ports:
            self._make_key(member)

    def _row(self, name: str, role: str, server_id: int) -> dict[str, Any]:
        return make_user(name=name, role=role, server_id=server_id, realm="farm", password=PASSWORD)

    def _make_key(self, member: int) -> None:
        key, certificate = make_certificate(f"node{member}", self.host(member))
        (self.folder / f"key{member}.pem").write_text(key)
        (self.folder / f"certificate{member}.pem").write_text(certificate)
        self.pins[member] = spki_digest(ssl.PEM_cert_to_DER_cert(certificate))

    def host(self, member: int) -> str:
        return "127.0.0.1"

    def started(self, member: int, log: int) -> Process:
        """Its process, where it lives."""
        return forked.start(self.words(member), environment=os.environ, output=log)

    def endpoint(self, member: int) -> str:
        return f"tcp://{self.host(member)}:{self.ports[member]}"

    def member_folder(self, member: int) -> Path:
        return self.folder / f"member{member}"

    def words(self, member: int) -> list[str]:
        joins = member > self.static
        words = ["farm", "serve"]
        words += ["--folder", str(self.member_folder(member)), "--id", str(member)]
        words += ["--farm", FARM, "--listen", f"{self.host(member)}:{self.ports[member]}"]
        words += ["--carrier", self.carrier, "--log-level", "warning", *self.options]
        if joins:
            words.append("--join")
        for other in range(1, self.static + 1):
            if other != member and not joins:
                words += ["--peer", f"{other}={self.endpoint(other)}"]
        if self.carrier != "raw":
            words += ["--user", f"node{member}", "--password-file", str(self.folder / "password")]
            words += ["--users-file", str(self.folder / "users.json")]
        if self.carrier == "tls":
            words += ["--certificate", str(self.folder / f"certificate{member}.pem")]
            words += ["--key", str(self.folder / f"key{member}.pem")]
            for other, pin in self.pins.items():
                words += ["--pin", f"{other}={pin.hex()}"]
        return words

    # --- processes --------------------------------------------------------------------------------

    def start(self, *members: int) -> None:
        for member in members:
            assert member not in self.processes
            with (self.folder / f"log{member}").open("ab") as log:
                self.processes[member] = self.started(member, log.fileno())

    def kill(self, member: int) -> None:
        process = self.processes.pop(member)
        process.send_signal(signal.SIGKILL)
        process.wait(HUNG_S)

    def stop(self, *members: int) -> None:
        """As an operator does; what a stopped member leaves is complete."""
        wanted = members or tuple(self.processes)
        for member in wanted:
            self.processes[member].send_signal(signal.SIGTERM)
        for member in wanted:
            code = self.processes.pop(member).wait(HUNG_S)
            assert code == 0, (member, code, self.log(member))

    def end(self) -> None:
        for member in list(self.processes):
            self.kill(member)

    def log(self, member: int) -> str:
        return (self.folder / f"log{member}").read_text()

    # --- asking -----------------------------------------------------------------------------------

    def route_of(self, server_id: int, endpoint: str) -> Route:
        host, port = endpoint_address(endpoint)
        return Route(host, port, self.pins.get(server_id) if self.carrier == "tls" else None)

    def client(self, user: str = "poster") -> FarmClient:
        credentials = None if self.carrier == "raw" else Credentials(user, PASSWORD)
        servers = [Server(i, self.endpoint(i)) for i in range(1, self.static + 1)]
        return FarmClient(servers, Keys(FARM, credentials, Challenges()), self.route_of)

    def ask(self, request: Request, user: str = "admin") -> int:
        """The leader that said yes."""

        async def ask() -> int:
            client = self.client(user)
            try:
                return await client.ask(request, HUNG_S)
            finally:
                await client.close()

        return asyncio.run(ask())

    def leader(self) -> int:
        return self.ask(Request(5), "poster")

    def dump(self, member: int, *options: str) -> list[dict[str, Any]]:
        done = forked.run(["farm", "dump", *options, "--folder", self.member_folder(member)])
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


def running(folder: Path, ports: list[int], static: int, **options: Any) -> Iterator[Cluster]:
    cluster = Cluster(folder, ports, static=static, **options)
    cluster.start(*range(1, static + 1))
    yield cluster
    cluster.end()
