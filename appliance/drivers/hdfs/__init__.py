"""Where shipped files are put: HDFS over WebHDFS, or a folder with the same calls.

A target is asked for few things only: put a whole file, read it back, list, rename, delete. Every
call blocks and ends: within its timeouts, after a bounded number of tries, or when another thread
says `abort`. What goes wrong is a TargetError: Unavailable may pass by itself, Refused asks for the
operator. Paths are relative to the target's root; a missing folder is an empty one.
"""
