"""No request hides in another, and none asks for more than there is."""

import re

import pytest

from tests.drivers.network.client_port import Port, run
from tests.drivers.network.smuggling_cases import CASES, Smuggling

PARTS = 10_000


def test_there_are_thirty_cases_and_more() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 30


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_request_with_two_ends_is_refused_and_what_is_behind_it_not_read(
    case: Smuggling,
) -> None:
    async def test(port: Port) -> None:
        client = await port.dial()
        client.writer.write(case.sent)
        answers = await client.ended()  # or the test hangs
        assert tuple(map(int, re.findall(rb"HTTP/1.1 (\d+)", answers))) == case.statuses
        assert b"serving" not in answers

    run(test)


@pytest.mark.parametrize("size", [1, 100])
def test_ten_thousand_ranges_are_one_file(size: int) -> None:
    ranges = ",".join(f"{index * size}-{index * size + size - 1}" for index in range(PARTS))

    async def test(port: Port) -> None:
        for header in (f"bytes={ranges[:8000]}", f"bytes={ranges}"):
            client = await port.dial()
            client.writer.write(
                f"GET /web/chat.css HTTP/1.1\r\nHost: 127.0.0.1\r\nRange: {header}\r\n"
                "Connection: close\r\n\r\n".encode()
            )
            answer = await client.ended()
            status = int(answer.split(b" ", 2)[1]) if answer else 0
            assert status in (0, 200, 400, 416, 431), answer[:100]  # never 206
            assert len(answer) < 1 << 20

    run(test)
