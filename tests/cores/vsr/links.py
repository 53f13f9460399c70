"""Links between replicas and clients: what is sent lies on a wire, in order, until a test has it
delivered. Nodes are numbered: replicas from 0, clients from -1 downwards.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from appliance.formats.envelope import Header, Message

Rule = Callable[[int, int, Header], bool]  # (source, target, header): whether it is lost


class Links:
    """What cores send, and rules about what is lost of it."""

    def __init__(self) -> None:
        self.wire: deque[tuple[int, int, Message]] = deque()
        self.rules: list[Rule] = []
        self.trace: list[tuple[int, int, Header]] = []  # (source, target, header)

    def send(self, source: int, target: int, message: Message) -> None:
        self.trace.append((source, target, message.header))
        if not any(rule(source, target, message.header) for rule in self.rules):
            self.wire.append((source, target, message))

    def sent(self, command: int, *, source: int | None = None, since: int = 0) -> list[Header]:
        """Headers of this command that were sent, lost ones too."""
        return [
            header
            for s, _, header in self.trace[since:]
            if header.command == command and source in (None, s)
        ]

    @contextmanager
    def losing(self, rule: Rule) -> Iterator[None]:
        """Within, messages for which `rule` holds are lost."""
        self.drop(rule)
        try:
            yield
        finally:
            self.heal(rule)

    def cut(self, source: int, target: int) -> Rule:
        """Cut one direction of one link; `heal` gets what this returns."""
        return self.drop(lambda s, t, header: (s, t) == (source, target))

    def isolate(self, index: int) -> Rule:
        """Cut a replica off from the others and from all clients."""
        return self.drop(lambda s, t, header: index in (s, t))

    def drop(self, rule: Rule) -> Rule:
        self.rules.append(rule)
        return rule

    def heal(self, *rules: Rule) -> None:
        """Undo some rules; all of them if none is named."""
        for rule in rules or list(self.rules):
            self.rules.remove(rule)
