"""What verbs ask of whoever keeps processes: how these are, and to stop and start one of them.

The supervisor of a local site keeps whole nodes, that of a node its roles. Nothing is told as done
before whoever keeps the process has said that it is.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance.base.errors import StorageError
from appliance.drivers.network.ask import ask_for, ask_status, status_of
from appliance.drivers.terminal.waiting import Waiting
from appliance.formats.status.edge import EdgeStatus
from appliance.formats.status.supervisor import ChildStatus, SupervisorStatus

ANSWER_S = 5.0  # for a supervisor that is there and busy
STOP_S = 30.0  # for a process to end; its supervisor kills it long before
POLL_S = 0.05


class Keeper:
    """The supervisor whose socket lies in `folder`; StorageError where none answers."""

    def __init__(self, folder: Path, cluster: bytes) -> None:
        self.folder, self._cluster = folder, cluster

    def status(self) -> SupervisorStatus | None:
        """None: nobody answers."""
        return status_of(SupervisorStatus, self.folder, cluster=self._cluster, timeout_s=ANSWER_S)

    def told(self) -> SupervisorStatus:
        said = self.status()
        if said is None:
            raise self._nobody()
        return said

    def child(self, name: str) -> ChildStatus:
        for child in self.told().children:
            if child.name == name:
                return child
        raise _unknown(name)

    def edges(self) -> list[ChildStatus]:
        return [child for child in self.told().children if child.name.startswith("edge-")]

    def stop(self, name: str) -> None:
        self._wish(name, {"stop": name})

    def start(self, name: str, **program: Any) -> None:
        """Start it again; with `program`, words, and `source`, by that one from now on."""
        self._wish(name, {"start": name, **program})

    def drain(self) -> None:
        """Have its edges send their chat clients to other nodes and end."""
        for edge in self.edges():
            if edge.wanted:
                self.stop(edge.name)

    def undrain(self) -> None:
        """Have its edges take chat clients again."""
        for edge in self.edges():
            if not edge.wanted:
                self.start(edge.name)

    def stop_edges(self, node: str) -> None:
        """Send the chat clients of the node, whose supervisor this is, to others, to the end."""
        self.drain()
        until(
            lambda: all(edge.has_ended for edge in self.edges()),
            STOP_S,
            f"not every edge of {node} has ended",
        )

    def _wish(self, name: str, wish: dict[str, Any]) -> None:
        kind, cluster = SupervisorStatus, self._cluster
        said = ask_for(kind, self.folder, wish, cluster=cluster, timeout_s=ANSWER_S)
        if said is None:
            raise self._nobody()
        if said.get("ending"):
            raise StorageError("the site is being stopped: start it again first")
        if said.get("fixed"):
            raise StorageError(f"{name} is run by no other program than its supervisor's")
        if not said.get("done"):
            raise _unknown(name)

    def _nobody(self) -> StorageError:
        return StorageError(
            f"nobody keeps the processes of {self.folder}: only a site that `tigerchat start "
            "--local` runs can be told so; under systemd use systemctl"
        )


def _unknown(name: str) -> StorageError:
    return StorageError(f"{name} was removed, or added since the site was started: restart it")


def answers_alone(sockets: Path, cluster: bytes) -> bool:
    """Whether a node serves without a supervisor of its own: all its roles are one process."""
    if Keeper(sockets, cluster).status() is not None:
        return False
    kind = EdgeStatus.socket_kind()
    return ask_status(sockets, cluster=cluster, shard=0, kind=kind) is not None


def until(condition: Callable[[], bool], seconds: float, what: str, verb: str = "node") -> None:
    """Wait for `condition`; StorageError says `what` after `seconds`. Whoever is asked may be too
    busy to answer once; that it never answers is told, too."""
    deadline = time.monotonic() + seconds
    why = ""
    with Waiting(verb) as waiting:
        waiting.on(what)
        while True:
            try:
                if condition():
                    return
                why = ""
            except StorageError as error:
                why = f": {error}"
            if time.monotonic() > deadline:
                raise StorageError(f"{what} after {seconds:.0f} s: look at its output{why}")
            time.sleep(POLL_S)
