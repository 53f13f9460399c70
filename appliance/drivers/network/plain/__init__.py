"""Conversations in plain HTTP, for clients whose network lets nothing else through.

    POST   /v1/session          lines of frames, `hello` first ──▶ what was answered, and a secret
    POST   /v1/session/frames   further lines
    GET    /v1/session/poll     waits for frames: an object of JSON
    GET    /v1/session/events   the same, as a stream of server-sent events
    DELETE /v1/session          the end

All but the first bear the secret in a field of their head, for what stands in an address is written
down on the way. The same routes serve HTTP/1.1 and HTTP/3, and one conversation may use both.

A conversation is a visitor of the entrance of its own. It ends with its stream of events, or when
nobody reads from it for a while; a client then opens another, on any node, and resumes by cursor.

    conversation    one of them
    conversations   all of a process, by their secrets
    routes          the five requests
"""
