"""Solvers by name: as text such as ``"svrg:mu=0.1,k=3"``, and as settings that JSON can hold."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, get_origin, get_type_hints

from structsmooth.settings import Allowed, given_type
from structsmooth.solvers.base import Solver
from structsmooth.solvers.baselines.cutting_plane import CuttingPlane
from structsmooth.solvers.baselines.dlpw import DLPW
from structsmooth.solvers.baselines.extragradient import Extragradient
from structsmooth.solvers.baselines.frank_wolfe import FrankWolfe
from structsmooth.solvers.baselines.n_slack import NSlackCuttingPlane
from structsmooth.solvers.bcfw import BCFW
from structsmooth.solvers.convex_concave import ConvexConcave
from structsmooth.solvers.dual.cocoa import CoCoA
from structsmooth.solvers.dual.excessive_gap import ExcessiveGap
from structsmooth.solvers.dual.proximal import ProximalBCFW
from structsmooth.solvers.exponentiated import ExponentiatedGradient
from structsmooth.solvers.primal.adam import Adam
from structsmooth.solvers.primal.casimir import CasimirSVRG
from structsmooth.solvers.primal.incremental import IncrementalProxLinear
from structsmooth.solvers.prox_linear import ProxLinear
from structsmooth.solvers.sdca import ProximalSDCA
from structsmooth.solvers.sgd import SGD
from structsmooth.solvers.soft_bcfw import SoftBCFW
from structsmooth.solvers.svrg import SVRG
from structsmooth.spelling import suggestion

SOLVERS: dict[str, type[Solver[Any]]] = {
    "casimir-svrg": CasimirSVRG,
    "bcfw": BCFW,
    "proximal-bcfw": ProximalBCFW,
    "proximal-sdca": ProximalSDCA,
    "cocoa": CoCoA,
    "soft-bcfw": SoftBCFW,
    "dlpw": DLPW,
    "frank-wolfe": FrankWolfe,
    "cutting-plane": CuttingPlane,
    "n-slack": NSlackCuttingPlane,
    "excessive-gap": ExcessiveGap,
    "exponentiated-gradient": ExponentiatedGradient,
    "extragradient": Extragradient,
    "svrg": SVRG,
    "sgd": SGD,
    "prox-linear": ProxLinear,
    "incremental-prox-linear": IncrementalProxLinear,
    "convex-concave": ConvexConcave,
    "adam": Adam,
}
"""Solvers by the names that the command line has for them."""


_NONE: Mapping[str, Any] = MappingProxyType({})


def parse_solver(text: str, defaults: Mapping[str, Any] = _NONE) -> Solver[Any]:
    """The solver that ``"name"`` or ``"name:option=value,..."`` stands for.

    Commas and colons both separate options, so that a solver inside another one is text without commas, as in
    ``"prox-linear:inner=casimir-svrg:mu=0.1:k=10,schedule=constant"``.

    Args:
        text: name and hyperparameters.
        defaults: of hyperparameters that the text does not give.

    Raises:
        ValueError: an unknown solver or option, or a bad value.

    Example:
        >>> parse_solver("bcfw:steps=fw").steps
        'fw'
    """
    name, _, options = text.partition(":")
    if name not in SOLVERS:
        asked = f"unknown solver {name!r}{suggestion(name, SOLVERS)}"
        raise ValueError(f"{asked}: expected one of {', '.join(SOLVERS)}")
    given = dict(_hyperparameter(name, option) for option in _options(name, options))
    try:
        return SOLVERS[name](**({**defaults} | given))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text}: {error}") from error


def solver_settings(solver: Solver[Any]) -> dict[str, Any]:
    """Hyperparameters by name; a solver inside the solver is the text that :func:`parse_solver` reads."""
    values = {f.name: getattr(solver, f.name) for f in fields(solver)}
    return {name: solver_text(value) if isinstance(value, Solver) else value for name, value in values.items()}


def _options(name: str, text: str) -> Iterator[str]:
    """``option=value`` for each option: a solver inside the solver takes what follows it, up to the next comma."""
    for piece in filter(None, text.split(",")):
        if piece.partition("=")[0].replace("-", "_") in _inner_solvers(SOLVERS[name]):
            yield piece
        else:
            yield from piece.split(":")


def _hyperparameter(solver: str, option: str) -> tuple[str, Any]:
    """Name and value of ``"warm-start=extrapolation"``, for some solver."""
    flag, _, text = option.partition("=")
    name, names = flag.replace("-", "_"), [f.name for f in fields(SOLVERS[solver])]
    if name not in names:
        asked = f"{solver} has no option {flag!r}{suggestion(name, names)}"
        raise ValueError(f"{asked}: expected one of {', '.join(names)}")
    hint = get_type_hints(SOLVERS[solver])[name]
    allowed = Allowed.by(hint)
    if allowed.number is not None:
        try:
            return name, allowed.parse(text)
        except ValueError:
            raise ValueError(f"{solver}: {name} must be of type {allowed.metavar}, got {text!r}") from None
    if is_solver(given_type(hint)):
        return name, parse_solver(text)
    choices = {str(choice).lower(): choice for choice in allowed.choices or (True, False)}
    if text not in choices:
        raise ValueError(f"{solver}: {name} must be one of {', '.join(choices)}, got {text!r}")
    return name, choices[text]


def is_solver(hint: Any) -> bool:
    """Whether a type is that of solvers."""
    return (get_origin(hint) or hint) is Solver


def _inner_solvers(cls: type[Solver[Any]]) -> set[str]:
    return {name for name, hint in get_type_hints(cls).items() if is_solver(hint)}


def solver_text(solver: Solver[Any]) -> str:
    """What :func:`parse_solver` reads: the name, and the hyperparameters that differ from their defaults."""
    names = {cls: name for name, cls in SOLVERS.items()}
    if type(solver) not in names:
        raise ValueError(f"the solver must be one of structsmooth.solvers.SOLVERS to be saved, got {solver}")
    changed = {f.name: getattr(solver, f.name) for f in fields(solver) if getattr(solver, f.name) != f.default}
    texts = {name: solver_text(own) if isinstance(own, Solver) else str(own).lower() for name, own in changed.items()}
    return ":".join([names[type(solver)], *(f"{name}={text}" for name, text in texts.items())])
