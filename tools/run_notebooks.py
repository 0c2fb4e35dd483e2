"""Run the notebooks of the documentation and keep what they print and draw.

python tools/run_notebooks.py                 # all, as readers see them: minutes
python tools/run_notebooks.py a-table         # these alone
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"


def run(path: Path) -> None:
    """Execute a notebook in place; an error in a cell ends with that error."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(FOLDER)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the times of day
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_progress(output)]
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, path)
    print(path.name, flush=True)


def _is_progress(output: nbformat.NotebookNode) -> bool:
    return bool(output.get("name") == "stderr")


def main() -> None:
    """Run those that are named, or all."""
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    names = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for name in names:
        run(FOLDER / f"{name}.ipynb")


if __name__ == "__main__":
    main()
