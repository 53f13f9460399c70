"""Ports of a node that was just killed are waited for; those that somebody keeps are refused."""

import errno
import socket
import threading
import time

import pytest

from appliance.node.ports import wait_bindable
from tests.patience import HUNG_S


def listening() -> socket.socket:
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    held.listen()
    return held


def test_a_port_that_is_given_up_is_waited_for() -> None:
    held = listening()
    address = held.getsockname()
    given_up = threading.Timer(0.3, held.close)
    given_up.start()
    wait_bindable(socket.AF_INET, socket.SOCK_STREAM, address, time.monotonic() + HUNG_S)
    given_up.join()


def test_a_port_that_is_kept_is_refused_when_the_time_is_over() -> None:
    with listening() as held:
        deadline_s = time.monotonic() + 0.2
        with pytest.raises(OSError) as refused:
            wait_bindable(socket.AF_INET, socket.SOCK_STREAM, held.getsockname(), deadline_s)
        assert refused.value.errno == errno.EADDRINUSE
        assert time.monotonic() >= deadline_s


def test_an_address_that_is_no_own_one_is_refused_at_once() -> None:
    begun = time.monotonic()
    with pytest.raises(OSError, match="assign"):
        wait_bindable(socket.AF_INET, socket.SOCK_STREAM, ("192.0.2.1", 0), begun + HUNG_S)
