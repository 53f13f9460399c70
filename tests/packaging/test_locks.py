"""What a node and its reports are installed with is what they import."""

import ast
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
LOCKS = TOP / "packaging" / "locks"
# imported by a library, not by us: where it is asked for
ASKED_FOR = {
    "pandas": ("appliance/reports/main.py", ".toPandas()"),
}


def names_in(lock: str) -> set[str]:
    lines = (LOCKS / f"{lock}.in").read_text().splitlines()
    matches = [re.match(r"[A-Za-z][\w.-]*", line) for line in lines]
    return {found.group().lower().replace("_", "-") for found in matches if found}


@cache
def imported(folder: Path) -> set[str]:
    """Modules of others, by the first part of their name."""
    found: set[str] = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found


@cache
def owners() -> Mapping[str, list[str]]:
    """Of each module, the distributions that bring it."""
    return packages_distributions()


@pytest.mark.parametrize("lock", ["node", "reports"])
def test_what_is_installed_is_imported(lock: str) -> None:
    modules = owners()
    used = {
        distribution.lower().replace("_", "-")
        for module in imported(TOP / "appliance")
        for distribution in modules.get(module, ())
    }
    idle = names_in(lock) - used
    for name in sorted(idle):
        assert name in ASKED_FOR, f"{name} is in {lock}.in, and nothing imports it"
        file, text = ASKED_FOR[name]
        assert text in (TOP / file).read_text(), name


def test_nothing_is_installed_but_what_a_lock_names_with_its_hashes():
    installs = [
        [item.value for item in node.elts if isinstance(item, ast.Constant)]
        for node in ast.walk(ast.parse((TOP / "tools" / "setup.py").read_text()))
        if isinstance(node, ast.List)
    ]
    pip = [words for words in installs if words[:3] == ["-m", "pip", "install"]]
    assert len(pip) == 2  # into the venv, and into the one that resolves locks
    assert all("--require-hashes" in words for words in pip), pip
    assert {path.stem for path in LOCKS.glob("*.in")} == {path.stem for path in LOCKS.glob("*.txt")}
