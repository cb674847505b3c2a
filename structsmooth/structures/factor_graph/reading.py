"""How automata read their scopes: the pairs that they can reach, in one run or from both ends."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from structsmooth.structures.factor_graph.expansion import Automata, Roles


def automata(scopes: Tensor, transitions: Tensor, sizes: Sequence[int], read_scopes: bool) -> tuple[Automata, Roles]:
    """The factors with these scopes [B, F, K], of at most ``sizes`` nodes, and transitions [F, 1 or K, Q, S].

    Transitions are on the CPU, where the pairs are found, so that nothing waits for the device of the scopes. Without
    ``read_scopes``, these may be incomplete for all that is known, and all automata read them in one run.
    """
    (factors, _, count, states), longest, device = transitions.shape, max(sizes), transitions.device
    reached = torch.arange(count, device=device).expand(factors, -1) == 0
    reachable = []
    for i in range(longest):
        table = transitions[:, min(i, transitions.shape[1] - 1)]
        then = (table * states + torch.arange(states, device=device)).flatten(1)
        steps = reached.unsqueeze(-1).expand(-1, -1, states).flatten(1)
        reachable.append(torch.zeros_like(then).scatter_add(1, then, steps.long()) > 0)
        reached = reachable[-1].unflatten(1, (count, states)).any(-1)
    counts = torch.stack([mask.sum(-1) for mask in reachable], 1).tolist()
    if read_scopes:
        whole = (((scopes >= 0).sum(-1) % torch.tensor(sizes, device=scopes.device)) == 0).all(0).tolist()
    else:
        whole = [False] * factors
    halves = [_first_half(row[:k], states) if full else k for row, k, full in zip(counts, sizes, whole, strict=True)]
    owners = torch.arange(factors, device=device).repeat_interleave(torch.tensor(sizes, device=device))
    positions = torch.cat([torch.arange(size, device=device) for size in sizes])
    reachable_pairs = torch.stack(reachable, 1)[owners, positions]
    for m, (f, i) in enumerate(zip(owners.tolist(), positions.tolist(), strict=True)):
        if i >= halves[f]:
            reachable_pairs[m] = torch.arange(reachable_pairs.shape[1], device=device) < states ** (sizes[f] - i)
    most = int(reachable_pairs.sum(-1).amax())
    order = (~reachable_pairs).to(torch.uint8).argsort(dim=1, stable=True)[:, :most]
    pairs = pad(torch.where(reachable_pairs.gather(1, order), order, -1), (0, max(0, states - most)), value=-1)
    first, middles, joint = 0, [], [pairs.new_zeros(0, *2 * pairs.shape[1:])]
    for f, (half, size) in enumerate(zip(halves, sizes, strict=True)):
        if half < size:
            middles.append(first + half - 1)
            joint.append(_joint(transitions[f], pairs[middles[-1]], pairs[middles[-1] + 1], half, size)[None])
        first += size
    found = (transitions, owners, pairs, owners.new_tensor(middles, dtype=torch.int64), torch.cat(joint))
    roles = _roles([half < size for half, size in zip(halves, sizes, strict=True)], sizes, (pairs >= 0).sum(-1), states)
    return Automata(scopes, *(tensor.to(scopes.device, non_blocking=True) for tensor in found)), roles


def _roles(remembers: Sequence[bool], sizes: Sequence[int], pairs: Tensor, states: int) -> Roles:
    """What ``remembers`` labels, and so is read from both ends, is a table. Places have numbers of pairs [M]."""
    counters = [f for f, table in enumerate(remembers) if not table]
    owners = [f for f, size in enumerate(sizes) for _ in range(size)]
    places = [m for m, f in enumerate(owners) if not remembers[f]]
    return Roles(
        tables=[f for f, table in enumerate(remembers) if table],
        counters=counters,
        places=places,
        owners=[counters.index(owners[m]) for m in places],
        pairs=max([states, *pairs[places].tolist()]),
    )


def _first_half(counts: Sequence[int], states: int) -> int:
    """How many places are read from the start, where they have so many pairs: all, unless half the states do."""
    size = len(counts)
    most = {
        half: max(*counts[:half], states ** (size - half)) if half < size else max(counts)
        for half in range(1, size + 1)
    }
    best = min(most, key=lambda half: (most[half], -half))
    return best if 2 * most[best] <= most[size] else size


def _joint(transitions: Tensor, first: Tensor, second: Tensor, half: int, size: int) -> Tensor:
    """Final states [P, P] of pairs [P] at the end of the first half, and labels of the second half as a number [P]."""
    states = transitions.shape[-1]
    state, rest = (
        (first.clamp_min(0) // states)[:, None].expand(-1, len(second)),
        second.clamp_min(0).expand(len(first), -1),
    )
    for i in range(half, size):
        state, rest = transitions[min(i, len(transitions) - 1), state, rest % states], rest // states
    return torch.where((first >= 0)[:, None] & (second >= 0), state, -1)
