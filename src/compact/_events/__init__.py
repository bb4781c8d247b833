"""Events: what they are, how they become JSON, and which of them form one call.

Owns: `Event`, `Sink`, serialization, grouping into calls.
Must never: send an event anywhere.
"""
