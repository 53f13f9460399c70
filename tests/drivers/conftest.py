"""A folder on a disk: volumes refuse memory, and the temporary folder may lie there."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

BUILD = Path(__file__).resolve().parents[2] / "build"


@pytest.fixture
def disk_folder() -> Iterator[Path]:
    """An empty folder beside the program, removed afterwards."""
    BUILD.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="test-", dir=BUILD))
    yield folder
    shutil.rmtree(folder)
