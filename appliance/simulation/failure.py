"""A promise that did not hold: which checker says so, and in what words."""

from typing import NoReturn


class Violation(Exception):
    """Ends the run of a seed. `checker` names who found it; the world adds when and where."""

    def __init__(self, checker: str, sentence: str) -> None:
        super().__init__(f"{checker}: {sentence}")
        self.checker, self.sentence = checker, sentence


def violated(checker: str, sentence: str) -> NoReturn:
    """Raise the violation."""
    raise Violation(checker, sentence)


def require(condition: bool, checker: str, sentence: str) -> None:
    """Raise unless `condition`; for sentences that cost nothing to make."""
    if not condition:
        raise Violation(checker, sentence)
