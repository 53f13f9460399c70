"""Stories told over the simulator's cluster: docs/scenarios.md tells how to read and write one."""

from pathlib import Path

import pytest

from tests.scenarios.names import GROUP_OF, NAMES, PROVING
from tests.scenarios.rules import RULES
from tests.scenarios.stage import StoryFailed
from tests.scenarios.story import Story, Unreadable, read, read_all
from tests.scenarios.telling import tell

STORIES = read_all()
PROOFS = [story for story in STORIES if story.rule]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_story(story: Story) -> None:
    tell(story)


@pytest.mark.parametrize("story", PROOFS, ids=lambda story: f"{story.name}-{story.rule}")
def test_a_story_fails_without_the_rule_that_it_proves(story: Story) -> None:
    with pytest.raises(StoryFailed):
        tell(story, RULES[story.rule])


def test_each_of_the_names_has_one_story() -> None:
    found = [story.name for story in STORIES]
    assert len(found) == len(set(found)), "a name has two stories"
    assert set(found) == set(NAMES.values())


def test_a_story_lies_in_the_file_of_its_group_says_what_it_proves_and_expects_something() -> None:
    for story in STORIES:
        assert story.path.stem == GROUP_OF[story.name], story.name
        assert story.about.endswith("."), story.name
        assert story.expectations >= 1, f"{story.name} expects nothing"


def test_stories_of_recovery_views_and_repair_name_a_rule_and_each_rule_is_named() -> None:
    for story in STORIES:
        assert bool(story.rule) or GROUP_OF[story.name] not in PROVING, story.name
    assert {story.rule for story in PROOFS} == set(RULES)


# --- the language -------------------------------------------------------------------------------


def one(folder: Path, text: str) -> Story:
    path = folder / "one.txt"
    path.write_text(text)
    return read(path)[0]


def test_an_expectation_that_is_not_so_fails_and_names_its_line(tmp_path: Path) -> None:
    story = one(tmp_path, "story s\n  write until op 5\n  expect A0 commit_min 4\n")
    with pytest.raises(StoryFailed, match="one.txt:3: expect A0 commit_min 4"):
        tell(story)


def test_waiting_for_what_does_not_come_fails(tmp_path: Path) -> None:
    story = one(tmp_path, "story s\n  run until B1 leads within 5 ticks\n")
    with pytest.raises(StoryFailed, match="within 5 ticks it did not happen: B1 leads"):
        tell(story)


@pytest.mark.parametrize("line", ["A0 explodes", "expect A0", "write until", "run 3 ticks of"])
def test_a_line_that_nobody_understands_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(Unreadable):
        tell(one(tmp_path, f"story s\n  {line}\n"))


@pytest.mark.parametrize("text", ["  expect no primary\n", "story s\nexpect no primary\n"])
def test_a_file_without_the_form_of_stories_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(Unreadable):
        one(tmp_path, text)
