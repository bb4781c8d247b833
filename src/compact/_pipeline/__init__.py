"""One compaction as a generator, from the list that is due to the list that goes out.

Owns: the order of the steps, the failure chain, the events of a compaction.
Must never: do I/O: it yields effects, and `_engine` performs them.
"""
