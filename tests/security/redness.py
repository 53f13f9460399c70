"""A plugin for pytest: why tests turned red, a line each, into the file that REDNESS names.

What breaks while a test is set up, or breaks off in another error than an assertion of a test, says
nothing about the rule that was taken away: a method that lost its arguments is red in every test,
and the product's own assertions are crashes of it.
"""

import os
import traceback
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

FILE = "REDNESS"  # in the environment
ENOUGH = "REDNESS_ENOUGH"  # likewise: end the run when one test has noticed
NOTICED = "noticed"
PRODUCT = "appliance"  # its folder, in the one that the tests run in


def why(error: BaseException) -> str:
    """NOTICED for a test's failed assertion, `pytest.fail` and DID NOT RAISE; else the name of the
    error."""
    if isinstance(error, BaseExceptionGroup):
        reasons = {why(one) for one in error.exceptions}
        return NOTICED if reasons == {NOTICED} else ", ".join(sorted(reasons))
    if isinstance(error, pytest.fail.Exception):
        return NOTICED
    if isinstance(error, AssertionError) and not is_of_the_product(error):
        return NOTICED
    return type(error).__name__


def is_of_the_product(error: BaseException) -> bool:
    """Whether it was raised there."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and Path(frames[-1].filename).is_relative_to(Path.cwd() / PRODUCT)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, Any]:
    report = yield
    if report.failed and call.excinfo is not None:
        reason = why(call.excinfo.value) if call.when == "call" else f"while {call.when}"
        with Path(os.environ[FILE]).open("a") as file:
            file.write(f"{reason}\n")
        if reason == NOTICED and ENOUGH in os.environ:
            item.session.shouldstop = "noticed"
    return report
