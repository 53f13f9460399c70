"""Verbs that tests fork: how one has ended is told to each who asks, whoever asks at once."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests import forked

ROUNDS = 15


@pytest.mark.parametrize(("words", "expected"), [(["version"], 0), (["nonsense"], 2)])
def test_who_waits_and_who_looks_meanwhile_hear_the_same(words: list[str], expected: int) -> None:
    with ThreadPoolExecutor(2) as waiting:
        for _ in range(ROUNDS):
            started = forked.start(words, environment=os.environ)
            waits = [waiting.submit(started.wait) for _ in range(2)]
            while started.poll() is None:
                pass  # as often as can be: what is told at the end, one of them took from another
            assert started.returncode == expected
            assert [each.result() for each in waits] == [expected] * 2
            assert started.wait() == started.poll() == expected
            assert started.stderr is not None
            started.stderr.close()


def test_a_constant_is_another_one_in_the_fork_that_is_told_so_and_in_no_other() -> None:
    words = ("token", "--user", "anna", "--local", "nowhere")
    name = "appliance.drivers.chat.access.AUTHOR_NAME_SIZE_MAX"
    said = [forked.run(words, constants=told).stderr for told in ({name: 3}, {})]
    assert "allowed: 1 to 3 bytes" in said[0] and "allowed: 1 to" not in said[1]
    unknown = forked.run(words, constants={name + "IMUM": 3})
    assert unknown.returncode == 1 and "has no AUTHOR_NAME_SIZE_MAXIMUM" in unknown.stderr
