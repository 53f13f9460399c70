"""What is asked of an HDFS, and when again, without a server: `tests/drivers/hdfs` has one."""

import pytest

from appliance.base.prng import Prng
from appliance.formats import webhdfs
from appliance.formats import webhdfs_call as calls
from appliance.formats.webhdfs_call import Answer, Ask, Call, Failed, File, Login, NameNode, Wait

NAME_NODE = NameNode("http", "name-node", 9870, "chat/of all")
USER, TOKEN = Login("u"), Login("u", "secret")


def call(
    operation: calls.Operation[bool], tries_max: int = 9, prng: Prng | None = None
) -> Call[bool]:
    return Call(operation, NAME_NODE, calls.Patience(tries_max, 100, 1_000), prng)


def pauses(trying: Call[bool]) -> list[int]:
    """Of a call to which nobody answers."""
    found: list[int] = []
    trying.begin(USER)
    while isinstance(step := trying.on_lost("nobody"), Wait):
        found.append(step.ms)
        trying.begin(USER)
    assert step == Failed("nobody")
    return found


def test_pauses_double_up_to_the_last_and_tries_are_bounded() -> None:
    operation = calls.delete("a", {})
    assert pauses(call(operation)) == [100, 200, 400, 800, 1_000, 1_000, 1_000, 1_000]
    assert pauses(call(operation, 1)) == []


def test_a_pause_is_drawn_between_its_half_and_its_whole() -> None:
    drawn = [pauses(call(calls.delete("a", {}), 6, Prng(seed))) for seed in range(50)]
    for whole, found in zip([100, 200, 400, 800, 1_000], zip(*drawn, strict=True), strict=True):
        assert whole // 2 <= min(found) < max(found) <= whole
        assert len(set(found)) > 10


@pytest.mark.parametrize(
    ("login", "who"), [(USER, "user.name=u"), (TOKEN, "delegation=secret"), (Login(), "")]
)
def test_a_name_node_is_asked_in_its_own_names_by_who_asks(login: Login, who: str) -> None:
    asked = call(calls.rename("date=1/a+b", "c d")).begin(login)
    assert asked.address[:2] == ("name-node", 9870)
    path, _, query = asked.address.target.partition("?")
    assert path == "/webhdfs/v1/chat/of%20all/date=1/a%2Bb"
    assert query == "&".join(
        part for part in ("op=RENAME", "destination=%2Fchat%2Fof+all%2Fc+d", who) if part
    )


def test_a_file_goes_to_the_data_node_alone() -> None:
    writing = Call(calls.write_file("a"), NAME_NODE, calls.Patience(2, 1, 1))
    first = writing.begin(USER)
    assert (first.method, first.headers(5)["Content-Length"]) == ("PUT", "0")
    place = "http://[::1]:9864/x?op=CREATE&token=secret"
    second = writing.on_answer(Answer(307, "", place, b"", 0))
    assert isinstance(second, Ask)
    assert second.address == ("::1", 9864, "/x?op=CREATE&token=secret")
    assert second.headers(5)["Content-Length"] == "5"
    assert isinstance(writing.on_lost("it broke"), Wait)
    assert not writing.begin(USER).sends  # from the name node on
    assert isinstance(writing.on_answer(Answer(307, "", place, b"", 0)), Ask)
    told = writing.on_lost("it broke")
    assert told == Failed("data node [::1]:9864, to which the name node sent us: it broke")


def test_a_file_that_was_taken_away_while_it_was_written_is_written_again() -> None:
    """As of who sweeps what another one had left half done."""
    gone = b'{"RemoteException": {"exception": "FileNotFoundException", "message": "no lease"}}'
    answer = Answer(404, "Not Found", "", gone, 0)
    writing = Call(calls.write_file("a"), NAME_NODE, calls.Patience(2, 1, 1))
    for expected in (Wait, Failed):
        writing.begin(USER)
        sent_on = writing.on_answer(Answer(307, "", "http://data-node:9864/a", b"", 0))
        assert isinstance(sent_on, Ask)
        assert isinstance(writing.on_answer(answer), expected)
    reading = Call(calls.read_file("a"), NAME_NODE, calls.Patience(2, 1, 1))
    reading.begin(USER)
    assert isinstance(reading.on_answer(answer), Failed), "what is not there comes by no question"


def test_so_much_of_an_answer_is_read_as_its_status_is_worth() -> None:
    reading = Call(calls.read_file("a"), NAME_NODE, calls.Patience(1, 1, 1))
    assert reading.wants(200) == 0  # the file itself
    assert reading.wants(404) == webhdfs.REFUSAL_SIZE_MAX
    assert call(calls.delete("a", {})).wants(200) == webhdfs.ANSWER_SIZE_MAX + 1


@pytest.mark.parametrize(
    ("size", "counts", "wrong"),
    [
        (5, [2, 3, 0], ""),
        (5, [2, 0], "it ended 3 bytes early"),
        (5, [5, 1], "more than 5 bytes came"),
        (0, [0], ""),
        (None, [9, 0], ""),
    ],
)
def test_a_file_is_as_long_as_was_promised(size: int | None, counts: list[int], wrong: str) -> None:
    file = File(size)
    *before, last = [file.on_bytes(count) for count in counts]
    assert not any(before)
    assert last == wrong


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://n", ("http", "n", 80, "")),
        ("https://n/a/b/", ("https", "n", 443, "a/b")),
        ("http://[::1]:9870", ("http", "::1", 9870, "")),
        ("http://n:0", None),
        ("hdfs://n", None),
        ("http://", None),
    ],
)
def test_a_name_node_is_at_an_address(url: str, found: tuple[str, str, int, str] | None) -> None:
    assert NameNode.at(url) == found
