"""Bugs that were put in on purpose are found by ordinary seeds, and the same seeds pass without
them.

Each is one method of the product replaced, in the way somebody might write it who has not read why
it is so. The seeds of each are ordinary ones of the swarm.
"""

from dataclasses import replace

import pytest

from appliance.cores.vsr import view_change, wal
from appliance.cores.vsr.journal import Journal
from appliance.cores.vsr.member import Member
from appliance.formats.envelope import Message
from appliance.simulation.options import SWARM, draw
from appliance.simulation.world import Outcome, World


def run(seed: int) -> Outcome:
    return World(draw(seed, SWARM)).run()


def plant_acknowledge_before_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prepare counts as durable when its write has been started."""
    write_prepare = wal._write_prepare

    def write_and_trust(member: Member, slot: int, message: Message) -> None:
        write_prepare(member, slot, message)
        Journal.set_clean(member.journal, message.header)
        member.clean_ops.append(message.header.op)

    monkeypatch.setattr(wal, "_write_prepare", write_and_trust)


def plant_highest_op_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new view starts from the longest log, whichever view it is of."""
    evaluate = view_change.evaluate

    def evaluate_longest(dvcs: list, **quorums: int) -> view_change.Evaluation:
        head = max((d.op for d in dvcs), default=0)
        return evaluate([d._replace(log_view=int(d.op == head)) for d in dvcs], **quorums)

    def install_longest(member: Member, dvcs: list, result: view_change.Evaluation) -> None:
        head = max(d.op for d in dvcs)
        install(member, [d._replace(log_view=int(d.op == head)) for d in dvcs], result)

    install = view_change._install
    monkeypatch.setattr(view_change, "evaluate", evaluate_longest)
    monkeypatch.setattr(view_change, "_install", install_longest)


def plant_view_forgotten_at_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The superblock keeps the view it was formatted with; the replica believes otherwise."""
    present = Member.superblock_present

    def present_without_view(member: Member):
        block = present(member)
        assert member.superblock is not None
        forgotten = member.superblock
        return replace(block, view=forgotten.view, log_view=forgotten.log_view,
                       view_headers=forgotten.view_headers,
                       view_headers_kind=forgotten.view_headers_kind)

    monkeypatch.setattr(Member, "superblock_present", present_without_view)
    monkeypatch.setattr(Member, "durable_view", property(lambda member: member.view))
    monkeypatch.setattr(Member, "durable_log_view", property(lambda member: member.log_view))


# Where each was found when the list was made, first to last; a change of the product moves them.
PLANTED = [
    pytest.param(plant_acknowledge_before_durable, (0, 1, 2), id="ack_before_durable"),
    pytest.param(plant_highest_op_wins, (29, 32, 74, 2, 5, 11), id="highest_op_wins"),
    pytest.param(plant_view_forgotten_at_restart, (0, 1, 2), id="view_forgotten"),
]


@pytest.mark.parametrize(("plant", "seeds"), PLANTED)
def test_a_planted_bug_is_found_by_a_seed_that_passes_when_whole(plant, seeds, monkeypatch):
    for seed in seeds:
        with monkeypatch.context() as planted:
            plant(planted)
            found = run(seed)
        if found.failure:
            print(f"seed {seed} finds it: {found.checker}")
            break
    else:
        pytest.fail(f"none of the seeds {seeds} finds the bug")
    whole = run(seed)
    assert not whole.failure, f"seed {seed} fails without the bug: {whole.checker}: {whole.failure}"
