"""The rules of compaction: when it is due, what stays, what goes, and what must hold.

Owns: the trigger, plans, layouts, fitting a plan into the budget, splicing, the laws.
Must never: do I/O, call a summarizer, or change a session.
"""
