"""Osokin et al. (2016), Minding the gaps for block Frank-Wolfe optimization of structured SVMs."""

from dataclasses import replace
from itertools import product

from scripts.reproduce.claims import Faster, Metric
from scripts.reproduce.experiment import Command, Study
from scripts.reproduce.nonuniformity import predicted_gains
from scripts.reproduce.number_claims import Cheaper, LargeAlong


def _variant(sampling: str, steps: str, cache: bool) -> str:
    return f"bcfw:sampling={sampling},steps={steps},cache={str(cache).lower()}"


_VARIANTS = [_variant(*choice) for choice in product(("uniform", "gap"), ("fw", "pairwise"), (False, True))]
_UNIFORM, _GAP = _variant("uniform", "fw", False), _variant("gap", "fw", False)
_PAIRWISE, _CACHED = _variant("gap", "pairwise", False), _variant("gap", "pairwise", True)
_FIVE_SEEDS = "--seeds 0,1,2,3,4"


def _variants(
    name: str, panel: str, about: str, needs: str, data: str, quick: str, claims: list[Faster], settings: str = ""
) -> Command:
    """The eight variants of BCFW on one problem, all with the same other settings."""
    command = f"compare {data} --solvers {' '.join(variant + settings for variant in _VARIANTS)}"
    claims = [replace(claim, better=claim.better + settings, worse=claim.worse + settings) for claim in claims]
    return Command(f"osokin-{name}", panel, about, needs, command, quick, claims=claims)


def _refreshed(passes: int) -> str:
    return f"bcfw:steps=fw,sampling=gap,refresh={passes}"


_SAMPLING = Faster("Gap sampling always leads to faster convergence, in passes.", _GAP, _UNIFORM)
_IN_TIME = Faster("Gap sampling always leads to faster convergence, in time.", _GAP, _UNIFORM, "seconds")
_CACHE = Faster("Caching always helps in terms of passes.", _CACHED, _PAIRWISE)
_CACHE_IN_TIME = Faster("Where the oracle is slow, the cache saves time.", _CACHED, _PAIRWISE, "seconds")
_OVERHEAD = Faster("Where the oracle is fast, the cache costs more time than it saves.", _PAIRWISE, _CACHED, "seconds")
_STEPS = Faster("Pairwise steps lead to an improvement to get smaller gaps.", _PAIRWISE, _GAP)
_NEVER, _OFTEN, _LOCAL, _GLOBAL, _ALWAYS = (
    f"bcfw:steps=fw,sampling=gap,cache=true,cache_factor={factor},cache_nu={nu}"
    for factor, nu in ((10, 10), (0.25, 0.01), (0.25, 0), (0, 0.5), (0, 0))
)

_PATH, _WARM, _COLD = "path", "grid with warm starts", "grid"
_ALL_LAMS = "--epsilon 0.1 --lam-min 0.000030517578125 --lam-max 1e9"


def _path(name: str, panel: str, about: str, needs: str, data: str, quick: str) -> Command:
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
    )


EXPERIMENTS = (
    Command(
        "osokin-1",
        "Figure 1, exploitation and staleness",
        "Gaps of all blocks are computed anew after 1, 5, 10, 100 passes, or never, on words of fold 0. Panels show the"
        " gap, and its estimate over the true one.",
        "ocr",
        f"compare ocr --train {{data}}/ocr/ocr_letters.npz#0 --lams 0.01 {_FIVE_SEEDS} --passes 150 "
        f"--solvers {_UNIFORM} {' '.join(_refreshed(passes) for passes in (1, 5, 10, 100, 1_000_000))}",
        "--seeds 0 --passes 40",
        claims=[
            Faster("Gap sampling converges faster than uniform sampling.", _refreshed(10), _UNIFORM),
            Faster("A refresh after each pass wastes too many computations.", _refreshed(10), _refreshed(1)),
            Faster(
                "Without any refresh the algorithm does not converge: it needs twice the calls, or more.",
                _refreshed(10),
                _refreshed(1_000_000),
                margin=0.5,
            ),
            Metric(
                "Without any refresh the gap is significantly underestimated.",
                _refreshed(1_000_000),
                "estimated_gap",
                high=0.7,
                over="gap",
            ),
            Faster("Between 5 and 10 passes it makes little difference.", _refreshed(10), _refreshed(5), margin=1.25),
        ],
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
        "Cache factor F and ν from a cache that is never hit to one that nearly always is; words of fold 0.",
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
    ),
    _variants(
        "3a",
        "Figures 3a and 5, variants of BCFW on OCR-large",
        "Eight variants on the words of folds 1 to 9; costs are divided by the length of the word.",
        "ocr",
        f"ocr --train {{data}}/ocr/ocr_letters.npz#1-9 --lams 0.1,0.001,0.0001 {_FIVE_SEEDS} --passes 50",
        "--train {data}/ocr/ocr_letters.npz#0 --seeds 0 --passes 30",
        claims=[_SAMPLING, _IN_TIME, _CACHE, _OVERHEAD, _STEPS],
    ),
    _variants(
        "5",
        "Figure 5, variants of BCFW on CoNLL-2000",
        "Eight variants on 8,936 sentences, with this library's attributes of words and tags in place of CRFsuite's,"
        " and numbers of wrong labels as costs.",
        "conll2000",
        "chunking --train {data}/conll2000/train.txt.gz --lams 0.1,0.01,0.0001 --seeds 0,1,2 --passes 25",
        "--train {data}/conll2000/test.txt.gz --seeds 0 --passes 8",
        claims=[_SAMPLING, _IN_TIME, _CACHE, _OVERHEAD, _STEPS],
    ),
    _variants(
        "3b",
        "Figures 3b and 5, variants of BCFW on HorseSeg",
        "Eight variants on 147 horses of Weizmann in place of HorseSeg-small, with this library's features.",
        "weizmann_horse",
        "segmentation --train {data}/weizmann_horse/weizmann_horse_250.zip#1-147 --lams 100/n,10/n,1/n "
        f"{_FIVE_SEEDS} --passes 60",
        "--train {data}/weizmann_horse/weizmann_horse_250.zip#1-30 --seeds 0 --passes 10",
        claims=[_SAMPLING, _IN_TIME, _CACHE, _STEPS],
        settings=",average=true",
    ),
    _variants(
        "6",
        "Figure 6, variants of BCFW on LSP",
        "Eight variants on 104 images of LSPET with all joints in place of LSP-small, with histograms of gradients in"
        " place of a convolutional network.",
        "lspet",
        "pose --train {data}/lspet#1-300 --lams 100/n,30/n,10/n --seeds 0,1,2 --passes 30",
        "--train {data}/lspet#1-40 --seeds 0 --passes 8",
        claims=[_SAMPLING, _IN_TIME, _CACHE, _CACHE_IN_TIME, _STEPS],
    ),
    _path(
        "4",
        "Figures 4 and 8a, a regularization path on HorseSeg-small",
        "All λ down to 2^-15 with ε = 0.1, on 147 horses of Weizmann in place of HorseSeg-small, by gap sampling.",
        "weizmann_horse",
        "segmentation --train {data}/weizmann_horse/weizmann_horse_250.zip#1-147 "
        f"--solver bcfw:steps=fw,average=true {_ALL_LAMS}",
        "--train {data}/weizmann_horse/weizmann_horse_250.zip#1-20 --lam-min 1",
    ),
    _path(
        "8b",
        "Figure 8b, a regularization path on OCR-small",
        "All λ down to 2^-15 with ε = 0.1, on the words of fold 0, by gap sampling.",
        "ocr",
        "ocr --train {data}/ocr/ocr_letters.npz#0 --solver bcfw:steps=fw " + _ALL_LAMS,
        "--lam-min 0.1",
    ),
    _path(
        "8b-cached",
        "Figure 8b, right: pairwise steps and a cache",
        "The same by pairwise steps, gap sampling and a cache.",
        "ocr",
        "ocr --train {data}/ocr/ocr_letters.npz#0 --solver bcfw:cache=true " + _ALL_LAMS,
        "--lam-min 0.1",
    ),
    Command(
        "osokin-7",
        "Figure 7a, κ of the path",
        "Paths on the words of fold 0 for κ from 0.1 to 0.99, by gap sampling.",
        "ocr",
        "path ocr --train {data}/ocr/ocr_letters.npz#0 --solver bcfw:steps=fw --kappas 0.1,0.5,0.7,0.99 " + _ALL_LAMS,
        "--lam-min 0.1",
        claims=[
            Cheaper("Too small a κ is slower.", _PATH, "path, κ = 0.1"),
            Cheaper("Too large a κ is slower.", _PATH, "path, κ = 0.99"),
            Cheaper("Overall the method is not too sensitive to κ.", _PATH, "path, κ = 0.5", 1.25),
        ],
    ),
    Command(
        "osokin-7b",
        "Figure 7b, heuristic paths",
        "The same with gaps as last seen.",
        "ocr",
        "path ocr --train {data}/ocr/ocr_letters.npz#0 --solver bcfw:steps=fw --heuristic --kappas 0.1,0.5,0.9 --grid "
        + _ALL_LAMS,
        "--lam-min 0.1",
        claims=[Cheaper("A heuristic path is cheaper than the search without warm starts.", "heuristic path", _COLD)],
    ),
)
