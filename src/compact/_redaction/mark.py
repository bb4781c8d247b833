"""The mark.

Owns: what stands in the place of a secret.
Must never: import anything: it is all that most of the package needs to know.
"""

from __future__ import annotations

__all__ = ["REDACTED"]

REDACTED = "<REDACTED>"
"""What stands in the place of a secret."""
