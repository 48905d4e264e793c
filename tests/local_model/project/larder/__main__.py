"""The command line: `python -m larder serve` and `python -m larder stock`."""

import sys

from larder.http_server import serve
from larder.store import StockBook


def main() -> None:
    """Run the command that the user named."""
    command = sys.argv[1] if len(sys.argv) > 1 else "stock"
    if command == "serve":
        serve()
    elif command == "stock":
        for name, amount in StockBook().amounts().items():
            print(f"{name}: {amount:g}")
    else:
        sys.exit(f"unknown command: {command}")


if __name__ == "__main__":
    main()
