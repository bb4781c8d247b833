"""The entry point of `python -m compact`.

Owns: the call of `cli.main`. Must never: do anything when it is imported.
"""

from .cli import main

if __name__ == "__main__":
    main()
