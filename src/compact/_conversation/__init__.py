"""A conversation as the rest of the library sees it: messages, blocks, turns, tokens, message formats.

Owns: reading, writing and validating the message formats, and counting tokens.
Must never: decide what is compacted, or do I/O.
"""
