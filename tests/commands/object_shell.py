"""Replicas of the objects as processes, asked by lines of JSON."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests import forked
from tests.patience import HUNG_S


class Shell:
    """`tigerchat object shell --json`; `ask` gives the answer."""

    def __init__(self, folder: Path, source: str, *options: str) -> None:
        self.process = forked.talk(
            [
                *("object", "shell", "--json"),
                *("--folder", folder, "--src", source, "--name", f"replica {source}"),
                *("--ping-ms", "500", "--wait-ms", "2000", *options),
            ]
        )
        self.started = self.read()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise EOFError
        answer: dict[str, Any] = json.loads(line)
        return answer

    def write(self, request: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        self.write({"do": do, **arguments})
        return self.read()

    def does(self, do: str, **arguments: Any) -> dict[str, Any]:
        answer = self.ask(do, **arguments)
        assert "error" not in answer, answer
        return answer

    def batch(self, requests: list[dict[str, Any]]) -> None:
        for answer in self.does("batch", requests=requests)["answers"]:
            assert "error" not in answer, answer

    def until(self, holds: Callable[["Shell"], bool]) -> None:
        deadline = time.monotonic() + HUNG_S
        while not holds(self):
            assert time.monotonic() < deadline, self.does("status")
            time.sleep(0.02)

    def dump(self) -> dict[str, str]:
        return dict(self.does("dump")["rows"])

    def vv(self) -> str:
        found: str = self.does("vv")["vv"]
        return found

    def counters(self) -> dict[str, int]:
        found: dict[str, int] = self.does("status")["counters"]
        return found

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(timeout=HUNG_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.kill()
        self.process.__exit__()


def same(one: Shell, two: Shell) -> bool:
    """Whether both have seen the same."""
    return one.vv() == two.vv() and one.does("verify") == two.does("verify")
