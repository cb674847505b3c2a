"""A task of one's own, from the public contracts alone: numbers are put in order, as a matching with their ranks."""

from dataclasses import dataclass
from pathlib import Path

import torch

from structsmooth import LinearModuleProblem, Matching, ScoreModule
from structsmooth.cli import main
from structsmooth.tasks import FittedTask, Task


class RankScore(ScoreModule):
    def __init__(self, ranks):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.zeros(ranks, dtype=torch.float64))

    def forward(self, x):
        return Matching(x.unsqueeze(-1) * self.weights)


@dataclass(frozen=True)
class FittedRanking(FittedTask):
    scale: float

    def problem(self, examples):
        return LinearModuleProblem(RankScore(3), [(x / self.scale, x.argsort().argsort()) for x in examples])

    def predict(self, weights, examples, k=1):
        values, y = Matching((torch.stack(examples) / self.scale).unsqueeze(-1) * weights).topk(k)
        return [list(zip(*pair, strict=True)) for pair in zip(values.tolist(), y.tolist(), strict=True)]

    def measure(self, examples, outputs):
        right = sum(x.argsort().argsort().tolist() == y for x, y in zip(examples, outputs, strict=True)) / len(examples)
        return {"right": right}, f"right: {right:.0%}"

    def write(self, examples, predictions, stream):
        stream.writelines(f"{ranked[0][1]}\n" for ranked in predictions)


class Ranking(Task):
    summary, headline, lam, passes, solver = "ranks of three numbers", "right", "0.01/n", 40, "bcfw"
    fitted_type = FittedRanking

    def read(self, path, split="train"):
        return [torch.tensor([*map(float, line.split())]).double() for line in Path(path).read_text().splitlines()]

    def fit(self, examples):
        return FittedRanking(self, float(torch.stack(examples).abs().max()))


def test_an_own_task_trains_and_predicts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("train.txt").write_text("5 -2 7\n1 9 4\n-3 -8 -6\n2 6 -1\n")
    Path("new.txt").write_text("30 20 10\n-1 1 0\n")
    assert main(["train", f"{__name__}:Ranking", "--train", "train.txt", "--test", "train.txt", "--out", "model"]) == 0
    assert "right: 100%" in capsys.readouterr().out
    assert main(["predict", "model", "new.txt", "--task", f"{__name__}:Ranking"]) == 0
    assert capsys.readouterr().out == "[2, 1, 0]\n[0, 2, 1]\n"
