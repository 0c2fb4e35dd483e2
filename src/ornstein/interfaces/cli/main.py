"""The command `ornstein` from its arguments to its exit code: every foreseen error becomes one
sentence on stderr and exit code 2, an interrupt exit code 130.
"""

from __future__ import annotations

import sys
import warnings

from ornstein.errors import OrnsteinError, OrnsteinWarning
from ornstein.interfaces.cli.interrupts import EXIT_CODE, InterruptError, Interrupts, noticed
from ornstein.interfaces.cli.theory_commands import app


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0, 1 where `--strict` is not content, 2 on an error, 130 when
    interrupted.
    """
    with warnings.catch_warnings(), noticed() as interrupts:
        warnings.simplefilter("ignore")
        try:
            code = _exit_code(arguments, interrupts)
            if interrupts.seen and code != 2:  # else there was a sentence
                _complain("interrupted" if code else "interrupted, but finished")
        except (KeyboardInterrupt, InterruptError) as error:
            interrupts.seen = True
            _complain(str(error) or "interrupted")
        except Exception:
            # An interrupt may surface as an error of whatever it has interrupted.
            if not interrupts.seen:
                raise
            _complain("interrupted")
    sys.exit(EXIT_CODE if interrupts.seen else code)


def _complain(sentence: str) -> None:
    """As `console.complain` does, also where an interrupt has left that half imported."""
    try:
        from ornstein.interfaces.cli import console

        console.complain(sentence)
    except (Exception, KeyboardInterrupt):
        print(f"Error: {sentence}", file=sys.stderr)


def _exit_code(arguments: list[str] | None, interrupts: Interrupts) -> int:
    with interrupts.deferred():
        from ornstein.interfaces.cli import console

    console.spell_out_unknown_letters()
    warnings.simplefilter("always", OrnsteinWarning)
    warnings.showwarning = lambda message, *rest, **more: console.warn(str(message))
    try:
        code = app(arguments, standalone_mode=False, obj=interrupts)
    except Exception as error:
        if not _is_foreseen(error):
            raise
        console.complain(_sentence(error, sys.argv[1:] if arguments is None else arguments))
        return 2
    return code if isinstance(code, int) else 0


def _is_foreseen(error: Exception) -> bool:
    """Whether it is one of ours, or Typer's: those are Click's, or those of its copy of Click,
    alike in form and not in class.
    """
    return isinstance(error, OrnsteinError) or hasattr(error, "format_message")


def _sentence(error: Exception, arguments: list[str]) -> str:
    """What is wrong. Typer tells the bound of an option and not always what was given for it, which
    is the word after its name, or behind the "=".
    """
    if not hasattr(error, "format_message"):
        return str(error)
    said = str(error.format_message())
    names = getattr(getattr(error, "param", None), "opts", [])
    for word, following in zip(arguments[::-1], ["", *arguments[:0:-1]], strict=True):
        name, equals, value = word.partition("=")
        given = value if equals else following
        if name in names and given not in said:
            return f"{said.rstrip('.')}; got {given!r}"
    return said
