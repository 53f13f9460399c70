"""A folder on a disk: volumes refuse memory, and the temporary folder may lie there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.removal import folder_on_disk


@pytest.fixture
def disk_folder() -> Iterator[Path]:
    """An empty folder beside the program, removed afterwards."""
    with folder_on_disk() as folder:
        yield folder
