"""Archives of other chats and of mailing lists, read as one stream of entries.

Purpose: `tigerchat import` turns an archive into records. A reader knows one foreign format and
nothing of rooms, records or networks: bytes go in, `Entry` values come out, in the order in which
they were said.

    mbox      mail folders: a message each, threads by Message-ID, In-Reply-To and References
    irc       logs of irssi and of weechat: a line each, no threads
    slack     export zips: a file per channel and day, threads by `thread_ts`

Idea: every reader is a generator over an open binary file. It holds one entry (one day's file of
Slack) at a time and bounds all it holds (`base/limits`, archives). It opens nothing itself, follows
no name found inside an archive and runs no code of it. Whatever cannot be read as the format
promises is an `ArchiveError` with file and line; the caller chooses whether that ends the import or
is counted: `on_broken` gets the error and either raises it or returns.

Promises: equal bytes give equal entries, with equal keys, on every machine; an entry's `parent` is
the key of an entry that may lie anywhere in the archive or nowhere; text is valid Unicode without
control characters other than newline and tab, and never cut: what is longer than the bound is an
error.

`bodies_of` splits what is said in one entry into bodies of records, as `formats/imported` has them:
each begins with author and time.
"""
