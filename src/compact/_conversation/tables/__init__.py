"""The token tables of OpenAI's two current encodings, shipped inside the package, and who counts with them.

Owns: what the rest of the library needs of them. `packed` builds a `tiktoken.Encoding` from a table, and `encoders`
chooses between tiktoken and the extra `fast`. Must never: open a connection, write a file, or touch the environment.
"""

from __future__ import annotations

from .encoders import Encoder, encoder
from .packed import SOURCES, TableSource, encoding, unpack

__all__ = ["SOURCES", "Encoder", "TableSource", "encoder", "encoding", "unpack"]
