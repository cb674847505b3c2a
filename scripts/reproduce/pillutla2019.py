"""Pillutla et al. (2019), A smoother way to train structured prediction models."""

from scripts.reproduce.claims import Alike, Faster, MoreAlike, ScoresAsWell
from scripts.reproduce.experiment import Command

_ADAPT = "casimir-svrg:schedule=adaptive,mu=2"
_CONST = "casimir-svrg:schedule=constant,mu=2"
_SVRG, _BCFW, _SGD = "svrg:mu=2", "bcfw:sampling=uniform,steps=fw,average=true", "sgd:schedule=inverse"
_NER = "compare ner --train {data}/conll2003/eng.train.gz --dev {data}/conll2003/eng.testa.gz --bands deviation"
_FEW = "--train {data}/conll2003/eng.testb.gz --seeds 0 --passes 5"
_ANIMALS = (
    "compare localization --train {data}/voc2012_animals/voc2012_animals_single_333.zip#train "
    "--test {data}/voc2012_animals/voc2012_animals_single_333.zip#val --bands deviation --seeds 0,1,2 --passes 60"
)
_FEW_PHOTOGRAPHS = (
    "--test {data}/voc2012_animals/voc2012_animals_single_333.zip#train --seeds 0 --passes 6 --proposals 50"
)
_OTHERS = "Sheep of VOC 2012 with SqueezeNet's features; --class has other animals."


def _adaptive(options: str) -> str:
    return f"casimir-svrg:schedule=adaptive,{options}"


_STARTS = [_adaptive(f"mu=2,warm_start={start}") for start in ("prox-center", "extrapolation", "prev-iterate")]
_LEVELS = [_adaptive(f"mu={mu}") for mu in (0.5, 2, 8)]
_CONSTANT_LEVELS = [f"casimir-svrg:schedule=constant,mu={mu}" for mu in (0.5, 2, 8)]
_PHOTO_CASIMIR, _PHOTO_SVRG = "casimir-svrg:mu=10,k=10", "svrg:mu=10,k=10"
_DEEP_SGD = [f"sgd:schedule={schedule}" for schedule in ("constant", "inverse-sqrt", "inverse")]
_INNER = "prox-linear:inner=casimir-svrg:schedule=constant"
_DEEP_LEVELS = [f"{_INNER}:k=10:mu={mu}" for mu in (2, 10, 50)]
_DEEP_CONSTANT = [f"{_INNER}:k=10:mu={mu},schedule=constant" for mu in (2, 10, 50)]
_PROX_LINEAR = "prox-linear"
_BUDGETS = [f"{_PROX_LINEAR}:inner_passes={passes}" for passes in (2, 5, 10)]
_DEEP_STARTS = [f"{_INNER}:warm_start={start}" for start in ("prox-center", "extrapolation", "prev-iterate")]
_TOP = [_adaptive(f"mu=2,k={k}") for k in (2, 5, 10)]

EXPERIMENTS = (
    Command(
        "pillutla-2",
        "Figure 2, convex solvers on named entities",
        "CoNLL-2003, windows of words with 2^16 hashed attributes. Step sizes are found by each solver, not by a grid. "
        "The third axis counts passes of stochastic steps alone, as the paper does.",
        "conll2003",
        f"{_NER} --lams 1/n,0.1/n,0.01/n --seeds 0,1,2 --passes 30 --bits 16 "
        f"--solvers {_ADAPT} {_CONST} {_SVRG} {_BCFW} {_SGD} proximal-sdca proximal-bcfw",
        _FEW,
        claims=[
            Faster(
                "Casimir-SVRG converges faster than BCFW in training error, full passes not counted.",
                _ADAPT,
                _BCFW,
                "passes",
                "suboptimality",
            ),
            Faster("It converges faster than SGD, full passes not counted.", _ADAPT, _SGD, "passes", "suboptimality"),
            Faster("It converges faster than SVRG.", _ADAPT, _SVRG, "passes", "suboptimality"),
            ScoresAsWell("Its performance on held-out data is competitive.", _ADAPT, _BCFW, "dev f1"),
            Faster(
                "What runs by default here is faster than its Casimir-SVRG, all calls counted.",
                "proximal-bcfw",
                _ADAPT,
                value="suboptimality",
                ours=True,
            ),
        ],
    ),
    Command(
        "pillutla-5a",
        "Figure 5a, the level of smoothing",
        "Three values of μ for adaptive and constant smoothing, on CoNLL-2003.",
        "conll2003",
        f"{_NER} --lams 0.01/n --seeds 0,1,2 --passes 30 --bits 16 --solvers {' '.join(_LEVELS + _CONSTANT_LEVELS)}",
        _FEW,
        claims=[
            Alike("With adaptive smoothing the level makes little difference.", tuple(_LEVELS), cost="passes"),
            Faster(
                "With constant smoothing a small level is better.",
                _CONSTANT_LEVELS[0],
                _CONSTANT_LEVELS[2],
                "passes",
                "suboptimality",
            ),
        ],
    ),
    Command(
        "pillutla-5c",
        "Figure 5c, warm starts",
        "Three warm starts of inner problems, with adaptive smoothing, on CoNLL-2003.",
        "conll2003",
        f"{_NER} --lams 1/n,0.01/n --seeds 0,1,2 --passes 30 --bits 16 --solvers {' '.join(_STARTS)}",
        _FEW,
        claims=[
            Alike("With adaptive smoothing the warm start makes little difference.", tuple(_STARTS), cost="passes")
        ],
    ),
    Command(
        "pillutla-5d",
        "Figure 5d, the number of outputs K",
        "Three values of K of the top-K oracle, on CoNLL-2003.",
        "conll2003",
        f"{_NER} --lams 0.01/n --seeds 0,1,2 --passes 30 --bits 16 --solvers {' '.join(_TOP)}",
        _FEW,
        claims=[Alike("The method is robust to the choice of K.", tuple(_TOP), cost="passes")],
    ),
    Command(
        "pillutla-3",
        "Figures 3, 8, 9 and 10, convex solvers on photographs",
        f"Linear scores of boxes, λ = 10/n. {_OTHERS}",
        "voc2012_animals",
        f"{_ANIMALS} --class sheep --head linear --lams 10/n "
        f"--solvers {_PHOTO_CASIMIR} {_PHOTO_SVRG} {_BCFW} {_SGD} proximal-bcfw",
        _FEW_PHOTOGRAPHS,
        claims=[
            Faster(
                "Casimir-SVRG is faster than BCFW in training error, full passes not counted.",
                _PHOTO_CASIMIR,
                _BCFW,
                "passes",
                "suboptimality",
            ),
            Faster("It is faster than SGD.", _PHOTO_CASIMIR, _SGD, "passes", "suboptimality"),
            ScoresAsWell("Its CorLoc is competitive.", _PHOTO_CASIMIR, _BCFW, "test corloc", 0.02),
        ],
    ),
    Command(
        "pillutla-4",
        "Figures 4, 11, 12 and 13, solvers of deep scores",
        f"A 1 × 1 convolution and ELU below the linear scores, λ = 1/n; step sizes are estimated. {_OTHERS}",
        "voc2012_animals",
        f"{_ANIMALS} --class sheep --head elu --lams 1/n "
        f"--solvers {_PROX_LINEAR} {' '.join(_DEEP_SGD)} incremental-prox-linear",
        _FEW_PHOTOGRAPHS,
        claims=[
            Faster(
                f"Prox-linear steps are faster than SGD ({sgd.partition('=')[2]}), full passes not counted.",
                _PROX_LINEAR,
                sgd,
                "passes",
                "suboptimality",
            )
            for sgd in _DEEP_SGD
        ]
        + [
            Faster(
                "Incremental prox-linear steps are faster, all calls counted.",
                "incremental-prox-linear",
                _PROX_LINEAR,
                value="suboptimality",
                ours=True,
            )
        ],
    ),
    Command(
        "pillutla-6",
        "Figure 6, smoothing in prox-linear steps",
        f"Three values of μ for adaptive and constant smoothing, λ = 1/n. {_OTHERS}",
        "voc2012_animals",
        f"{_ANIMALS} --class sheep --head elu --lams 1/n --solvers {' '.join(_DEEP_LEVELS + _DEEP_CONSTANT)}",
        _FEW_PHOTOGRAPHS,
        claims=[
            Alike("With adaptive smoothing the level makes little difference.", tuple(_DEEP_LEVELS), cost="passes"),
            MoreAlike(
                "Adaptive smoothing is more robust to the level than constant smoothing.",
                tuple(_DEEP_LEVELS),
                tuple(_DEEP_CONSTANT),
                "passes",
            ),
        ],
    ),
    Command(
        "pillutla-7",
        "Figure 7, budgets and warm starts of prox-linear steps",
        f"The number of inner passes, and the warm start of the inner solver, λ = 1/n. {_OTHERS}",
        "voc2012_animals",
        f"{_ANIMALS} --class sheep --head elu --lams 1/n --solvers {' '.join(_BUDGETS + _DEEP_STARTS)}",
        _FEW_PHOTOGRAPHS,
        claims=[
            Alike("The method is robust to the iteration budget.", tuple(_BUDGETS), cost="passes"),
            Alike("It is robust to the warm start.", tuple(_DEEP_STARTS), cost="passes"),
        ],
    ),
)
