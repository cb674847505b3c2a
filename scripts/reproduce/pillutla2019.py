"""Pillutla et al. (2019), A smoother way to train structured prediction models."""

from scripts.reproduce.claims import Alike, Chosen, Faster, MoreAlike, ScoresAsWell
from scripts.reproduce.experiment import Command

_NER = (
    "compare ner --train {data}/conll2003/eng.train.gz --dev {data}/conll2003/eng.testa.gz --bands deviation --bits 16 "
    "--seeds 0"
)
_FEW = "--train {data}/conll2003/eng.testb.gz --passes 3"
_TUNED = (
    "steps are tuned at λ = 1/n and for 10 passes alone, for all λ, and halved in a run where passes make no progress"
)
_WINDOWS = (
    "attributes of windows of words and of given tags, hashed to 2^16, in place of the paper's products of words",
    "one seed",
)


def _adaptive(options: str = "") -> str:
    """Casimir-SVRG-adapt with κ = λ."""
    return f"casimir-svrg:schedule=adaptive,kappa=lam,{options or 'mu=2'},learning_rate=0.015625"


def _constant(options: str = "") -> str:
    """Casimir-SVRG-const with κ by the Lipschitz constant."""
    return f"casimir-svrg:schedule=constant,{options or 'mu=0.1'},lipschitz=256"


_ADAPT, _CONST, _SVRG = _adaptive(), _constant(), "svrg:mu=1,restart=average,learning_rate=0.015625"
_BCFW, _SGD = "bcfw:sampling=uniform,steps=fw,average=true", "sgd:schedule=inverse,learning_rate=0.03125"
_GRIDS = {
    _ADAPT: [
        f"casimir-svrg:schedule=adaptive,kappa=lam,mu=2,learning_rate={step}"
        for step in (0.0625, 0.03125, 0.015625, 0.0078125)
    ],
    _CONST: [
        f"casimir-svrg:schedule=constant,mu={level}"
        for level in (
            "1,lipschitz=32",
            "1,lipschitz=64",
            "0.1,lipschitz=32",
            "0.1,lipschitz=64",
            "0.1,lipschitz=128",
            "0.1,lipschitz=256",
            "0.1,lipschitz=512",
        )
    ],
    _SVRG: [
        f"svrg:mu={mu},restart=average,learning_rate={step}"
        for mu, step in ((1, 0.03125), (1, 0.015625), (1, 0.0078125), (0.1, 0.03125), (0.1, 0.015625), (0.1, 0.0078125))
    ],
    _SGD: [f"sgd:schedule=inverse,learning_rate={step}" for step in (0.125, 0.0625, 0.03125, 0.015625)],
}
_ANIMALS = (
    "compare localization --train {data}/voc2012_animals/voc2012_animals_single_333.zip#train "
    "--test {data}/voc2012_animals/voc2012_animals_single_333.zip#val --bands deviation --seeds 0,1,2 --passes 60"
)
_FEW_PHOTOGRAPHS = (
    "--test {data}/voc2012_animals/voc2012_animals_single_333.zip#train --seeds 0 --passes 6 --proposals 50"
)
_PHOTOGRAPHS = (
    "sheep of VOC 2012 with SqueezeNet's features in place of all classes of VOC 2007; --class has other animals",
    "three seeds, and step sizes that are estimated, not tuned",
)


_STARTS = ("prox-center", "extrapolation", "prev-iterate")
_ADAPT_STARTS = [_adaptive(f"mu=2,warm_start={start}") for start in _STARTS]
_CONST_STARTS = [_constant(f"mu=0.1,warm_start={start}") for start in _STARTS]
_LEVELS = [_adaptive(f"mu={mu}") for mu in (0.5, 2, 8)]
_CONSTANT_LEVELS = [_constant(f"mu={mu}") for mu in (0.1, 1, 10)]
_TOP = [_adaptive(f"mu=2,k={k}") for k in (2, 5, 10)]
# The top-1 oracle is the max oracle, for any μ.
_SMOOTH = [_ADAPT, _CONST, _SVRG]
_NON_SMOOTH = [f"{label},k=1" for label in _SMOOTH]
_PHOTO_CASIMIR, _PHOTO_SVRG, _PHOTO_SGD = "casimir-svrg:mu=10,k=10", "svrg:mu=10,k=10", "sgd:schedule=inverse"
_DEEP_SGD = [f"sgd:schedule={schedule}" for schedule in ("constant", "inverse-sqrt", "inverse")]
_INNER = "prox-linear:inner=casimir-svrg:schedule=constant"
_DEEP_LEVELS = [f"{_INNER}:k=10:mu={mu}" for mu in (2, 10, 50)]
_DEEP_CONSTANT = [f"{_INNER}:k=10:mu={mu},schedule=constant" for mu in (2, 10, 50)]
_PROX_LINEAR = "prox-linear"
_BUDGETS = [f"{_PROX_LINEAR}:inner_passes={passes}" for passes in (2, 5, 10)]
_DEEP_STARTS = [f"{_INNER}:warm_start={start}" for start in ("prox-center", "extrapolation", "prev-iterate")]
_ETAS = [f"{_PROX_LINEAR}:learning_rate={eta:g}" for eta in (0.1, 1, 10)]

EXPERIMENTS = (
    Command(
        "pillutla-grid",
        "Section 7.3, the grid of steps",
        "Steps, or Lipschitz constants, a factor of two apart, on CoNLL-2003; for a constant level of smoothing, two of"
        " these. A setting is the best by the criterion of the paper.",
        "conll2003",
        f"{_NER} --lams 1/n --passes 10 --solvers {' '.join(label for grid in _GRIDS.values() for label in grid)}",
        _FEW,
        claims=[
            Chosen(f"The step of {name} is the best of its grid.", label, tuple(grid), "dev f1", ours=True)
            for name, (label, grid) in zip(
                ("Casimir-SVRG-adapt", "Casimir-SVRG-const", "SVRG", "SGD"), _GRIDS.items(), strict=True
            )
        ],
        differs=["λ = 1/n and 10 passes alone", "t_0 of SGD is a pass", *_WINDOWS],
    ),
    Command(
        "pillutla-2",
        "Figure 2, convex solvers on named entities",
        "CoNLL-2003, with κ = λ for Casimir-SVRG-adapt. The third axis counts passes of stochastic steps alone, as the"
        " paper does.",
        "conll2003",
        f"{_NER} --lams 10/n,1/n,0.1/n,0.01/n --passes 10 --solvers "
        f"{_ADAPT} {_CONST} {_SVRG} {_BCFW} {_SGD} proximal-bcfw",
        _FEW,
        claims=[
            Faster(
                "Casimir-SVRG-adapt converges faster than BCFW in training error, full passes not counted.",
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
        differs=["10 passes", _TUNED, *_WINDOWS],
    ),
    Command(
        "pillutla-5a",
        "Figure 5a, the level of smoothing",
        "Three values of μ for adaptive and constant smoothing, on CoNLL-2003.",
        "conll2003",
        f"{_NER} --lams 0.01/n --passes 6 --solvers {' '.join(_LEVELS + _CONSTANT_LEVELS)}",
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
            MoreAlike(
                "Adaptive smoothing is more robust to the level than constant smoothing.",
                tuple(_LEVELS),
                tuple(_CONSTANT_LEVELS),
                "passes",
            ),
        ],
        differs=["λ = 0.01/n and 6 passes", _TUNED, *_WINDOWS],
    ),
    Command(
        "pillutla-5b",
        "Figure 5b, no smoothing",
        "Solvers of smooth problems on the objective itself: the top-1 oracle is the max oracle. CoNLL-2003.",
        "conll2003",
        f"{_NER} --lams 0.01/n --passes 6 --solvers {' '.join(_SMOOTH + _NON_SMOOTH)}",
        _FEW,
        claims=[
            Faster(f"{name} is no slower with smoothing.", smooth, plain, "passes", "suboptimality", ours=True)
            for name, smooth, plain in zip(
                ("Casimir-SVRG-adapt", "Casimir-SVRG-const", "SVRG"), _SMOOTH, _NON_SMOOTH, strict=True
            )
        ],
        differs=["the paper draws these, and says nothing of them", "6 passes", _TUNED, *_WINDOWS],
    ),
    Command(
        "pillutla-5c",
        "Figure 5c, warm starts",
        "Three warm starts of inner problems, with adaptive and with constant smoothing, on CoNLL-2003.",
        "conll2003",
        f"{_NER} --lams 1/n,0.01/n --passes 6 --solvers {' '.join(_ADAPT_STARTS + _CONST_STARTS)}",
        _FEW,
        claims=[
            Alike(
                "With adaptive smoothing the warm start makes little difference.", tuple(_ADAPT_STARTS), cost="passes"
            ),
            MoreAlike("With constant smoothing it makes more.", tuple(_ADAPT_STARTS), tuple(_CONST_STARTS), "passes"),
            Faster(
                "There the prox-center is faster than the previous iterate.",
                _CONST_STARTS[0],
                _CONST_STARTS[2],
                "passes",
                "suboptimality",
            ),
            Faster(
                "There extrapolation is faster than the previous iterate.",
                _CONST_STARTS[1],
                _CONST_STARTS[2],
                "passes",
                "suboptimality",
            ),
        ],
        differs=["6 passes", "passes that diverge are undone and made with half the step", _TUNED, *_WINDOWS],
    ),
    Command(
        "pillutla-5d",
        "Figure 5d, the number of outputs K",
        "Three values of K of the top-K oracle, on CoNLL-2003.",
        "conll2003",
        f"{_NER} --lams 0.01/n --passes 6 --solvers {' '.join(_TOP)}",
        _FEW,
        claims=[Alike("The method is robust to the choice of K.", tuple(_TOP), cost="passes")],
        differs=["6 passes", _TUNED, *_WINDOWS],
    ),
    Command(
        "pillutla-3",
        "Figures 3, 8, 9 and 10, convex solvers on photographs",
        "Linear scores of boxes, λ = 10/n.",
        "voc2012_animals",
        f"{_ANIMALS} --class sheep --head linear --lams 10/n "
        f"--solvers {_PHOTO_CASIMIR} {_PHOTO_SVRG} {_BCFW} {_PHOTO_SGD} proximal-bcfw",
        _FEW_PHOTOGRAPHS,
        claims=[
            Faster(
                "Casimir-SVRG is faster than BCFW in training error, full passes not counted.",
                _PHOTO_CASIMIR,
                _BCFW,
                "passes",
                "suboptimality",
            ),
            Faster("It is faster than SGD.", _PHOTO_CASIMIR, _PHOTO_SGD, "passes", "suboptimality"),
            ScoresAsWell("Its CorLoc is competitive.", _PHOTO_CASIMIR, _BCFW, "test corloc", 0.02),
        ],
        differs=["κ is not λ but its geometric mean with that of Proposition 29", *_PHOTOGRAPHS],
    ),
    Command(
        "pillutla-4",
        "Figures 4, 11, 12 and 13, solvers of deep scores",
        "A 1 × 1 convolution and ELU below the linear scores, λ = 1/n.",
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
        differs=_PHOTOGRAPHS,
    ),
    Command(
        "pillutla-6",
        "Figure 6, smoothing in prox-linear steps",
        "Three values of μ for adaptive and constant smoothing, λ = 1/n.",
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
        differs=_PHOTOGRAPHS,
    ),
    Command(
        "pillutla-7",
        "Figures 7b and 7c, budgets and warm starts of prox-linear steps",
        "The number of inner passes, and the warm start of the inner solver, λ = 1/n.",
        "voc2012_animals",
        f"{_ANIMALS} --class sheep --head elu --lams 1/n --solvers {' '.join(_BUDGETS + _DEEP_STARTS)}",
        _FEW_PHOTOGRAPHS,
        claims=[
            Alike("The method is robust to the iteration budget.", tuple(_BUDGETS), cost="passes"),
            Alike("It is robust to the warm start.", tuple(_DEEP_STARTS), cost="passes"),
        ],
        differs=_PHOTOGRAPHS,
    ),
    Command(
        "pillutla-7a",
        "Figure 7a, the step η of prox-linear steps",
        "Three powers of ten, λ = 1/n.",
        "voc2012_animals",
        f"{_ANIMALS} --class sheep --head elu --lams 1/n --seeds 0 --passes 15 --proposals 200 "
        f"--solvers {' '.join(_ETAS)}",
        _FEW_PHOTOGRAPHS,
        claims=[Alike("The method is robust to the choice of η.", tuple(_ETAS), cost="passes")],
        differs=["one seed, 15 passes and 200 boxes of each photograph", *_PHOTOGRAPHS[:1]],
    ),
)
