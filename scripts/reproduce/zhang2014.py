"""Zhang et al. (2014), Accelerated training of max-margin Markov networks with kernels."""

from scripts.reproduce.claims import FallsLike, Faster, Metric, Steeper
from scripts.reproduce.experiment import Command

_GAP, _BMRM, _STRUCT, _EXTRA = "excessive-gap", "cutting-plane", "n-slack", "extragradient"
_AEG, _EG, _BATCH_EG = (
    "exponentiated-gradient",
    "exponentiated-gradient:accelerated=false",
    "batch-exponentiated-gradient",
)
_BCFW, _DEFAULT = "bcfw", "proximal-bcfw"
# L = G²/λ: the largest ‖ψ_y‖² of the words of fold 0 is a little below 64.
_CONSTANTS = "excessive-gap:lipschitz=6400"
_RIVALS = (
    ("BMRM", _BMRM),
    ("SVM-Struct", _STRUCT),
    ("the extragradient method", _EXTRA),
    ("exponentiated gradient in batches", _BATCH_EG),
)
_NAMES = {
    _GAP: "Excessive gap",
    _CONSTANTS: "Excessive gap with L = G²/λ",
    _BMRM: "BMRM",
    _STRUCT: "SVM-Struct",
    _EXTRA: "Extragradient",
    _BATCH_EG: "EG in batches",
    _EG: "EG",
    _AEG: "Accelerated EG",
    _BCFW: "BCFW",
    _DEFAULT: "Proximal BCFW",
}
_WORDS = "compare ocr --train {data}/ocr/ocr_letters.npz#0"

EXPERIMENTS = (
    Command(
        "zhang-1",
        "Table 1, rates of convergence",
        "The table has bounds; here are gaps and oracle calls of its solvers, on words of fold 0.",
        "ocr",
        f"{_WORDS} --lams 0.1,0.01,0.001 --seeds 0 --passes 120 --solvers "
        f"{_DEFAULT} {_BCFW} {_AEG} {_EG} {_BATCH_EG} {_GAP} {_EXTRA} {_BMRM} {_STRUCT}",
        "--passes 15",
        claims=[
            *(
                Steeper(f"The rate O(1/√ε) of the excessive gap beats the O(1/ε) of {name}.", _GAP, rival)
                for name, rival in _RIVALS
            ),
            FallsLike("The gap is of O(1/k²) after k passes.", _GAP, -2.0),
            *(Faster(f"The excessive gap needs less than {name}.", _GAP, rival) for name, rival in _RIVALS),
            Faster("The excessive gap needs less than exponentiated gradient, per example.", _GAP, _EG),
            Faster(
                "The excessive gap needs less than the pairwise steps of BCFW, which are those of SMO.", _GAP, _BCFW
            ),
            Faster("Accelerated steps on one example at a time beat it.", _AEG, _GAP, ours=True),
            Faster("The default here needs the least.", _DEFAULT, _AEG, ours=True),
        ],
        differs=[
            "the paper has no experiments",
            "L is found by trial and not from the features",
            "SMO stores outputs in place of marginals, whose steps are slow here",
            "one seed and 120 passes",
        ],
        names=_NAMES,
    ),
    Command(
        "zhang-1-constants",
        "Theorem 4, the constants of the paper",
        "Algorithm 2 with L = G²/λ and its own μ_k, beside L by trial, on words of fold 0.",
        "ocr",
        f"{_WORDS} --lams 0.01 --seeds 0 --passes 400 --solvers {_CONSTANTS} {_GAP} {_BMRM}",
        "--passes 15",
        claims=[
            Metric("The gap is below the bound of Theorem 4.", _CONSTANTS, "gap", high=1.0, over="gap_bound"),
            FallsLike("The gap is of O(1/k²) after k passes.", _CONSTANTS, -2.0),
            Steeper("The rate O(1/√ε) beats BMRM's O(1/ε).", _CONSTANTS, _BMRM),
            Faster("The excessive gap needs less than BMRM.", _CONSTANTS, _BMRM),
            Faster("L by trial needs less.", _GAP, _CONSTANTS, ours=True),
        ],
        differs=["the paper has no experiments", "cliques share weights, so that G² is of whole outputs"],
        names=_NAMES,
    ),
)
