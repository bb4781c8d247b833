"""What is kept of a session, and everything that looks back: restore, undo, search, diff, verify.

Owns: the files of a session and their format.
Must never: decide what is compacted.
"""
