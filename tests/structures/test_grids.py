"""Grids of which only a band is stored, moves that some columns forbid, best paths, and CTC beside torch's."""

import warnings

import pytest
import torch
from torch import Tensor
from torch.nn.functional import ctc_loss
from torch.testing import assert_close

from structsmooth import Alignment
from structsmooth.structures.grids.paths import Moves

MOVES: Moves = ((1, 0), (0, 1), (1, 2))
both_backends = pytest.mark.parametrize("backend", ["compiled", "torch"])


def banded(backend: str, moves: Moves = MOVES, width: int = 4) -> tuple[Alignment, Alignment, Tensor]:
    """Two grids of a band and forbidden moves; the same in whole grids; and the cells, t U + u, of the band."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([[6, 7], [5, 4]])
    band = Alignment.diagonal(lengths, 6, width)
    band[1, :3] -= 1  # some places are left of the grid
    shape = (2, 6, width)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
    move_scores = torch.randn(*shape, 3, generator=generator, dtype=torch.float64).requires_grad_()
    offset = torch.randn(2, generator=generator, dtype=torch.float64)
    allowed = torch.rand(2, 7, 3, generator=generator) < 0.95
    options = {"offset": offset, "allowed_moves": allowed, "backend": backend}
    part = Alignment(scores, moves, move_scores, lengths, band=band, **options)  # type: ignore[arg-type]
    columns = band.unsqueeze(2) + torch.arange(width)
    real = (columns >= 0) & (columns < 7)
    places = torch.where(real, torch.arange(6).view(1, 6, 1) * 7 + columns, 42)

    def whole(values: Tensor, beyond: float) -> Tensor:
        empty = values.new_full((2, 43, *values.shape[3:]), beyond)
        index = places.flatten(1).view(2, -1, *[1] * (values.dim() - 3)).expand(2, 6 * width, *values.shape[3:])
        return empty.scatter(1, index, values.flatten(1, 2))[:, :42].unflatten(1, (6, 7))

    full = Alignment(whole(scores, -torch.inf), moves, whole(move_scores, 0.0), lengths, **options)  # type: ignore[arg-type]
    return part, full, places


def at(values: Tensor, places: Tensor) -> Tensor:
    """Of values [B, ..., 6, 7], those at places of the band, [B, ..., 6, 4]; 0 for those without."""
    flat = torch.nn.functional.pad(values.flatten(-2), (0, 1))
    index = places.flatten(1).view(2, *[1] * (flat.dim() - 2), -1).expand(*flat.shape[:-1], 24)
    return flat.gather(-1, index).unflatten(-1, (6, 4))


@both_backends
def test_a_band_is_the_grid_without_the_other_cells(backend: str) -> None:
    part, full, places = banded(backend)
    for k in (1, 5):
        values, y = part.topk(k)
        expected, outputs = full.topk(k)
        assert_close(values, expected)
        assert torch.equal(y, at(outputs, places))
        assert_close(part.score(y[:, 0]), values[:, 0])
        assert values[:, 0].isfinite().all()
    assert_close(part.logsumexp(), full.logsumexp())
    for found, wanted in zip(part.marginals()[0], at(full.marginals()[0], places), strict=True):
        assert_close(found, wanted)
    inside = part.mask
    assert_close(part.max_marginals()[inside], at(full.max_marginals(), places)[inside])
    for oracle in ("max", "logsumexp"):
        sums = (getattr(own, oracle)() for own in (part, full))
        totals = [(v[0] if isinstance(v, tuple) else v).sum() for v in sums]
        slopes = [torch.autograd.grad(total, part.potentials[:2], retain_graph=True) for total in totals]
        for found, wanted in zip(*slopes, strict=True):
            assert_close(found, wanted)


@both_backends
@pytest.mark.filterwarnings("ignore:.*at the edge of their band")
def test_paths_are_best_outputs(backend: str) -> None:
    part, _, _ = banded(backend)
    value, path = part.path()
    best, y = part.max()
    assert_close(value, best)
    for b in range(2):
        cells = [(t, u) for t, u in path[b].tolist() if t >= 0]
        columns = part.band[b].unsqueeze(1) + torch.arange(4)
        assert cells == [(t, int(columns[t, w])) for t, w in (y[b] > 0).nonzero().tolist()]
        assert cells[0] == (0, 0)
        assert list(cells[-1]) == (part.lengths[b] - 1).tolist()


def test_second_derivatives_of_a_band() -> None:
    part, _, _ = banded("compiled")

    def log_partition(*scores: Tensor) -> Tensor:
        return part.replace(*scores, part.offset).logsumexp()

    assert torch.autograd.gradgradcheck(log_partition, part.potentials[:2])


def test_third_derivatives_of_grids_that_are_smaller_than_their_scores() -> None:
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(1, 3, 4, generator=generator, dtype=torch.float64).requires_grad_()

    def probabilities(scores: Tensor) -> Tensor:
        return Alignment(scores, lengths=torch.tensor([[3, 2]])).marginals()[0]

    assert torch.autograd.gradgradcheck(probabilities, (scores,))


@both_backends
def test_a_forbidden_example_has_no_gradient(backend: str) -> None:
    scores = torch.zeros(2, 3, 3, requires_grad=True)
    offset = torch.tensor([0.0, -torch.inf], requires_grad=True)
    grid = Alignment(scores, offset=offset, backend=backend)  # type: ignore[arg-type]
    value = grid.logsumexp()
    assert value[1] == -torch.inf
    slopes = torch.autograd.grad(value.sum(), (scores, offset))
    assert_close(slopes[1], torch.tensor([1.0, 0.0]))
    assert not slopes[0][1].any()
    assert not any(part[1].any() for part in grid.marginals())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
def test_lengths_and_bands_of_any_integers(dtype: torch.dtype) -> None:
    scores = torch.randn(2, 3, 2, generator=torch.Generator().manual_seed(0))
    lengths, band = torch.tensor([[3, 4], [3, 2]]), torch.tensor([[0, 1, 2], [0, 0, 0]])
    same, right = (Alignment(scores, lengths=lengths.to(given), band=band.to(given)) for given in (dtype, torch.int64))
    assert_close(same.max(), right.max())
    assert_close(same.topk(2), right.topk(2))


def test_more_moves_than_a_byte_holds() -> None:
    moves = tuple((1, across) for across in range(300))
    scores = torch.zeros(1, 2, 300)
    scores[0, 1, -1] = 1
    grid = Alignment(scores, moves)
    assert grid.max()[1][0, 1, -1] == 300
    assert grid.path()[1][0, :3].tolist() == [[0, 0], [1, 299], [-1, -1]]
    assert_close(grid.logsumexp(), torch.ones(1))


def test_scores_of_moves_that_all_cells_share() -> None:
    scores, entering = torch.randn(2, 9, 8, generator=torch.Generator().manual_seed(1)), torch.tensor([0.5, -1.0, 2.0])
    shared = Alignment(scores, MOVES, entering.expand(2, 9, 8, 3))
    each = Alignment(scores, MOVES, entering.repeat(2, 9, 8, 1))
    assert_close(shared.logsumexp(), each.logsumexp())
    assert torch.equal(shared.max()[0], each.max()[0])
    assert_close(shared.marginals(), each.marginals())
    learned = entering.clone().requires_grad_()
    Alignment(scores, MOVES, learned.expand(2, 9, 8, 3)).logsumexp().sum().backward()
    assert learned.grad is not None
    assert_close(learned.grad, each.marginals()[1].sum((0, 1, 2)))


@pytest.mark.parametrize("moves", [MOVES, ((1, 0), (1, 1), (1, 2)), ((2, 1), (0, 2), (1, 0), (1, 1), (0, 1))])
def test_sums_lose_nothing_however_large_scores_are(moves: Moves) -> None:
    generator = torch.Generator().manual_seed(7)
    for scale in (1.0, 50.0, 1e3, 1e10, 1e100):
        scores = scale * torch.randn(3, 9, 8, generator=generator, dtype=torch.float64)
        scores[0] = scores[0].where(torch.rand(9, 8, generator=generator) < 0.8, -torch.inf)
        scores[1, 2:7] = scale * torch.linspace(0, -300, 8, dtype=torch.float64)  # paths have to leave the heavy cells
        moving = scale * torch.randn(3, 9, 8, len(moves), generator=generator, dtype=torch.float64)
        found, wanted = (Alignment(scores, moves, moving, backend=backend) for backend in ("compiled", "torch"))
        assert_close(found.logsumexp(), wanted.logsumexp(), rtol=1e-13, atol=1e-13)
        assert wanted.logsumexp()[1:].isfinite().all()
        if scale <= 1e3:
            assert_close(found.marginals(), wanted.marginals(), rtol=0, atol=1e-11)
        else:  # rounding chooses among paths
            assert_close(found.marginals()[0][1:, -1, -1], torch.ones(2, dtype=torch.float64))


def test_ctc_of_sure_and_wrong_logits_is_that_of_torch_in_float64() -> None:
    generator = torch.Generator().manual_seed(8)
    logits = torch.randn(2, 60, 9, generator=generator)
    targets = torch.randint(1, 9, (2, 12), generator=generator)
    for scale in (1, 20, 1000):
        log_probs = (scale * logits).log_softmax(2).requires_grad_()
        exact = log_probs.detach().double().requires_grad_()
        sizes = torch.tensor([60, 60]), torch.tensor([12, 12])
        wanted = ctc_loss(exact.transpose(0, 1), targets, *sizes, reduction="none")
        found = -Alignment.ctc(log_probs, targets).logsumexp()
        assert_close(found.double(), wanted, rtol=1e-6, atol=0)
        assert_close(-Alignment.ctc(exact, targets).logsumexp(), wanted, rtol=1e-10, atol=0)
        (slopes,) = torch.autograd.grad(found.sum(), log_probs)
        # The gradient of torch's takes log_probs for normalized: it lacks the probabilities.
        (others,) = torch.autograd.grad(wanted.sum(), exact)
        assert_close(slopes.double(), others - exact.exp(), rtol=0, atol=1e-5)


@both_backends
def test_ctc_is_that_of_torch(backend: str) -> None:
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(7, 12, 5, generator=generator, dtype=torch.float64).requires_grad_()
    log_probs = logits.log_softmax(2)
    targets = torch.randint(1, 5, (7, 4), generator=generator)
    targets[0] = 1  # all alike
    frames, labels = torch.tensor([12, 9, 12, 5, 12, 7, 2]), torch.tensor([4, 2, 4, 0, 3, 1, 3])  # the last: impossible
    targets[2, 1:] = -100  # padding
    labels[2] = 1
    grid = Alignment.ctc(log_probs, targets, frames, labels, backend=backend)  # type: ignore[arg-type]
    wanted = ctc_loss(log_probs.transpose(0, 1), targets.clamp_min(1), frames, labels, reduction="none")
    assert_close(-grid.logsumexp(), wanted)
    assert wanted[-1] == torch.inf
    found, expected = (
        torch.autograd.grad(v[:-1].sum(), logits, retain_graph=True)[0] for v in (-grid.logsumexp(), wanted)
    )
    assert_close(found[:-1], expected[:-1])  # torch has NaN for what is impossible
    assert not found[-1].any()
    whole = Alignment.ctc(log_probs, targets, frames, labels, width=9, backend=backend)  # type: ignore[arg-type]
    assert_close(whole.logsumexp(), grid.logsumexp())


def test_ctc_and_bands_refuse_what_they_cannot_read() -> None:
    scores = torch.zeros(1, 3, 4)
    with pytest.raises(ValueError, match=r"classes from 0 to 3"):
        Alignment.ctc(scores, torch.tensor([[4]]))
    with pytest.raises(ValueError, match=r"shapes \[B, T, C\] and \[B, L\]"):
        Alignment.ctc(scores, torch.tensor([4]))
    with pytest.raises(ValueError, match="labels other than the blank, 0"):
        Alignment.ctc(scores, torch.tensor([[1, 0]]))
    Alignment.ctc(scores, torch.tensor([[1, 0]]), target_lengths=torch.tensor([1]))  # padding
    with pytest.raises(ValueError, match="band needs lengths"):
        Alignment(scores, band=torch.zeros(1, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"band must have shape \[B, T\]"):
        Alignment(scores, lengths=torch.tensor([[3, 9]]), band=torch.zeros(1, 2, dtype=torch.int64))


@both_backends
def test_a_path_at_the_edge_of_its_band_is_warned_of(backend: str) -> None:
    lengths, band = torch.tensor([[4, 5], [4, 5]]), torch.tensor([[0, 0, 1, 2], [0, 0, 1, 2]])
    scores = torch.zeros(2, 4, 3)
    scores[0, [0, 1, 2, 3], [0, 1, 1, 2]] = 9.0  # along the middle, from the first cell to the last one
    scores[1, [0, 1, 2, 3], [0, 2, 2, 2]] = 9.0  # by column 2 in the second row, where a band ends and the grid goes on
    moves = ((1, 0), (1, 1), (1, 2))
    with pytest.warns(UserWarning, match=r"examples \[1\] have best paths at the edge of their band"):
        Alignment(scores, moves, lengths=lengths, band=band, backend=backend).path()  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Alignment(scores[:1], moves, lengths=lengths[:1], band=band[:1], backend=backend).path()  # type: ignore[arg-type]
        Alignment(scores, moves, lengths=lengths, band=band, validate_args=False).path()


@pytest.mark.parametrize("moves", [MOVES, ((1, 0), (1, 1), (1, 2)), ((1, 0), (1, 2), (2, 1)), ((0, 1), (1, 0), (0, 2))])
@pytest.mark.parametrize("width", [2, 3, 4])
def test_no_path_beyond_a_band_exceeds_its_bound(moves: Moves, width: int) -> None:
    generator = torch.Generator().manual_seed(5)
    for shift in (-3.0, 0.0, 3.0):
        part, stored, _ = banded("compiled", moves, width)
        beyond = (stored.scores == -torch.inf) & stored.mask
        cells = torch.randn(2, 6, 7, generator=generator, dtype=torch.float64) + shift
        whole = stored.replace(torch.where(beyond, cells, stored.scores), *stored.potentials[1:])
        best = whole.max_marginals().masked_fill(~beyond, -torch.inf).flatten(1).amax(1)
        assert best.isfinite().any()
        bound = part.bound_outside(cells.masked_fill(~beyond, -torch.inf).amax(2))
        assert (bound >= best - 1e-9).all()


@both_backends
def test_bounds_beyond_a_band_certify_its_path(backend: str) -> None:
    lengths = torch.tensor([[6, 7]])
    band = Alignment.diagonal(lengths, 6, 3)
    columns = band.unsqueeze(2) + torch.arange(3)
    scores = -2.0 * (columns - torch.tensor([0, 1, 3, 4, 5, 6]).view(1, 6, 1)).abs().to(torch.float32)
    grid = Alignment(scores, ((1, 0), (1, 1), (1, 2)), lengths=lengths, band=band, backend=backend)  # type: ignore[arg-type]
    low, high = torch.full((1, 6), -3.0), torch.zeros(1, 6)
    assert grid.path(low)[0] == 0 > grid.bound_outside(low)
    with pytest.warns(UserWarning, match=r"examples \[0\] have best paths below the bound of paths outside their band"):
        grid.path(high + 1)
    whole = Alignment(torch.zeros(1, 6, 7), backend=backend)  # type: ignore[arg-type]
    assert whole.bound_outside(high) == -torch.inf
    infinite = high.log() * -1
    with pytest.raises(ValueError, match="below infinity"):
        grid.bound_outside(infinite)
    shorter = Alignment(scores, lengths=torch.tensor([[5, 7]]), band=band, backend=backend)  # type: ignore[arg-type]
    infinite[0, :5] = 0.0  # padding may be anything
    assert_close(shorter.bound_outside(infinite), shorter.bound_outside(high))
    with pytest.raises(ValueError, match=r"outside must have shape \[B, T\]"):
        grid.bound_outside(high[:, 1:])


@both_backends
def test_a_path_has_room_for_the_longest_in_the_grid(backend: str) -> None:
    lengths, band = torch.tensor([[1, 3]]), torch.zeros(1, 1, dtype=torch.int64)
    grid = Alignment(torch.zeros(1, 1, 1), lengths=lengths, band=band, backend=backend)  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match=r"examples \[0\] have no path in their band"):
        value, path = grid.path()
    assert value.tolist() == [-torch.inf]
    assert path.tolist() == [[[-1, -1]] * 3]
