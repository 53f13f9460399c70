"""What of a connection is still in memory, though it has ended."""

import weakref
from collections.abc import Callable

import pytest


def kept_of(kinds: list[type], monkeypatch: pytest.MonkeyPatch) -> "weakref.WeakSet[object]":
    """All objects of these classes that are made from now on, for as long as they are."""
    kept: weakref.WeakSet[object] = weakref.WeakSet()

    def noting(kind: type) -> Callable[..., None]:
        born = getattr(kind, "__init__")  # noqa: B009 - of a class, not of an object

        def init(self: object, *words: object, **named: object) -> None:
            kept.add(self)
            born(self, *words, **named)

        return init

    for kind in kinds:
        monkeypatch.setattr(kind, "__init__", noting(kind))
    return kept
