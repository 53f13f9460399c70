"""The table of rules is right, and each rule is held by its test: seen by weakening it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import HUNG_S
from tests.security.rules_edge import Rule
from tests.security.table import PAGE, RULES, rows

TOP = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.threat)
def test_each_rule_stands_where_the_table_says_and_has_a_test(rule: Rule):
    assert (TOP / rule.where).read_text().count(rule.old) == 1
    file, _, function = rule.test.partition("::")
    assert f"def {function}(" in (TOP / file).read_text()


def test_the_page_of_rules_is_that_of_the_table():
    assert rows() in PAGE.read_text(), "python -m tests.security.table"


def test_no_threat_is_named_twice():
    assert len({rule.threat for rule in RULES}) == len(RULES)


@pytest.mark.soak
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.threat)
def test_without_the_rule_its_test_turns_red(rule: Rule, tmp_path: Path):
    for name in ("appliance", "tests", "tools", "systemd", "docs"):
        shutil.copytree(TOP / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(TOP / "pyproject.toml", tmp_path)
    weakened = tmp_path / rule.where
    weakened.write_text(weakened.read_text().replace(rule.old, rule.new))
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", rule.test, "-q", "-x", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=HUNG_S,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
