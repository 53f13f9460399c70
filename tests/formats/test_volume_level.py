"""Who changes what is written into volumes says whether programs of before take it."""

import hashlib
import json

import numpy as np

from appliance.formats import (
    checkpoint,
    envelope,
    event,
    lives,
    membership,
    record,
    segment,
    session,
    sharing,
    superblock,
    volume_file,
    volume_label,
)
from appliance.formats.volume_level import NOT_TOLD, VOLUME_LEVEL

WRITTEN = (
    checkpoint,
    envelope,
    event,
    lives,
    membership,
    record,
    segment,
    session,
    sharing,
    superblock,
    volume_file,
    volume_label,
)
NUMBERS = ("KIND_", "FLAG_", "OPERATION_", "VERSION")  # a new one may be unknown to others

LEVELS = {1: "a6891e88226d7812"}


def digest() -> str:
    """Of all layouts and numbers that lie in volumes."""
    found = {}
    for module in WRITTEN:
        for name, value in vars(module).items():
            if isinstance(value, np.dtype) and value.names:
                found[f"{module.__name__}.{name}"] = str(value.descr)
            elif name.startswith(NUMBERS) and isinstance(value, int):
                found[f"{module.__name__}.{name}"] = str(value)
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]


def test_what_volumes_hold_is_that_of_its_level() -> None:
    assert list(LEVELS) == list(range(NOT_TOLD + 1, VOLUME_LEVEL + 1))
    assert digest() == LEVELS[VOLUME_LEVEL], (
        "what is written into volumes has changed: raise VOLUME_LEVEL where a program of before "
        "would not take it, and say so in docs/formats.md and docs/changelog.md; this is its digest"
    )
