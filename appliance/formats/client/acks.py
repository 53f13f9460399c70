"""Acknowledgements of many messages as columns, for those who make or read them by the thousand."""

import numpy as np

from appliance.formats.client.frame import layout_of
from appliance.formats.client.sending import MessageAck

ACK_ITEM = np.dtype(
    [
        ("room_id", "V16"),
        ("client_seq", "<u8"),
        ("op", "<u8"),
        ("msg_id", "V16"),
        ("timestamp", "<u8"),
        ("hash", "V32"),
    ]
)
assert ACK_ITEM.itemsize == layout_of(MessageAck).struct().size
assert list(ACK_ITEM.names or ()) == [name for name, _, _ in layout_of(MessageAck).fields]
