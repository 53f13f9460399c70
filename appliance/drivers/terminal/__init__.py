"""What people type and read: options that several verbs share, and lines they print.

Purpose: a verb that speaks to a site takes the same options as all others, and a message looks the
same wherever it is printed. Nothing here knows what a verb does; no network, no files.

Text of others is shown without the bytes by which it could move a cursor or recolour a line.
"""
