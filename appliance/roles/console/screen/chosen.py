"""An act that was chosen on the screen: what is asked for before it begins, line by line."""

import threading
from dataclasses import dataclass, field
from typing import Any

TYPED = "typed"  # the name by which it is said that the act is meant; none of what acts ask for


@dataclass(frozen=True, slots=True)
class Question:
    name: str
    prompt: str
    usual: str = ""  # stands there at first


@dataclass(slots=True)
class Chosen:
    """`offer` as `Console.offers` has it; of what its act asks for it may say some, as `written`.
    `enough`: nobody waits for it any more.

    Invariant: `answers` holds the first questions, in their order.
    """

    offer: dict[str, Any]
    is_begun: bool = False
    answers: dict[str, str] = field(default_factory=dict)
    enough: threading.Event = field(default_factory=threading.Event)

    def questions(self) -> list[Question]:
        said = self.offer.get("written", {})
        found = [
            Question(asked["name"], f"{asked['label']}:", asked["usual"])
            for asked in self.offer["asks"]
            if asked["name"] not in said
        ]
        if name := self.offer["typed"]:
            found.append(Question(TYPED, f"Type {name} to say that it is meant:"))
        assert [each.name for each in found][: len(self.answers)] == list(self.answers)
        return found

    @property
    def unanswered(self) -> list[Question]:
        return self.questions()[len(self.answers) :]

    def question(self) -> Question | None:
        """The next; None: all is answered."""
        return next(iter(self.unanswered), None)

    def answer(self, text: str) -> str:
        """Why it is none to the next question; empty: it was taken."""
        question = self.question()
        assert question is not None and not self.is_begun
        if not text and question.name != TYPED:
            return f"write first: {question.prompt.removesuffix(':')}"
        self.answers[question.name] = text
        return ""

    @property
    def typed(self) -> str:
        return self.answers.get(TYPED, "")

    @property
    def written(self) -> dict[str, str]:
        answers = {name: text for name, text in self.answers.items() if name != TYPED}
        return {**self.offer.get("written", {}), **answers}
