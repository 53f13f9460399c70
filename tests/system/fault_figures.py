"""What the fault suite did to real processes, added up for a table.

`TIGERCHAT_FAULT_FIGURES=FILE` in the environment names a file that each judged trial is added to;
without it nothing is written. Several runs make one table:

    {"runs": 4, "hurt": {"kill primary": 12, ...}, "acknowledged": 81234, "lost": 0,
     "violations": 0, "sent": {"prepare": 4711, ...}, "received": {...}}

`violations` are all that the judges of a trial found, `lost` those that miss what was acknowledged
or delivered. They are added before the trial fails over them.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.system.ledger import Violation

VARIABLE = "TIGERCHAT_FAULT_FIGURES"
COUNTED = ("hurt", "sent", "received")


def add_figures(
    hurt: Mapping[str, int],
    *,
    acknowledged: int,
    violations: Sequence[Violation],
    spoken: Mapping[str, Mapping[str, int]],
) -> None:
    """Add one judged trial, if they are wanted."""
    name = os.environ.get(VARIABLE)
    if not name:
        return
    path = Path(name)
    figures = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    found = {"violations": len(violations), "lost": sum(v.kind == "lost" for v in violations)}
    _add(figures, {"runs": 1, "acknowledged": acknowledged, **found, "hurt": hurt, **spoken})
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    fresh.replace(path)


def _add(figures: dict[str, Any], trial: dict[str, Any]) -> None:
    for name, value in trial.items():
        if name not in COUNTED:
            figures[name] = figures.get(name, 0) + value
            continue
        counts = figures.setdefault(name, {})
        for what, count in value.items():
            counts[what] = counts.get(what, 0) + count
        figures[name] = dict(sorted(counts.items()))
