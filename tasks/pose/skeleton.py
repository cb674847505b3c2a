"""Which joints hang on which, and where they usually are: learned from people all of whose joints are known."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from structsmooth.models.label_sets import spanning_parents
from structsmooth.settings import Finite, Positive

# Least standard deviation of a displacement, in cells.
_LEAST_SCALE = 0.5


@dataclass(frozen=True)
class Skeleton:
    """A tree of joints.

    Attributes:
        names: of the joints.
        parents: the joint that each hangs on; -1 for the first one, the root.
        anchors: mean displacements from the parents, x and y in cells; zeros for the root.
        scales: standard deviations of the displacements, x and y in cells, at least 0.5.
    """

    names: tuple[str, ...]
    parents: tuple[int, ...]
    anchors: tuple[tuple[Finite, Finite], ...]
    scales: tuple[tuple[Positive, Positive], ...]

    def __post_init__(self) -> None:
        count = len(self.names)
        if not {count} == {len(set(self.names)), *map(len, (self.parents, self.anchors, self.scales))}:
            raise ValueError("a skeleton must have a parent, an anchor and a scale for each of its different joints")
        above, seen = {0}, 0
        while len(above) > seen:
            seen = len(above)
            above |= {v for v, parent in enumerate(self.parents) if parent in above}
        if self.parents[:1] != (-1,) or seen < count:
            raise ValueError(f"parents must be a tree with the first joint as its root, got {list(self.parents)}")

    @classmethod
    def fit(cls, names: Sequence[str], places: NDArray[np.float64]) -> "Skeleton":
        """The tree of least variance: the sum of variances of the displacements along its edges.

        Args:
            names: of the joints.
            places: x and y of the joints of each person, in cells: [n, J, 2].
        """
        displacements = places[:, :, None] - places[:, None]  # of the first from the second
        parents = spanning_parents(-displacements.var(0).sum(2))
        offsets = displacements[:, np.arange(len(names)), parents]  # of the root from the last joint
        offsets[:, 0] = 0
        anchors, scales = offsets.mean(0), offsets.std(0).clip(_LEAST_SCALE)
        return cls(tuple(names), tuple(parents), *(tuple(map(tuple, table.tolist())) for table in (anchors, scales)))

    @property
    def limbs(self) -> list[tuple[str, str]]:
        """The two joints of each edge."""
        return [(name, self.names[p]) for name, p in zip(self.names, self.parents, strict=True) if p >= 0]
