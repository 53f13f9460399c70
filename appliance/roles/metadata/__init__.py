"""A replica of the objects, running: its store on disk, its streams to others, its requests.

    object_store.py   the store that the core declares, over an LMDB environment
    service.py        the beat: take in, write, answer, send
    codec.py          one stream: bytes to packets, packets to bytes
    role.py           the process: makes the others and runs them
    site_links.py     which nodes and sites this node is linked to
    live.py           links of what is never stored: who types, who is there
    listener.py       the node's own socket: requests in, answers and changes out
    requests.py       what a shell or another role may ask for
    product_requests.py  what may be asked of the product's objects
    arguments.py      the fields of a request, checked

The service is one task. Whatever comes, from streams or from requests, waits in one list; a beat
takes all of it, applies it, writes it with one flush, and only then answers and sends. So many
edits share a flush, and nothing that a crash can take back is ever said. The flush runs in a
thread; meanwhile the list fills.
"""
