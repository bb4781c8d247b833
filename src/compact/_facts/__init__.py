"""What a summary must not lose, and how much of it a summary kept.

Owns: extracting facts from messages, the fidelity report, restoring what a summary lost; `fidelity` is the entry.
Must never: call a model, or decide what is compacted.
"""
