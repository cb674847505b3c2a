"""Meshi, Srebro and Hazan (2015), Efficient training of structured SVMs via soft constraints."""

from scripts.reproduce.claims import EndsBelow, Faster, ScoresAsWell
from scripts.reproduce.experiment import Command, Study
from scripts.reproduce.number_claims import GrowsSlowly
from scripts.reproduce.training_size import differences


def _soft(rho: float) -> str:
    return f"soft-bcfw:rho={rho:g},penalty=constant,steps=fw,order=uniform"


_DLPW, _SMOOTH_DLPW = "dlpw", "dlpw:temperature=0.003"
_RHO = "ρ here is for each example, which is what behaves like the paper's figures."
_RIVALS = f"{_soft(1)} {_soft(10)} soft-bcfw {_DLPW} {_SMOOTH_DLPW} bcfw"

EXPERIMENTS = (
    Command(
        "meshi-1",
        "Figure 1, the penalty ρ",
        f"Algorithm 1 as printed on the genes of yeast, for several ρ. {_RHO}",
        "yeast",
        "compare multilabel --train {data}/yeast/yeast.npz#train --scaling none --lams 0.01 --seeds 0 --passes 300 "
        f"--inference relaxed --solvers {_soft(100)} {_soft(10)} {_soft(1)} {_soft(0.1)}",
        "--passes 40",
        claims=[
            EndsBelow("ρ too large has loose objective values: at the end 1 is below 10.", _soft(1), _soft(10)),
            EndsBelow("ρ too small is slow: at the end 1 is below 0.1.", _soft(1), _soft(0.1)),
            Faster("The larger ρ, the faster its own problem is solved: 10 faster than 1.", _soft(10), _soft(1)),
            Faster("And 1 faster than 0.1.", _soft(1), _soft(0.1)),
        ],
    ),
    Command(
        "meshi-2",
        "Figure 2, left: rivals on yeast",
        f"Hinges over the local polytope. {_RHO} BCFW's oracle is one minimum cut here, in place of an LP solver.",
        "yeast",
        "compare multilabel --train {data}/yeast/yeast.npz#train --test {data}/yeast/yeast.npz#test --scaling none "
        f"--lams 0.01 --seeds 0,1,2 --passes 60 --inference relaxed --solvers {_RIVALS}",
        "--seeds 0 --passes 10",
        claims=[
            Faster(
                "Soft constraints are competitive with BCFW over the polytope in time.",
                _soft(1),
                "bcfw",
                "seconds",
                "hard objective",
                2.0,
            ),
            Faster("They are faster than DLPW.", _soft(1), _DLPW, "seconds", "hard objective"),
            ScoresAsWell("Test accuracy is insensitive to ρ.", _soft(10), _soft(1), "test example_f1", 0.02),
        ],
    ),
    Command(
        "meshi-2b",
        "Figure 2, middle: rivals on text",
        "Reports of tmc2007 (22 labels, the first 5,000) in place of Reuters (30 labels), all pairs of labels.",
        "tmc2007",
        "compare multilabel --train {data}/tmc2007/tmc2007_500.npz#train --test {data}/tmc2007/tmc2007_500.npz#test "
        f"--lams 1/n --seeds 0 --passes 10 --inference relaxed --solvers {_soft(1)} {_soft(10)} soft-bcfw bcfw",
        "--passes 1",
        claims=[
            Faster(
                "Soft constraints are up to two orders of magnitude faster.",
                _soft(1),
                "bcfw",
                "seconds",
                "hard objective",
                0.1,
            ),
            ScoresAsWell("Mild values of ρ have accurate predictors.", _soft(10), "bcfw", "test example_f1", 0.02),
        ],
    ),
    Command(
        "meshi-2c",
        "Figure 2, right: rivals on MSRC-21",
        "Stars of superpixels, as in the paper, with this library's features.",
        "msrc21",
        "compare scenes --train {data}/msrc21/msrc21_250.zip#train+val --test {data}/msrc21/msrc21_250.zip#test "
        f"--lams 1 --seeds 0 --passes 40 --graph stars --solvers {_soft(1)} {_soft(10)} soft-bcfw {_DLPW}",
        "--train {data}/msrc21/msrc21_250.zip#val --test {data}/msrc21/msrc21_250.zip#val --passes 5",
        claims=[
            Faster(
                "Soft constraints are two orders of magnitude faster than DLPW.",
                _soft(1),
                _DLPW,
                "seconds",
                "hard objective",
                0.1,
            ),
            ScoresAsWell("All values of ρ perform similarly.", _soft(10), _soft(1), "test pixel_accuracy"),
        ],
    ),
    Study(
        "meshi-3",
        "Figure 3, training sets of several sizes",
        "What ρ = 1 costs on the genes of yeast, λ = 0.01: means of ten random training sets of each size. " + _RHO,
        "yeast",
        differences,
        claims=[
            GrowsSlowly("The difference to hard constraints grows much slower than linearly.", "50", "1500", 30**0.5),
            GrowsSlowly("As the training set becomes larger, it stops growing.", "800", "1500", 1.05),
        ],
    ),
)
