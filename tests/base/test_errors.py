"""Errors that are counted under a word say what they always said, and are what they were."""

import pytest

from appliance.base.errors import (
    ApplianceError,
    CausalRefused,
    DirectoryRefused,
    FarmFrameError,
    FarmPostFailed,
    FarmPostRefused,
    FormatError,
    ObjectsError,
    PacketRefused,
)

Refused = PacketRefused | CausalRefused | FarmFrameError | DirectoryRefused | FarmPostRefused

# error with the word "late" -> what it is caught as, its code, its sentence
SAID: list[tuple[Refused, type[ApplianceError], int, str]] = [
    (PacketRefused("late", "9 bytes"), ObjectsError, 3102, "late: 9 bytes"),
    (PacketRefused("late"), ObjectsError, 3102, "late"),
    (CausalRefused("late", "{no}"), FormatError, 1600, "late: {no}"),
    (FarmFrameError("late", "9 bytes"), FormatError, 1301, "9 bytes"),
    (DirectoryRefused("late", "2 < 3"), ApplianceError, 1305, "the directory is refused: 2 < 3"),
    (FarmPostRefused("late", "no"), FarmPostFailed, 1306, "the farm refuses it: no"),
]


@pytest.mark.parametrize(("error", "kind", "code", "sentence"), SAID)
def test_an_error_with_a_word_is_caught_counted_and_told(
    error: Refused, kind: type[ApplianceError], code: int, sentence: str
) -> None:
    assert isinstance(error, kind)
    assert error.code == code
    assert error.reason == "late"
    assert str(error) == sentence
