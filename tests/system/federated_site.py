"""Sites for tests that share rooms: each a site of real processes, known to the others by code."""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from appliance.drivers.chat.access import local_token
from appliance.drivers.host.node_folder import FEDERATION_FILE, read_node
from appliance.formats.status.federation import FederationStatus, SharedRoomStatus
from appliance.roles.operator.federation import ask
from tests import forked
from tests.system.local_site import LocalSite, run
from tests.system.network import Switch
from tests.system.networked_site import NetworkedSite
from tests.web.site import RIGHTS

# How often a site sums up a log for another one, and how long `verify` waits to ask it again.
SUMS_UP_SOON: Mapping[str, float] = {"appliance.cores.federation.exchange._SUMMARY_MS": 100}
ASKS_SOON: Mapping[str, float] = {"appliance.roles.operator.federation._PAUSE_S": 0.15}


def said(
    *words: str, namespace: str = "", constants: Mapping[str, float] = forked.NO_CONSTANTS
) -> str:
    """What a command that must work prints on standard output."""
    done = run(*words, namespace=namespace, constants=constants)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout.strip()


class FederatedSite(LocalSite):
    """A site called `name` among sites."""

    def __init__(self, folder: Path, first_port: int, name: str, **others: Any) -> None:
        super().__init__(folder, first_port, **others)
        self.name = name

    def _settle(self) -> None:
        super()._settle()
        self.federation("init", self.name)
        assert (self.place(0) / FEDERATION_FILE).stat().st_mode & 0o777 == 0o600

    def federation(self, *words: str) -> str:
        return self.said("federation", *words, "--local", str(self.folder))

    def said(self, *words: str) -> str:
        """What a command that must work prints, where the nodes can be reached."""
        return said(*words)

    def know(self, other: "FederatedSite", *words: str) -> None:
        """Take the other's invitation; nodes that run follow at once."""
        self.federation("add-site", other.federation("invite"), *words)

    def told(self) -> list[FederationStatus | None]:
        """What each node's federation tells; None of one that does not."""
        return [ask(read_node(self.place(node))) for node in self.nodes]

    def rooms(self) -> list[SharedRoomStatus]:
        """The shared rooms, as the node tells that carries them."""
        shards = [shard for told in self.told() if told is not None for shard in told.shards]
        return [room for shard in shards if shard.carries for room in shard.rooms]

    def send(self, room: str, text: str) -> None:
        said("send", "--local", str(self.folder), room, text)

    def texts(self, room: str) -> list[str]:
        """What the room's messages say, in the order of this site's log."""
        lines = said(
            "tail", "--no-follow", "--json", "--last", "10000", "--local", str(self.folder), room
        )
        rows = [json.loads(line) for line in lines.splitlines()]
        return [row["body"] for row in rows if row["kind"] in ("message", "federated", 0, 6)]

    def kill_federation(self, node: int = 0) -> None:
        """SIGKILL to the process; its supervisor starts it again."""
        for process in self.processes(node, "federation"):
            process.kill()


class Door(FederatedSite):
    """A site as windows enter it, whose logs are compared without a pause."""

    def __init__(self, folder: Path, first_port: int, name: str, **others: Any) -> None:
        super().__init__(folder, first_port, name, constants=SUMS_UP_SOON, **others)

    def said(self, *words: str) -> str:
        return said(*words, constants=ASKS_SOON)

    def chat_url(self, node: int) -> str:
        return f"https://127.0.0.1:{self.site.nodes[node].client_port}/"

    def token(self, user: str) -> str:
        return local_token(self.folder, user, RIGHTS, 600)


class ApartSite(FederatedSite, NetworkedSite):
    """A federated site with `places` on a switch; its roles are children of this process."""

    def __init__(
        self,
        folder: Path,
        switch: Switch,
        name: str,
        places: Sequence[int],
        number: int,
        **others: Any,
    ) -> None:
        others = {"supervised": False, "geometry": "small", "log_level": "warning", **others}
        NetworkedSite.__init__(self, folder, switch, places=places, number=number, **others)
        self.name = name

    def said(self, *words: str) -> str:
        """From the clients' namespace."""
        return said(*words, namespace=self.switch.load)

    def carrying(self) -> int | None:
        """The node that carries the shared rooms, as far as can be seen."""
        for node, told in enumerate(self.told()):
            if told is not None and any(shard.carries for shard in told.shards):
                return node
        return None


@contextmanager
def running(*sites: FederatedSite) -> Iterator[None]:
    """Start them beside each other; nothing is left running."""
    with ExitStack() as stack:
        for site in sites:
            stack.callback(site.__exit__)
        with ThreadPoolExecutor(len(sites)) as pool:
            for started in [pool.submit(site.__enter__) for site in sites]:
                started.result()
        yield
