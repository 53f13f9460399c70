"""The worked example of CONTRIBUTING.md: made on a copy of the tree, its tests pass and clients of
before understand its frames."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from uuid import UUID

from appliance.formats.client.frame import encode_json
from appliance.formats.client.parse import parse_binary_edge, parse_json_edge
from appliance.formats.client.sending import MessageAck

TOP = Path(__file__).parents[2]
COPIED = ("appliance", "docs", "tests/cores/edge", "tests/formats", "tests/vectors")
DIFF = re.compile(r"^```diff\n(.*?)^```$", re.M | re.S)
TESTS = ("tests/formats/test_client.py", "tests/cores/edge/test_answer.py")
CHOSEN = "MessageAck or golden or documented or row or test_answer"
ACK = MessageAck(
    room_id=UUID(int=1), client_seq=2, op=3, msg_id=UUID(int=4), timestamp=5, hash="ab" * 32
)
NEWER = """
import sys
from uuid import UUID
from appliance.formats.client.frame import encode_binary, encode_json
from appliance.formats.client.parse import parse_json_edge
from appliance.formats.client.sending import MessageAck

ack = parse_json_edge(sys.argv[1])
assert isinstance(ack, MessageAck) and ack.log_seq is None
ack.log_seq = 6
print(encode_json(ack).decode(), encode_binary(ack).hex())
"""


def test_the_field_of_the_worked_example_is_added_as_the_page_says(tmp_path: Path) -> None:
    for folder in COPIED:
        plain = shutil.ignore_patterns("__pycache__", "vendor", "before", "pictures")
        shutil.copytree(TOP / folder, tmp_path / folder, ignore=plain)
    for file in (*TOP.glob("tests/*.py"), TOP / "pyproject.toml"):
        shutil.copy(file, tmp_path / file.relative_to(TOP))
    page = (TOP / "CONTRIBUTING.md").read_text().split("\n## Worked example")[1].split("\n## ")[0]
    hunks = DIFF.findall(page)
    assert len(hunks) == page.count("```diff") > 1
    changed = {name for hunk in hunks for name in re.findall(r"^\+\+\+ b/(\S+)$", hunk, re.M)}
    assert changed.issuperset(TESTS)
    run(tmp_path, "git", "apply", "--whitespace=error", "-", put="".join(hunks))

    words = ("-m", "pytest", "--noconftest", "-p", "no:cacheprovider", "-q", "-k", CHOSEN)
    assert " passed" in run(tmp_path, sys.executable, *words, *TESTS)

    before = encode_json(ACK).decode()  # as an edge of before says it
    in_json, in_binary = run(tmp_path, sys.executable, "-c", NEWER, before).split()
    assert '"log_seq":6' in in_json
    assert parse_json_edge(in_json) == ACK
    assert parse_binary_edge(bytes.fromhex(in_binary)) == [ACK]


def run(folder: Path, *words: str, put: str = "") -> str:
    """What it prints. Another tree of the program, or of git, is not looked for."""
    outside = {"PYTHONPATH": str(folder), "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    environment = {**os.environ, **outside}
    done = subprocess.run(
        words, cwd=folder, env=environment, input=put, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
