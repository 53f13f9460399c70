"""How the screen has the node's console do an act: by table, function, list and audit of the page.
The act goes on when the screen is left."""

import threading
import time
from typing import Any

from appliance.base.errors import FormatError, StorageError
from appliance.cores.console.acts import BY_NAME
from appliance.drivers.host.node_folder import KnownNode
from appliance.drivers.network.ask import ask_for, status_of
from appliance.formats.status.console import DONE, RUNNING, ConsoleStatus, OperatorAct
from appliance.roles.console.screen.port import Ended

ANSWER_S = 5.0  # for a console that hashes a secret, or judges an act
POLL_S = 0.3  # between two polls of an act that is under way
LATER_S = 60.0  # beyond what the console itself waits for
SILENT_S = 60.0  # without an answer: more than a console takes that was started anew meanwhile
NOT_TOLD = "the console did not answer in time: the log, 4, shows whether it was begun"
NO_END = "the console has not said how it ended: look whether it came about"
GOES_ON = "it goes on, and is waited for no more: the log, 4, shows how far it is"
NOT_GIVEN = "done, and what it gives is not there any more: the session or the console has ended"


def asked(node: KnownNode, request: dict[str, Any]) -> dict[str, Any]:
    """What the node's console says to a request; nothing: it does not answer."""
    cluster = node.site.cluster
    said = ask_for(ConsoleStatus, node.sockets, request, cluster=cluster, timeout_s=ANSWER_S)
    return {} if said is None else said


def alarms_of(node: KnownNode) -> list[dict[str, Any]]:
    """The alarms of a day, as the node's console knows them."""
    return list(asked(node, {"alarms": "day"}).get("alarms", ()))


def carried_out(
    node: KnownNode,
    offer: dict[str, Any],
    typed: str,
    written: dict[str, str],
    who: dict[str, str],
    enough: threading.Event,
) -> Ended:
    """Once it was seen. StorageError says why it was refused, has failed, or was not seen, or that
    nobody waits any more: `enough`. `who` asks, as `act_at_the_machine` takes it."""
    act = {"act": offer["act"], "about": offer["about"], "typed": typed, "written": written}
    said = asked(node, {"begin": act, **who})
    if type(said.get("number")) is not int:
        raise StorageError(str(said.get("error", NOT_TOLD)))
    patience_s = 2 * BY_NAME[offer["act"]].patience_s + LATER_S
    told = _ended(node, said["number"], patience_s, enough)
    if told.state != DONE:
        raise StorageError(f"{told.state}: {told.words}")
    if not told.gives:
        return Ended(told.words)
    given = asked(node, {"take": said["number"], **who})
    if type(given.get("text")) is not str:
        raise StorageError(NOT_GIVEN)
    return Ended(told.words, given["text"])


def _ended(node: KnownNode, number: int, patience_s: float, enough: threading.Event) -> OperatorAct:
    """The act, once it does not run any more."""
    begun = heard = time.monotonic()
    while time.monotonic() < min(begun + patience_s, heard + SILENT_S):
        acts = _acts(node)
        if acts is not None:
            heard = time.monotonic()
        for act in acts or ():
            if act.number == number and act.state != RUNNING:
                return act
        if enough.wait(POLL_S):
            raise StorageError(GOES_ON)
    raise StorageError(NO_END)


def _acts(node: KnownNode) -> list[OperatorAct] | None:
    """None: the console does not answer."""
    try:
        told = status_of(ConsoleStatus, node.sockets, cluster=node.site.cluster)
    except FormatError:
        return None
    return None if told is None else told.operator_acts
