"""A promise that did not hold: which checker says so, and in what words."""

from typing import NoReturn


class Violation(Exception):
    """Ends the run of a seed. `checker` names who found it; the world adds when and where."""

    def __init__(self, checker: str, sentence: str) -> None:
        super().__init__(f"{checker}: {sentence}")
        self.checker, self.sentence = checker, sentence


def name_of(viewstamp: int) -> str:
    """A view as a sentence names it: views count anew in each epoch."""
    epoch, view = viewstamp >> 32, viewstamp & 0xFFFF_FFFF
    return f"view {view} of epoch {epoch}" if epoch else f"view {view}"


def violated(checker: str, sentence: str) -> NoReturn:
    """Raise the violation."""
    raise Violation(checker, sentence)


def require(condition: bool, checker: str, sentence: str) -> None:
    """Raise unless `condition`; for sentences that cost nothing to make."""
    if not condition:
        raise Violation(checker, sentence)
