"""Ctrl-C: where it may strike, and what was seen of it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer
from typer.core import TyperGroup

EXIT_CODE = 130  # what a shell reports of a command that Ctrl-C has ended
AGAIN = 0.02  # seconds after which an interrupt that got lost strikes again


class InterruptError(Exception):
    """Ctrl-C on its way through Typer, with a sentence or without."""


class Commands(TyperGroup):
    """The commands; Typer would turn Ctrl-C into an exit without a word."""

    def invoke(self, context: typer.Context) -> object:  # type: ignore[override]
        try:
            return super().invoke(context)
        except KeyboardInterrupt as error:
            raise InterruptError(str(error)) from error


@contextmanager
def said_where(again: str) -> Iterator[None]:
    """Ctrl-C with the news that no file was written."""
    try:
        yield
    except KeyboardInterrupt as error:
        reason = str(error) or "interrupted"
        raise KeyboardInterrupt(f"{reason}; no result was written{again}") from error


class Interrupts:
    """Ctrl-C as KeyboardInterrupt, as ever, but neither lost nor harmful.

    An interrupt that strikes inside the import of compiled code may crash it, or come out as
    another error: `deferred` lets it wait. One that strikes in a callback of the garbage collector
    is printed there and lost: it strikes again. And all are remembered, for the exit code.
    """

    def __init__(self) -> None:
        self.seen = False
        self._waits = False

    def strike(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signal."""
        self.seen = True
        if not self._waits:
            signal.default_int_handler(number, frame)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Imports: Ctrl-C strikes when they are done."""
        self._waits = True
        try:
            yield
        finally:
            self._waits = False
        if self.seen:
            raise KeyboardInterrupt

    def unraisable(self, lost: sys.UnraisableHookArgs) -> None:
        """What becomes of an exception in a callback."""
        if lost.exc_type is KeyboardInterrupt:
            # A real signal: `interrupt_main` would not wake a thread that waits.
            main = threading.main_thread().ident
            threading.Timer(AGAIN, signal.pthread_kill, (main, signal.SIGINT)).start()
        else:
            sys.__unraisablehook__(lost)


@contextmanager
def noticed() -> Iterator[Interrupts]:
    """Take Ctrl-C in hand, unless it is ignored (nohup) or in someone else's hands."""
    interrupts = Interrupts()
    own = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    hook = sys.unraisablehook
    if own:
        signal.signal(signal.SIGINT, interrupts.strike)
        sys.unraisablehook = interrupts.unraisable
    try:
        yield interrupts
    finally:
        if own:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.unraisablehook = hook
