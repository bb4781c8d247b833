"""`python -m compact`.

Owns: nothing but the call. Must never: do anything when it is imported.
"""

from .cli import main

if __name__ == "__main__":
    main()
