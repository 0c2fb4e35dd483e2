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
    place = {"metadata": {"path": str(FOLDER)}}
    NotebookClient(notebook, timeout=1200, startup_timeout=600, resources=place).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the times of day
        if cell.cell_type == "code":
            cell.outputs = _shown(cell.outputs)
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, path)
    print(path.name, flush=True)


def _shown(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Outputs without progress, and each picture once: a figure that ends a cell is drawn twice."""
    results = {
        one.data.get("image/png") for one in outputs if one.output_type == "execute_result"
    } - {None}
    return [
        one
        for one in outputs
        if one.get("name") != "stderr"
        and not (one.output_type == "display_data" and one.data.get("image/png") in results)
    ]


def main() -> None:
    """Run those that are named, or all."""
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    names = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for name in names:
        run(FOLDER / f"{name}.ipynb")


if __name__ == "__main__":
    main()
