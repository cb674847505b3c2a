"""Who answers the queries of a structure, and where: the table that stands in its class."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, overload

from torch import Tensor

from structsmooth.compiled.gpu import HAS_TRITON
from structsmooth.structures.checks import Backend, exports_plain_torch
from structsmooth.structures.transforms import in_transform


class Traits(NamedTuple):
    """What those who answer do themselves, so that the structure need not.

    Attributes:
        checks_labels: labels that do not exist raise an error, or their scores are no numbers.
        checks_scores: of an example that uses NaN or +inf, the answer is no number.
        differentiates_top_k: values of the K best outputs have gradients, which are faster than those of scores.
        keeps_digits: differences of large sums lose little, so that scores need not become float64.
    """

    checks_labels: bool = False
    checks_scores: bool = False
    differentiates_top_k: bool = False
    keeps_digits: bool = False


class Queries(Protocol):
    """What a module answers: functions of the scores and sizes of structures of one kind, with what is asked behind.

    A query that is ``None`` follows from others. Those of one kind of structures alone stand in a protocol beside it.
    """

    @property
    def top_k(self) -> Callable[..., tuple[Tensor, Tensor]]:
        """Values [B, k] in descending order, and outputs [B, k, ...], for a number k; see :class:`Traits`."""

    @property
    def log_partition(self) -> Callable[..., Tensor]:
        """The log-partition function [B]; twice differentiable."""

    @property
    def marginals(self) -> Callable[..., tuple[Tensor, ...]]:
        """Probabilities of the parts of outputs, or expected numbers, for each kind of part; differentiable."""

    @property
    def max_marginals(self) -> Callable[..., Tensor]:
        """The largest score of an output with each of the first parts; differentiable."""

    @property
    def sample(self) -> Callable[..., Tensor]:
        """Outputs [B, n, ...] at uniform numbers [B, n, ...]."""


class BackendQueries(Queries, Protocol):
    """Queries of structures that kernels answer as well."""

    traits: Traits

    @property
    def sums(self) -> Callable[..., tuple[Tensor, ...]] | None:
        """The log-partition function and the marginals, whose sum over what shares a score is enough, by one pass."""

    @property
    def smoothed_top_k(self) -> Callable[..., tuple[Tensor, ...]] | None:
        """The ℓ₂-smoothed maximum [B], its weights, and values and outputs of the k best, for a number k and μ."""


Q = TypeVar("Q", bound=Queries)


class Answered(Protocol):
    """A structure with a table: the device of its first potentials decides who answers."""

    backend: Backend

    @property
    def potential_names(self) -> tuple[str, ...]:
        """The names of its potentials."""


@dataclass(frozen=True)
class Oracles(Generic[Q]):
    """Who answers the queries of a structure; in an instance, those who answer there.

    By default these are the fastest where the scores lie. Under transforms of ``torch.func``, which would call
    operators in a loop, and in exported graphs that may not have any of this library, torch answers.

    Structures that kernels answer as well have a table: chains, general trees and dynamic programs. The others have
    one answer on all devices, and call the module ``operators`` beside them.

    Attributes:
        cpu: compiled loops, on the CPU or by ``backend="compiled"``.
        cuda: kernels, on GPUs where Triton is installed or by ``backend="triton"``. Where these are the same as
            ``cpu``, scores on all devices are copied to the CPU.
        plain: torch alone, on other devices or by ``backend="torch"``.
        export: what takes the place of ``plain`` in an exported graph, where ``open_sizes`` is true of the structure.
        open_sizes: whether plain torch would fix sizes that the graph leaves open.
    """

    cpu: Q
    cuda: Q
    plain: Q
    export: Q
    open_sizes: Callable[[Any], bool] = lambda structure: False

    @overload
    def __get__(self, structure: None, owner: type) -> "Oracles[Q]": ...
    @overload
    def __get__(self, structure: Answered, owner: type) -> Q: ...
    def __get__(self, structure: Any, owner: type) -> Any:
        """The table for a class, and those who answer for an instance."""
        if structure is None:
            return self
        backend, device = structure.backend, getattr(structure, structure.potential_names[0]).device
        automatic = backend == "auto" and not in_transform() and not exports_plain_torch()
        if backend == "compiled" or (automatic and (device.type == "cpu" or self.cuda is self.cpu)):
            return self.cpu
        if backend == "triton" or (automatic and device.type == "cuda" and HAS_TRITON):
            return self.cuda
        return self.export if self.open_sizes(structure) else self.plain
