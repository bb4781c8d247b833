"""Events: their form, their JSON, and which of them form one call.

Owns: `Event`, `Sink`, serialization, grouping into calls.
Must never: send an event anywhere.
"""
