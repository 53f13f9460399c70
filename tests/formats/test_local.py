"""Questions between the processes of a node, and which answer belongs to which."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.formats import local
from appliance.formats.envelope import COMMAND_NAMES, decode

CLUSTER = bytes(range(16))


def test_an_answer_bears_the_number_of_its_question_and_what_is_told_none() -> None:
    asked = local.question(local.LOCAL_READ_ROOMS, 7, cluster=CLUSTER, shard=3, op=5, aux=9)
    read = decode(asked.raw)
    assert read is not None and local.number_of(read) == 7
    answer = local.answer(read, local.LOCAL_ROOMS, op=11, body=b"rows")
    assert (answer.command, answer.op, answer.aux) == (local.LOCAL_ROOMS, 11, 9)
    assert (answer.cluster, answer.shard, local.number_of(answer)) == (CLUSTER, 3, 7)
    told = local.told(local.LOCAL_COMMITTED, cluster=CLUSTER, shard=3, op=12, aux=9)
    assert (told.op, told.aux, local.number_of(told)) == (12, 9, local.UNASKED)


def test_none_of_its_commands_is_one_between_nodes() -> None:
    names = [name for name in vars(local) if name.startswith("LOCAL_")]
    codes = {getattr(local, name) for name in names}
    assert len(codes) == len(names) and not codes & COMMAND_NAMES.keys()


@given(st.lists(st.one_of(st.none(), st.integers(0, 30)), max_size=60))
def test_each_question_is_answered_once_by_its_own_number(acts: list[int | None]) -> None:
    """None asks; a number answers the question before so many, if there is one."""
    asked: local.Asked[str] = local.Asked()
    waiting: dict[int, str] = {}
    numbers: list[int] = []
    for act in acts:
        if act is None:
            number = asked.ask(f"question {len(numbers)}")
            assert number > local.UNASKED and number not in numbers
            waiting[number] = f"question {len(numbers)}"
            numbers.append(number)
        elif act < len(numbers):
            number = numbers[-1 - act]
            assert asked.answered(number) == waiting.pop(number, None)
        assert len(asked) == len(waiting)
    assert asked.answered(local.UNASKED) is None
    asked.clear()
    assert len(asked) == 0 and asked.number() not in numbers
