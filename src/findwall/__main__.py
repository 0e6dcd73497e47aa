"""`python -m findwall`: the same as the `findwall` command."""

from findwall.cli import main

if __name__ == "__main__":
    main()
