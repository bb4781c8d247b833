"""The token tables of OpenAI's two current encodings, shipped inside the package, and the encoders that use them.

Owns: `packed` builds a `tiktoken.Encoding` from a table, and `encoders` chooses between tiktoken and the extra `fast`.
Must never: open a connection, write a file, or read the environment.
"""

from __future__ import annotations

from .encoders import Encoder, encoder
from .packed import SOURCES, TableSource, encoding, unpack

__all__ = ["SOURCES", "Encoder", "TableSource", "encoder", "encoding", "unpack"]
