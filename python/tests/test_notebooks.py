"""The notebooks run from their first cell to their last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    for library in ("ipykernel", "pandas", "altair", "matplotlib"):
        pytest.importorskip(library)
    notebook = nbformat.read(path, as_version=4)
    saved = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any(_is_picture(output) for output in saved), "notebooks are kept with their pictures (`notebooks/renew`)"
    assert not any(output["output_type"] == "error" for output in saved)
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
    assert any(_is_picture(output) for output in shown)


def _is_picture(output: dict[str, Any]) -> bool:
    return "<svg" in output.get("data", {}).get("text/html", "")
