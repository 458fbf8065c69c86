"""Finds and calls the command `holdfast`."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Problem:
    """A mistake in an input, at its place."""

    file: str
    """The file, `-` for an experiment without one, or the option."""
    line: int | None
    """The line, from 1."""
    key: str | None
    """The key."""
    message: str
    """What was found, and what was expected."""


class HoldfastError(Exception):
    """The command refused its input, or failed. Its message names options as this package's arguments."""

    def __init__(self, message: str, status: int, arguments: Sequence[str]) -> None:
        super().__init__(_spoken(message))
        self.status = status
        """Exit status of the command: 1 a run failed, 2 bad usage or input, 128 and more for a signal."""
        self.arguments = list(arguments)
        """Arguments of the command."""
        self.problems = _problems(message)
        """The mistakes, each at its place."""


_WORDS = {
    "--first-seed": "first_seed=",
    "--seeds-max": "seeds_max=",
    "--seeds": "seeds=",
    "--scale": "scale=",
    "--until-ci": "until_ci=",
    "--case": "case=",
    "--variant": "variant=",
    "--guest": "vm=",
    "--sweep": "sweep()",
    "--set": "set()",
    "--baseline": "baseline=",
    "--along": "along=",
    "--from": "begin=",
    "--for": "span=",
}
"""Options of the command, and the arguments of this package that stand for them."""
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def _spoken(message: str) -> str:
    """Returns a message of the command in the words of this package. Commands that a user types stay as they are."""
    lines = message.splitlines()
    return "\n".join(
        line if "holdfast run" in line or "holdfast trace" in line
        else _OPTION.sub(lambda option: _WORDS.get(option[0], option[0]), line)
        for line in lines
    )


_PLACE = re.compile(r"^(?:error: )?(?P<file>[^:\n]+):(?P<line>\d+): (?:(?P<key>[\w.*-]+): )?(?P<message>found .*)$")


def _problems(message: str) -> list[Problem]:
    found = (_PLACE.match(line) for line in message.splitlines())
    return [
        Problem(match["file"], int(match["line"]), match["key"], match["message"]) for match in found if match is not None
    ]


def _checkout() -> Path | None:
    """Returns the root of the checkout that this package is used from, if it is."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "python" / "pyproject.toml").is_file() and (root / "cli").is_dir() else None


def needed(library: str, extra: str) -> Any:
    """Imports an optional library. Raises ImportError with what to install."""
    try:
        return importlib.import_module(library)
    except ImportError as error:
        name = library.partition(".")[0]
        message = f"this needs {name}: pip install {name}, or the wheel with its extra, 'holdfast[{extra}]'"
        raise ImportError(message, name=name) from error


@dataclass(frozen=True)
class Command:
    """The command `holdfast`."""

    path: str

    @staticmethod
    def find() -> Command:
        """Returns the command: that of `HOLDFAST_BINARY`, of the wheel, of `PATH`, or of this checkout."""
        named = os.environ.get("HOLDFAST_BINARY")
        if named:
            return Command(named)
        installed = [Path(sysconfig.get_path("scripts", scheme)) / "holdfast" for scheme in sysconfig.get_scheme_names()]
        own = Path(sysconfig.get_path("scripts")) / "holdfast"
        for path in [own, *installed]:
            if path.is_file():
                return Command(str(path))
        path_found = shutil.which("holdfast")
        if path_found is not None:
            return Command(path_found)
        checkout = _checkout()
        if checkout is None:
            raise FileNotFoundError("cannot find the command holdfast: install the wheel, or set HOLDFAST_BINARY to its path")
        built = checkout / "target" / "release" / "holdfast"
        if not built.is_file():
            raise FileNotFoundError(
                f"cannot find the command holdfast: build it by `cargo build --release` in {checkout}, "
                "or set HOLDFAST_BINARY to its path"
            )
        return Command(str(built))

    def run(
        self,
        arguments: Sequence[str],
        text: str | None = None,
        allowed: Sequence[int] = (0,),
        folder: str | os.PathLike[str] | None = None,
    ) -> str:
        """Calls the command with `text` as standard input, and returns its standard output.

        Raises HoldfastError if the exit status is not `allowed`.
        """
        done = subprocess.run(
            [self.path, "--quiet", *arguments],
            input="" if text is None else text,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
            cwd=folder,
        )
        if done.returncode not in allowed:
            message = done.stderr.strip() or f"holdfast {' '.join(arguments)}: exit status {done.returncode}"
            raise HoldfastError(message.removeprefix("error: "), done.returncode, arguments)
        return done.stdout

    def version(self) -> str:
        """Returns the version with its commit."""
        return self.run(["--version"]).split()[-1]
