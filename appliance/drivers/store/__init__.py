"""An ordered store of keys and values in one folder, kept by LMDB.

Purpose. The farm's log, the objects of a site and federation's channels each keep small state that
must survive a crash: a `Store` each, in a folder of its own.

Idea. One memory-mapped B+ tree with several named databases. A `Batch` collects changes to any of
them; `Store.write` puts a whole batch into one transaction and returns only when it is flushed, so
after a crash a batch is there completely or not at all. There is no torn tail to cut.

    batch = Batch().put("log", key, value).delete_range("log", first, last)
    store.write(batch)                      durable when it returns

Readers see the state as of their first look (`Store.reading`), in key order, forwards or backwards,
and never wait for a writer. Pages that a batch frees are used again by later ones, as long as no
reader holds an old state: keep `reading` short.

Full. The map has a size fixed at opening. A batch that does not fit raises `StoreFull` and changes
nothing; `enlarge`, then write it again. A volume without space raises `StorageError`, likewise with
nothing changed.

One process opens a folder for writing (its owner locks the folder); others may read beside it.
"""
