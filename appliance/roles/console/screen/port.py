"""What the screen needs of a site."""

import threading
from dataclasses import dataclass, field
from typing import Any, Protocol

from appliance.cores.console.console import Console
from appliance.cores.console.small_screen import Line


@dataclass(frozen=True, slots=True)
class Ended:
    """An act that was done and seen: in words, and what it gives, once."""

    words: str
    text: str = field(default="", repr=False)


class Port(Protocol):
    """What may take a while is called in a thread. Errors are ApplianceError, with a sentence."""

    @property
    def name(self) -> str:
        """What is looked at: a node, or a local site."""

    @property
    def console(self) -> Console:
        """As of the last poll."""

    @property
    def start(self) -> str:
        """The command by which whoever looks starts what is looked at."""

    async def poll(self) -> None:
        """Ask all processes how they are."""

    def network(self) -> list[Line]: ...

    def log(self) -> list[Line]:
        """Takes a while."""

    async def read_seen(self) -> None:
        """Learn who has seen which alarm. Takes a while."""

    @property
    def is_locked(self) -> bool:
        """Whether nothing is offered but reading."""

    def sign_in(self, secret: str) -> None:
        """Takes a while."""

    def new_secret(self) -> str:
        """A new one-time secret for the page, where nothing is locked. Takes a while."""

    def lock(self) -> None:
        """As at the start; where nothing was locked then, nothing is now. Takes a while."""

    def carry_out(
        self,
        offer: dict[str, Any],
        typed: str,
        written: dict[str, str],
        enough: threading.Event,
    ) -> Ended:
        """Do the act, and return when it was seen; `written` by the names of what it asks for.
        Takes a while, until `enough` at most where a console does it: then it goes on, which is an
        error here."""
