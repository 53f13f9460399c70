"""The pages for newcomers name files, functions and commands that exist."""

import ast
import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PAGES = ("CONTRIBUTING.md", "docs/architecture.md", "docs/protocol.md")
QUESTIONS = 12
NAMED = re.compile(r"`((?:appliance|tests|tools|systemd|docs|packaging)/[\w./-]*)`(?: `([\w.]+)`)?")


def defined(path: Path) -> set[str]:
    """Names of functions, classes, methods and top-level values of a file."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            }
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.parametrize("page", PAGES)
def test_every_file_and_function_that_a_page_names_exists(page: str) -> None:
    found = NAMED.findall((TOP / page).read_text())
    assert len(found) > 10
    missing = []
    for file, name in found:
        path = TOP / file
        if not path.exists():
            missing.append(file)
        elif name and name not in defined(path):
            missing.append(f"{file}: {name}")
    assert missing == []


def test_twelve_questions_have_their_answers() -> None:
    table = (TOP / "CONTRIBUTING.md").read_text().split("## Twelve questions")[1].split("\n## ")[0]
    rows = [line for line in table.splitlines() if re.match(r"\| [A-Z].*\? \| ", line)]
    assert len(rows) == QUESTIONS
    for row in rows:
        assert NAMED.search(row), row


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (TOP / "Makefile").read_text(), re.M))
    for page in (*PAGES, "README.md"):
        named = set(re.findall(r"\bmake ([a-z]+)\b(?!-)", (TOP / page).read_text()))
        named -= {"it", "a", "for", "the"}
        assert named <= targets, page


# --- what is run by `make soak` alone has a sister in `make test`

PAIR = re.compile(
    r"^\| `(tests/[\w/]+\.py)` `(test_\w+)` \| `(tests/[\w/]+\.py)` `(test_\w+)` \|$", re.M
)


def left_to_soak() -> set[tuple[str, str]]:
    """(file, name) of each test that no normal run has, whatever its parameters."""
    found = set()
    for path in (TOP / "tests").rglob("test_*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if "pytest.mark.soak" in map(ast.unparse, node.decorator_list):
                    found.add((str(path.relative_to(TOP)), node.name))
    return found


def test_every_test_of_a_soak_has_a_sister_in_a_normal_run() -> None:
    rows = PAIR.findall((TOP / "CONTRIBUTING.md").read_text())
    later = left_to_soak()
    assert {(file, name) for file, name, *_ in rows} == later
    for *_, file, name in rows:
        assert name in defined(TOP / file), f"{file}: {name}"
        assert (file, name) not in later, f"{name} is no sister: `make test` does not run it"
