"""``python -m lengthwise`` is the same as the command ``lengthwise``."""

from lengthwise.cli import main

if __name__ == "__main__":
    main()
