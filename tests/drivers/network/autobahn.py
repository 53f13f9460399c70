"""Runs the original Autobahn test suite, which needs Python 2, against the client port.

python -m tests.drivers.network.autobahn PYTHON2 [PATTERN...]
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import uvloop

from tests.drivers.network.echo_site import echo_port, large_messages

AGENT = "tigerchat"
SECTIONS = ("1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "9.*", "10.*")  # without compression
PASSED = ("OK", "NON-STRICT", "INFORMATIONAL")


async def run(python2: str, patterns: list[str], folder: Path) -> int:
    with large_messages():
        async with echo_port() as port:
            server = {
                "agent": AGENT,
                "url": f"ws://127.0.0.1:{port}/v1",
                "protocols": ["tigerchat.v1.json"],
            }
            spec = {"outdir": str(folder), "servers": [server], "cases": patterns}
            spec |= {"exclude-cases": [], "exclude-agent-cases": {}}
            (folder / "spec.json").write_text(json.dumps(spec))
            script = "from autobahntestsuite.wstest import run; run()"
            arguments = ["-m", "fuzzingclient", "-s", str(folder / "spec.json")]
            suite = await asyncio.create_subprocess_exec(python2, "-c", script, *arguments)
            if await suite.wait():
                return 2
    return told(json.loads((folder / "index.json").read_text())[AGENT])


def told(results: dict[str, dict[str, str]]) -> int:
    """Prints what failed; the exit code."""
    failed = {
        name: result
        for name, result in results.items()
        if result["behavior"] not in PASSED or result["behaviorClose"] not in PASSED
    }
    for name, result in sorted(failed.items()):
        print(name, result["behavior"], result["behaviorClose"])
    print(f"{len(results)} cases, {len(failed)} failed")
    return int(bool(failed) or not results)


def main() -> int:
    if len(sys.argv) < 2 or not sys.argv[1]:
        print("name a Python 2 that has autobahntestsuite: make autobahn PYTHON2=/path/to/python2")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        return uvloop.run(run(sys.argv[1], sys.argv[2:] or list(SECTIONS), Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
