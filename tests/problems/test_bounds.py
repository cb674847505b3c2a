"""Box constraints in the dual: the line search against a grid, the conjugate against its definition."""

import pytest
import torch
from torch import Tensor

from structsmooth.problems.bounds import Bounds, checked_bounds, clip, conjugate, line_search


def random_line(seed: int, dim: int = 7) -> tuple[Tensor, Tensor, Bounds]:
    """Weights, a direction and bounds; some of them infinite, some equal, some weights at rest."""
    generator = torch.Generator().manual_seed(seed)
    v, direction, a, b = torch.randn(4, dim, generator=generator, dtype=torch.float64)
    lower, upper = torch.minimum(a, b), torch.maximum(a, b)
    lower[0], upper[1] = -torch.inf, torch.inf
    upper[2] = lower[2]
    direction[3] = 0
    return v, direction, (lower, upper)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("longest", [0.3, 1.0, 4.0])
def test_the_line_search_finds_the_maximum(longest: float, bounded: bool, seed: int) -> None:
    v, direction, box = random_line(seed)
    bounds = box if bounded else None
    rise = 0.1 * seed

    def dual(step: float) -> float:
        """Whose derivative at 0 is ``rise``."""
        slope = rise + float(clip(v, bounds) @ direction)
        return step * slope - conjugate(v + step * direction, bounds)

    best = line_search(rise, v, direction, longest, bounds)
    assert 0 <= best <= longest
    others = [longest * share / 100 for share in range(101)] + [best - 1e-4, best + 1e-4]
    assert all(dual(step) <= dual(best) + 1e-13 for step in others if 0 <= step <= longest)


def test_there_is_no_step_down() -> None:
    v, direction, bounds = random_line(0)
    assert line_search(-0.1, v, direction, 1.0, bounds) == line_search(-0.1, v, direction, 1.0, None) == 0


def test_nothing_bends_the_dual_while_all_weights_are_at_their_bounds() -> None:
    v, box = torch.tensor([3.0, -3.0]), (torch.tensor([-1.0, -1.0]), torch.tensor([1.0, 1.0]))
    assert line_search(0.1, v, torch.tensor([1.0, -1.0]), 0.7, box) == 0.7
    # The first weight leaves its bound at γ = 1/2: the derivative then falls by 16 (γ − 1/2).
    assert line_search(0.8, v, torch.tensor([-4.0, -1.0]), 1.0, box) == pytest.approx(0.55, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_conjugate_is_the_largest_value_in_the_box(seed: int) -> None:
    v, _, bounds = random_line(seed)
    value, w = conjugate(v, bounds), clip(v, bounds)
    others = clip(w + torch.randn(200, len(w), generator=torch.Generator().manual_seed(seed)), bounds)
    assert (others @ v - others.square().sum(1) / 2 <= value + 1e-12).all()
    assert value == pytest.approx(float(w @ v - w @ w / 2), abs=1e-12)
    assert conjugate(v, None) == pytest.approx(float(v @ v) / 2, abs=1e-12)


def test_bounds_get_the_dtype_of_the_weights() -> None:
    bounds = checked_bounds((torch.zeros(3), torch.ones(3)), torch.zeros(3, dtype=torch.float64))
    assert bounds is not None
    assert all(bound.dtype == torch.float64 for bound in bounds)
    assert checked_bounds(None, torch.zeros(3)) is None


def test_bounds_that_constrain_nothing_are_none() -> None:
    lower, upper = torch.full((3,), -torch.inf), torch.full((3,), torch.inf)
    assert checked_bounds((lower, upper), torch.zeros(3)) is None
    one_sided = checked_bounds((lower.index_fill(0, torch.tensor([1]), 0.0), upper), torch.zeros(3))
    assert one_sided is not None
    assert clip(-torch.ones(3), one_sided).tolist() == [-1, 0, -1]


@pytest.mark.parametrize(
    ("bounds", "error", "message"),
    [
        ((torch.zeros(2), torch.ones(3)), ValueError, r"lower bounds must have shape \[dim\] = \(3,\), got \(2,\)"),
        (
            (torch.zeros(3), torch.ones(3, 1)),
            ValueError,
            r"upper bounds must have shape \[dim\] = \(3,\), got \(3, 1\)",
        ),
        ((torch.ones(3), torch.zeros(3)), ValueError, "bounds must have lower <= upper"),
        ((torch.full((3,), torch.nan), torch.ones(3)), ValueError, "bounds must have lower <= upper"),
        ((torch.full((3,), torch.inf), torch.full((3,), torch.inf)), ValueError, "finite weights between them"),
        (torch.zeros(2, 3), TypeError, "bounds must be a tuple of two tensors"),
        ((0.0, 1.0), TypeError, "bounds must be a tuple of two tensors"),
    ],
)
def test_refuses(bounds: Bounds, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        checked_bounds(bounds, torch.zeros(3))
