"""The checklist as a page: `python -m tests.security.table` writes docs/security.md anew."""

from pathlib import Path

from tests.security import (
    rules_edge,
    rules_farm,
    rules_joining,
    rules_node,
    rules_port,
    rules_session,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
RULES = (
    *rules_edge.RULES,
    *rules_session.RULES,
    *rules_port.RULES,
    *rules_node.RULES,
    *rules_farm.RULES,
    *rules_joining.RULES,
)
TABLE = "| threat | rule | where | test |\n|---|---|---|---|\n"


def rows() -> str:
    """The table, a row for each rule."""
    lines = [
        f"| {rule.threat} | {rule.rule} | `{rule.where}` | `{rule.test.replace('::', '` `')}` |"
        for rule in RULES
    ]
    return TABLE + "\n".join(lines) + "\n"


def main() -> None:
    text, _, _ = PAGE.read_text().partition(TABLE)
    PAGE.write_text(text + rows())


if __name__ == "__main__":
    main()
