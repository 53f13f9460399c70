"""How a group changes."""

from appliance.formats import envelope as env
from appliance.formats.membership import (
    KIND_ADD,
    MemberChange,
    Reconfigure,
    encode_change,
    encode_reconfigure,
)
from tests.scenarios.stage import Stage
from tests.scenarios.story import Vocabulary

words = Vocabulary()


@words.line("{who} asks that {whom} change places")
def swap(stage: Stage, who: str, whom: str) -> None:
    """An order of the members for the next epoch, in which two of them are exchanged."""
    newest = max((stage.replica(i) for i in stage.running()), key=lambda r: (r.epoch, r.commit_min))
    order = list(newest.members)
    one, other = (order.index(stage.cluster.members[i]) for i in stage.nodes(whom))
    order[one], order[other] = order[other], order[one]
    body = encode_reconfigure(Reconfigure(newest.epoch + 1, newest.replica_count, tuple(order)))
    for speaker in stage.talkers(who):
        stage.notes["order"] = body
        stage.change(speaker, env.OPERATION_RECONFIGURE, body)


@words.line("{who} asks for the last order again")
def swap_again(stage: Stage, who: str) -> None:
    for speaker in stage.talkers(who):
        stage.change(speaker, env.OPERATION_RECONFIGURE, stage.notes["order"])


@words.line("{who} asks that {whom} joins")
def add(stage: Stage, who: str, whom: str) -> None:
    for index in stage.nodes(whom):
        replica_id = stage.cluster.members[index]
        body = encode_change(MemberChange(0, KIND_ADD, replica_id, address="somewhere:7400"))
        stage.change(stage.talkers(who)[0], env.OPERATION_MEMBER_CHANGE, body)


@words.line("{who} is formatted for the group")
def format_member(stage: Stage, who: str) -> None:
    """As the primary knows it now."""
    primary = stage.primary()
    assert primary is not None
    for index in stage.nodes(who):
        stage.cluster.format(
            stage.cluster.machines[index],
            view=0,
            configuration=stage.replica(primary).configuration,
        )
