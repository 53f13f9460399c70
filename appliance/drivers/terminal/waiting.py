"""What a command waits for, said where its operator sits, once it lasts."""

import threading

import click

from appliance.base.printable import one_line

TELL_AFTER_S = 3.0


class Waiting:
    """`with` it; `on` says what is waited for now. What lasts for TELL_AFTER_S is told on stderr,
    and what it is later, each once. A thread does so: the command may hang in a question.
    """

    def __init__(self, verb: str, after_s: float = TELL_AFTER_S) -> None:
        self._verb, self._after_s = verb, after_s
        self._what = self._told = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="waiting", daemon=True)

    def __enter__(self) -> "Waiting":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def on(self, what: str) -> None:
        """`what`, in words, is waited for from now on; empty: nothing is."""
        self._what = what

    def _run(self) -> None:
        while not self._ended.wait(self._after_s):
            what = self._what
            if what and what != self._told:
                self._told = what
                click.echo(f"{self._verb}: waits: {one_line(what)}", err=True)
