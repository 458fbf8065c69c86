"""The smallest experiments, run once for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast


@pytest.fixture(scope="session")
def small() -> holdfast.Experiment:
    base = holdfast.experiment("kernbench-overcommit").sized(seeds=2, scale=0.001)
    return base.only(case="1x").sweep(spin_threshold=[1024, 2048])


@pytest.fixture(scope="session")
def expected(small: holdfast.Experiment) -> str:
    """The bytes of one run of the command."""
    return small.command.run(["run", small.target, *small.arguments(), "--format", "json"])


@pytest.fixture(scope="session")
def results(small: holdfast.Experiment) -> holdfast.Results:
    return small.run(jobs=2)


@pytest.fixture(scope="session")
def ten() -> holdfast.Results:
    """Ten variants and four guests."""
    return holdfast.experiment(Path(__file__).parents[2] / "cli/tests/cli/ten-variants.toml").run()
