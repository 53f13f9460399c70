"""The newest lines of a node's processes in the machine's journal, without secrets."""

from itertools import islice

from appliance.base.limits import MIB
from appliance.node.support import IDENTIFIER, Cleaner, journal_entries

ENTRIES_MAX = 5_000  # of the journal that are looked at, for each tail: others fill it too
LINE_SIZE_MAX = 1_000  # characters of a line that are shown
assert ENTRIES_MAX * LINE_SIZE_MAX < 8 * MIB


def log_tail(lines_max: int) -> list[str]:
    """Oldest first. Empty where none stands there, or this user may not read it."""
    clean = Cleaner(set())
    found = []
    for entry in islice(journal_entries(), ENTRIES_MAX):
        name = str(entry.get("SYSLOG_IDENTIFIER", ""))
        if not name.startswith(IDENTIFIER):
            continue
        line = f"{entry['__REALTIME_TIMESTAMP']:%m-%d %H:%M:%S} {name}: {entry.get('MESSAGE', '')}"
        found.append(clean(line.encode()).decode(errors="replace")[:LINE_SIZE_MAX])
        if len(found) == lines_max:
            break
    return found[::-1]
