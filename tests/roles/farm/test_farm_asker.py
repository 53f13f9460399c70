"""An act is done when the member says so, and not when it has stopped to answer."""

import asyncio
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import UNSET
from msgspec.structs import replace

from appliance.base.errors import ConfigurationError, FarmPostFailed, StorageError
from appliance.base.limits import FARM_PERIOD_MS_MIN
from appliance.commands.farm_verbs import site as verbs
from appliance.cores.directory.directory import Directory, canonical
from appliance.formats.raft_legacy.frame import APPLICATION, Entry
from appliance.formats.status.farm import (
    ActsStatus,
    FarmStatus,
    MovesStatus,
    PostedStatus,
    SignedDirectory,
)
from appliance.roles.farm.acts import ACTS_TOLD_MAX, Acts
from appliance.roles.operator import farm
from appliance.roles.operator.farm import Asker
from tests.cores.console.worlds import site
from tests.cores.directory.statuses import server, status, view
from tests.patience import HUNG_S


class Told(Asker):
    """Answers are given beforehand; the last one stays."""

    def __init__(self, *answers: FarmStatus | dict[str, Any] | None) -> None:
        self.answers = list(answers)
        self.site: Any = SimpleNamespace(nodes=[SimpleNamespace(name="node-0", farm_id=1)])

    def ask(self, index: int) -> FarmStatus | None:
        found = self._next()
        assert found is None or isinstance(found, FarmStatus)
        return found

    def request(self, index: int, request: dict[str, Any]) -> dict[str, Any] | None:
        found = self._next()
        assert found is None or isinstance(found, dict)
        return found

    def _next(self) -> FarmStatus | dict[str, Any] | None:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def act(*ended: Any, out: str = "") -> FarmStatus:
    """What is told when these acts were the last to end, each a number or with its outcome."""
    rows = [row if isinstance(row, tuple) else (row, "") for row in ended]
    return status(act=ActsStatus(ended=rows, waiting=0), out=out)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(farm, "PATIENCE_S", HUNG_S)
    monkeypatch.setattr(farm, "POLL_S", 0.001)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what never comes."""
    monkeypatch.setattr(farm, "PATIENCE_S", 0.05)


def test_an_act_that_was_committed_is_done() -> None:
    Told({"begun": 3}, act(2), None, act(3)).do(0, {"do": "period"})


def test_why_an_act_was_not_done_is_told() -> None:
    with pytest.raises(StorageError, match="nobody leads"):
        Told({"begun": 3}, act(2), act((3, "nobody leads"))).do(0, {"do": "period"})


def test_an_act_that_failed_is_not_done_because_the_next_one_was() -> None:
    with pytest.raises(StorageError, match="nobody leads"):
        Told({"begun": 3}, act(2), act(2, (3, "nobody leads"), 4)).do(0, {"do": "period"})


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("answer", [None, act(), act(2), act(4, 5)])
def test_an_act_of_which_nothing_is_heard_is_not_taken_for_done(
    answer: FarmStatus | None,
) -> None:
    with pytest.raises(StorageError, match="not committed in time"):
        Told({"begun": 3}, answer).do(0, {"do": "period"})


OUT = "member 1 was taken out of the farm"


@pytest.mark.parametrize("before", [act(), act(2), None])
@pytest.mark.parametrize("wish", [{"do": "remove", "id": 1}, {"do": "remove", "id": 2}])
def test_an_act_of_a_member_that_is_taken_out_is_not_waited_for(
    before: FarmStatus | None, wish: dict[str, Any]
) -> None:
    """It will not tell how it ended, least of all its own end."""
    with pytest.raises(StorageError, match=OUT):
        Told({"begun": 3}, before, act(2, out=OUT)).do(0, wish)


def test_an_act_that_ended_before_its_member_was_taken_out_is_done() -> None:
    Told({"begun": 3}, act(2), act(3, out=OUT)).do(0, {"do": "period"})


def version(number: int) -> FarmStatus:
    return status(directory=SignedDirectory(version=number))


def led_by(member: int) -> FarmStatus:
    return status(leader=member)


def test_a_directory_is_published_when_a_newer_one_is_there() -> None:
    Told(version(7), {"begun": 0}, version(7), None, version(8)).publish(0)


def test_the_lead_is_handed_over_when_another_member_has_it() -> None:
    Told({"begun": 0}, led_by(-1), led_by(1), led_by(2)).hand_over(0)


@pytest.mark.usefixtures("impatient")
def test_neither_is_told_as_done_before() -> None:
    with pytest.raises(StorageError, match="not committed in time"):
        Told(version(7), {"begun": 0}, version(7)).publish(0)
    for member in (-1, 1):
        with pytest.raises(StorageError, match="no other member has taken it"):
            Told({"begun": 0}, led_by(member)).hand_over(0)


class Alone:
    """A role whose member is there, has applied all, and whose acts fail as often as it is said."""

    def __init__(self, *refusals: str) -> None:
        self.refusals, self.id, self.out = list(refusals), 1, ""
        self.member: Any = SimpleNamespace(directory=Directory("farm"))
        self.audit: Any = SimpleNamespace(note=lambda wish, outcome: None)
        self.posts: Any = self

    async def act(self, directory: Directory, config: dict[str, Any]) -> int:
        if why := self.refusals.pop(0):
            raise FarmPostFailed(why)
        date = directory.acted_ms() + 1
        value = canonical({"cluster": "farm", "date": date, "id": 1, "config": config})
        directory.take(directory.index + 1, Entry(1, APPLICATION, value))
        return directory.index


def test_each_act_keeps_its_own_outcome_and_a_later_life_other_numbers() -> None:
    role = Alone("nobody leads", "")
    acts = Acts(role)
    period = {"do": "period", "ms": FARM_PERIOD_MS_MIN}
    first, second = (acts.on_wish(period)["begun"] for _ in range(2))
    asyncio.run(acts.perform())
    assert acts.told() == ActsStatus(ended=[(first, "nobody leads"), (second, "")], waiting=0)
    assert Acts(Alone()).on_wish(period)["begun"] > second
    role.refusals += [""] * ACTS_TOLD_MAX
    for _ in range(ACTS_TOLD_MAX):
        acts.on_wish(period)
        asyncio.run(acts.perform())
    assert len(acts.told().ended) == ACTS_TOLD_MAX


def test_a_shard_is_placed_and_let_go_of_and_never_with_another_number_who_vote() -> None:
    role = Alone("", "", "")
    directory, acts = role.member.directory, Acts(role)
    group = {"shard": 0, "op": 5, "voters": [1, 2, 3], "standbys": []}
    said = {"cluster": "farm", "date": 1, "id": 1, "groups": [group]}
    directory.take(1, Entry(1, APPLICATION, canonical(said)))
    for nodes, why in (([1, 2], "2 nodes are named, and 3 vote"), ([1, 2, 2], "named twice")):
        assert why in acts.on_wish({"do": "place", "shard": 0, "nodes": nodes})["refused"]
    told = []
    for shard, nodes in ((0, [2, 3, 4, 1]), (7, [9]), (0, [])):
        acts.on_wish({"do": "place", "shard": shard, "nodes": nodes})
        asyncio.run(acts.perform())
        told.append(dict(directory.placement.nodes))
    assert told == [{0: (2, 3, 4, 1)}, {0: (2, 3, 4, 1), 7: (9,)}, {7: (9,)}]
    assert [outcome for _, outcome in acts.told().ended] == ["", "", ""]


class Farm(Asker):
    """Three members whose statuses are given beforehand; the last ones stay. `done`: the acts."""

    def __init__(self, *statuses: dict[int, FarmStatus], refuses: bool = False) -> None:
        self.site, self.folders = site(), {}
        self.told, self.refuses, self.done = list(statuses), refuses, []

    def statuses(self) -> dict[int, FarmStatus]:
        return self.told.pop(0) if len(self.told) > 1 else self.told[0]

    def do(self, index: int, wish: dict[str, Any]) -> None:
        self.done.append((index, wish["do"]))
        if self.refuses:
            raise StorageError("no member that leads has begun it; run it again")


def knows(*members: int, commit: int = 5, committed: bool = True, role: str = "") -> FarmStatus:
    rows = [server(member) for member in members]
    return status(members=rows, commit=commit, role=role, members_committed=committed)


GONE = status(out="member 3 was taken out", view=UNSET)
BEFORE = {0: knows(1, 2, 3, role="leader"), 1: knows(1, 2, 3), 2: knows(1, 2, 3)}


def test_a_member_is_removed_when_the_configuration_without_it_is_committed() -> None:
    node = site().nodes[2]
    begun = {0: knows(1, 2, committed=False, role="leader"), 1: knows(1, 2, 3), 2: knows(1, 2, 3)}
    for after in ({0: knows(1, 2, commit=6), 1: knows(1, 2, 3)}, {0: knows(1, 2, 3), 2: GONE}):
        asker = Farm(BEFORE, begun, after)
        farm.take_out(asker, node)
        assert asker.done[0] == (0, "remove") and len(asker.done) <= 2
    asker = Farm({0: knows(1, 2, 3, role="leader"), 1: knows(1, 2, 3)}, {0: GONE, 1: knows(2, 3)})
    farm.take_out(asker, site().nodes[0])
    assert asker.done == [(0, "yield")], "a leader yields first"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "found",
    [BEFORE, {0: knows(1, 2, committed=False)}, {0: knows(1, 2), 1: knows(1, 2, 3, commit=9)}],
)
def test_a_removal_that_is_not_committed_is_told_so(found: dict[int, FarmStatus]) -> None:
    with pytest.raises(StorageError, match="node-2 is still a member: its removal is not commit.*"):
        farm.take_out(Farm(found, refuses=True), site().nodes[2])


def departs(*members: int, listed: tuple[int, ...] = (1, 2)) -> dict[int, FarmStatus]:
    return {0: replace(knows(*listed), view=view(departed=list(members)))}


def test_a_node_that_is_removed_stays_out_though_it_never_was_a_member() -> None:
    node, apart = site().nodes[2], departs(3)
    asker = Farm(BEFORE, apart)
    farm.take_out_for_good(asker, node)
    assert asker.done == [(0, "remove")], "it was one, and is out"
    asker = Farm(departs(), departs(), departs(), apart, refuses=True)
    farm.take_out_for_good(asker, node)
    assert asker.done == [(0, "remove")], "there was none to take out"
    with pytest.raises(StorageError, match="may yet take node-2 in: no member that leads"):
        farm.take_out_for_good(Farm(departs(), refuses=True), node)


class Out(Farm):
    """Of a node that is not the first one, and is no member; it says so whatever is asked."""

    def __init__(self) -> None:
        super().__init__({2: GONE})
        self.folders = {2: Path("node-2")}

    def do(self, index: int, wish: dict[str, Any]) -> None:
        assert self.folders[index].name == self.site.nodes[index].name
        raise StorageError(f"node-{index} refuses: {GONE.out}")


@pytest.mark.usefixtures("impatient")
def test_who_asks_where_the_only_member_is_out_is_told_so() -> None:
    with pytest.raises(StorageError, match="node-2 refuses: member 3 was taken out"):
        Out().do(Out().any(), {"do": "period"})
    for take_out in (farm.take_out, farm.take_out_for_good):
        with pytest.raises(StorageError, match="node-2 refuses: member 3 was taken out"):
            take_out(Out(), site().nodes[1])


def test_a_machine_that_was_taken_out_and_comes_again_is_let_in() -> None:
    for found, done in ((departs(), []), (departs(2), []), (departs(3), [(0, "admit")])):
        asker = Farm(found)
        farm.lift_departure(asker, site().nodes[2])
        assert asker.done == done


def test_a_member_is_let_in_again_and_its_own_log_put_aside() -> None:
    out = {0: knows(1, 2), 1: knows(1, 2), 2: GONE}
    listed = {0: knows(1, 2, 3, committed=False), 1: knows(1, 2)}
    asker = Farm(out, out, listed, {0: knows(1, 2, 3)})
    farm.let_in(asker, site().nodes[2])
    assert asker.done == [(0, "admit"), (2, "rejoin")] and len(asker.told) == 1
    alone = Farm({2: GONE}, {2: knows(1, 2, 3)})
    farm.let_in(alone, site().nodes[2])
    assert alone.done == [(2, "rejoin")], "who is out cannot admit anybody"


@pytest.mark.usefixtures("impatient")
def test_who_is_not_let_in_yet_is_told_what_is_missing() -> None:
    with pytest.raises(StorageError, match="with --node-folder of that node"):
        farm.let_in(Farm({0: knows(1, 2)}), site().nodes[2])


VIEW = view(excluded=["2", "x"], placement={0: [3, 1]}, period_ms=1500)


@pytest.mark.parametrize(
    ("wish", "line"),
    [
        ({"do": "exclude", "names": ["2"]}, "excluded: node-1, x"),
        ({"do": "place", "shard": 0}, "placement of shard 0: node-2, node-0"),
        ({"do": "place", "shard": 7}, "placement of shard 7: nobody said"),
        ({"do": "period", "ms": 1}, "nodes post every 1.5 s; a status is recent for 4.5 s"),
    ],
)
def test_a_verb_says_what_is_so_now_not_what_was_asked(wish: dict[str, Any], line: str) -> None:
    assert farm.line_of(site(), VIEW, wish) == line
    assert farm.line_of(site(), view(), {"do": "exclude"}) == "excluded: nobody"


def test_people_read_names_and_words_of_a_farm_and_no_numbers_of_the_protocol() -> None:
    agreed = view(
        publisher=2,
        scores={2: (3, 24, 7, 0, -2), 1: (3, 24, 8, -2, -1)},
        ahead={1: 4},
        shippers={0: 3},
        documents=[
            PostedStatus(id=1, index=5, endpoints=3, age_ms=1500, recent=True),
            PostedStatus(id=2, index=4, endpoints=1, age_ms=9000, recent=False),
        ],
        excluded=["3", "somebody"],
        placement={0: [3, 1]},
    )
    said = status(
        leader=1,
        term=4,
        commit=9,
        members=[server(1, 9)],
        view=agreed,
        directory=SignedDirectory(version=8),
    )
    told = farm.lines(site(), said)
    assert told[0] == "farm farm  leader node-0  term 4  commit 9"
    assert told[1].startswith("  node-0  "), "an older process does not tell its settings"
    own = replace(said, publish="off", require_server_proof=False)
    chosen = "this node  farm_publish off  server proof not required"
    assert farm.lines(site(), own)[1] == chosen
    why = "3 shards, up 24 h, 7/8 of its network free; node-0 is better for 4 posts in a row"
    assert f"publisher node-1  {why}" in told
    assert "  node-0  serves 3 shards  1.5 s old" in told
    assert "  node-1  serves 1 shard  9.0 s old, too old" in told
    assert "excluded: node-2, somebody" in told and "placement of shard 0: node-2, node-0" in told
    assert not [line for line in told if "[" in line or "{" in line]
    alone = replace(agreed, publisher=3, ahead={}, excluded=[], placement={})
    moving = MovesStatus(steps=["shard 0: node-1 is taken in"], trouble="nobody leads")
    told = farm.lines(site(), replace(said, moves=moving))
    assert told[-2:] == ["to move: shard 0: node-1 is taken in", "nothing moves: nobody leads"]
    expired = SignedDirectory(version=8, expired_ms=2500)
    told = farm.lines(site(), replace(said, view=alone, directory=expired))
    assert "publisher node-2  no status of it counts" in told and told[-1].endswith("for 2 s")
    assert farm.lines(site(), GONE) == [GONE.out]


def test_a_shard_is_placed_that_the_site_has(monkeypatch: pytest.MonkeyPatch) -> None:
    asker = Farm(BEFORE)
    monkeypatch.setattr(verbs, "Asker", lambda local, node_folder: asker)
    monkeypatch.setattr(asker, "shown", lambda index, wish: "placed")
    placed = CliRunner().invoke(verbs.place_command, ["0", "node-1"])
    assert placed.output == "placed\n" and asker.done == [(0, "place")]
    with pytest.raises(ConfigurationError, match="the site has no shard 99; allowed: 0 to 0"):
        CliRunner().invoke(verbs.place_command, ["99", "node-1"], catch_exceptions=False)
    assert len(asker.done) == 1
    lifted = CliRunner().invoke(verbs.place_command, ["0", "--lift"])
    assert lifted.output == "placed\n" and len(asker.done) == 2
    for words in (["0"], ["0", "node-1", "--lift"]):
        done = CliRunner().invoke(verbs.place_command, words)
        assert done.exit_code == 2 and "or say --lift" in done.output
    assert len(asker.done) == 2


def test_only_who_is_described_for_a_shard_can_hold_it() -> None:
    made = site()
    (shard,) = made.shards
    farm.check_described(made, 0, made.nodes[: len(shard.members)])
    fewer = dataclasses.replace(
        made, shards=[dataclasses.replace(shard, members=[0], replica_ids=shard.replica_ids[:1])]
    )
    with pytest.raises(ConfigurationError, match="has no replica of shard 0 for node-1; allowed"):
        farm.check_described(fewer, 0, made.nodes[:2])
