"""What an edge shows by QUIC as time goes on."""

import dataclasses
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from appliance.base.limits import QUIC_CERTIFICATE_LIFE_S
from appliance.drivers.network.quic.certificate import Shown, load_shown
from appliance.roles.edge.quic_certificates import QuicCertificates
from tests.drivers.network.site import make_node

WEEK_US = QUIC_CERTIFICATE_LIFE_S // 2 * 1_000_000
NOW_US = 2954 * WEEK_US + 5_000_000


@pytest.fixture
def given(tmp_path: Path) -> Shown:
    node = make_node(tmp_path, 0)
    return load_shown(node.certificate, node.private)


def test_pages_know_the_shown_the_one_before_and_the_next_at_all_times(given: Shown) -> None:
    shown: list[Shown] = []
    made = QuicCertificates(given, shown.append)
    told = []
    for week in range(4):
        for second in (0, 1, 86_400):
            made.on_time(NOW_US + week * WEEK_US + second * 1_000_000)
        told.append(made.digests)
    assert [one.digest for one in shown] == [digests[1] for digests in told]
    for before, after in zip(told, told[1:], strict=False):
        assert len(set(before)) == 3 and before[1:] == after[:2]


def test_the_operators_own_is_left_as_it_is(given: Shown) -> None:
    shown: list[Shown] = []
    own = dataclasses.replace(given, key=ed25519.Ed25519PrivateKey.generate())
    made = QuicCertificates(own, shown.append)
    made.on_time(NOW_US)
    assert shown == [] and made.digests == []
