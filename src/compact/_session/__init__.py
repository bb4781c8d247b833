"""What is remembered of one session between calls.

Owns: the session, the lists of the application as last seen, the entries read from them, the states.
Must never: do I/O, or decide whether to compact.
"""
