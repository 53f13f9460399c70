"""A replica of the objects, running: its store on disk, its streams to others, its requests.

    object_store.py   the store that the core declares, over an LMDB environment
    service.py        the beat: take in, write, answer, send
    codec.py          one stream: bytes to packets, packets to bytes
    requests.py       what a shell or another role may ask for

The service is one task. Whatever comes, from streams or from requests, waits in one list; a beat
takes all of it, applies it, writes it with one flush, and only then answers and sends. So many
edits share a flush, and nothing that a crash can take back is ever said. The flush runs in a
thread; meanwhile the list fills.
"""
