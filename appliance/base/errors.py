"""Every error class of the product, with its stable code. A retired code is never given again.

1xxx  operator: configuration, storage, start-up          exit code 2 or 1
2xxx  input: frames, tokens, requests of a client         answered on the connection
31xx  objects: packets of other replicas, ids, edits      refused, counted, the session ends
"""


class ApplianceError(Exception):
    """Root of all we raise. AssertionError is not under it, and nobody catches that one."""

    code = 1000


class Reasoned(Exception):
    """The shape of what is refused of others and counted: `reason` is the word under which it is.

    `words` is how the sentence begins or what it stands in; without a sentence the word says all.
    """

    words = "{sentence}"

    def __init__(self, reason: str, sentence: str = "") -> None:
        said = self.words.format(reason=reason, sentence=sentence) if sentence else reason
        super().__init__(said)
        self.reason = reason


class ConfigurationError(ApplianceError):
    """A mistake of the operator: one sentence with file, field and what is allowed. Exit code 2."""

    code = 1001


class StorageError(ApplianceError):
    """The volume refused to open or to be written; the sentence says what to do."""

    code = 1002


class StoreFull(StorageError):
    """A batch does not fit into a store's map: nothing of it was written."""

    code = 1005

    def __init__(self, folder: str, map_size: int) -> None:
        super().__init__(
            f"{folder}: the store may grow to {map_size} bytes and a batch does not fit any more: "
            "enlarge it, or let it keep less"
        )
        self.map_size = map_size


class FormatError(ApplianceError):
    """Bytes at rest or from a peer are not what their layout says; the sentence names the field."""

    code = 1003


class ChainError(FormatError):
    """Committed records do not hash into the chain that the state names: going on could lie."""

    code = 1004


class InputError(ApplianceError):
    """Bad input: answered with `code` and `name`, counted, and life goes on."""

    code = 2000
    temporary = False
    retry_after_ms = 0
    ends_connection = False  # the connection that it answers makes no sense any more
    ends_stranger = False  # or only one that has not said a valid hello

    @property
    def name(self) -> str:
        """The name on the wire: the class name in snake_case."""
        letters = [
            ("_" if i and c.isupper() else "") + c.lower()
            for i, c in enumerate(type(self).__name__)
        ]
        return "".join(letters)


class ArchiveError(ApplianceError):
    """An archive to import is broken: which file, which line, what was expected there."""

    code = 1101

    def __init__(self, file: str, line: int, reason: str) -> None:
        super().__init__(f"{file}, line {line}: {reason}")
        self.file, self.line, self.reason = file, line, reason


class NotInTime(ApplianceError):
    """What a command waits for has not come: what that is, and how long it was waited for."""

    code = 1123


class TargetError(ApplianceError):
    """The place to which records are shipped: what it was asked, and what it said."""

    code = 1200


class TargetUnavailable(TargetError):
    """It may work later: the shipper tries again, the records stay in the log meanwhile."""

    code = 1201


class TargetRefused(TargetError):
    """The operator must act: rights, token, folder. Tried again too, until it is done."""

    code = 1202


class TargetDamaged(TargetError):
    """What lies there is not what was put, or cannot be put again."""

    code = 1203


class ObjectsError(ApplianceError):
    """Root of what the objects refuse; the sentence says what was wrong."""

    code = 3100


class IdOutOfBounds(ObjectsError):
    """An id does not fit 20 bits of source, 32 of packet number and its bits of field."""

    code = 3101


class PacketRefused(Reasoned, ObjectsError):
    """Bytes of another replica break a rule: `reason` names it, is counted and sent back."""

    code = 3102
    words = "{reason}: {sentence}"


class TextRefused(ObjectsError):
    """A text is no id, or no value in the notation of the objects."""

    code = 3103


class EditRefused(ObjectsError):
    """An edit of our own cannot be made: no such class or field, or a bound is reached."""

    code = 3104


class ObjectsFull(ObjectsError):
    """The store has no room for an edit: nothing of it was kept; enlarge the store."""

    code = 3105


class CausalRefused(Reasoned, FormatError):
    """Bytes or a message of another site are refused; counted by `reason`, and life goes on."""

    code = 1600
    words = "{reason}: {sentence}"


class ChannelFull(ApplianceError):
    """A channel holds as many unacknowledged messages as it may: send again later."""

    code = 1601


class FarmFrameError(Reasoned, FormatError):
    """Bytes on a farm connection are no frame of its protocol, or pass a bound.

    `reason` is a word under which it is counted.
    """

    code = 1301


class FarmMemberOut(ApplianceError):
    """This member was taken out of its farm: it starts no more on this folder."""

    code = 1302


class FarmBroken(ApplianceError):
    """What the farm's protocol rules out has happened; going on could lose what was promised."""

    code = 1303


class DirectoryRefused(Reasoned, ApplianceError):
    """A directory is not signed as it must be, or is older than one seen; `reason` is a word."""

    code = 1305
    words = "the directory is refused: {sentence}"


class FarmPostFailed(ApplianceError):
    """No member of the farm said yes in time; whether the value is stored is not known."""

    code = 1304


class FarmPostRefused(Reasoned, FarmPostFailed):
    """Who leads a farm takes this value never; `reason` is a word, the sentence says what it
    needs."""

    code = 1306
    words = "the farm refuses it: {sentence}"
