"""What the screen needs of a site."""

from typing import Any, Protocol

from appliance.cores.console.console import Console
from appliance.cores.console.small_screen import Line


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

    def offers(self) -> list[dict[str, Any]]:
        """The acts that this screen can carry out, as `act_offers` has them."""

    @property
    def is_locked(self) -> bool:
        """Whether nothing is offered but reading."""

    def sign_in(self, secret: str) -> None:
        """Takes a while."""

    def new_secret(self) -> str:
        """A new one-time secret for the page, where nothing is locked. Takes a while."""

    def lock(self) -> None:
        """As at the start; where nothing was locked then, nothing is now. Takes a while."""

    def carry_out(self, offer: dict[str, Any], typed: str) -> None:
        """Do the act, and return when it was seen. Takes a while."""
