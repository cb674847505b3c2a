"""Solvers by name: as text such as ``"svrg:mu=0.1,k=3"``, and as settings that JSON can hold."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib import import_module
from types import MappingProxyType
from typing import Any, get_origin, get_type_hints

from structsmooth.messages import located
from structsmooth.settings import Allowed, given_type
from structsmooth.solvers.base import Solver
from structsmooth.spelling import suggestion

# Where they are, below structsmooth.solvers.
_HOMES = {
    "casimir-svrg": "primal.casimir:CasimirSVRG",
    "bcfw": "bcfw:BCFW",
    "proximal-bcfw": "dual.proximal:ProximalBCFW",
    "proximal-sdca": "sdca:ProximalSDCA",
    "cocoa": "dual.cocoa:CoCoA",
    "soft-bcfw": "soft_bcfw:SoftBCFW",
    "dlpw": "baselines.dlpw:DLPW",
    "frank-wolfe": "baselines.frank_wolfe:FrankWolfe",
    "cutting-plane": "baselines.cutting_plane:CuttingPlane",
    "n-slack": "dual.n_slack:NSlackCuttingPlane",
    "excessive-gap": "baselines.excessive_gap:ExcessiveGap",
    "exponentiated-gradient": "baselines.exponentiated:ExponentiatedGradient",
    "batch-exponentiated-gradient": "baselines.batch_exponentiated:BatchExponentiatedGradient",
    "smo": "baselines.smo:SMO",
    "extragradient": "baselines.extragradient:Extragradient",
    "lbfgs": "baselines.lbfgs:LBFGS",
    "svrg": "svrg:SVRG",
    "sgd": "sgd:SGD",
    "prox-linear": "prox_linear.solver:ProxLinear",
    "incremental-prox-linear": "primal.incremental:IncrementalProxLinear",
    "convex-concave": "convex_concave:ConvexConcave",
    "adam": "primal.adam:Adam",
}


class _Solvers(Mapping[str, type[Solver[Any]]]):
    """Classes of solvers, each of which loads when it is asked for."""

    def __getitem__(self, name: str) -> type[Solver[Any]]:
        module, _, cls = _HOMES[name].partition(":")
        found: type[Solver[Any]] = getattr(import_module(f"structsmooth.solvers.{module}"), cls)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_HOMES)

    def __len__(self) -> int:
        return len(_HOMES)


SOLVERS: Mapping[str, type[Solver[Any]]] = _Solvers()
"""Solvers by the names that the command line has for them."""


def solver_name(solver: Solver[Any]) -> str:
    """The name of a solver on the command line, or that of its class if it has none."""
    cls = type(solver)
    home = f"{cls.__module__}:{cls.__name__}".removeprefix("structsmooth.solvers.")
    return next((name for name, known in _HOMES.items() if known == home), cls.__name__)


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
    with located(text, (TypeError, ValueError)):
        return SOLVERS[name](**({**defaults} | given))


def solver_settings(solver: Solver[Any]) -> dict[str, Any]:
    """Hyperparameters by name; a solver inside the solver is the text that :func:`parse_solver` reads."""
    values = {f.name: getattr(solver, f.name) for f in fields(solver)}
    return {name: solver_text(value) if isinstance(value, Solver) else value for name, value in values.items()}


def _options(name: str, text: str) -> Iterator[str]:
    """``option=value`` for each option: a solver inside the solver takes what follows it, up to the next comma."""
    inner = {option for option, hint in get_type_hints(SOLVERS[name]).items() if is_solver(hint)}
    for piece in filter(None, text.split(",")):
        if piece.partition("=")[0].replace("-", "_") in inner:
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


def solver_text(solver: Solver[Any]) -> str:
    """What :func:`parse_solver` reads: the name, and the hyperparameters that differ from their defaults."""
    name = solver_name(solver)
    if name not in SOLVERS:
        raise ValueError(f"the solver must be one of structsmooth.solvers.SOLVERS to be saved, got {solver}")
    changed = {f.name: getattr(solver, f.name) for f in fields(solver) if getattr(solver, f.name) != f.default}
    texts = {name: solver_text(v) if isinstance(v, Solver) else str(v).lower() for name, v in changed.items()}
    return ":".join([name, *(f"{option}={text}" for option, text in texts.items())])
