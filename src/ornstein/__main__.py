"""`python -m ornstein` is the command `ornstein`."""

from ornstein.interfaces.cli import main

if __name__ == "__main__":
    main()
