"""The tree keeps its own rules, and tidy finds each kind of breach when one is planted."""

import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tools import tidy, tidy_asserts, tidy_names, tidy_rules, tidy_slices
from tools.tidy_source import Source, sources_read

TOP = Path(__file__).resolve().parents[2]


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def found(folder: Path, files: dict[str, str]) -> list[tuple[str, int, str]]:
    write(folder, files)
    return [(v.path, v.line, v.rule) for v in tidy.violations_of(folder)]


def test_the_tree_is_tidy() -> None:
    violations = tidy.violations_of(TOP)
    if violations:
        pytest.fail("\n".join(map(str, violations)), pytrace=False)


def test_every_exception_names_a_known_rule_and_has_a_reason() -> None:
    for rule, path, reason in tidy_rules.EXCEPTIONS:
        assert rule and path and len(reason) > 10
    for importer, imported, reason in tidy_rules.LAZY_IMPORTS:
        assert importer and imported and len(reason) > 10
    for path, still in tidy_rules.STILL_SLICED.items():
        assert (TOP / path).exists() and still > 0, path
    for path, count, reason in (*tidy_rules.CATCH_ALL, *tidy_rules.SLEEPS):
        assert path and count > 0 and len(reason) > 10


CORE = "appliance/cores/vsr/pipeline.py"
ROLE = "appliance/roles/gateway/role.py"  # none of the tree: nothing is known of it
BASE = "appliance/base/ring.py"
TYPING = "from typing import TYPE_CHECKING\n"
LONG_MODULE = "A = 1\n" * (tidy_rules.MODULE_LINES_MAX + 1)
WIDE_CLASS = "class A:\n    def __init__(self):\n" + "".join(
    f"        self.field_{i} = {i}\n" for i in range(tidy_rules.CLASS_FIELDS_MAX + 1)
)
LONG_FILE = "x = 1\n" * (tidy_rules.FILE_LINES_MAX + 1)
LONG_FUNCTION = "def run():\n" + "    pass\n" * tidy_rules.FUNCTION_LINES_MAX

# name -> (file, text, line, rule): what is planted, and where tidy must say which word.
PLANTED: dict[str, tuple[str, str, int, str]] = {
    "base_imports_formats": (BASE, "import appliance.formats.record\n", 1, "floor"),
    "formats_import_core": (
        "appliance/formats/record.py",
        "from appliance.cores.vsr import pipeline\n",
        1,
        "floor",
    ),
    "core_imports_other_core": (CORE, "from appliance.cores.rooms import apply\n", 1, "floor"),
    "core_imports_driver": (CORE, "import appliance.drivers.nvme.volume\n", 1, "floor"),
    "core_imports_driver_for_types": (
        CORE,
        TYPING + "if TYPE_CHECKING:\n    from appliance.drivers.nvme import volume\n",
        3,
        "floor",
    ),
    "core_imports_driver_relatively": (CORE, "from ...drivers.nvme import volume\n", 1, "floor"),
    "driver_imports_core": (
        "appliance/drivers/nvme/volume.py",
        "from appliance.cores.vsr import pipeline\n",
        1,
        "floor",
    ),
    "driver_imports_other_driver": (
        "appliance/drivers/nvme/volume.py",
        "from appliance.drivers.host import clock\n",
        1,
        "floor",
    ),
    "role_imports_other_role": (ROLE, "from appliance.roles import replica\n", 1, "floor"),
    "role_imports_simulation": (ROLE, "import appliance.simulation.world\n", 1, "floor"),
    "simulation_imports_driver": (
        "appliance/simulation/world.py",
        "from appliance.drivers.host import clock\n",
        1,
        "floor",
    ),
    "simulation_imports_role": (
        "appliance/simulation/world.py",
        "from appliance.roles import edge\n",
        1,
        "floor",
    ),
    "command_imports_other_command": (
        "appliance/commands/start.py",
        "from appliance.commands import report\n",
        1,
        "floor",
    ),
    "reports_import_core": (
        "appliance/reports/verify.py",
        "import appliance.cores.vsr.pipeline\n",
        1,
        "floor",
    ),
    "unknown_room_imports": ("appliance/cellar/wine.py", "import appliance.base\n", 1, "floor"),
    "role_imports_pyspark": (ROLE, "import pyspark.sql\n", 1, "package"),
    "tool_imports_pyspark": ("tools/look.py", "from pyspark import sql\n", 1, "package"),
    "core_imports_click": (CORE, "import click\n", 1, "package"),
    "core_imports_asyncio": (CORE, "import asyncio\n", 1, "pure"),
    "core_imports_socket": (CORE, "from socket import socket\n", 1, "pure"),
    "core_imports_os_path": (CORE, "import os.path\n", 1, "pure"),
    "core_imports_time": (CORE, "import time\n", 1, "pure"),
    "simulation_imports_random": ("appliance/simulation/world.py", "import random\n", 1, "pure"),
    "base_imports_logging": (BASE, "import logging\n", 1, "pure"),
    "driver_parses_json_itself": (
        "appliance/drivers/nvme/volume.py",
        "import json\nFACTS = json.loads('1')\n",
        2,
        "wrapped",
    ),
    "role_hands_the_parser_on": (ROLE, "import json\nROWS = map(json.loads, '12')\n", 2, "wrapped"),
    "role_reads_json_of_a_file": (
        ROLE,
        "import json\ndef run(file):\n    return json.load(file)\n",
        3,
        "wrapped",
    ),
    "core_takes_the_parser": (CORE, "from json import loads\n", 1, "wrapped"),
    "base_makes_a_decoder": (BASE, "import json\nDECODER = json.JSONDecoder()\n", 2, "wrapped"),
    "format_takes_the_decoder": (
        "appliance/formats/record.py",
        "from json.decoder import JSONDecoder\n",
        1,
        "wrapped",
    ),
    "core_asks_the_time": (
        CORE,
        "from datetime import datetime\nNOW = datetime.now()\n",
        2,
        "repeatable",
    ),
    "format_draws_an_identity": (
        "appliance/formats/record.py",
        "from uuid import uuid4\nKEY = uuid4()\n",
        2,
        "repeatable",
    ),
    "core_hashes": (CORE, "KEY = hash('a')\n", 1, "repeatable"),
    "core_takes_identity": (CORE, "KEY = id(int)\n", 1, "repeatable"),
    "core_prints": (CORE, "print('a')\n", 1, "repeatable"),
    "core_walks_set_display": (CORE, "for x in {1, 2}:\n    pass\n", 1, "order"),
    "core_lists_set": (CORE, "ROWS = list(set('ab'))\n", 1, "order"),
    "core_walks_named_set": (
        CORE,
        "def run():\n    seen = set()\n    return [x for x in seen]\n",
        3,
        "order",
    ),
    "core_walks_set_of_its_own": (
        CORE,
        "class Peers:\n    up: set[str]\n\n    def walk(self):\n        return list(self.up)\n",
        5,
        "order",
    ),
    "core_pops_from_set": (CORE, "seen = {1}\nFIRST = seen.pop()\n", 2, "order"),
    "core_uses_float": (CORE, "HALF = 0.5\n", 1, "float"),
    "star_import": (ROLE, "from os.path import *\n", 1, "star"),
    "private_import": (ROLE, "from appliance.base.ring import _turn\n", 1, "private"),
    "private_import_in_test": (
        "tests/base/test_ring.py",
        "from appliance.base.ring import _turn\n",
        1,
        "private",
    ),
    "import_inside_function": (ROLE, "def run():\n    import json\n    json\n", 2, "lazy"),
    "bare_except": (BASE, "try:\n    pass\nexcept:\n    pass\n", 3, "except"),
    "except_exception": (BASE, "try:\n    pass\nexcept Exception:\n    pass\n", 3, "except"),
    "except_base_in_tuple": (
        BASE,
        "try:\n    pass\nexcept (OSError, BaseException):\n    pass\n",
        3,
        "except",
    ),
    "bare_except_that_raises": (BASE, "try:\n    pass\nexcept:\n    raise\n", 3, "except"),
    "except_that_may_swallow": (
        BASE,
        "while 1:\n    try:\n        pass\n    except Exception:\n        break\n        raise\n",
        4,
        "except",
    ),
    "except_of_a_role": (ROLE, "try:\n    pass\nexcept Exception:\n    pass\n", 3, "except"),
    "second_except_of_a_replica": (
        "appliance/roles/replica/role.py",
        "try:\n    pass\nexcept Exception:\n    pass\n" * 2,
        7,
        "except",
    ),
    "long_line": (BASE, "x = 1  # " + "a" * 100 + "\n", 1, "line"),
    "long_line_of_script": ("appliance/web/chat.js", "// " + "a" * 100 + "\n", 1, "line"),
    "long_function": (BASE, LONG_FUNCTION, 1, "function"),
    "long_file": (
        BASE,
        "x = 1\n" * (tidy_rules.FILE_LINES_MAX + 1),
        tidy_rules.FILE_LINES_MAX + 1,
        "file",
    ),
    "banned_file_name": ("appliance/base/string_utils.py", "", 1, "name"),
    "banned_folder_name": ("tests/common/data.txt", "", 1, "name"),
    "banned_class_name": (BASE, "class RingManager:\n    pass\n", 1, "name"),
    "banned_function_name": (BASE, "def helper():\n    pass\n", 1, "name"),
    "two_things_in_a_file": ("appliance/base/ring_and_bitset.py", "", 1, "name"),
    "todo": ("docs/start.md", "one\nTODO two\n", 2, "todo"),
    "package_without_theory": ("appliance/cores/vsr/__init__.py", "", 1, "docstring"),
    "package_with_code": ("appliance/cores/vsr/__init__.py", '"""Why."""\n\nX = 1\n', 3, "front"),
    "path_of_machine": ("docs/start.md", "see /work/main\n", 1, "words"),
    "path_of_home": ("docs/start.md", "see `/root/x`\n", 1, "words"),
    "registry": ("Makefile", "# https://pypi.org/simple\n", 1, "words"),
    "registry_option": ("Makefile", "x:\n\tpip install --index-url y\n", 2, "words"),
    "unlocked_package": ("packaging/locks/node.txt", "numpy>=2\n", 1, "locks"),
    "lock_with_address": ("packaging/locks/node.txt", "--index-url http://x\n", 1, "locks"),
    "undocumented_limit": (
        "appliance/base/limits.py",
        "A_MAX = 1  # bytes\n\nB_MAX = 2\n",
        3,
        "limit",
    ),
    "code_given_twice": (
        "appliance/base/errors.py",
        "class A(Exception):\n    code = 1\n\n\nclass B(Exception):\n    code: int = 1\n",
        6,
        "code",
    ),
    "long_module": (CORE, LONG_MODULE, 1, "small"),
    "wide_class": (ROLE, WIDE_CLASS, 1, "small"),
    "core_cuts_by_numbers": (CORE, "def run(area):\n    return area[8:16]\n", 2, "slice"),
    "role_cuts_behind_an_offset": (
        ROLE,
        "def run(raw, at):\n    raw[at + 4 :] = b\n",
        2,
        "slice",
    ),
    "role_cuts_off_an_end": (ROLE, "def run(raw):\n    return raw[:-16]\n", 2, "slice"),
    "core_rounds_up_to_sectors": (
        CORE,
        "def run(size):\n    return -(-(size + 8) // SECTOR_SIZE) * SECTOR_SIZE\n",
        2,
        "sectors",
    ),
    "core_rounds_up_by_a_bare_number": (
        CORE,
        "def run(size):\n    return 4096 * -(-size // 4096)\n",
        2,
        "sectors",
    ),
    "role_rounds_up_to_what_is_below": (
        ROLE,
        "def run(size):\n    return (size + (limits.SECTOR_SIZE - 1)) // SECTOR * SECTOR\n",
        2,
        "sectors",
    ),
    "role_rounds_up_by_a_mask": (ROLE, "def run(n):\n    return n + 4095 & ~4095\n", 2, "sectors"),
    "role_adds_the_rest_of_a_sector": (
        ROLE,
        "def run(a):\n    return a.end + -a.end % SECTOR_SIZE\n",
        2,
        "sectors",
    ),
    "impatient_test": (
        "tests/roles/test_x.py",
        "async def test():\n    async with asyncio.timeout(20):\n        pass\n",
        2,
        "patience",
    ),
    "test_that_sleeps": (
        "tests/web/test_x.py",
        "async def test():\n    if a:\n        await asyncio.sleep(0.2)\n        assert it\n",
        3,
        "patience",
    ),
    "broken_python": (BASE, "def\n", 1, "syntax"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_tidy_finds(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidy, "STILL_LARGE", [])  # it tells of the files of this tree
    path, text, line, rule = PLANTED[name]
    assert found(tmp_path, {path: text}) == [(path, line, rule)]


def test_what_is_still_large_may_shrink_and_not_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(CORE, "", tidy_rules.MODULE_LINES_MAX + 1), (ROLE, "B", 30)]
    monkeypatch.setattr(tidy, "STILL_LARGE", rows)
    gone = {CORE: LONG_MODULE, ROLE: "A = 1\n"}
    assert found(tmp_path, gone) == [(ROLE, 1, "small")]
    small = {ROLE: "class B:\n    pass\n"}
    assert found(tmp_path, small) == [(ROLE, 1, "small")]
    grown = {CORE: LONG_MODULE + "B = 1\n", ROLE: WIDE_CLASS.replace("A", "B")}
    assert found(tmp_path, grown) == [(CORE, 1, "small")]


def test_what_is_cut_to_be_shown_or_by_a_name_is_no_layout(tmp_path: Path) -> None:
    fine = (
        "def run(raw, start, size):\n"
        "    print(f'{raw[:40]!r}', f'{size:08x}'[:24], str(raw)[:60], raw.hex()[:8])\n"
        "    return raw[start:size], raw[size:], raw[1:], raw[:2], raw[start : start + size]\n"
    )
    numbers = "def run(raw):\n    return raw[8:16]\n"
    files = {ROLE: fine, "appliance/formats/record.py": numbers, "tests/x/test_x.py": numbers}
    assert found(tmp_path, files) == []


def test_sectors_are_counted_padded_and_rounded_down_as_one_likes(tmp_path: Path) -> None:
    fine = (
        "def run(size, start, count):\n"
        "    first, rest = start // SECTOR_SIZE * SECTOR_SIZE, -size % SECTOR_SIZE\n"
        "    mebibytes = -(-size // MIB) * MIB\n"
        "    return first, rest, mebibytes, -(-size // SECTOR_SIZE), start + count * SECTOR_SIZE\n"
    )
    by_hand = "def run(size):\n    return -(-size // SECTOR_SIZE) * SECTOR_SIZE\n"
    files = {ROLE: fine, tidy_rules.SECTORS_HOME: by_hand, "tests/x/test_x.py": by_hand}
    assert found(tmp_path, files) == []


def test_cuts_by_numbers_may_grow_fewer_and_not_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidy_slices, "STILL_SLICED", {ROLE: 2})
    cuts = "def run(raw):\n    return raw[8:], raw[:8]\n"
    assert found(tmp_path, {ROLE: cuts}) == []
    assert found(tmp_path, {ROLE: cuts.replace("raw[:8]", "raw")}) == [(ROLE, 1, "slice")]
    more = cuts + "\n\ndef more(raw):\n    return raw[4:6]\n"
    assert found(tmp_path, {ROLE: more}) == [(ROLE, 6, "slice")]


@pytest.mark.parametrize(
    ("asserts", "word"), [(0, "at least 1.0"), (1, "at least 1.0"), (2, ""), (3, "raise the floor")]
)
def test_a_room_asserts_no_less_than_its_floor_and_the_floor_follows(
    asserts: int, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two functions; what is only declared is none."""
    monkeypatch.setattr(tidy_asserts, "ASSERTS_MIN", {"cores/vsr": 1.0})
    monkeypatch.setattr(tidy_asserts, "ASSERTS_STEP", 0.25)
    declared = "class A:\n    def a(self) -> None: ...\n    def b(self):\n        'Says.'\n"
    sources = [
        Source(CORE, declared + "def one():\n    pass\n"),
        Source(CORE.replace("pipeline", "ring"), "def two():\n    pass\n" + "assert 1\n" * asserts),
        Source(ROLE, "def other():\n    pass\n"),
    ]
    tidy_asserts.check_asserts(sources)
    said = [violation.message for source in sources for violation in source.violations]
    assert bool(said) == bool(word) and all(word in message for message in said)


def test_no_name_is_added_that_the_glossary_advises_against(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidy_names, "STILL_SAID", {"lane": 1})
    monkeypatch.setattr(tidy_names, "STILL_IDENTIFIERS", {})
    glossary = (
        "| term | means | not |\n|---|---|---|\n| log session | a client | lane |\n| op | | |\n"
    )
    files = {
        "docs/glossary.md": glossary,
        ROLE: "class Lane:\n    pass\n\n\ndef plane():\n    pass\n",
    }
    assert found(tmp_path, files) == []
    more = {ROLE: files[ROLE] + "\n\ndef lanes_of():\n    pass\n"}
    assert found(tmp_path, more) == [(ROLE, 9, "glossary")]
    assert found(tmp_path, {ROLE: "A = 1\n"}) == [(ROLE, 1, "glossary")]


def test_no_argument_of_the_program_is_named_by_what_the_glossary_advises_against(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidy_names, "STILL_SAID", {})
    monkeypatch.setattr(tidy_names, "STILL_IDENTIFIERS", {})
    monkeypatch.setattr(tidy_names, "STILL_ARGUMENTS", ("place",))
    glossary = (
        "| term | means | not |\n|---|---|---|\n| slot | | place |\n| log session | | lane |\n"
    )
    old = "def at(place):\n    return lambda plane: (place, plane)\n"
    files = {"docs/glossary.md": glossary, ROLE: old}
    assert found(tmp_path, files) == []
    assert found(tmp_path, {ROLE: f"{old}\n\ndef to(log_lane):\n    return at(log_lane)\n"}) == [
        (ROLE, 5, "glossary")
    ]
    assert found(tmp_path, {ROLE: "A = 1\n"}) == [(ROLE, 1, "glossary")]


@pytest.mark.parametrize(
    "line",
    [
        "judge = 1",
        "MAY_JUDGE = 1",
        "ring.own_judge = 1",
        "ring(judge=1)",
        "import ring as judges",
        "def f(*, a_judge: int) -> None: ...",
        "class SecondJudge: ...",
    ],
)
def test_no_identifier_of_program_and_tools_has_a_refused_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr(tidy_names, "STILL_SAID", {})
    monkeypatch.setattr(tidy_names, "STILL_ARGUMENTS", ())
    monkeypatch.setattr(tidy_names, "STILL_IDENTIFIERS", {"judge": 0})
    files = {"docs/glossary.md": "", "tests/test_ring.py": "judge = 1\n"}
    said = 'A = "judge"  # to judge, a judgement\n'
    for path in ("tools/ring.py", ROLE):
        written = files | {path: f"{said}{line}\n"}
        assert (path, 2, "identifier") in found(tmp_path, written)
        assert "identifier" not in {row[2] for row in found(tmp_path, files | {path: said})}


def test_how_many_identifiers_still_have_a_word_only_shrinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidy_names, "STILL_IDENTIFIERS", {"judge": 2})
    files = {"docs/glossary.md": "", ROLE: "judge = 1\nA_JUDGE = judge + judge\n"}
    assert found(tmp_path, files) == []
    assert found(tmp_path, {ROLE: "judge = 1\n"}) == [(ROLE, 1, "identifier")]
    assert found(tmp_path, {ROLE: f"{files[ROLE]}to_judge = 1\n"}) == [(ROLE, 3, "identifier")]


def test_a_refused_word_is_kept_in_one_name_of_the_files_that_have_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidy_names, "STILL_IDENTIFIERS", {"judge": 0})
    monkeypatch.setattr(tidy_names, "KEPT_IDENTIFIERS", [("judges", ROLE, "a key of a status")])
    files = {"docs/glossary.md": "", ROLE: "judges = 1\n"}
    assert found(tmp_path, files) == []
    assert found(tmp_path, files | {ROLE: "judges = own_judges = 1\n"}) == [(ROLE, 1, "identifier")]
    assert found(tmp_path, {ROLE: "", "tools/ring.py": "judges = 1\n"}) == [
        ("tools/ring.py", 1, "identifier")
    ]


def test_every_name_that_keeps_a_refused_word_is_there_and_has_a_reason() -> None:
    sources = [each for each in sources_read(TOP) if each.is_python]
    for kept, files, reason in tidy_rules.KEPT_IDENTIFIERS:
        within = [each for each in sources if fnmatchcase(each.path, files)]
        assert any(kept in tidy_names.identifiers_of(each) for each in within), (kept, files)
        assert len(reason) > 10


def test_what_tests_alone_use_is_no_part_of_the_program(tmp_path: Path) -> None:
    used = "import click\n\nfrom appliance.base.ring import Ring, head\n\nprint(Ring().at, head)\n"
    base = (
        "class Ring:\n"
        "    at = 1\n\n"
        "    @property\n"
        "    def place(self):\n        return 1\n\n\n"
        "head = Ring()\n"
        "ONE, TWO = 1, 2\n"  # a numbering
        "LAST = 9\n\n\n"
        "def slot():\n    return 2\n"
    )
    files = {
        "appliance/__main__.py": used,
        BASE: base,
        "tests/test_ring.py": "from appliance.base.ring import LAST, Ring, slot\n\nRing.place\n",
        "docs/formats.md": "`slot` and `LAST`\n",
    }
    assert [row for row in found(tmp_path, files) if row[2] == "unused"] == [
        (BASE, 5, "unused"),
        (BASE, 11, "unused"),
        (BASE, 14, "unused"),
    ]


def test_what_a_library_calls_is_used(tmp_path: Path) -> None:
    main = (
        "import asyncio\n\nimport click\n\n\n"
        "class Server(asyncio.Protocol):\n"
        "    def data_received(self):\n        pass\n\n\n"
        "@click.command()\n"
        "def serve():\n    Server()\n"
    )
    rows = found(tmp_path, {"appliance/__main__.py": main})
    assert [row for row in rows if row[2] == "unused"] == []


def test_tidy_finds_an_error_code_that_is_not_documented(tmp_path: Path) -> None:
    errors = "class A(Exception):\n    code = 1001\n\n\nclass B(Exception):\n    code = 1002\n"
    files = {"appliance/base/errors.py": errors, "docs/errors.md": "1001: A\n"}
    assert found(tmp_path, files) == [("appliance/base/errors.py", 6, "code")]


def test_tidy_finds_a_code_that_two_files_give(tmp_path: Path) -> None:
    files = {
        "appliance/base/errors.py": "class A(Exception):\n    code = 1001\n",
        "appliance/cores/vsr/open.py": "class B(errors.A):\n    code = 1001\n",
        "appliance/formats/client.py": "class Frame(Struct):\n    code = 1001\n",
        "docs/errors.md": "1001\n",
    }
    assert found(tmp_path, files) == [("appliance/cores/vsr/open.py", 2, "code")]


def test_tidy_finds_a_dependency_without_use_or_reason(tmp_path: Path) -> None:
    files = {
        "packaging/locks/node.in": "# why\nnumpy>=2  # arrays\nstray  # nothing\nh11  # under it\n",
        "README.md": "| package | why |\n|---|---|\n| numpy | arrays |\n| uvicorn, h11 | pages |\n",
        "appliance/base/table.py": "import numpy\n",
        "appliance/roles/edge.py": "import uvicorn\n",
    }
    assert found(tmp_path, files) == [("packaging/locks/node.in", 3, "dependency")] * 2


def test_tidy_finds_a_cycle_once_even_under_type_checking(tmp_path: Path) -> None:
    folder = "appliance/cores/vsr/"
    files = {
        folder + "a.py": "from appliance.cores.vsr import b\n",
        folder + "b.py": "import appliance.cores.vsr.c\n",
        folder + "c.py": TYPING + "if TYPE_CHECKING:\n    from .a import A\n",
        folder + "d.py": "from appliance.cores.vsr.a import A\n",
    }
    assert found(tmp_path, files) == [(folder + "a.py", 1, "cycle")]


def test_tidy_says_nothing_about_what_is_right(tmp_path: Path) -> None:
    files = {
        "appliance/__init__.py": '"""All."""\n\nVERSION = "1"\n',
        CORE: (
            "from appliance import VERSION\n"
            "from appliance.base import ring\nfrom appliance.formats.record import RECORD\n\n"
            "seen = {1}\nALL = [VERSION, ring, RECORD, sorted(seen), len(seen), 1 in seen]\n"
        ),
        ROLE: (
            "import asyncio\n\nfrom appliance.cores.vsr import pipeline\n"
            "from appliance.drivers.nvme import volume\n\n"
            "async def run():\n    try:\n        asyncio.sleep(pipeline, volume)\n"
            "    except Exception:\n        raise\n"
        ),
        "appliance/commands/start.py": "def run():\n    import appliance.roles.edge.role\n",
        BASE: "try:\n    pass\nexcept BaseException:\n    print('closed')\n    raise\n",
        "appliance/base/limits.py": "# bytes\nA_MAX = 1\nB_MAX = (  # why\n    2\n)\n",
        "appliance/web/vendor/preact.js": "x" * 1000,
        ".venv/lib/x.py": "import *",
        "packaging/locks/node.txt": "a==1.0 \\\n    --hash=sha256:00\n    # via -r node.in\n",
    }
    assert found(tmp_path, files) == []


def test_tidy_prints_a_line_each_and_ends_with_one(tmp_path: Path) -> None:
    write(tmp_path, {CORE: "import time\n"})
    command = [sys.executable, TOP / "tools" / "tidy.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == f"{CORE}:1 pure time is banned in cores/vsr\n"
    (tmp_path / CORE).write_text("")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
