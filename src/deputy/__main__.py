"""`python -m deputy`: the command line."""

from deputy.interfaces.cli import main

if __name__ == "__main__":
    main()
