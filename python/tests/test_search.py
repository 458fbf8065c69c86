"""Search and timelines."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import pytest

import holdfast
from holdfast.search import constraints_of


@pytest.fixture(scope="module")
def one() -> holdfast.Experiment:
    return holdfast.experiment("kernbench-overcommit").only(case="1x", variant="pv-ticket").sized(scale=0.001)


def test_a_search_finds_what_a_sweep_finds(one: holdfast.Experiment, tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    values = [64, 2048, 32768]
    grid = optuna.samplers.GridSampler({"threshold": values}, seed=0)
    study = optuna.create_study(direction="minimize", sampler=grid, pruner=optuna.pruners.NopPruner())
    one.search(
        lambda trial: {"guest.spin_threshold": trial.suggest_categorical("threshold", values)},
        trials=3,
        seeds=4,
        study=study,
        cache=tmp_path,
    )
    swept = one.sized(seeds=4).sweep(spin_threshold=values).run(cache=tmp_path)
    means = {value: case["mean"] for value, case in zip(values, swept.document["cases"], strict=True)}
    found = {trial.params["threshold"]: trial.value for trial in study.trials}
    # The same seeds, so the same samples.
    assert found == pytest.approx(means)
    assert means[study.best_params["threshold"]] == min(means.values())


def test_a_bad_trial_is_pruned_after_the_first_seeds(one: holdfast.Experiment, tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    pruner = optuna.pruners.ThresholdPruner(upper=0.0)
    study = optuna.create_study(direction="minimize", pruner=pruner)
    one.search(lambda _: {"host.hz": 250}, trials=1, seeds=8, first=2, study=study, cache=tmp_path)
    [trial] = study.trials
    assert trial.state == optuna.trial.TrialState.PRUNED and trial.user_attrs["seeds"] == 2
    assert len(list(tmp_path.glob("*/*/*.json"))) == 2


def test_constraints_are_kept_with_the_trial(one: holdfast.Experiment) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = one.search(
        lambda trial: {"host.hz": trial.suggest_categorical("hz", [100, 1000])},
        trials=2,
        seeds=2,
        constraints=lambda results: [results.document["cases"][0]["max"] - 1.0],
    )
    assert all(math.isfinite(constraints_of(trial)[0]) for trial in study.trials)
    assert study.direction == optuna.study.StudyDirection.MINIMIZE


def test_the_best_trial_keeps_the_constraints(one: holdfast.Experiment, tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    values = [100, 1000]
    swept = one.sized(seeds=2).sweep({"host.hz": values}).run(cache=tmp_path)
    means = {value: case["mean"] for value, case in zip(values, swept.document["cases"], strict=True)}
    slow = max(values, key=lambda value: means[value])
    middle = sum(means.values()) / 2
    assert min(means.values()) < middle < max(means.values())
    sampler = {} if hasattr(optuna.Trial, "set_constraint") else {"constraints_func": constraints_of}
    for study in (None, optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1, n_startup_trials=2, **sampler))):
        study = one.search(
            lambda trial: {"host.hz": trial.suggest_categorical("hz", values)},
            trials=8,
            seeds=2,
            # The faster setting is not allowed.
            constraints=lambda results: [middle - results.document["cases"][0]["mean"]],
            study=study,
            cache=tmp_path,
        )
        tried = {trial.params["hz"] for trial in study.trials}
        assert tried == set(values), "the forbidden setting was tried too"
        assert study.best_params == {"hz": slow}


def test_a_search_with_constraints_gives_no_warnings(one: holdfast.Experiment, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        warnings.simplefilter("error", DeprecationWarning)
        one.search(lambda _: {"host.hz": 250}, trials=1, seeds=2, constraints=lambda _: [0.0], cache=tmp_path)


def test_a_timeline_is_a_file_with_a_description(one: holdfast.Experiment, tmp_path: Path) -> None:
    trace = one.set({"host.hz": 250}).trace(tmp_path / "run.pftrace", span="1 ms")
    assert trace.path.stat().st_size > 1000
    assert trace.description["seed"] == 1
    with pytest.raises(ValueError, match="found a sweep"):
        one.sweep(vcpus=[1, 2]).trace(tmp_path / "sweep.pftrace")


def test_a_sweep_is_compared_along_its_key(results: holdfast.Results) -> None:
    compared = results.compare(along="guest.spin_threshold")
    assert compared.document["comparisons"] == len(compared.rows)
    assert all(row["from"] != row["to"] for row in compared.rows)
    with pytest.raises(holdfast.HoldfastError, match="expected"):
        results.compare(along="host.hz")
