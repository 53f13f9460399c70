"""Why a chat client gives up."""

from appliance.base.errors import ApplianceError
from appliance.formats.client.connection import ErrorFrame


class SiteUnreachable(ApplianceError):
    """No node accepted the client for as long as it was told to try."""

    code = 1110


class ConnectionLost(ApplianceError):
    """This connection ended, or never began; another node may answer."""

    code = 1111


class ThrownOut(ConnectionLost):
    """A node took the connection and ended it before a word: it has more to serve than it can."""


class TurnedAway(ConnectionLost):
    """A node answered, and let nobody in with this hello yet; it may a little later."""

    def __init__(self, answer: ErrorFrame) -> None:
        super().__init__(f"{answer.name}: {answer.detail}")
        self.answer = answer


class Refused(ApplianceError):
    """The site answered with an error that trying again does not change."""

    code = 1112

    def __init__(self, answer: ErrorFrame) -> None:
        super().__init__(f"{answer.name} ({answer.error}): {answer.detail}")
        self.answer = answer
