"""A site of three nodes of a checkout, in clear text to its clients.

Signatures, mutual TLS between nodes, two ordered durable writes and assertions are on.
"""

import json
import select
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import psutil

from tests.bench.peers.loop import BODY_SIZE, ROOMS, SENDERS, WINDOW, PeerFailed, Round
from tests.bench.peers.servers import NODES, READY_WITHIN_S, STOPS_WITHIN_S
from tests.bench.peers.trees import Offers, Tree, offers_of
from tests.ports import port_is_free

GENERATOR = Path(__file__).with_name("generator.py")
TRIES = 3  # of a round, when something that passes came between
PAUSE_S = 1.0  # for it to pass
ANSWER_WITHIN_S = 300.0  # of its generator, whatever it is asked; the search takes longest
LINES_SHOWN = 20


class TigerChat:
    """One shard on three nodes of `tree`, and the generator that the tree brings."""

    note = ""

    def __init__(self, tree: Tree, folder: Path, first_port: int, *, brief: bool) -> None:
        self.tree, self.folder, self.first_port, self.brief = tree, folder, first_port, brief
        self.name = tree.name
        self._nodes: list[subprocess.Popen[bytes]] = []
        self._processes: list[psutil.Process] = []
        self._generator: subprocess.Popen[str] | None = None
        self._log: IO[bytes] = (folder.parent / f"{folder.name}.log").open("ab")
        self._offers: Offers | None = None

    # --- life

    def start(self) -> None:
        """Make the site; wait until it serves."""
        self._generator = self._started_generator()
        offers = self._offers = offers_of(self.tree, self._ask("offers"))
        self.tree.run(offers.words_of_format(self.folder, self.first_port, brief=self.brief))
        self._ask("configure", chosen=offers.chosen_settings())
        self._start_nodes()
        self._until_serving()
        roots = [psutil.Process(node.pid) for node in self._nodes]
        self._processes = [p for root in roots for p in (root, *root.children(recursive=True))]

    def _started_generator(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.tree.python, "-P", str(GENERATOR), str(self.folder)],
            cwd=self.tree.top,
            env=self.tree.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def _start_nodes(self) -> None:
        assert self._offers is not None
        for node in range(NODES):
            self._nodes.append(
                subprocess.Popen(
                    self.tree.command(self._offers.words_of_start(self.folder / f"node-{node}")),
                    cwd=self.tree.top,
                    env=self.tree.environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=self._log,
                    start_new_session=True,
                )
            )

    def _until_serving(self) -> None:
        until = time.monotonic() + READY_WITHIN_S
        while True:
            told = self._ask("status")
            found = told["replicas"]
            if all(status and status["status"] == "normal" for status in found):
                same = {(status["view"], status["op"], status["commit_min"]) for status in found}
                if len(same) == 1 and not any(map(port_is_free, told["client_ports"])):
                    return
            ended = [node.pid for node in self._nodes if node.poll() is not None]
            if ended or time.monotonic() > until:
                raise PeerFailed(f"{self.name} does not serve: {told}\n{self._said()}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End every process of the site at once: what was acknowledged outlives it."""
        for node in self._nodes:
            node.kill()  # the kernel does the same to each of its roles
        for node in self._nodes:
            node.wait(STOPS_WITHIN_S)
        _, left = psutil.wait_procs(self._processes, timeout=STOPS_WITHIN_S)
        assert not left, f"not ended: {left}"
        self._nodes.clear()
        self._processes.clear()

    def close(self) -> None:
        """The generator as well."""
        self.stop()
        if self._generator is not None:
            self._generator.kill()
            self._generator.communicate()
            self._generator = None
        self._log.close()

    # --- what it costs

    def cpu_s(self) -> float:
        total = 0.0
        for process in self._processes:
            try:
                times = process.cpu_times()
            except psutil.Error:
                raise PeerFailed(f"{self.name}: a process of the site ended") from None
            total += times.user + times.system
        return total

    def generator_cpu_s(self) -> float:
        assert self._generator is not None
        times = psutil.Process(self._generator.pid).cpu_times()
        return times.user + times.system

    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    # --- rounds

    def _ask(self, what: str, **wanted: Any) -> dict[str, Any]:
        generator = self._generator
        assert generator is not None and generator.stdin is not None
        assert generator.stdout is not None
        with suppress(BrokenPipeError):
            generator.stdin.write(json.dumps({"what": what} | wanted) + "\n")
            generator.stdin.flush()
        ready, _, _ = select.select([generator.stdout], [], [], ANSWER_WITHIN_S)
        if not ready:
            raise PeerFailed(f"{self.name}: `{what}` takes too long\n{self._said()}")
        line = generator.stdout.readline()
        if not line:
            raise PeerFailed(f"{self.name}: its generator has ended\n{self._said()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _said(self) -> str:
        """The newest lines of what its processes say."""
        lines = Path(self._log.name).read_text(errors="replace").splitlines()
        return "\n".join(lines[-LINES_SHOWN:])

    def _round(self, what: str, **wanted: Any) -> dict[str, Any]:
        """A round, again if a view change or a lost connection came between."""
        answer: dict[str, Any] = {}
        for _ in range(TRIES):
            answer = self._ask(what, **wanted)
            if "disturbed" not in answer:
                return answer
            time.sleep(PAUSE_S)
        raise PeerFailed(f"{self.name}: each try was disturbed, {answer['disturbed']}")

    async def acknowledge(self, in_flight: int, seconds: float) -> Round:
        row = self._round(
            "acknowledge",
            in_flight=in_flight,
            seconds=seconds,
            senders=SENDERS,
            rooms=ROOMS,
            body_size=BODY_SIZE,
        )
        return Round(**row)

    async def fan_out(self, listeners: int, messages: int) -> float:
        row = self._round(
            "fan_out", listeners=listeners, messages=messages, window=WINDOW, body_size=BODY_SIZE
        )
        return float(row["per_s"])

    # --- what was kept, and how

    def statuses(self) -> list[dict[str, Any]]:
        """What each replica says of itself; who does not answer in time is asked again."""
        until = time.monotonic() + READY_WITHIN_S
        while not all(found := self._ask("status")["replicas"]):
            if time.monotonic() > until:
                raise PeerFailed(f"{self.name}: a replica is silent: {found}\n{self._said()}")
            time.sleep(0.1)
        told: list[dict[str, Any]] = found
        return told

    def strangers(self) -> list[tuple[str | None, bool]]:
        """Of each replica's port: the version of TLS, whether one without certificate is turned
        away."""
        return [(version, refused) for version, refused in self._ask("strangers")["peers"]]

    def search(self) -> dict[str, Any]:
        """Of a site that was stopped: what its volumes hold of what was acknowledged."""
        assert not self._nodes
        return self._ask("search")
