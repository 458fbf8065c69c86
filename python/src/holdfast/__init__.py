"""Experiments with locks, vCPU scheduling and interrupt delivery, from Python.

>>> import holdfast
>>> results = holdfast.experiment("kernbench-overcommit").sized(seeds=2, scale=0.002).run()
>>> results.to_pandas()

All work is done by the command `holdfast`, which the wheel brings. This package plans units, gives them to any
executor, merges their records, and makes frames and pictures of the results.
"""

from ._command import Command, HoldfastError, Problem
from .experiment import Experiment, experiment
from .plan import Plan, Record, RunsFailed, Unit
from .recording import Account, recording
from .results import Comparison, Results, read
from .trace import Trace

__all__ = [
    "Account",
    "Command",
    "Comparison",
    "Experiment",
    "HoldfastError",
    "Plan",
    "Problem",
    "Record",
    "Results",
    "RunsFailed",
    "Trace",
    "Unit",
    "experiment",
    "read",
    "recording",
]
