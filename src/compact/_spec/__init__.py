"""The model of `spec/` in Python: what a session may do, step by step, and whether what one did is among it.

Owns: the Python reading of `Conversation.tla` (`conversation`) and `Session.tla` (`_session.session`), and the checker
of
archives (`conduct`). Must never: import the engine. It is written from the model, not from the code, and that is its
worth: a test holds it equal to the state graph that TLC finds, and another drives the engine through every step of it.
"""
