"""How the console's page draws and tells curves, tried in the browser without any node."""

from typing import Any

import pytest
from playwright.sync_api import Page

LOAD = "const curves = await import('/web/console/curves.js');"


def run(page: Page, body: str, argument: object) -> Any:
    return page.evaluate("async (argument) => {" + LOAD + body + "}", argument)


@pytest.mark.parametrize(
    ("points", "runs"),
    [
        ([], []),
        ([None, None], []),
        ([0, 1, 2], [[0, 3]]),
        ([None, 1, None, 2, 3, None], [[1, 2], [3, 5]]),
    ],
)
def test_a_gap_is_a_gap(blank: Page, points: list[float | None], runs: list[list[int]]) -> None:
    assert run(blank, "return curves.runsOf(argument)", points) == runs
    paths = run(blank, "return [curves.lineOf(argument, 3), curves.areaOf(argument, 3)]", points)
    assert [path.count("M") for path in paths] == [len(runs)] * 2
    assert paths[1].count("Z") == len(runs) and "NaN" not in "".join(paths)


def test_lines_go_through_the_middle_of_each_point_and_areas_are_as_wide(blank: Page) -> None:
    draw = "return [curves.lineOf(argument, 100), curves.areaOf(argument, 100)]"
    line, area = run(blank, draw, [None, 0, 100, None, 54, None])
    assert line == "M60 44L100 3.3M180 22h.1"
    assert area == "M40 44V44H80V3.3H120V44ZM160 44V22H200V44Z"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "ms", "–"),
        (0, "", "0"),
        (0.4213, "ms", "0.42 ms"),
        (12.34, "ms", "12.3 ms"),
        (1234.5, "/s", "1,235/s"),
        (3, "", "3"),
        (250 * 2**30, "bytes", "250 GiB"),
        (1.5 * 2**30, "bytes", "1.5 GiB"),
        (61.2, "s", "61.2 s"),
    ],
)
def test_figures_have_no_more_digits_than_anybody_reads(
    blank: Page, value: float | None, unit: str, text: str
) -> None:
    said = run(
        blank, "return curves.said(argument.value, argument.unit)", {"value": value, "unit": unit}
    )
    assert said == text


def test_now_is_of_the_newest_points_and_of_space_the_least_counts(blank: Page) -> None:
    figures = (
        "const { now, extreme, word } = curves.figuresOf(argument); return [now, extreme, word]"
    )
    rate = {"unit": "/s", "mean": [1, None, 5, None], "most": [9, None, 7, None]}
    assert run(blank, figures, rate) == [5, 9, "most"]
    assert run(blank, figures, rate | {"mean": [1, None, None, None]}) == [None, 9, "most"]
    assert run(blank, figures, rate | {"unit": "bytes"}) == [5, 1, "least"]
