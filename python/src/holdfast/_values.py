"""Values of keys: as columns, in order, chosen."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any


def number(value: Any) -> Any:
    """Returns the number that a text stands for, or the text itself."""
    for kind in (int, float):
        try:
            found = kind(value)
        except (TypeError, ValueError):
            continue
        return found if math.isfinite(found) else value
    return value


_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def in_order(value: Any) -> tuple[int, float, str]:
    """Returns what values of a swept key are sorted by: numbers, then times, then other text."""
    if isinstance(value, int | float):
        return (0, float(value), "")
    amount, _, unit = str(value).partition(" ")
    size = number(amount)
    if unit in _UNITS and isinstance(size, int | float):
        return (1, size * _UNITS[unit], "")
    return (2, 0.0, str(value))


def column(key: str) -> str:
    """Returns the name of a swept key in frames."""
    return f"vm.*.{key.removeprefix('guest.')}" if key.startswith("guest.") else key


def by_guest(parameters: dict[str, Any], guests: Sequence[str]) -> dict[str, Any]:
    """Returns the values of a cell with those of each guest, and of all guests where these agree."""
    cell = {key: value for key, value in parameters.items() if not key.startswith("vm.")}
    of_all: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {}
    for key, value in parameters.items():
        if key.startswith("vm.*."):
            of_all[key.removeprefix("vm.*.")] = value
        elif key.startswith("vm."):
            _, vm, name = key.split(".", 2)
            own.setdefault(name, {})[vm] = value
    for name, value in of_all.items():
        own.setdefault(name, {}).update({vm: value for vm in guests if vm not in own[name]})
        if all(one == value for one in own[name].values()):
            cell[f"vm.*.{name}"] = value
    for name, values in own.items():
        if len(values) == len(guests) and len({json.dumps(value) for value in values.values()}) == 1:
            cell[f"vm.*.{name}"] = next(iter(values.values()))
        cell.update({f"vm.{vm}.{name}": value for vm, value in values.items()})
    return cell


def without(name: str, steps: Sequence[dict[str, str]]) -> str:
    """Returns a name without the values of swept keys."""
    words = name.split(" ")
    for step in steps:
        part = step["step"].split(" ")
        for at in range(len(words) - len(part), -1, -1):
            if words[at : at + len(part)] == part:
                del words[at : at + len(part)]
                break
    return " ".join(words)


def matches(found: Any, wanted: Any, *, is_name: bool) -> bool:
    """Returns whether a value is one that is wanted. Of names, a common beginning is enough."""
    if isinstance(wanted, list | tuple | set | frozenset) and not isinstance(found, list):
        return any(matches(found, one, is_name=is_name) for one in wanted)
    if found == wanted or (found is not None and not isinstance(found, bool) and str(found) == str(wanted)):
        return True
    return is_name and isinstance(wanted, str) and any(found.startswith(wanted + end) for end in (" ", "-"))
