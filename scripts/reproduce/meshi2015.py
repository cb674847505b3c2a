"""Meshi, Srebro and Hazan (2015), Efficient training of structured SVMs via soft constraints."""

from collections.abc import Mapping, Sequence

from scripts.reproduce.claim import Claim
from scripts.reproduce.claims import EndsBelow, Faster, Metric, Runs, ScoresAsWell
from scripts.reproduce.experiment import Command, Comparisons, Study
from scripts.reproduce.meshi_studies import differences, photographs
from scripts.reproduce.number_claims import GrowsSlowly, Smaller, Within


def _soft(rho: float) -> str:
    return f"soft-bcfw:rho={rho:g},penalty=constant,steps=fw,order=uniform"


_RHO = "ρ is for each example, and the paper's would be for all: ours is what behaves like the paper's figures"
_DLPW, _SMOOTH_DLPW = "dlpw", "dlpw:temperature=0.003"
_SOFT = [_soft(rho) for rho in (10, 1, 0.1)]
_FW = "bcfw:sampling=uniform,steps=fw"
_BY_PROGRAM = ", linear programs"
_FW_BY_PROGRAM = _FW + _BY_PROGRAM
_NAMES = {
    **{_soft(rho): f"ρ = {rho:g}" for rho in (100, 10, 1, 0.1)},
    "soft-bcfw": "Multipliers",
    _DLPW: "DLPW",
    _SMOOTH_DLPW: "Smooth DLPW",
    _FW: "Frank-Wolfe",
    _FW_BY_PROGRAM: "Frank-Wolfe by linear programs",
}
_STEP = "one step size of DLPW, Polyak's, and one temperature"


def _faster(says: str, worse: str, most: float = 1.0, *, ours: bool = False) -> Faster:
    """ρ = 1 gets to the best objective without penalty that both reach in less time."""
    return Faster(says, _soft(1), worse, "seconds", "hard objective", most, ours=ours)


def _drawn(
    name: str,
    figure: str,
    about: str,
    commands: Mapping[str, str],
    quick: str,
    metric: str | None,
    claims: Sequence[Claim[Runs]],
    differs: Sequence[str],
) -> Comparisons:
    """Comparisons, by what their labels end in, with the optimum in their picture."""
    needs = next(iter(commands.values())).partition("{data}/")[2].partition("/")[0]
    folders = {suffix: "lp" if suffix else "relaxed" for suffix in commands}
    parts = {
        suffix: Command(folders[suffix], figure, about, needs, command, quick, claims=[])
        for suffix, command in commands.items()
    }
    return Comparisons(name, figure, about, needs, parts, metric, claims=claims, differs=[*differs, _RHO], names=_NAMES)


def _rivals(task: str, passes: tuple[int, int]) -> dict[str, str]:
    """Soft constraints beside their rivals, whose Frank-Wolfe steps take a linear program for each example."""
    run = f"--inference relaxed --passes {passes[0]} --solvers {' '.join(_SOFT)} soft-bcfw {_DLPW} {_SMOOTH_DLPW} {_FW}"
    return {"": f"{task} {run}", _BY_PROGRAM: f"{task} --inference lp --passes {passes[1]} --solvers {_FW}"}


EXPERIMENTS = (
    _drawn(
        "meshi-1",
        "Figure 1, the penalty ρ",
        "Algorithm 1 as printed on the genes of yeast, d = 1533, for several ρ.",
        {
            "": "compare multilabel --train {data}/yeast/yeast.npz#train --scaling none --no-bias --lams 0.01 "
            f"--seeds 0 --passes 300 --inference relaxed --solvers {_soft(100)} {' '.join(_SOFT)} soft-bcfw"
        },
        "--passes 40",
        None,
        [
            EndsBelow("ρ too large has loose objective values: at the end 10 is below 100.", _soft(10), _soft(100)),
            EndsBelow("And ρ = 1 is below ρ = 10.", _soft(1), _soft(10)),
            EndsBelow("ρ too small is slow: at the end 1 is below 0.1.", _soft(1), _soft(0.1)),
            Faster("As ρ becomes smaller, convergence takes longer: 10 is faster than 1.", _soft(10), _soft(1)),
            Faster("And ρ = 1 is faster than ρ = 0.1.", _soft(1), _soft(0.1)),
            Metric(
                "For ρ = 0.1 the soft and the constrained objective are practically the same.",
                _soft(0.1),
                "soft_objective",
                0.98,
                1.02,
                "hard_objective",
            ),
            EndsBelow("A proximal penalty, the default here, ends below ρ = 1.", "soft-bcfw", _soft(1), ours=True),
        ],
        ["λ = 0.01, since the paper does not give its own"],
    ),
    _drawn(
        "meshi-2",
        "Figure 2, left: rivals on yeast",
        "Hinges over the local polytope, d = 1533; by linear programs (HiGHS), the rival of the paper, and by one"
        " minimum cut for each example, which the paper did not have.",
        _rivals(
            "compare multilabel --train {data}/yeast/yeast.npz#train --test {data}/yeast/yeast.npz#test --scaling none "
            "--no-bias --lams 0.01 --seeds 0",
            (300, 20),
        ),
        "--passes 2",
        "test hamming",
        [
            _faster("Soft constraints are competitive with Frank-Wolfe by linear programs in time.", _FW_BY_PROGRAM, 2),
            _faster("Soft constraints are faster than DLPW.", _DLPW),
            _faster("Soft constraints are faster than smooth DLPW.", _SMOOTH_DLPW),
            ScoresAsWell(
                "Test accuracy is insensitive to ρ.", _soft(10), _soft(1), "test hamming", 0.01, two_sided=True
            ),
            ScoresAsWell("Also to ρ = 0.1.", _soft(0.1), _soft(1), "test hamming", 0.01, two_sided=True),
            _faster("Soft constraints are faster than Frank-Wolfe by cuts.", _FW, ours=True),
        ],
        [
            "λ = 0.01, one seed, 300 passes, and 20 by linear programs",
            "accuracy is that of single labels, one minus the Hamming loss",
            _STEP,
        ],
    ),
    _drawn(
        "meshi-2b",
        "Figure 2, middle: rivals on text",
        "Reports of aviation safety; all pairs of labels.",
        _rivals(
            "compare multilabel --train {data}/tmc2007/tmc2007_500.npz#train:1-1000 "
            "--test {data}/tmc2007/tmc2007_500.npz#test:1-2000 --no-bias --lams 1/n --seeds 0",
            (100, 5),
        ),
        "--passes 1",
        "test example_f1",
        [
            _faster(
                "Soft constraints are up to two orders of magnitude faster than linear programs.", _FW_BY_PROGRAM, 0.1
            ),
            _faster("Soft constraints are faster than DLPW, which performed poorly.", _DLPW),
            ScoresAsWell("ρ = 10 has accurate predictors.", _soft(10), _FW, "test example_f1", 0.02),
            ScoresAsWell("ρ = 1 has accurate predictors.", _soft(1), _FW, "test example_f1", 0.02),
            Faster("ρ = 0.1 may take longer.", _soft(1), _soft(0.1), "seconds", "hard objective"),
            _faster("Soft constraints are faster than Frank-Wolfe by cuts.", _FW, ours=True),
        ],
        [
            "tmc2007 (22 labels, the first 1,000 reports) in place of Reuters (30 labels)",
            "λ = 1/n, one seed, 100 passes, and 5 by linear programs",
            "an order of magnitude is enough for the first claim",
            _STEP,
        ],
    ),
    _drawn(
        "meshi-2c",
        "Figure 2, right: rivals on MSRC-21",
        "Stars of superpixels, as in the paper.",
        {
            "": "compare scenes --train {data}/msrc21/msrc21_250.zip#train+val "
            "--test {data}/msrc21/msrc21_250.zip#test --lams 1 --seeds 0 --passes 8 --graph stars "
            f"--solvers {' '.join(_SOFT)} soft-bcfw {_DLPW} {_SMOOTH_DLPW} {_FW}"
        },
        "--train {data}/msrc21/msrc21_250.zip#val --test {data}/msrc21/msrc21_250.zip#val --passes 5",
        "test pixel_accuracy",
        [
            _faster("Soft constraints are two orders of magnitude faster than DLPW.", _DLPW, 0.1),
            _faster("Soft constraints are an order of magnitude faster than smooth DLPW.", _SMOOTH_DLPW, 0.1),
            ScoresAsWell(
                "All values of ρ perform similarly.", _soft(10), _soft(1), "test pixel_accuracy", two_sided=True
            ),
            ScoresAsWell("Also ρ = 0.1.", _soft(0.1), _soft(1), "test pixel_accuracy", two_sided=True),
            _faster("Soft constraints are faster than Frank-Wolfe by dynamic programs.", _FW, ours=True),
        ],
        [
            "this library's features, with a weight for each class and each of them: the paper has 22 weights",
            "stars are trees, whose programs are exact here: linear programs are left out",
            "λ = 1, 8 passes and one seed",
            "an order of magnitude is enough for the first two claims",
            _STEP,
        ],
    ),
    Study(
        "meshi-2c-22",
        "Figure 2, right: the 22 weights of the paper",
        "The same with a weight for each class, of its log-probability, and one for agreement.",
        "msrc21",
        photographs,
        claims=[
            Within("All values of ρ perform similarly.", "differences of accuracy", 0.01),
            Smaller(
                "Soft constraints are faster than Frank-Wolfe by dynamic programs.",
                "seconds, soft, 1",
                "seconds, Frank-Wolfe",
                ours=True,
            ),
        ],
        differs=[
            "logistic regressions of this library's features in place of TextonBoost",
            "λ = 1, 10 passes and one seed; an example at a time in place of random blocks",
            "accuracy is that of fine superpixels, weighed by their pixels",
            "DLPW, which is not for shared weights here, and linear programs are left out",
            _RHO,
        ],
    ),
    Study(
        "meshi-3",
        "Figure 3, training sets of several sizes",
        "What ρ = 1 costs on the genes of yeast, d = 1533, λ = 0.01: means of random training sets of each size.",
        "yeast",
        differences,
        claims=[
            GrowsSlowly("The difference to hard constraints grows much slower than linearly.", "50", "1500", 30**0.5),
            GrowsSlowly("As the training set becomes larger, it stops growing.", "800", "1500", 1.05),
        ],
        differs=["yeast alone of the three data sets", _RHO],
    ),
)
