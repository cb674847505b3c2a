"""Quadratic programs over simplices whose vertices come one by one: the active-set method, for a batch."""

import torch
from torch import Tensor
from torch.nn.functional import pad

# Squared distance of a new vertex from the affine hull of the others, relative to its own square, that counts as none.
_DEPENDENT = 1e-10
# Squared distance of two vertices, relative to the square of one, that counts as none.
_SAME = 1e-14


class ActiveSets:
    """max ⟨u, z⟩ − ½ ‖Σ_j u_j v_j‖² over the simplex of the vertices v_j that each of B examples has so far.

    The vertices of positive weight are the active set. They are always affinely independent, so that the optimum on
    their affine hull is the solution of one linear system, and each step either reaches it or gives up a vertex.

    Vertices are kept as their numbers other than zero, which are few for outputs: at most M.

    Args:
        batch: B.
        metric: which of the D numbers in a vertex count in the norm, bool [D].

    Attributes:
        index: where the numbers of the vertices stand, [B, A, M].
        values: the numbers, [B, A, M], float64; zero in slots that no vertex has had.
        linear: z, [B, A].
        products: Gram matrices of the vertices, in the metric, [B, A, A].
        weights: u, [B, A].
        active: the slots in use, bool [B, A].

    Reference:
        Nocedal and Wright (2006), Algorithm 16.3; Wolfe (1976).
    """

    def __init__(self, batch: int, metric: Tensor) -> None:
        self.metric = metric
        self.values = torch.zeros(batch, 4, min(1, len(metric)), dtype=torch.float64, device=metric.device)
        self.index = torch.zeros_like(self.values, dtype=torch.int64)
        self.linear, self.weights = (self.values.new_zeros(batch, 4) for _ in range(2))
        self.products = self.values.new_zeros(batch, 4, 4)
        self.active = torch.zeros(batch, 4, dtype=torch.bool, device=metric.device)

    def mean(self, rows: Tensor) -> Tensor:
        """Σ_j u_j v_j of some examples: [b, D]."""
        return weighted_sum(self.weights[rows], self.index[rows], self.values[rows], len(self.metric))

    def inverse(self) -> Tensor:
        """The derivative of the optimum on the affine hull of the active sets by z: symmetric matrices [B, A, A]."""
        both = self.active.unsqueeze(2) & self.active.unsqueeze(1)
        inverse = torch.linalg.inv(_bordered(self.products, self.active))[:, :-1, :-1]
        return torch.where(both, inverse, 0.0)

    def has(self, rows: Tensor, vertices: Tensor) -> Tensor:
        """Whether vertices [b, D] of some examples are active already: bool [b]."""
        square = vertices.square().sum(1, keepdim=True)
        distance = self.values[rows].square().sum(2) + square - 2 * self.inner(vertices, rows)
        return ((distance <= _SAME * square.clamp_min(1.0)) & self.active[rows]).any(1)

    def inner(self, numbers: Tensor, rows: Tensor) -> Tensor:
        """Inner products of numbers [b, D] with the vertices of some examples: [b, A]; differentiable."""
        return inner_products(numbers, self.index[rows], self.values[rows])

    def add(self, rows: Tensor, vertices: Tensor, linear: Tensor) -> Tensor:
        """Make vertices [b, D] active, with their z [b], and find the optimum of each example.

        Where a vertex depends on those of the active set, it takes the place of one of them.

        Returns:
            The slots of the vertices, [b].
        """
        index, values = nonzeros(vertices)
        self._grow(int(self.active[rows].all(1).any()), values.shape[1] - self.values.shape[2])
        active = self.active[rows]
        products = self.inner(vertices * self.metric, rows)
        square = (vertices.square() * self.metric).sum(1)
        nearest, shift = self._solve(rows, products)
        distance = square - (products * nearest).sum(1) - shift
        dependent = active.any(1) & (distance <= _DEPENDENT * square.clamp_min(1.0))
        # Along this direction the norm is constant, and the objective grows until a weight is zero.
        gives = active & (nearest > 0) & dependent.unsqueeze(1)
        ratios = torch.where(gives, self.weights[rows] / nearest, torch.inf)
        amount = torch.where(dependent, ratios.amin(1), 0.0)
        weights = self.weights[rows] - amount.unsqueeze(1) * torch.where(active, nearest, 0.0)
        left = torch.zeros_like(active).scatter_(1, ratios.argmin(1, keepdim=True), True) & gives
        active = active & ~left
        slots, new = (~active).long().argmax(1), torch.arange(len(rows), device=rows.device)
        weights = torch.where(active, weights, 0.0)
        weights[new, slots] = torch.where(active.any(1), amount, 1.0)
        active[new, slots] = True
        self.weights[rows], self.active[rows] = weights, active
        self.index[rows, slots], self.values[rows, slots] = 0, 0.0
        self.index[rows, slots, : values.shape[1]], self.values[rows, slots, : values.shape[1]] = index, values
        self.linear[rows, slots] = linear
        products[new, slots] = square
        self.products[rows, slots], self.products[rows, :, slots] = products, products
        self._improve(rows)
        return slots

    def _improve(self, rows: Tensor) -> None:
        """Go to the optimum on the affine hull of the active sets, giving up vertices that it has no weight for."""
        while len(rows):
            weights, active = self.weights[rows], self.active[rows]
            target, _ = self._solve(rows, self.linear[rows])
            blocking = active & (target < 0)
            ratios = torch.where(blocking, weights / (weights - target), torch.inf)
            left = torch.zeros_like(active).scatter_(1, ratios.argmin(1, keepdim=True), True) & blocking
            weights = weights + ratios.amin(1, keepdim=True).clamp(max=1.0) * (target - weights)
            active = active & ~left
            self.weights[rows], self.active[rows] = torch.where(active, weights.clamp_min(0.0), 0.0), active
            rows = rows[left.any(1)]

    def _solve(self, rows: Tensor, linear: Tensor) -> tuple[Tensor, Tensor]:
        """The optimum on the affine hull of the active sets for other z [b, A], and the multiplier of Σ u = 1."""
        return affine_optimum(self.products[rows], self.active[rows], linear)

    def _grow(self, vertices: int, numbers: int) -> None:
        """Double the slots if there are ``vertices`` to come, and add some for ``numbers`` more in each."""
        more, wider = vertices * self.active.shape[1], max(numbers, 0)
        self.index, self.values = (pad(tensor, (0, wider, 0, more)) for tensor in (self.index, self.values))
        self.products = pad(self.products, (0, more, 0, more))
        self.linear, self.weights, self.active = (
            pad(tensor, (0, more)) for tensor in (self.linear, self.weights, self.active)
        )


def nonzeros(vertices: Tensor) -> tuple[Tensor, Tensor]:
    """Indices and values [b, M] of the numbers in vertices [b, D] that are not zero; zeros where there are fewer."""
    rows, columns = vertices.nonzero(as_tuple=True)
    counts = rows.bincount(minlength=len(vertices))
    places = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
    index = columns.new_zeros(len(vertices), int(counts.max()) if len(counts) else 0)
    values = vertices.new_zeros(index.shape)
    index[rows, places], values[rows, places] = columns, vertices[rows, columns]
    return index, values


def inner_products(numbers: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """Inner products [b, A] of numbers [b, D] with vertices, given by their nonzeros [b, A, M]; differentiable."""
    return (numbers.gather(1, index.flatten(1)).view(index.shape) * values).sum(2)


def weighted_sum(weights: Tensor, index: Tensor, values: Tensor, size: int) -> Tensor:
    """Σ_j u_j v_j, [b, D], for weights [b, A] and vertices given by their nonzeros [b, A, M]; differentiable."""
    terms = (weights.unsqueeze(2) * values).flatten(1)
    return terms.new_zeros(len(weights), size).scatter_add(1, index.flatten(1), terms)


def affine_optimum(products: Tensor, active: Tensor, linear: Tensor) -> tuple[Tensor, Tensor]:
    """The weights u [B, A] that maximize ⟨u, z⟩ − ½ uᵀ G u where Σ u = 1, and u = 0 but at ``active`` [B, A].

    A linear function of z = ``linear`` [B, A], through which autograd differentiates. With G = ``products``
    [B, A, A] it is the solution of the optimality conditions. Also returned is the multiplier τ [B] of the sum:
    z − G u = τ at active entries.
    """
    right = torch.cat([torch.where(active, linear, 0.0), active.any(1, keepdim=True).to(linear.dtype)], 1)
    solution = torch.linalg.solve(_bordered(products, active), right)
    return solution[:, :-1], solution[:, -1]


def _bordered(products: Tensor, active: Tensor) -> Tensor:
    """The matrices [B, A + 1, A + 1] of these optimality conditions, regular also where nothing is active."""
    both = active.unsqueeze(2) & active.unsqueeze(1)
    matrix = torch.where(both, products, 0.0) + torch.diag_embed((~active).to(products.dtype))
    matrix = pad(matrix, (0, 1, 0, 1))
    matrix[:, :-1, -1] = matrix[:, -1, :-1] = active.to(products.dtype)
    matrix[:, -1, -1] = (~active.any(1)).to(products.dtype)
    return matrix
