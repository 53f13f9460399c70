"""A plugin for pytest: writes down the name of every error that clients of these tests received."""

import os
from pathlib import Path

import pytest

from appliance.formats.client.connection import ErrorFrame
from tests.cores.edge.world import World

TOLD_FILE = "TIGERCHAT_TEST_ERRORS_TOLD"  # in the environment: the file that is written
_told: set[str] = set()


def pytest_configure() -> None:
    take = World.take

    def take_and_note(world, session):
        frames = take(world, session)
        _told.update(frame.name for frame in frames if type(frame) is ErrorFrame)
        return frames

    World.take = take_and_note


def pytest_sessionfinish(session: pytest.Session) -> None:
    Path(os.environ[TOLD_FILE]).write_text("\n".join(sorted(_told)))
