"""The table of rules is right, and each rule is held by its test: seen by weakening it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import HUNG_S
from tests.security import redness
from tests.security.rules_edge import Rule
from tests.security.table import PAGE, RULES, rows

TOP = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.threat)
def test_each_rule_stands_where_the_table_says_and_has_a_test(rule: Rule) -> None:
    assert (TOP / rule.where).read_text().count(rule.old) == 1
    file, _, function = rule.test.partition("::")
    assert f"def {function}(" in (TOP / file).read_text()


def test_the_page_of_rules_is_that_of_the_table() -> None:
    assert rows() in PAGE.read_text(), "python -m tests.security.table"


def test_no_threat_is_named_twice() -> None:
    assert len({rule.threat for rule in RULES}) == len(RULES)


def weakened(rule: Rule, folder: Path) -> None:
    """A copy of the tree, without the rule."""
    for name in ("appliance", "tests", "tools", "systemd", "docs", "packaging"):
        shutil.copytree(TOP / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "Makefile"):
        shutil.copy(TOP / name, folder)
    place = folder / rule.where
    place.write_text(place.read_text().replace(rule.old, rule.new))


def reds(folder: Path, *words: str, **said: str) -> tuple[list[str], str]:
    """Why each test that turned red did, and what was said; `said` goes into the environment."""
    told = folder / "redness"
    told.touch()
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "-q", "-p", "no:cacheprovider"]
        + ["-p", redness.__name__],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), redness.FILE: str(told), **said},
        capture_output=True,
        text=True,
        timeout=HUNG_S,
        check=False,
    )
    return told.read_text().splitlines(), ran.stdout + ran.stderr


@pytest.mark.soak
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.threat)
def test_without_the_rule_its_test_turns_red(rule: Rule, tmp_path: Path) -> None:
    weakened(rule, tmp_path)
    reasons, said = reds(tmp_path, rule.test, **{redness.ENOUGH: "1"})
    assert redness.NOTICED in reasons, f"red for {reasons}\n{said}"


TESTS = """
import asyncio
import pytest

@pytest.fixture
def broken():
    assert False

def test_set_up(broken): pass
def test_crash(): len(5)
def test_crash_in_the_product():
    from appliance import parts
    parts.invariant()
def test_hang():
    with pytest.raises(ValueError):
        raise TimeoutError
def test_assertion(): assert 1 == 2
def test_failed(): pytest.fail("so")
def test_nothing_raised():
    with pytest.raises(ValueError): pass
def test_in_a_group():
    async def run():
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
    async def fails(): assert False
    asyncio.run(run())
def test_green(): pass
"""


def test_a_crash_is_not_taken_for_a_rule_that_was_missed(tmp_path: Path) -> None:
    (tmp_path / "tests").symlink_to(TOP / "tests")
    (tmp_path / "test_reds.py").write_text(TESTS)
    (tmp_path / redness.PRODUCT).mkdir()
    (tmp_path / redness.PRODUCT / "parts.py").write_text("def invariant(): assert False")
    reasons, said = reds(tmp_path, "test_reds.py", "-p", "no:xdist")
    crashes = ["while setup", "TypeError", "AssertionError", "TimeoutError"]
    assert reasons == crashes + [redness.NOTICED] * 4, said
