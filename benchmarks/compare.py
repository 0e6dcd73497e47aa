"""Whether `findwall compare` tells runs of one job from runs of it that are 5 % slower, four a side.

    python benchmarks/compare.py [--runs 8] [--draws 20] [--more 5] [--out FILE]

Runs one CPU job in turn, plain, plain again and with `--more` of a hundred equal pieces added, `--runs` times
each. Then sides are drawn from these runs: plain beside plain, and plain beside the slower ones. Takes about
eight minutes on two cores, which must be quiet.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIDE = 4  # runs
FINDWALL = (sys.executable, "-m", "findwall")
JOB = """
import sys
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
x, y = torch.randn(2, 300, 300)
model = nn.Linear(300, 300)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(4000):
    z = x
    for _ in range(int(sys.argv[1])):
        z = (z @ y) * 0.003
    loss = model(z).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def measured(folder: Path, name: str, pieces: int) -> Path:
    run = folder / name
    words = ("run", "--stop", "--no-trace", "--out", str(run), "job.py", str(pieces))
    subprocess.run([*FINDWALL, *words], cwd=folder, capture_output=True, check=True)
    return run


def outcome(before: list[Path], after: list[Path]) -> str:
    words = ("compare", *map(str, before), "--", *map(str, after), "--json", "-")
    done = subprocess.run([*FINDWALL, *words], capture_output=True, check=True)
    return str(json.loads(done.stdout)["step"]["outcome"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--more", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "compare.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.py").write_text(JOB)
        plain, slower = [], []
        for number in range(args.runs):
            plain += [measured(folder, f"{arm}{number}", 100) for arm in ("plain", "again")]
            slower.append(measured(folder, f"slower{number}", 100 + args.more))
        drawn = random.Random(0)
        alike = [drawn.sample(plain, 2 * SIDE) for _ in range(args.draws)]
        same = [outcome(runs[:SIDE], runs[SIDE:]) for runs in alike]
        planted = [outcome(drawn.sample(plain, SIDE), drawn.sample(slower, SIDE)) for _ in range(args.draws)]
        steps = {
            arm: [json.loads((run / "diagnosis.json").read_text())["step"]["ms"] for run in runs]
            for arm, runs in (("plain", plain), ("slower", slower))
        }
    told = {"date": str(date.today()), "more_percent": args.more, "steps_ms": steps}
    args.out.write_text(json.dumps({**told, "alike": same, "planted": planted}, indent=1) + "\n")
    print(f"alike: no difference in {same.count('no-difference')} of {len(same)}")
    print(f"{args.more} % more: slower in {planted.count('slower')} of {len(planted)}")


if __name__ == "__main__":
    main()
