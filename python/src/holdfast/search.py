"""Search for the best settings, by Optuna.

Every trial runs the same seeds (common random numbers), so two trials differ by their settings and not by chance.
Seeds are added in rounds. After each round Optuna may prune the trial: its value is compared with those of other trials
after the same seeds.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ._command import needed
from .plan import RunsFailed

if TYPE_CHECKING:
    from .experiment import Experiment
    from .results import Results

CONSTRAINTS = "holdfast.constraints"
"""User attribute of a trial with the constraints' values."""


def score(results: Results) -> float:
    """Returns the geometric mean of the means of all measured guests in all cells."""
    means = [case["mean"] for case in results.document["cases"]]
    if not means or None in means:
        raise ValueError("a cell has no samples")
    return math.exp(sum(math.log(mean) for mean in means) / len(means))


def search(
    experiment: Experiment,
    space: Callable[[Any], dict[str, Any]],
    *,
    trials: int,
    seeds: int = 16,
    first: int = 2,
    objective: Callable[[Results], float] = score,
    constraints: Callable[[Results], Sequence[float]] | None = None,
    study: Any = None,
    executor: Any = None,
    cache: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
) -> Any:
    """Runs `trials` trials, and returns the study.

    `space` gets a trial and returns keys with values, as `Experiment.set` takes them. `seeds`: those of a trial that is
    not pruned; the rounds have `first` seeds, twice as many, and so on. `constraints` returns numbers that must not be
    positive; `study.best_trial` then is the best trial that keeps them. `study`: one of the caller's, with `direction`
    and sampler. Before Optuna 5 its sampler needs `constraints_func=constraints_of` for constraints.
    `executor` and `jobs` are those of `Experiment.run`. `cache` keeps the runs, also for the next search.
    """
    optuna = needed("optuna", "search")

    if not 1 <= first <= seeds:
        raise ValueError(f"found first={first} and seeds={seeds}, expected 1 <= first <= seeds")
    rounds = [first]
    while rounds[-1] < seeds:
        rounds.append(min(2 * rounds[-1], seeds))
    if study is None:
        better = experiment.better()
        # Since Optuna 5 a trial has its constraints itself, and samplers complain about the function.
        by_sampler = constraints is not None and not hasattr(optuna.Trial, "set_constraint")
        options: dict[str, Any] = {"constraints_func": constraints_of} if by_sampler else {}
        study = optuna.create_study(
            direction="minimize" if better == "lower" else "maximize",
            sampler=optuna.samplers.TPESampler(seed=0, **options),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=5),
        )

    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        kept = folder if cache is None else cache

        def run(trial: Any) -> float:
            chosen = experiment.set(space(trial))
            value = math.nan
            amounts: list[float] = []
            try:
                for count in rounds:
                    try:
                        results = chosen.sized(seeds=count).run(executor, cache=kept, jobs=jobs)
                    except RunsFailed as failed:
                        results = failed.results
                    trial.set_user_attr("seeds", count)
                    if results.failures:
                        trial.set_user_attr("failure", results.failures[0]["error"])
                        amounts = [math.inf]
                        raise optuna.TrialPruned()
                    value = objective(results)
                    if constraints is not None:
                        amounts = [float(amount) for amount in constraints(results)]
                    trial.report(value, step=count)
                    if count < rounds[-1] and trial.should_prune():
                        raise optuna.TrialPruned()
            finally:
                if constraints is not None:
                    _constrain(trial, amounts)
            return value

        study.optimize(run, n_trials=trials)
    return study


def _constrain(trial: Any, amounts: list[float]) -> None:
    """Keeps the constraints of the last round with the trial. Optuna takes them once."""
    trial.set_user_attr(CONSTRAINTS, amounts)
    if hasattr(trial, "set_constraint"):
        for number, amount in enumerate(amounts):
            trial.set_constraint(f"constraint {number}", amount)


def constraints_of(trial: Any) -> Sequence[float]:
    """Returns the constraints of a trial, for an Optuna sampler's `constraints_func`."""
    values: Sequence[float] = trial.user_attrs.get(CONSTRAINTS, (math.inf,))
    return values
