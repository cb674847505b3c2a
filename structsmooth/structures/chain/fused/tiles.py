"""Sizes and tiles of the kernels of chains."""

from torch import Tensor

from structsmooth.compiled.gpu import launch, power_of_two

# Numbers of a tile of transitions that stays in registers.
LARGEST = 4096
# States that one program takes on. A launch from Python takes 15 to 20 µs, and one program about as long for a position
# of 128 states: with more, each position is a launch of its own, in which several programs share the transitions. Large
# batches lose nothing by it: there, launches wait for the work of the one before.
WIDEST = 128
# States of such a program, whose transitions lie together in memory, and the others of one of its tiles in float32.
OWN, OTHERS = 16, 256


def strides(edges: Tensor) -> tuple[int, int]:
    """Strides of contiguous transitions [1 or B, 1 or T-1, S, S] over examples and positions; 0 if they are shared."""
    batch, steps, states, _ = edges.shape
    return 0 if batch == 1 else steps * states**2, 0 if steps == 1 else states**2


def sizes_of(unary: Tensor, edges: Tensor) -> dict[str, int]:
    """Sizes of a batch of chains and strides of their transitions, as arguments of kernels."""
    batch, step = strides(edges)
    return {"steps": unary.shape[1], "states": unary.shape[2], "edge_batch": batch, "edge_step": step}


def tiles_of(states: int, size: int, heavy: bool = False) -> dict[str, int]:
    """Tiles of transitions for numbers of so many bytes; ``heavy`` kernels need more registers for each number."""
    columns = max(2, power_of_two(states))
    rows = columns if columns**2 <= LARGEST else max(1, LARGEST // (2 * columns))
    # One warp needs no barriers, so that small tiles take one, if its registers suffice.
    alone = rows * columns <= 1024 and size == 4 and not heavy
    thread = 128 if alone else 64 if heavy and size == 4 else 32
    return {"ROWS": rows, "COLUMNS": columns, **launch(rows * columns * size, thread)}


def whole_tiles(states: int, size: int, edge_step: int) -> dict[str, int]:
    """Tiles of whole sequences; transitions that all positions share, in one tile of float32, stay in registers."""
    return {**tiles_of(states, size), "SHARED": fits_a_tile(states) and size == 4 and edge_step == 0}


def fits_a_tile(states: int) -> bool:
    """Whether a tile holds the transitions between all states."""
    return power_of_two(states) ** 2 <= LARGEST


def is_wide(states: int) -> bool:
    """Whether each position is a launch of its own."""
    return states > WIDEST


def wide_tiles(batch: int, states: int, size: int) -> tuple[int, dict[str, int]]:
    """Programs of a launch for one position, and their tiles for numbers of so many bytes."""
    others = OTHERS * 4 // size
    return batch * -(-states // OWN), {"OWN": OWN, "OTHERS": others, **launch(OWN * others * size, 64)}


def row_tile(states: int, size: int) -> dict[str, int]:
    """The tile of one row of states."""
    columns = max(2, power_of_two(states))
    return {"COLUMNS": columns, **launch(columns * size, 64)}


def top_k_tiles(states: int, k: int, size: int, edge_step: int) -> dict[str, int]:
    """Tiles of the top-K oracle, in which the states before are whole; and whether transitions stay in registers."""
    rows = max(2, power_of_two(states))
    columns = min(rows, max(2, 2048 // rows))
    tiles = {"ROWS": rows, "COLUMNS": columns, "RANKS": power_of_two(k), "SHARED": rows == columns and edge_step == 0}
    return {**tiles, **launch(rows * columns * size, 32)}
