"""`tigerchat object`: replicas as processes over real stores and sockets."""

import json
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from appliance.cores.metadata.store import GLOBAL_VECTOR
from appliance.formats.toytlv.ids import BLOCK_MASK, FIELD_BITS
from appliance.formats.toytlv.version_vectors import decode_vector, encode_vector
from appliance.roles.metadata.object_store import ObjectStore
from tests import forked
from tests.commands.object_shell import Shell, same

BLOCK_PACKETS = (BLOCK_MASK + 1) >> FIELD_BITS
EDITS = 400  # as many on each side of the end of a block
KILLS, KILLS_IN_SOAK = 4, 40
MAP_SIZE = 1 << 24
LETTERS = "FIRSTNZEMV"
FIRST_VALUES = ["1.5e0", "7", "b0b-1", '"text"', "word", "(3)", "(-2)", "{1,two}", '{"k":1}']
OF_A = {  # what a edits while it is alone, and b at the same time
    "1": "2.5e0", "2": "8", "3": "a-1", "4": '"A"', "5": "aa", "6": "+2", "7": "++5",
    "8": "{1,a}", "9": '{"k":2,"a":1}',
}  # fmt: skip
OF_B = {
    "1": "-1e0", "2": "9", "3": "b-1", "4": '"B"', "5": "bb", "6": "+3", "7": "--4",
    "8": "{two,b}", "9": '{"k":3,"b":1}',
}  # fmt: skip


def tigerchat(*arguments: str) -> subprocess.CompletedProcess[str]:
    return forked.run(arguments)


def test_an_id_is_turned_into_each_of_its_forms() -> None:
    forms = {
        "text": "8e-82f0-1",
        "zipped": "8e00000001002f08",
        "key": "000000000000008e00000000082f0001",
        "packed": "0008e000082f0032",
    }
    given = {
        "8e-82f0-1": "",
        "zip:8e00000001002f08": "",
        "key:000000000000008e00000000082f0001": "",
        "packed:0008e000082f0032": "S",
        "8e-82f0-32": "S",  # as the first protocol writes it
    }
    for text, letter in given.items():
        done = tigerchat("object", "id", text, "--letter", "S", "--json")
        assert json.loads(done.stdout) == forms | ({"letter": letter} if letter else {})
    for bad in ("100000-1", "x", "key:00", "zip:zz", "packed:00"):
        done = tigerchat("object", "id", bad)
        assert done.returncode == 1 and bad.split(":")[0][:5] in done.stderr + bad


def test_two_replicas_edit_alone_and_hold_the_same_when_they_meet(tmp_path: Path) -> None:
    with (
        Shell(tmp_path / "a", "a", "--listen", "127.0.0.1:0") as a,
        Shell(tmp_path / "b", "b") as b,
    ):
        address = f"127.0.0.1:{a.started['port']}"
        terms = [[letter, f"field {letter}"] for letter in LETTERS]
        made = a.does("class", terms=terms)["id"]
        of = a.does("new", **{"class": made}, values=FIRST_VALUES)["id"]
        b.does("connect", address=address)
        b.until(lambda b: same(a, b))
        b.does("disconnect")
        # each alone: every type, a class edited by both, strings of 70 KB
        a.does("edit", object=of, fields=OF_A)
        b.does("edit", object=of, fields=OF_B)
        a.does("class", terms=[["S", "large"]], edit=made, first=11)
        b.does("class", terms=[["S", "large"], ["I", "more"]], edit=made, first=11)
        a.does("set", object=of, field=11, value=json.dumps("ä" * 35_000))
        b.does("set", object=of, field=11, value=json.dumps("b" * 70_000))
        assert a.dump() != b.dump()
        b.does("connect", address=address)
        b.until(lambda b: same(a, b))
        assert a.dump() == b.dump()
        text = a.does("object", object=of)["text"]
        assert "field N:8,field Z:-1" in text
        assert "field E:{1,two}" not in text and '"a":1' in text and '"b":1' in text
        assert len(text) > 35_000
        # once more: nothing is left to be sent
        b.does("disconnect")
        before = a.counters().get("diff_fields_applied"), b.counters().get("diff_fields_applied")
        count = a.counters()["diffs_applied"]
        b.does("connect", address=address)
        b.until(lambda b: a.counters()["diffs_applied"] == count + 1)
        b.until(lambda b: b.does("status")["sessions"][0]["state"] == "live")
        after = a.counters().get("diff_fields_applied"), b.counters().get("diff_fields_applied")
        assert after == before
        # live, both ways
        a.does("set", object=of, field=4, value='"live"')
        b.until(lambda b: b.does("field", object=of, field=4)["text"] == '"live"')
        assert b.close() == 0 and a.close() == 0


def pass_over(folder: Path, source: str, newest: int) -> None:
    """Have a source's next packet be the one after `newest`: as if it had made so many."""
    number = int(source, 16)
    store = ObjectStore(folder, MAP_SIZE)
    vector = decode_vector(store.get(GLOBAL_VECTOR) or b"")
    assert vector[number] < newest << FIELD_BITS
    vector[number] = newest << FIELD_BITS
    store.write({GLOBAL_VECTOR: encode_vector(vector)})
    store.close()


def test_a_source_with_packets_of_two_blocks_crosses_whole(tmp_path: Path) -> None:
    with Shell(tmp_path / "a", "a") as a:
        made = a.does("class", terms=[["N", "count"], ["S", "text"]])["id"]
        of = a.does("new", **{"class": made})["id"]
        a.close()
    pass_over(tmp_path / "a", "a", BLOCK_PACKETS - EDITS // 2)
    with (
        Shell(tmp_path / "a", "a", "--listen", "127.0.0.1:0") as a,
        Shell(tmp_path / "b", "b") as b,
    ):
        a.batch([{"do": "set", "object": of, "field": 1, "value": "+1"}] * EDITS)
        late = a.does("new", **{"class": made}, values=["(1)", '"late"'])["id"]
        assert int(late.split("-")[1], 16) > BLOCK_PACKETS
        b.does("connect", address=f"127.0.0.1:{a.started['port']}")
        b.until(lambda b: same(a, b))
        assert a.dump() == b.dump()
        assert b.does("field", object=of, field=1)["text"] == str(EDITS)
        blocks = [key for key in b.dump() if key.startswith("56000000000000000a")]
        assert len(blocks) == 2
        b.does("set", object=f"{late}-52", value='"typed"')  # field 2, an S
        assert b.does("field", object=f"{late}-2")["text"] == '"typed"'
        assert b.counters()["diff_fields_applied"] < 20  # what is there, not every packet


@pytest.mark.parametrize("kills", [KILLS, pytest.param(KILLS_IN_SOAK, marks=pytest.mark.soak)])
def test_killed_while_it_edits_no_number_is_used_twice_and_nothing_acknowledged_is_lost(
    tmp_path: Path, seed: int, kills: int
) -> None:
    chance = random.Random(seed)
    acknowledged: dict[str, str] = {}  # id of the packet -> what it put in
    with Shell(tmp_path / "b", "b", "--listen", "127.0.0.1:0") as b:
        address = f"127.0.0.1:{b.started['port']}"
        made = b.does("class", terms=[["E", "seen"]])["id"]
        of = b.does("new", **{"class": made})["id"]
        for life in range(kills + 1):
            with Shell(tmp_path / "a", "a", "--connect", address) as a:
                a.until(lambda a: "error" not in a.ask("object", object=of))
                if life == kills:
                    a.until(lambda a: same(a, b))
                    final = a.does("field", object=of, field=1)["text"]
                    assert a.dump() == b.dump()
                    break
                timer = threading.Timer(chance.uniform(0.0, 0.15), a.kill)
                timer.start()
                number = 0
                try:
                    while True:
                        value = f"w{life}_{number}"
                        id = a.does("add", object=of, field=1, value=f"{{{value}}}")["id"]
                        assert id not in acknowledged, f"{id} was {acknowledged[id]}"
                        acknowledged[id] = value
                        number += 1
                except (EOFError, OSError, json.JSONDecodeError):
                    timer.join()
        present = set(final.strip("{}").split(","))
        assert set(acknowledged.values()) <= present
        assert len(acknowledged) > kills
        assert not any(name.startswith("refused_") for name in b.counters())


def test_a_store_that_is_full_refuses_edits_and_takes_them_again_when_enlarged(
    tmp_path: Path,
) -> None:
    with Shell(tmp_path / "a", "a", "--map-mib", "1") as a:
        made = a.does("class", terms=[["S", "text"]])["id"]
        answers = [
            a.ask("new", **{"class": made}, values=[json.dumps("x" * 100_000)]) for _ in range(20)
        ]
        refused = [one for one in answers if one.get("error") == 3105]
        assert refused and "enlarge" in refused[0]["reason"].lower()
        assert a.does("status")["alarm"]
        digest, vv = a.does("verify"), a.vv()
        a.close()
    with Shell(tmp_path / "a", "a", "--map-mib", "64") as a:
        assert (a.does("verify"), a.vv()) == (digest, vv)
        for _ in range(20):
            a.does("new", **{"class": made}, values=[json.dumps("x" * 100_000)])
        assert a.does("status")["alarm"] == ""


def test_a_store_belongs_to_one_process_and_one_source(tmp_path: Path) -> None:
    folder = str(tmp_path / "a")
    with Shell(tmp_path / "a", "a") as a:
        digest = a.does("verify")["digest"]
        done = tigerchat("object", "verify", "--folder", folder, "--src", "a")
        assert done.returncode == 2 and "another process" in done.stderr
        a.close()
    assert tigerchat("object", "verify", "--folder", folder, "--src", "a").stdout.strip() == digest
    rows = tigerchat("object", "dump", "--folder", folder, "--src", "a").stdout.splitlines()
    assert len(rows) > 10 and all(len(row.split()) <= 2 for row in rows)
    wrong = tigerchat("object", "verify", "--folder", folder, "--src", "b")
    assert wrong.returncode == 1 and "belongs to source a" in wrong.stderr


REFUSED = [
    ({"do": "nothing"}, 3103),
    ({}, 3103),
    ({"do": "class", "terms": [["L", "x"]]}, 3104),
    ({"do": "class", "terms": "x"}, 3103),
    ({"do": "new", "class": "a-99"}, 3104),
    ({"do": "set", "object": "a-99", "field": 1, "value": "1"}, 3104),
    ({"do": "set", "object": "a-1", "field": 1, "value": "[1]"}, 3103),
    ({"do": "set", "object": "100000-1", "field": 1, "value": "1"}, 3101),
    ({"do": "raw", "bytes": "zz"}, 3103),
    ({"do": "connect", "address": "192.0.2.1:5"}, 3103),
    ({"do": "batch", "requests": [{"do": "batch"}]}, 3103),
]


def test_a_request_that_cannot_be_met_is_answered_with_its_code(tmp_path: Path) -> None:
    with Shell(tmp_path / "a", "a") as a:
        before = a.dump()
        for request, code in REFUSED:
            a.write(request)
            assert a.read()["error"] == code, request
        assert a.dump() == before


def test_a_shell_without_json_takes_verbs_and_values(tmp_path: Path) -> None:
    lines = [
        "class S:Name N:Score E:Tags",
        'new a-1 "Ann and Bob" (5)',
        "set a-2 2 +3",
        "add a-2 3 {1, two}",
        "object a-2",
        "nonsense",
    ]
    words = ("object", "shell", "--folder", tmp_path, "--src", "a")
    shell = forked.talk(words)
    assert shell.stdin is not None
    shell.stdin.write("\n".join(lines))
    out, errors = shell.communicate()
    assert shell.returncode == 0, errors
    answers = [json.loads(line) for line in out.splitlines()]
    assert answers[-2]["text"] == '{_ref:a-1,Name:"Ann and Bob",Score:8,Tags:{1,two}}'
    assert answers[-1]["error"] == 3103


def test_a_shell_takes_its_requests_from_a_file_and_ends_with_it(tmp_path: Path) -> None:
    """Standard input is a file here, which no loop can wait for; some lines say nothing."""
    words = ("object", "shell", "--json", "--folder", tmp_path / "r", "--src", "a", "--name", "r")
    asked = [{"do": "class", "terms": [["S", "Name"]]}, {"do": "vv"}, {"do": "nothing"}]
    text = "\n" + "\n\n".join(map(json.dumps, asked))  # the last line has no end
    done = forked.run(words, text=text)
    assert (done.returncode, done.stderr) == (0, "")
    started, made, vector, refused = map(json.loads, done.stdout.splitlines())
    assert "source" in started and "id" in made and "error" not in vector and "error" in refused


def test_a_shell_whose_standard_files_are_closed_ends_without_a_word(tmp_path: Path) -> None:
    """What it opens meanwhile has none of their numbers: it could be printed into."""
    shells = {}
    for number, closed in enumerate(("<&-", "<&- >&-")):  # both at once: each starts Python
        words = [sys.executable, "-m", "appliance", "object", "shell"]
        words += ["--folder", str(tmp_path / f"r{number}"), "--src", "a", "--name", "r"]
        shells[closed] = subprocess.Popen(
            ["sh", "-c", f'"$@" {closed}', "sh", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    ended = {closed: (shell.communicate(), shell.returncode) for closed, shell in shells.items()}
    assert ended == {"<&-": (('{"source": "a"}\n', ""), 0), "<&- >&-": (("", ""), 0)}


def test_a_node_that_does_not_run_is_named_by_every_verb_that_asks_it(tmp_path: Path) -> None:
    folder = str(tmp_path)
    for words in (
        ("show", "--node-folder", folder, "room", "lobby"),
        ("set", "--node-folder", folder, "topic", "lobby", "x"),
        ("watch", "--node-folder", folder),
        ("peers", "--node-folder", folder),
        ("verify", "--node-folder", folder),
    ):
        done = tigerchat("object", *words)
        assert done.returncode == 2 and "start the node" in done.stderr, words
