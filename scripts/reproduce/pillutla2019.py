"""Pillutla et al. (2019), A smoother way to train structured prediction models."""

from scripts.reproduce.claims import Alike, Faster, ScoresAsWell
from scripts.reproduce.experiment import Experiment

_ADAPT = "casimir-svrg:inner=svrg,schedule=adaptive,mu=2"
_CONST = "casimir-svrg:inner=svrg,schedule=constant,mu=2"
_SVRG, _BCFW, _SGD = "svrg:mu=2", "bcfw:sampling=uniform,steps=fw,average=true", "sgd:schedule=inverse"
_NER = "compare ner --train {data}/conll2003/eng.train.gz --dev {data}/conll2003/eng.testa.gz --bands deviation"
_FEW = "--train {data}/conll2003/eng.testb.gz --seeds 0 --passes 5"
_ANIMALS = (
    "compare localization --train {data}/voc2012_animals/voc2012_animals_single_333.zip#train "
    "--test {data}/voc2012_animals/voc2012_animals_single_333.zip#val --bands deviation"
)


def _adaptive(options: str) -> str:
    return f"casimir-svrg:inner=svrg,schedule=adaptive,{options}"


_STARTS = [_adaptive(f"mu=2,warm_start={start}") for start in ("prox-center", "extrapolation", "prev-iterate")]
_LEVELS = [_adaptive(f"mu={mu}") for mu in (0.5, 2, 8)]
_CONSTANT_LEVELS = [f"casimir-svrg:inner=svrg,schedule=constant,mu={mu}" for mu in (0.5, 2, 8)]
_TOP = [_adaptive(f"mu=2,k={k}") for k in (2, 5, 10)]

EXPERIMENTS = (
    Experiment(
        "pillutla-2",
        "Figure 2, convex solvers on named entities",
        "CoNLL-2003, windows of words with 2^16 hashed attributes. Step sizes are found by each solver, not by a grid. "
        "The third axis counts passes of stochastic steps alone, as the paper does.",
        "conll2003",
        f"{_NER} --lams 1/n,0.1/n,0.01/n --seeds 0,1,2 --passes 30 --bits 16 "
        f"--solvers {_ADAPT} {_CONST} {_SVRG} {_BCFW} {_SGD} casimir-svrg proximal-bcfw",
        _FEW,
        [
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
                "Not of the paper: what runs by default here is faster than its Casimir-SVRG, all calls counted.",
                "proximal-bcfw",
                _ADAPT,
                value="suboptimality",
            ),
        ],
    ),
    Experiment(
        "pillutla-5a",
        "Figure 5a, the level of smoothing",
        "Three values of μ for adaptive and constant smoothing, on CoNLL-2003.",
        "conll2003",
        f"{_NER} --lams 0.01/n --seeds 0,1,2 --passes 30 --bits 16 --solvers {' '.join(_LEVELS + _CONSTANT_LEVELS)}",
        _FEW,
        [
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
    Experiment(
        "pillutla-5c",
        "Figure 5c, warm starts",
        "Three warm starts of inner problems, with adaptive smoothing, on CoNLL-2003.",
        "conll2003",
        f"{_NER} --lams 1/n,0.01/n --seeds 0,1,2 --passes 30 --bits 16 --solvers {' '.join(_STARTS)}",
        _FEW,
        [Alike("With adaptive smoothing the warm start makes little difference.", tuple(_STARTS), cost="passes")],
    ),
    Experiment(
        "pillutla-5d",
        "Figure 5d, the number of outputs K",
        "Three values of K of the top-K oracle, on CoNLL-2003.",
        "conll2003",
        f"{_NER} --lams 0.01/n --seeds 0,1,2 --passes 30 --bits 16 --solvers {' '.join(_TOP)}",
        _FEW,
        [Alike("The method is robust to the choice of K.", tuple(_TOP), cost="passes")],
    ),
)
