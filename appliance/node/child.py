"""What a supervisor runs, as the catalogue says it."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Child:
    """What to run: `command` by exec or, where `forked` holds the words of a verb, that verb in a
    fork of the supervisor, which has imported it. `stop_group`: the lowest is stopped first.
    `has_own_core`: when there are enough cores for all that want one. One that is not `vital` may
    be refused by the machine (exit code 1) for as long as it likes, if another one like it is not.
    One that `mends_itself`, such as a supervisor, is never taken for stuck: it is silent while one
    of its own is. `verb` is what follows the program in `command`, where another program may come
    in its place. One that is not `wanted` waits until it is asked for. `modules` are imported right
    before it is forked, and the lowest `start_group` is forked first: it inherits of the program
    what it and those before it need, and no more."""

    name: str
    command: Sequence[str]
    stop_group: int
    cores: frozenset[int] | None = None
    has_own_core: bool = False
    vital: bool = True
    mends_itself: bool = False
    forked: Sequence[str] | None = None
    modules: Sequence[str] = ()
    start_group: int = 0
    verb: Sequence[str] = ()
    wanted: bool = True


@dataclass(frozen=True, slots=True)
class Program:
    """Another program for a child than the one that its supervisor has started it with: the `words`
    that start it, and the folder of its `source`, empty where it is frozen."""

    words: Sequence[str]
    source: str
