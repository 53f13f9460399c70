"""Telling a story: its lines, one after the other, on a stage of its own."""

from collections.abc import Callable

import pytest

from appliance.simulation.failure import Violation
from tests.scenarios.stage import Stage, StoryFailed
from tests.scenarios.story import Story, Unreadable, tellings
from tests.scenarios.words import setting, words

LAST_EVENTS = 40  # shown of a story that fails


Change = Callable[[pytest.MonkeyPatch], None]


def tell(story: Story, without: Change = lambda patch: None) -> None:
    """Tell a story as often as it wants; raises StoryFailed with the line and what was seen.

    `without` takes a rule out of the product when the group has started: what follows is the story.
    """
    for value, lines in tellings(story):
        with pytest.MonkeyPatch.context() as patch:
            _tell(story, value, lines, lambda patch=patch: without(patch))


def _tell(
    story: Story, value: str, lines: list[tuple[int, str]], begun: Callable[[], None]
) -> None:
    wanted: dict[str, int] = {}
    lines = list(lines)
    while lines:
        try:
            function, arguments = setting.find(lines[0][1])
        except Unreadable:
            break
        function(wanted, **arguments)
        lines.pop(0)
    line = (0, "the beginning")
    stage = Stage(**wanted)  # type: ignore[arg-type]
    try:
        stage.begin()
        begun()
        for line in lines:
            function, arguments = words.find(line[1])
            function(stage, **arguments)
        line = (line[0], "the end")
        stage.end()
    except (AssertionError, Violation) as failure:
        where = f"{story.path.name}:{line[0]}: {line[1]}" + (f"   ({value})" if value else "")
        events = stage.trace.last()[-LAST_EVENTS:]
        raise StoryFailed(
            "\n".join([f"{where}\n{type(failure).__name__}: {failure}", *stage.report(), *events])
        ) from failure
