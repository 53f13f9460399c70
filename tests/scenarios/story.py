"""Stories as text: how a file of them is read, and how a line becomes a call.

    story   name_of_the_story
    about   One sentence or two: what is proved.
    rule    name of the rule without which it fails          (stories of recovery, views and repair)
    each    a name, then values: the story is told once for each of them, `$name` is the value
      a line of the story
      expect another line

Lines are indented by two or more. `#` begins a remark. What a line may say is listed in `words/`:
each kind of line is a pattern such as `{who} prepares {ops} rot`, and the function below it.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "vsr"
HEADINGS = ("about", "rule", "each")

# What stands for a placeholder, by the name of the placeholder.
SHAPES = {
    "who": r"(?:[ABRSC][0-9_](?: (?:and )?(?=[ABRSC][0-9_]))?)+",
    "whom": r"(?:[ABRSC][0-9_](?: (?:and )?(?=[ABRSC][0-9_]))?)+",
    "n": r"[0-9A-Za-z_+\-]+",
    "op": r"[0-9A-Za-z_+\-]+",
    "place": r"[0-9A-Za-z_+\-]+",
    "ops": r"[0-9A-Za-z_+\-.]+",
    "value": r"[0-9A-Za-z_+\-]+",
    "numbers": r"[0-9 ]+",
    "rest": r".+",
}
WORD = r"[a-z_A-Z0-9]+"


@dataclass(slots=True)
class Story:
    """One story. `lines` holds (line number, text)."""

    name: str
    path: Path
    about: str = ""
    rule: str = ""
    each: tuple[str, list[str]] = ("", [""])
    lines: list[tuple[int, str]] = field(default_factory=list)

    @property
    def expectations(self) -> int:
        return sum(text.startswith("expect ") for _, text in self.lines)


class Unreadable(Exception):
    """A line that no pattern fits, or a file that is no file of stories."""


def read(path: Path) -> list[Story]:
    """All stories of one file."""
    stories: list[Story] = []
    for number, raw in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = " ".join(raw.split("#")[0].split())
        if not text:
            continue
        word, _, rest = text.partition(" ")
        if raw[0] != " " and word == "story":
            stories.append(Story(rest.strip(), path))
        elif not stories:
            raise Unreadable(f"{path.name}:{number}: a story begins with `story name`: {text}")
        elif raw[0] == " ":
            stories[-1].lines.append((number, text))
        elif word in HEADINGS:
            _head(stories[-1], word, rest.strip())
        else:
            raise Unreadable(f"{path.name}:{number}: a line of a story is indented: {text}")
    return stories


def _head(story: Story, word: str, rest: str) -> None:
    if word == "about":
        story.about = f"{story.about} {rest}".strip()
    elif word == "rule":
        story.rule = rest
    else:
        name, *values = rest.split()
        story.each = (name, values)


def read_all() -> list[Story]:
    """The stories of all files, in the order of names of files."""
    return [story for path in sorted(FOLDER.glob("*.txt")) for story in read(path)]


# --- lines --------------------------------------------------------------------------------------

Call = Callable[..., Any]


class Vocabulary:
    """Patterns and what they call: the first one that fits the whole line wins."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, re.Pattern[str], Call]] = []

    @classmethod
    def of(cls, *parts: "Vocabulary") -> "Vocabulary":
        """All lines of several, in their order."""
        whole = cls()
        whole.entries = [entry for part in parts for entry in part.entries]
        return whole

    def line(self, *patterns: str) -> Callable[[Call], Call]:
        """Lets lines of these shapes call the decorated function, with placeholders by name."""

        def add(function: Call) -> Call:
            for pattern in patterns:
                self.entries.append((pattern, compiled(pattern), function))
            return function

        return add

    def find(self, text: str) -> tuple[Call, dict[str, str]]:
        """The function for a line, and its arguments as text."""
        for _, pattern, function in self.entries:
            match = pattern.fullmatch(text)
            if match:
                return function, match.groupdict()
        raise Unreadable(f"nothing in the vocabulary fits: {text}")


def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern as a regular expression; `{name}` takes the shape of that name, or one word."""
    parts = re.split(r"\{(\w+)\}", pattern)
    out = [re.escape(parts[0])]
    for name, literal in zip(parts[1::2], parts[2::2], strict=True):
        out.append(f"(?P<{name}>{SHAPES.get(name, WORD)})" + re.escape(literal))
    return re.compile("".join(out))


def tellings(story: Story) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """(value, lines) of each telling of a story."""
    name, values = story.each
    for value in values:
        lines = [(n, t.replace(f"${name}", value) if name else t) for n, t in story.lines]
        yield value, lines
