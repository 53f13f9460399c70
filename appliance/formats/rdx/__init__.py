"""Values of the objects, as bytes and as text. What merges them lies in `cores/metadata`.

A field has a type, one letter, and a state, the bare bytes that are stored for it.

    F I R S T    one value: a stamp of revision and source, then the value's bytes
    N Z          counters: one record for each source that counted
    E M C        set, map, log of terms: runs of enveloped single values
    V            version vector
    O Y          the class of an object, the parent of a replica: a zipped id
    other        kept and passed on, never made

    stamps.py       a stamp and the value after it; runs of records that begin with a stamp
    values.py       bytes of a single value and what they stand for
    check.py        whether bytes are a state of their type, before anything is kept of them
    text.py         states as text
    notation.py     text as states: the language of `tigerchat object shell`
"""
