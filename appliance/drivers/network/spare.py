"""What is left when a process has no descriptor for a client that knocks."""

import os
import socket


class Spare:
    """One descriptor that is held open, to be given up when there is no other: then a client that
    knocks sees its connection end, and goes elsewhere, instead of waiting for an answer."""

    def __init__(self) -> None:
        self._held = -1
        self._hold()

    def _hold(self) -> bool:
        if self._held < 0:
            try:
                self._held = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return False
        return True

    def turn_away(self, listener: socket.socket) -> bool:
        """End the connection that waits longest; False if that cannot be done now."""
        if not self._hold():
            return False
        self.close()
        try:
            sock, _ = listener.accept()
            sock.close()
        except OSError:
            return False
        finally:
            self._hold()
        return True

    def close(self) -> None:
        if self._held >= 0:
            os.close(self._held)
            self._held = -1
