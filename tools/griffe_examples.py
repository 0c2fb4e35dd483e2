"""An extension of griffe, which reads the docstrings of the reference: doctests become blocks of
code, which would otherwise be quotations three levels deep.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)
FLAGS = re.compile(r" +# doctest: .*$", re.MULTILINE)


def with_blocks(docstring: str) -> str:
    r"""The docstring with each doctest, up to the next empty line, in a block of its own.

    >>> with_blocks("One.\n\n>>> 1 + 1  # doctest: +SKIP\n2\n\nTwo.")
    'One.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nTwo.'
    """
    return EXAMPLE.sub(
        lambda found: f"{found[1]}```pycon\n{FLAGS.sub('', found[0])}\n{found[1]}```", docstring
    )


class Examples(Extension):
    """Changes the docstring of everything that is read."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """What griffe calls for each module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = with_blocks(obj.docstring.value)
