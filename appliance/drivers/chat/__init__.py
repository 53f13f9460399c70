"""The chat client: what commands, measurements and tests speak to a site with.

Purpose: a device that survives the death of its node. Whoever uses it sees rooms, acknowledgements
and events; connections come and go below.

    endpoint     address of a node's client port, and the TLS it must show
    carrier      what carries frames to and from one node; nothing known of their meaning
    connection   one WebSocket; plain, webtransport: the same by plain HTTP, by QUIC
    transports   these by their names
    refusal      the error that stands in a node's answer over HTTP
    outbox       what a device has sent to one room and what was not answered yet; pure
    client       hello, requests, sends, subscriptions over whichever node answers
    room_objects topic, pins and reactions of a room: what is news to its reader
    http_answer  plain HTTP with a node, and why an answer is none that was wanted
    room_file    a room as a signed file, over HTTP
    find_message where the message lies that has an id, over HTTP
    unknown_room what is said of a room that there is not
    token        signs tokens with the key of a local site
    pump         the lean sender and receiver of the load generator: arrays of messages, no objects

Idea: everything unanswered is kept, and nothing else. When a connection is lost, the client dials
the next node of its list, says hello under the same `client_id`, sends all unanswered messages
again under the same `client_seq` (the site answers a repeated one with its first acknowledgement),
repeats open requests (each is idempotent) and resumes each subscription after the last op it
delivered.

Bounds: at most WINDOW_LENGTH messages of a room are unanswered, since only that many
acknowledgements are remembered by the site; a subscription that is not read holds EVENTS_MAX
events, then the socket is not read any more; what stays unanswered for `patience_s` seconds without
any node accepting a hello fails with `SiteUnreachable`.

Promises: acknowledgements of a room come in the order of its sends; events of a subscription come
in the order of op, each once, whatever connections were lost in between.
"""
