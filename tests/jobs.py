"""Real jobs through `python -m findwall run`, in subprocesses, with a stand-in for the verdict's command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import msgspec

import warm
from findwall.agent.ending.analyst import COMMAND_VARIABLE
from findwall.model.measurement import Measurement

VERDICT = "import sys,pathlib; print('THE VERDICT'); pathlib.Path(sys.argv[3]).write_text('{}')"

TRAINING = """
    import sys
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters())

    def train(steps):
        for _ in range(steps):
            loss = model(torch.randn(4, 8)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return loss
"""


HANG_S = 180  # generous: tells a job that hangs from one on a slow machine


def with_default_signals() -> None:
    """In a job just before it starts: under nohup, or in the background, it would inherit ignored signals."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


@dataclass
class Outcome:
    code: int
    stdout: str
    stderr: str
    folder: Path

    def measurement(self, rank: int = 0) -> Measurement:
        content = (self.folder / f"rank{rank}" / "measurement.json").read_bytes()
        return msgspec.json.decode(content, type=Measurement)


@dataclass
class Jobs:
    """Writes small scripts and runs them, plain or under findwall. `warm`: the latter with torch at hand."""

    folder: Path
    warm: bool = False

    def write(self, source: str, name: str = "job.py") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return path

    def environment(self, **extra: str) -> dict[str, str]:
        verdict = self.folder / "fake_verdict.py"
        verdict.write_text(VERDICT)
        # One thread: the tests share few cores, and OMP threads that wait for each other take seconds.
        names = {COMMAND_VARIABLE: f"{sys.executable} {verdict}", "OMP_NUM_THREADS": "1", **extra}
        return {**os.environ, **names}

    def command(self, *target: str, options: tuple[str, ...] = ()) -> list[str]:
        out = str(self.folder / "run")
        return [sys.executable, "-m", "findwall", "run", "--out", out, *options, *target]

    def run(
        self,
        source: str | None,
        *arguments: str,
        options: tuple[str, ...] = ("--wait", "2", "--steps", "6"),
        name: str = "job.py",
        target: tuple[str, ...] | None = None,
        **environ: str,
    ) -> Outcome:
        if source is not None:
            self.write(source, name)
        command = self.command(*(target or (name,)), *arguments, options=options)
        if self.warm:
            command = warm.command(*command[1:], env=self.environment(**environ))
        return self._finish(command, environ)

    def plain(self, *command: str, **environ: str) -> Outcome:
        return self._finish([sys.executable, *command], environ)

    def plain_warm(self, *command: str, **environ: str) -> Outcome:
        """The same with torch at hand: for what is held against a run that is in a fresh process itself."""
        return self._finish(warm.command(*command, env=self.environment(**environ)), environ)

    def _finish(self, command: list[str], environ: dict[str, str]) -> Outcome:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment(**environ),
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
            preexec_fn=with_default_signals,
        )
        return Outcome(done.returncode, done.stdout, done.stderr, self.folder / "run")

    def start(self, source: str, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """A job that prints a line when it is ready to be hit by a signal."""
        self.write(source)
        return subprocess.Popen(
            self.command("job.py", options=options),
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=with_default_signals,
        )


def training(rest: str) -> str:
    """A small model with `train(steps)`, followed by the given lines."""
    return textwrap.dedent(TRAINING) + textwrap.dedent(rest)
