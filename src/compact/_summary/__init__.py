"""Requests to a summarizer, and which of its answers may replace messages.

Owns: summary requests, prompts, the summary marker, escaping, chunking, accepting and rejecting answers.
Must never: call a model.
"""
