"""The notebooks run from their first cell to their last."""

from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    for library in ("ipykernel", "pandas", "altair", "matplotlib"):
        pytest.importorskip(library)
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "notebooks are kept without outputs"
    client = nbclient.NotebookClient(notebook, timeout=600, startup_timeout=120, kernel_name="python3")
    try:
        client.execute()
    except TimeoutError as error:
        pytest.skip(f"this machine is too slow: {error}")
    except RuntimeError as error:
        if isinstance(error, nbclient.exceptions.CellExecutionError) or "Kernel" not in str(error):
            raise
        pytest.skip(f"no kernel starts here: {error}")
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("text/html" in output.get("data", {}) for output in shown)
