"""The TLA+ model of `spec/` in Python: what a session may do, step by step.

Owns: `Conversation.tla` (`conversation`) and `Session.tla` (`session`) in Python, and the check of archived
compactions (`fold_check`).
Must never: import the engine. It is written from the model, not from the code: one test compares it with the state
graph of TLC, and another drives the engine through every step of it.
"""
