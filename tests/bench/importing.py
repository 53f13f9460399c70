"""How fast an archive of another chat is imported, at a node's usual rates for people."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance.drivers.host.process import child_environment
from tests.system.local_site import COMMAND, LocalSite

RATE_MIN = 5_000  # records a second, from the start of the command to its end
MESSAGES, MESSAGES_QUICK = 60_000, 100
SETTINGS = {"device_rate": 200, "user_rate": 400, "room_rate": 50_000, "address_rate": 50_000}


def measure(site: LocalSite, quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """One import of a log of so many lines, and one more, which stores nothing."""
    count = MESSAGES_QUICK if quick else MESSAGES
    log = site.folder.with_name("#old.weechatlog")
    write_log(log, count)
    took_s = run_import(site, log, f"0 were there before, {count} stored now")
    again_s = run_import(site, log, f"{count} were there before, 0 stored now")
    rate = round(count / took_s)
    say(
        f"importing {count} messages: {rate} records/s with start and survey, "
        f"{again_s:.1f} s once more"
    )
    return {
        "kind": "importing",
        "what": f"importing {count} messages",
        "value": rate,
        "unit": "records/s",
        "bar": f"at least {RATE_MIN}",
        "held": rate >= RATE_MIN,
        "again_s": round(again_s, 1),
    }


def write_log(place: Path, count: int) -> None:
    """A log of weechat: fifty people, a line of 200 characters a second."""
    with place.open("w") as file:
        for number in range(count):
            minute, second = divmod(number, 60)
            clock = f"{minute // 60 % 24:02}:{minute % 60:02}:{second:02}"
            file.write(f"2004-03-01 {clock}\tperson{number % 50}\t{number:08} {'x' * 190}\n")


def run_import(site: LocalSite, log: Path, expected: str) -> float:
    """Seconds that it took, its process and all."""
    words = [*COMMAND, "import", "weechat", str(log), "--local", str(site.folder)]
    begun = time.monotonic()
    done = subprocess.run(
        words, capture_output=True, env=child_environment(), text=True, check=False
    )
    if done.returncode != 0 or expected not in done.stdout:
        raise SystemExit(f"bench: import said {done.stdout} {done.stderr}")
    return time.monotonic() - begun
