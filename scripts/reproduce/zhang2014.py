"""Zhang et al. (2014), Accelerated training of max-margin Markov networks with kernels."""

from scripts.reproduce.claims import Faster
from scripts.reproduce.experiment import Command

_AEG, _EG, _BCFW = "exponentiated-gradient", "exponentiated-gradient:accelerated=false", "bcfw"

EXPERIMENTS = (
    Command(
        "zhang-1",
        "Table 1, rates of convergence",
        "The table has bounds; here are oracle calls of its solvers, for words of fold 0. SMO makes the pairwise steps"
        " of BCFW.",
        "ocr",
        "compare ocr --train {data}/ocr/ocr_letters.npz#0 --lams 0.1,0.01,0.001 --seeds 0 --passes 120 --solvers "
        f"proximal-bcfw {_BCFW} n-slack {_AEG} {_EG} excessive-gap extragradient cutting-plane frank-wolfe",
        "--passes 15",
        claims=[
            Faster("The excessive gap O(1/√ε) beats BMRM's O(1/ε).", "excessive-gap", "cutting-plane"),
            Faster("It beats the extragradient method's O(1/ε).", "excessive-gap", "extragradient"),
            Faster("It beats exponentiated gradient's O(1/ε), per example.", "excessive-gap", _EG),
            Faster("Accelerated steps on one example at a time beat it.", _AEG, "excessive-gap", ours=True),
            Faster("The default here needs the least.", "proximal-bcfw", _AEG, ours=True),
        ],
    ),
)
