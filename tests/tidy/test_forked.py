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
