"""What a summarizer is asked, and which of its answers may replace messages.

Owns: summary requests, prompts, the summary marker, chunking, rejecting answers.
Must never: call a model.
"""
