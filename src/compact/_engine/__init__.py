"""The public manager and everything that acts: sessions in memory, locks, threads, the event loop, the archive.

Owns: performing the effects of `_pipeline`.
Must never: hold a rule of compaction.
"""
