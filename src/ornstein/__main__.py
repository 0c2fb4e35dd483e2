"""`python -m ornstein` is the command `ornstein`, and this is where the command begins."""

import sys


def main() -> None:
    """Import the command line and run it; Ctrl-C during the import ends it in a sentence, too."""
    try:
        from ornstein.interfaces.cli.main import main as run
    except KeyboardInterrupt:
        print("Error: interrupted", file=sys.stderr)
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
