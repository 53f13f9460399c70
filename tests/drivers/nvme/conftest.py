"""Volumes of these tests are small, and measured in haste: most are made anew for each test."""

import pytest

from appliance.drivers.nvme import flush

SINGLES, GROUPS = 5, 2  # of each way to flush


@pytest.fixture(autouse=True)
def measured_in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush, "SAMPLES_SINGLE", SINGLES)
    monkeypatch.setattr(flush, "SAMPLES_GROUP", GROUPS)
