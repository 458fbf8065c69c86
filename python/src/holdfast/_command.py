"""Finds and calls the command `holdfast`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


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
    """The command refused its input, or failed."""

    def __init__(self, message: str, status: int, arguments: Sequence[str]) -> None:
        super().__init__(message)
        self.status = status
        """Exit status of the command: 1 a run failed, 2 bad usage or input, 128 and more for a signal."""
        self.arguments = list(arguments)
        """Arguments of the command."""
        self.problems = _problems(message)
        """The mistakes, each at its place."""


_PLACE = re.compile(r"^(?:error: )?(?P<file>[^:\n]+):(?P<line>\d+): (?:(?P<key>[\w.*-]+): )?(?P<message>found .*)$")


def _problems(message: str) -> list[Problem]:
    found = (_PLACE.match(line) for line in message.splitlines())
    return [
        Problem(match["file"], int(match["line"]), match["key"], match["message"]) for match in found if match is not None
    ]


@dataclass(frozen=True)
class Command:
    """The command `holdfast`."""

    path: str

    @staticmethod
    def find() -> Command:
        """Returns the command: that of `HOLDFAST_BINARY`, that of this package's wheel, or the first in `PATH`."""
        named = os.environ.get("HOLDFAST_BINARY")
        if named:
            return Command(named)
        installed = [Path(sysconfig.get_path("scripts", scheme)) / "holdfast" for scheme in sysconfig.get_scheme_names()]
        own = Path(sysconfig.get_path("scripts")) / "holdfast"
        for path in [own, *installed]:
            if path.is_file():
                return Command(str(path))
        path_found = shutil.which("holdfast")
        if path_found is None:
            raise FileNotFoundError("cannot find the command holdfast: install the wheel, or set HOLDFAST_BINARY")
        return Command(path_found)

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
