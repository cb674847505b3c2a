"""Pillutla et al. (2019), A smoother way to train structured prediction models."""

import re
from collections.abc import Mapping, Sequence

from scripts.reproduce.claims import Alike, Faster, MoreAlike, SameChoice, ScoresAsWell
from scripts.reproduce.experiment import Command, Tuned

_NER = (
    "compare ner --train {data}/conll2003/eng.train.gz --dev {data}/conll2003/eng.testa.gz --bands deviation --bits 16 "
    "--seeds 0 --passes 20"
)
_FEW = "--train {data}/conll2003/eng.testb.gz --seeds 0 --passes 3"
_WINDOWS = (
    "attributes of windows of words and of given tags, hashed to 2^16, in place of the paper's products of words",
)
_HALVED = "steps are halved in a run where passes make no progress"
_STEPS = (f"steps are those of Figure 2 at λ = 0.01/n; {_HALVED}", "one seed and 20 passes", *_WINDOWS)
_NAME, _DEFAULT = "Casimir-SVRG-adapt", "the default, proximal-bcfw"


def _fewer_passes(says: str, better: str, worse: str, *, ours: bool = False) -> Faster:
    """Full passes are not counted, as on the paper's third axis."""
    return Faster(says, better, worse, "passes", "suboptimality", ours=ours)


def _fewer_calls(says: str, better: str, worse: str) -> Faster:
    """All calls are counted, of which the paper says nothing."""
    return Faster(says, better, worse, value="suboptimality", ours=True)


def _alike(says: str, labels: Sequence[str]) -> Alike:
    return Alike(says, tuple(labels), cost="passes")


def _more_alike(says: str, labels: Sequence[str], others: Sequence[str]) -> MoreAlike:
    return MoreAlike(says, tuple(labels), tuple(others), "passes")


def _adaptive(options: str = "mu=2", step: float = 2.0**-6) -> str:
    """Casimir-SVRG-adapt with κ = λ."""
    return f"casimir-svrg:schedule=adaptive,kappa=lam,{options},learning_rate={step}"


def _constant(options: str = "mu=0.1", lipschitz: int = 256) -> str:
    """Casimir-SVRG-const with κ by the Lipschitz constant."""
    return f"casimir-svrg:schedule=constant,{options},lipschitz={lipschitz}"


_ADAPT, _CONST, _SVRG = _adaptive(), _constant(), "svrg:mu=1,restart=average,learning_rate=0.015625"
_BCFW = "bcfw:sampling=uniform,steps=fw,average=true"
# Steps are a factor of two apart; for the Lipschitz constant of Casimir-SVRG-const, 128 and 512 were worse at λ = 1/n.
_GRIDS = {
    "Casimir-SVRG-adapt": [_adaptive(step=2.0**-power) for power in (5, 6, 7, 8)],
    "Casimir-SVRG-const": [_CONST],
    "SVRG": [f"svrg:mu=1,restart=average,learning_rate={2.0**-power}" for power in (5, 6, 7, 8)],
    "BCFW": [_BCFW],
    "SGD": [f"sgd:schedule=inverse,learning_rate={2.0**-power}" for power in (3, 4, 5, 6)],
    _DEFAULT: ["proximal-bcfw"],
}
_ANIMALS = (
    "compare localization --train {data}/voc2012_animals/voc2012_animals_single_333.zip#train "
    "--test {data}/voc2012_animals/voc2012_animals_single_333.zip#val --bands deviation --seeds 0,1,2 --passes 60"
)
_DEEP_ANIMALS = f"{_ANIMALS} --class sheep --head elu --lams 1/n"
_FEW_PHOTOGRAPHS = (
    "--test {data}/voc2012_animals/voc2012_animals_single_333.zip#train --seeds 0 --passes 6 --proposals 50"
)
_SHEEP = "sheep of VOC 2012 with SqueezeNet's features in place of all classes of VOC 2007; --class has other animals"
_PHOTOGRAPHS = (_SHEEP, "three seeds, and step sizes that are estimated, not tuned")


_STARTS = ("prox-center", "extrapolation", "prev-iterate")
_ADAPT_STARTS = [_adaptive(f"mu=2,warm_start={start}") for start in _STARTS]
_CONST_STARTS = [_constant(f"mu=0.1,warm_start={start}") for start in _STARTS]
_LEVELS = [_adaptive(f"mu={mu}") for mu in (0.5, 2, 8)]
_CONSTANT_LEVELS = [_constant(f"mu={mu}") for mu in (0.1, 1, 10)]
_TOP = [_adaptive(f"mu=2,k={k}") for k in (2, 5, 10)]
# The top-1 oracle is the max oracle, for any μ.
_SMOOTH = [_ADAPT, _CONST, _SVRG]
_NON_SMOOTH = [f"{label},k=1" for label in _SMOOTH]
_PHOTO_STEPS = ["", *(f",learning_rate={2.0**-power}" for power in (9, 10, 11))]
_PHOTO_GRIDS = {
    _NAME: [f"casimir-svrg:schedule=adaptive,kappa=lam,mu=10,k=10{step}" for step in _PHOTO_STEPS],
    "SVRG": [f"svrg:mu=10,k=10,restart=average{step}" for step in _PHOTO_STEPS],
    "BCFW": [_BCFW],
    "SGD": [f"sgd:schedule=inverse{step}" for step in _PHOTO_STEPS],
    _DEFAULT: ["proximal-bcfw"],
}
_DEEP_SGD = [f"sgd:schedule={schedule}" for schedule in ("constant", "inverse-sqrt", "inverse")]
_INNER = "prox-linear:inner=casimir-svrg:schedule=constant"
_DEEP_LEVELS = [f"{_INNER}:k=10:mu={mu}" for mu in (2, 10, 50)]
_DEEP_CONSTANT = [f"{_INNER}:k=10:mu={mu},schedule=constant" for mu in (2, 10, 50)]
_PROX_LINEAR = "prox-linear"
_BUDGETS = [f"{_PROX_LINEAR}:inner_passes={passes}" for passes in (2, 5, 10)]
_DEEP_STARTS = [f"{_INNER}:warm_start={start}" for start in ("prox-center", "extrapolation", "prev-iterate")]
_ETAS = [f"{_PROX_LINEAR}:learning_rate={eta:g}" for eta in (0.1, 1, 10)]

_FORMS = ("Casimir-SVRG-adapt", "Casimir-SVRG-const", "SVRG")


def _named(labels: Sequence[str], names: Sequence[object]) -> dict[str, str]:
    return {label: str(name) for label, name in zip(labels, names, strict=True)}


def _of_grids(grids: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Settings by their solver and step."""
    step = re.compile(r"learning_rate=([\d.]+)$")
    return {
        label: f"{name}, {found[1] if (found := step.search(label)) else 'estimated'}" if len(grid) > 1 else name
        for name, grid in grids.items()
        for label in grid
    }


EXPERIMENTS = (
    Tuned(
        "pillutla-2",
        "Figure 2, convex solvers on named entities",
        "CoNLL-2003, with κ = λ for Casimir-SVRG-adapt. Steps are the best of a grid for each λ by the criterion of"
        " section 7.3. Passes are those of stochastic steps alone, as on the paper's third axis.",
        "conll2003",
        f"{_NER} --seeds 0,1",
        _FEW,
        ("10/n", "1/n", "0.1/n", "0.01/n"),
        _GRIDS,
        "dev f1",
        claims=[
            _fewer_passes(
                "Casimir-SVRG-adapt converges faster than BCFW in training error, full passes not counted.",
                _NAME,
                "BCFW",
            ),
            _fewer_passes("Casimir-SVRG-adapt converges faster than SGD, full passes not counted.", _NAME, "SGD"),
            _fewer_passes("Casimir-SVRG-adapt converges faster than SVRG.", _NAME, "SVRG"),
            ScoresAsWell(
                "The performance of Casimir-SVRG-adapt on held-out data is competitive.", _NAME, "BCFW", "dev f1"
            ),
            *(
                SameChoice(f"The same step of {name} is the best at all λ.", grid, "dev f1", ours=True)
                for name, grid in _GRIDS.items()
                if len(grid) > 1
            ),
            _fewer_calls(
                "What runs by default here is faster than its Casimir-SVRG, all calls counted.", _DEFAULT, _NAME
            ),
        ],
        differs=[
            "two seeds and 20 passes; settings are chosen by the first seed",
            f"t_0 of SGD is a pass, and {_HALVED}",
            *_WINDOWS,
        ],
        names=_of_grids(_GRIDS),
    ),
    Command(
        "pillutla-5a",
        "Figure 5a, the level of smoothing",
        "Three values of μ for adaptive and constant smoothing, on CoNLL-2003.",
        "conll2003",
        f"{_NER} --lams 0.01/n --solvers {' '.join(_LEVELS + _CONSTANT_LEVELS)}",
        _FEW,
        claims=[
            _alike("With adaptive smoothing the level makes little difference.", _LEVELS),
            _fewer_passes("With constant smoothing a small level is better.", _CONSTANT_LEVELS[0], _CONSTANT_LEVELS[2]),
            _more_alike(
                "Adaptive smoothing is more robust to the level than constant smoothing.", _LEVELS, _CONSTANT_LEVELS
            ),
        ],
        differs=["λ = 0.01/n", *_STEPS],
        names=_named(_CONSTANT_LEVELS, [f"μ = {mu:g}" for mu in (0.1, 1, 10)]),
    ),
    Command(
        "pillutla-5b",
        "Figure 5b, no smoothing",
        "Solvers of smooth problems on the objective itself: the top-1 oracle is the max oracle. CoNLL-2003.",
        "conll2003",
        f"{_NER} --lams 0.01/n --solvers {' '.join(_SMOOTH + _NON_SMOOTH)}",
        _FEW,
        claims=[
            _fewer_passes(f"{name} is no slower with smoothing.", smooth, plain, ours=True)
            for name, smooth, plain in zip(
                ("Casimir-SVRG-adapt", "Casimir-SVRG-const", "SVRG"), _SMOOTH, _NON_SMOOTH, strict=True
            )
        ],
        differs=["the paper draws these, and says nothing of them", *_STEPS],
        names=_named([*_SMOOTH, *_NON_SMOOTH], [*_FORMS, *(f"{form}, top-1" for form in _FORMS)]),
    ),
    Command(
        "pillutla-5c",
        "Figure 5c, warm starts",
        "Three warm starts of inner problems, with adaptive and with constant smoothing, on CoNLL-2003.",
        "conll2003",
        f"{_NER} --lams 1/n,0.01/n --solvers {' '.join(_ADAPT_STARTS + _CONST_STARTS)}",
        _FEW,
        claims=[
            _alike("With adaptive smoothing the warm start makes little difference.", _ADAPT_STARTS),
            _more_alike("With constant smoothing the warm start makes more difference.", _ADAPT_STARTS, _CONST_STARTS),
            _fewer_passes(
                "With constant smoothing the prox-center is faster than the previous iterate.",
                _CONST_STARTS[0],
                _CONST_STARTS[2],
            ),
            _fewer_passes(
                "With constant smoothing extrapolation is faster than the previous iterate.",
                _CONST_STARTS[1],
                _CONST_STARTS[2],
            ),
        ],
        differs=["passes that diverge are undone and made with half the step", *_STEPS],
        names=_named(_CONST_STARTS, _STARTS),
    ),
    Command(
        "pillutla-5d",
        "Figure 5d, the number of outputs K",
        "Three values of K of the top-K oracle, on CoNLL-2003.",
        "conll2003",
        f"{_NER} --lams 0.01/n --solvers {' '.join(_TOP)}",
        _FEW,
        claims=[_alike("The method is robust to the choice of K.", _TOP)],
        differs=[*_STEPS],
    ),
    Tuned(
        "pillutla-3",
        "Figures 3, 8, 9 and 10, convex solvers on photographs",
        "Linear scores of boxes, λ = 10/n, with κ = λ for Casimir-SVRG. Steps are the best of a grid.",
        "voc2012_animals",
        f"{_ANIMALS} --class sheep --head linear",
        _FEW_PHOTOGRAPHS,
        ("10/n",),
        _PHOTO_GRIDS,
        claims=[
            _fewer_passes(
                "Casimir-SVRG is faster than BCFW in training error, full passes not counted.", _NAME, "BCFW"
            ),
            _fewer_passes("Casimir-SVRG is faster than SGD.", _NAME, "SGD"),
            ScoresAsWell("The CorLoc of Casimir-SVRG is competitive.", _NAME, "BCFW", "test corloc", 0.02),
        ],
        differs=[
            "three seeds; settings are chosen by the first seed and by the objective",
            f"t_0 of SGD is a pass, and {_HALVED}",
            _SHEEP,
        ],
        names=_of_grids(_PHOTO_GRIDS),
    ),
    Command(
        "pillutla-4",
        "Figures 4, 11, 12 and 13, solvers of deep scores",
        "A 1 × 1 convolution and ELU below the linear scores, λ = 1/n.",
        "voc2012_animals",
        f"{_DEEP_ANIMALS} --solvers {_PROX_LINEAR} {' '.join(_DEEP_SGD)} incremental-prox-linear",
        _FEW_PHOTOGRAPHS,
        claims=[
            _fewer_passes(
                f"Prox-linear steps are faster than SGD ({sgd.partition('=')[2]}), full passes not counted.",
                _PROX_LINEAR,
                sgd,
            )
            for sgd in _DEEP_SGD
        ]
        + [
            _fewer_calls(
                "Incremental prox-linear steps are faster, all calls counted.", "incremental-prox-linear", _PROX_LINEAR
            )
        ],
        differs=_PHOTOGRAPHS,
        names=_named(
            [_PROX_LINEAR, *_DEEP_SGD, "incremental-prox-linear"],
            ["Prox-linear", "SGD, constant", "SGD, 1/√t", "SGD, 1/t", "Incremental prox-linear"],
        ),
    ),
    Command(
        "pillutla-6",
        "Figure 6, smoothing in prox-linear steps",
        "Three values of μ for adaptive and constant smoothing, λ = 1/n.",
        "voc2012_animals",
        f"{_DEEP_ANIMALS} --passes 30 --solvers {' '.join(_DEEP_LEVELS + _DEEP_CONSTANT)}",
        _FEW_PHOTOGRAPHS,
        claims=[
            _alike("With adaptive smoothing the level makes little difference.", _DEEP_LEVELS),
            _more_alike(
                "Adaptive smoothing is more robust to the level than constant smoothing.", _DEEP_LEVELS, _DEEP_CONSTANT
            ),
        ],
        differs=["30 passes", *_PHOTOGRAPHS],
    ),
    Command(
        "pillutla-7",
        "Figures 7b and 7c, budgets and warm starts of prox-linear steps",
        "The number of inner passes, and the warm start of the inner solver, λ = 1/n.",
        "voc2012_animals",
        f"{_DEEP_ANIMALS} --passes 30 --solvers {' '.join(_BUDGETS + _DEEP_STARTS)}",
        _FEW_PHOTOGRAPHS,
        claims=[
            _alike("The method is robust to the iteration budget.", _BUDGETS),
            _alike("It is robust to the warm start.", _DEEP_STARTS),
        ],
        differs=["30 passes", *_PHOTOGRAPHS],
    ),
    Command(
        "pillutla-7a",
        "Figure 7a, the step η of prox-linear steps",
        "Three powers of ten, λ = 1/n.",
        "voc2012_animals",
        f"{_DEEP_ANIMALS} --seeds 0 --solvers {' '.join(_ETAS)}",
        _FEW_PHOTOGRAPHS,
        claims=[_alike("The method is robust to the choice of η.", _ETAS)],
        differs=["one seed", _SHEEP],
    ),
)
