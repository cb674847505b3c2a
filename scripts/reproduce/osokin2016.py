"""Osokin et al. (2016), Minding the gaps for block Frank-Wolfe optimization of structured SVMs."""

from dataclasses import replace
from itertools import product

from scripts.reproduce.claims import Alike, Faster, Metric
from scripts.reproduce.experiment import Command, Study
from scripts.reproduce.number_claims import Cheaper, LargeAlong, Smaller, Within
from scripts.reproduce.osokin_studies import EPSILON, heuristic_paths, predicted_gains
from structsmooth.solvers import BCFW

# Algorithm 2 as printed: every ten passes of steps, a pass looks at all gaps and makes no steps.
_SAMPLINGS = {"uniform": "sampling=uniform", "gap": "sampling=gap,gap_passes=true,refresh=10"}


def _variant(sampling: str, steps: str, cache: bool) -> str:
    return f"bcfw:{_SAMPLINGS[sampling]},steps={steps},cache={str(cache).lower()}"


_CHOICES = [*product(("uniform", "gap"), ("fw", "pairwise"), (False, True))]
_VARIANTS = [_variant(*choice) for choice in _CHOICES]
_NAMES = {
    _variant(sampling, steps, cache): ", ".join(
        [f"{sampling.capitalize()} sampling", *["pairwise steps"] * (steps == "pairwise"), *["cache"] * cache]
    )
    for sampling, steps, cache in _CHOICES
}
_UNIFORM, _GAP = _variant("uniform", "fw", False), _variant("gap", "fw", False)
_PAIRWISE, _CACHED = _variant("gap", "pairwise", False), _variant("gap", "pairwise", True)
# The default here: passes that refresh gaps step, too, and come once the sum of gaps has changed twofold, or after ten.
_STEPPING = "bcfw:sampling=gap,steps=fw,cache=false"
_FIVE_SEEDS = "--seeds 0,1,2,3,4"


def _variants(
    name: str,
    panel: str,
    about: str,
    needs: str,
    data: str,
    quick: str,
    claims: list[Faster],
    settings: str = "",
    differs: tuple[str, ...] = (),
) -> Command:
    """The eight variants of BCFW on one problem, all with the same other settings."""
    command = f"compare {data} --solvers {' '.join(variant + settings for variant in _VARIANTS)}"
    claims = [replace(claim, better=claim.better + settings, worse=claim.worse + settings) for claim in claims]
    names = {label + settings: name for label, name in _NAMES.items()}
    return Command(f"osokin-{name}", panel, about, needs, command, quick, claims=claims, differs=differs, names=names)


def _gap(passes: int | str) -> str:
    """Algorithm 2 as printed: Gap 1, Gap 5 ... of the paper."""
    return f"bcfw:steps=fw,sampling=gap,gap_passes=true,refresh={passes}"


_SAMPLING = Faster("Gap sampling always leads to faster convergence, in passes.", _GAP, _UNIFORM)
_IN_TIME = Faster("Gap sampling always leads to faster convergence, in time.", _GAP, _UNIFORM, "seconds")
_CACHE = Faster("Caching always helps in terms of passes.", _CACHED, _PAIRWISE)
_CACHE_IN_TIME = Faster("Where the oracle is slow, the cache saves time.", _CACHED, _PAIRWISE, "seconds")
_OVERHEAD = Faster("Where the oracle is fast, the cache costs more time than it saves.", _PAIRWISE, _CACHED, "seconds")
_STEPS = Faster("Pairwise steps lead to an improvement to get smaller gaps.", _PAIRWISE, _GAP)


def _cached(factor: float, nu: float) -> str:
    return f"bcfw:steps=fw,sampling=gap,gap_passes=true,cache=true,cache_factor={factor},cache_nu={nu}"


_REGIMES = ((10, 10), (0.25, 0.01), (0.25, 0), (0, 0.5), (0, 0))
_NEVER, _OFTEN, _LOCAL, _GLOBAL, _ALWAYS = (_cached(*choice) for choice in _REGIMES)

_PATH, _WARM, _COLD = "path", "grid with warm starts", "grid"
_ALL_LAMS = "--epsilon 0.1 --lam-min 0.000030517578125 --lam-max 1e9"
# The solvers of the left and the right panels of figures 7 and 8.
_LEFT, _RIGHT = "bcfw:steps=fw,gap_passes=true", "bcfw:cache=true,gap_passes=true"
_LEFT_SOLVER, _RIGHT_SOLVER = BCFW(steps="fw", gap_passes=True), BCFW(cache=True, gap_passes=True)
_LEFT_OF, _RIGHT_OF = "by Frank-Wolfe steps and gap sampling", "by pairwise steps, gap sampling and a cache"


def _path(
    name: str, panel: str, about: str, needs: str, data: str, quick: str, differs: tuple[str, ...] = ()
) -> Command:
    """A path beside searches on a grid."""
    return Command(
        f"osokin-{name}",
        panel,
        about,
        needs,
        f"path {data} --grid",
        quick,
        claims=[
            Cheaper("Warm starts speed up the search on a grid.", _WARM, _COLD),
            Cheaper("The cost of the path is comparable with that of the search.", _PATH, _COLD, 2.0),
        ],
        differs=differs,
    )


def _kappas(name: str, panel: str, solver: str, method: str) -> Command:
    """Paths for several κ."""
    return Command(
        f"osokin-{name}",
        panel,
        f"Paths on the words of fold 0 for κ from 0.1 to 0.99, {method}; κ = 0.9 is that of the path.",
        "ocr",
        f"path ocr --train {{data}}/ocr/ocr_letters.npz#0 --solver {solver} --kappas 0.1,0.5,0.7,0.99 " + _ALL_LAMS,
        "--lam-min 0.1",
        claims=[
            Cheaper("Too small a κ is slower.", _PATH, "path, κ = 0.1"),
            Cheaper("Too large a κ is slower.", _PATH, "path, κ = 0.99"),
            Cheaper("Overall the method is not too sensitive to κ.", _PATH, "path, κ = 0.5", 1.25),
        ],
        differs=["one seed"],
    )


def _heuristics(name: str, panel: str, solver: BCFW, method: str) -> Study:
    """Heuristic paths for several κ, with true gaps."""
    return Study(
        f"osokin-{name}",
        panel,
        f"Paths on the words of fold 0 with gaps as last seen, {method}, ε = {EPSILON:g}; their true gaps afterwards.",
        "ocr",
        heuristic_paths(solver),
        claims=[
            Within("κ = 0.7 has results that are accurate enough.", "gaps, κ = 0.7", EPSILON),
            Within("For large κ, solutions are not ε-approximate.", "gaps, κ = 0.99", EPSILON, 0.9, above=True),
            Smaller("For large κ the path needs fewer passes.", "calls, κ = 0.99", "calls, κ = 0.5"),
            Smaller("κ is a trade-off: for small κ gaps are smaller.", "gaps, κ = 0.5", "gaps, κ = 0.9"),
        ],
        differs=["one seed"],
    )


EXPERIMENTS = (
    Command(
        "osokin-1",
        "Figure 1, exploitation and staleness",
        "Algorithm 2 as printed on words of fold 0: after 1, 5, 10, 20, 50 or 100 passes of steps a pass computes all"
        " gaps, or none does. Panels show the gap, and its estimate over the true one.",
        "ocr",
        f"compare ocr --train {{data}}/ocr/ocr_letters.npz#0 --lams 0.01 {_FIVE_SEEDS} --passes 150 --solvers "
        f"{_UNIFORM} {' '.join(_gap(passes) for passes in (1, 5, 10, 20, 50, 100, 'never'))} {_STEPPING}",
        "--seeds 0 --passes 40",
        claims=[
            Faster("Gap sampling converges faster than uniform sampling.", _gap(10), _UNIFORM),
            Faster("A computation of gaps after each pass wastes too many of them.", _gap(10), _gap(1)),
            Faster(
                "Without any computation of gaps the algorithm does not converge: it needs twice the calls, or more.",
                _gap(10),
                _gap("never"),
                margin=0.5,
            ),
            Metric(
                "Without any computation of gaps the gap is significantly underestimated.",
                _gap("never"),
                "estimated_gap",
                high=0.7,
                over="gap",
            ),
            Alike(
                "The method is not very sensitive to 5, 10, 20 or 50 passes.",
                tuple(_gap(passes) for passes in (5, 10, 20, 50)),
                within=1.25,
                value="gap",
            ),
            Faster("Refreshing passes that step, the default here, are faster.", _STEPPING, _gap(10), ours=True),
        ],
        differs=["the features are this library's, and λ is one of ours: the paper does not give its own"],
        names={
            _UNIFORM: "Uniform",
            _STEPPING: "Gap, with steps in all passes",
            **{_gap(passes): f"Gap {passes}" for passes in (1, 5, 10, 20, 50, 100)},
            _gap("never"): "Gap ∞",
        },
    ),
    Study(
        "osokin-1c",
        "Figure 1c, the predicted gain of gap sampling",
        "The factor χ(g)³/χ(C) of Theorem 2 for the true block gaps after each pass, on words of fold 0, λ = 0.01.",
        "ocr",
        predicted_gains,
        claims=[
            LargeAlong(
                "For the gaps of uniform sampling, the theorem predicts that gap sampling gains.", "uniform", 1.0
            ),
            LargeAlong("It does so for the gaps of gap sampling, too.", "gap", 1.0),
        ],
    ),
    Command(
        "osokin-2",
        "Figure 2, regimes of the cache",
        "Algorithm 5 as printed with gap sampling: F and ν from a cache that is never hit to one that nearly"
        " always is; words of fold 0.",
        "ocr",
        f"compare ocr --train {{data}}/ocr/ocr_letters.npz#0 --lams 0.01 {_FIVE_SEEDS} --passes 150 "
        f"--solvers {_NEVER} {_OFTEN} {_LOCAL} {_GLOBAL} {_ALWAYS}",
        "--seeds 0 --passes 40",
        claims=[
            Metric("If F or ν is too large, the cache is almost never hit.", _NEVER, "cache_hit_rate", high=0.05),
            Metric("If both are small, the cache is hit almost always.", _ALWAYS, "cache_hit_rate", low=0.8),
            Faster(
                "Then the method hardly calls the oracle and does not converge: it needs twice the time, or more.",
                _OFTEN,
                _ALWAYS,
                "seconds",
                margin=0.5,
            ),
            Faster("The regime of the local component needs fewer oracle calls than the global one.", _OFTEN, _GLOBAL),
        ],
        differs=["the features are this library's, and λ, F and ν are ours: the paper does not give its own"],
        names={_cached(*choice): f"F = {choice[0]:g}, ν = {choice[1]:g}" for choice in _REGIMES},
    ),
    _variants(
        "3a",
        "Figures 3a and 5, variants of BCFW on OCR-large",
        "Eight variants on the words of folds 1 to 9.",
        "ocr",
        f"ocr --train {{data}}/ocr/ocr_letters.npz#1-9 --lams 0.1,0.001,0.0001 {_FIVE_SEEDS} --passes 50",
        "--train {data}/ocr/ocr_letters.npz#0 --seeds 0 --passes 30",
        claims=[_SAMPLING, _IN_TIME, _CACHE, _OVERHEAD, _STEPS],
        differs=("50 passes, and this library's features; costs are divided by the length of the word",),
    ),
    _variants(
        "5",
        "Figure 5, variants of BCFW on CoNLL-2000",
        "Eight variants on 8,936 sentences.",
        "conll2000",
        "chunking --train {data}/conll2000/train.txt.gz --lams 0.1,0.01,0.0001 --seeds 0,1,2 --passes 25",
        "--train {data}/conll2000/test.txt.gz --seeds 0 --passes 8",
        claims=[_SAMPLING, _IN_TIME, _CACHE, _OVERHEAD, _STEPS],
        differs=(
            "25 passes and three seeds",
            "this library's attributes of words and tags in place of CRFsuite's, and numbers of wrong labels as costs",
        ),
    ),
    _variants(
        "3b",
        "Figures 3b and 5, variants of BCFW on HorseSeg",
        "Eight variants on 147 horses.",
        "weizmann_horse",
        "segmentation --train {data}/weizmann_horse/weizmann_horse_250.zip#1-147 --lams 100/n,10/n,1/n "
        "--seeds 0,1 --passes 30",
        "--train {data}/weizmann_horse/weizmann_horse_250.zip#1-30 --seeds 0 --passes 10",
        claims=[_SAMPLING, _IN_TIME, _CACHE, _STEPS],
        settings=",average=true",
        differs=(
            "two seeds and 30 passes",
            "Weizmann's horses in place of HorseSeg-small, with this library's features; averages of iterates",
        ),
    ),
    _variants(
        "6",
        "Figure 6, variants of BCFW on LSP",
        "Eight variants on 104 images with all joints.",
        "lspet",
        "pose --train {data}/lspet#1-300 --lams 100/n,30/n,10/n --seeds 0,1,2 --passes 30",
        "--train {data}/lspet#1-40 --seeds 0 --passes 8",
        claims=[_SAMPLING, _IN_TIME, _CACHE, _CACHE_IN_TIME, _STEPS],
        differs=(
            "three seeds, LSPET in place of LSP-small, histograms of gradients in place of a convolutional network",
        ),
    ),
    _path(
        "4",
        "Figures 4 and 8a, a regularization path on HorseSeg-small",
        f"All λ down to 2^-15 with ε = 0.1, {_LEFT_OF}.",
        "weizmann_horse",
        "segmentation --train {data}/weizmann_horse/weizmann_horse_250.zip#1-147 "
        f"--solver {_LEFT},average=true {_ALL_LAMS}",
        "--train {data}/weizmann_horse/weizmann_horse_250.zip#1-20 --lam-min 1",
        ("147 horses of Weizmann in place of HorseSeg-small, with this library's features",),
    ),
    _path(
        "8b",
        "Figure 8b, a regularization path on OCR-small",
        f"All λ down to 2^-15 with ε = 0.1, on the words of fold 0, {_LEFT_OF}.",
        "ocr",
        f"ocr --train {{data}}/ocr/ocr_letters.npz#0 --solver {_LEFT} {_ALL_LAMS}",
        "--lam-min 0.1",
    ),
    _path(
        "8b-cached",
        "Figure 8b, right: pairwise steps and a cache",
        f"The same {_RIGHT_OF}.",
        "ocr",
        f"ocr --train {{data}}/ocr/ocr_letters.npz#0 --solver {_RIGHT} {_ALL_LAMS}",
        "--lam-min 0.1",
    ),
    _path(
        "8c",
        "Figure 8c, a regularization path on more horses",
        f"All λ down to 16 with ε = 0.1, {_LEFT_OF}.",
        "weizmann_horse",
        f"segmentation --train {{data}}/weizmann_horse/weizmann_horse_250.zip#1-250 --solver {_LEFT} --epsilon 0.1 "
        "--lam-min 16 --lam-max 1e9",
        "--train {data}/weizmann_horse/weizmann_horse_250.zip#1-20",
        (
            "250 horses of Weizmann in place of HorseSeg-medium, with this library's features",
            "the path ends at λ = 16, that of the paper after 24 hours",
        ),
    ),
    _path(
        "8d",
        "Figure 8d, a regularization path on OCR-large",
        f"All λ down to 2^-6 with ε = 0.1, on the words of folds 1 to 9, {_LEFT_OF}.",
        "ocr",
        f"ocr --train {{data}}/ocr/ocr_letters.npz#1-9 --solver {_LEFT} --epsilon 0.1 --lam-min 0.015625 --lam-max 1e9",
        "--train {data}/ocr/ocr_letters.npz#0 --lam-min 0.1",
        (
            "the path and the grid end at λ = 2^-6, before the small λ, which cost a grid the most; the paper's end"
            " below 2^-15, after 24 hours",
        ),
    ),
    _kappas("7", "Figure 7a, left: κ of the path", _LEFT, _LEFT_OF),
    _kappas("7-cached", "Figure 7a, right: κ of the path with a cache", _RIGHT, _RIGHT_OF),
    _heuristics("7b", "Figure 7b, left: heuristic paths", _LEFT_SOLVER, _LEFT_OF),
    _heuristics("7b-cached", "Figure 7b, right: heuristic paths with a cache", _RIGHT_SOLVER, _RIGHT_OF),
)
