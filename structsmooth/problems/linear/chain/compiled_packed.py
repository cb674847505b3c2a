"""Rows of statistics, packed: most have a single 1, or nothing at all, and need no numbers.

Packed statistics are a tuple of arrays: ``starts`` [n + 1], ``kinds`` of rows [tokens + n * S], and ``columns`` and
``values`` of entries. A row of kind s >= 0 has a single 1 in column s; one of kind -1 - k has k entries. Those of
example i begin at starts[i], row after row.
"""

from structsmooth.compiled.atomic import take
from structsmooth.compiled.jit import compiled, entry_point, inlined
from structsmooth.compiled.rows import fill_rows
from structsmooth.problems.linear.chain.compiled_edges import clear, no_edges, use, use_none

EMPTY = -1


@inlined
def rows_of(i, offsets, states):
    """The first row of example i, and the end of its rows: nodes of its tokens, then S rows of edges."""
    return offsets[i] + i * states, offsets[i + 1] + (i + 1) * states


@inlined
def _entries(kind):
    """Number of entries of a row."""
    return EMPTY - kind if kind < EMPTY else 0


@inlined
def _kind(row):
    entries, ones, columns = 0, 0, 0
    for s in range(row.shape[0]):  # without branches, by vector instructions
        entries += row[s] != 0.0
        ones += row[s] == 1.0
        columns += s * (row[s] == 1.0)
    # A row with a single one is its column alone; ``columns`` is that column then.
    return columns if entries == 1 and ones == 1 else EMPTY - entries


@compiled
def _mark(rows, kinds):
    """Writes the kinds of rows; returns the number of their entries."""
    entries = 0
    for r in range(kinds.shape[0]):
        kinds[r] = _kind(rows[r])
        entries += _entries(kinds[r])
    return entries


@compiled
def _write(rows, kinds, columns, values, start):
    """Writes the entries of rows of known kinds, from ``start`` on."""
    for r in range(kinds.shape[0]):
        if kinds[r] < EMPTY:
            for s in range(rows.shape[1]):
                if rows[r, s] != 0.0:
                    columns[start], values[start] = s, rows[r, s]
                    start += 1


@compiled
def read(kinds, columns, values, start, length, rows, used):
    """Unpacks rows of these kinds, whose entries begin at ``start``, into ``rows`` of zeros, ``length`` of nodes."""
    for r in range(kinds.shape[0]):
        if r >= length and kinds[r] != EMPTY:
            use(used, r - length)
        if kinds[r] >= 0:
            rows[r, kinds[r]] = 1.0
        for _ in range(_entries(kinds[r])):
            rows[r, columns[start]] = values[start]
            start += 1


@compiled
def clear_read(length, rows, used):
    """The rows of an example become zero, to read another one."""
    fill_rows(rows, length, 0.0)
    clear(rows[length:], used)
    use_none(used)


@compiled
def _mark_used(length, rows, used, kinds):
    """:func:`_mark` for rows of nodes and the edges in use; the kind of all other rows is ``EMPTY`` already."""
    entries, (numbers, _, count) = _mark(rows, kinds[:length]), used
    for j in range(count[0]):
        r = length + numbers[j]
        kinds[r] = _kind(rows[r])
        entries += _entries(kinds[r])
    return entries


@entry_point
def pack(rows, offsets, packed):
    """Writes starts and kinds of rows, and their entries if there are arrays for them."""
    starts, kinds, columns, values = packed
    starts[0] = 0
    for i in range(offsets.shape[0] - 1):
        begin, end = rows_of(i, offsets, rows.shape[1])
        starts[i + 1] = starts[i] + _mark(rows[begin:end], kinds[begin:end])
        if columns.shape[0] > 0:
            _write(rows[begin:end], kinds[begin:end], columns, values, starts[i])


@entry_point
def unpack(packed, offsets, rows):
    """Write the packed rows of all examples into dense statistics."""
    starts, kinds, columns, values = packed
    used = no_edges(rows.shape[1])
    fill_rows(rows, rows.shape[0], 0.0)
    for i in range(offsets.shape[0] - 1):
        begin, end = rows_of(i, offsets, rows.shape[1])
        length = end - begin - rows.shape[1]
        read(kinds[begin:end], columns, values, starts[i], length, rows[begin:end], used)


# While steps change statistics, the entries of an example stay where they are until a step on it. The first puts them
# into new ones, as many as there are. If they outgrow that space, they get space for twice as many, but no more than
# its rows may ever have.
# The tuple of changes has kinds, columns and values of the new entries, where those of an example begin in them (-1:
# nowhere), the space reserved for it there, and the number of entries that are in use [1].


@inlined
def read_changed(i, begin, end, length, packed, changes, rows, used):
    """Unpacks the rows of example i, which steps may have changed, into ``rows``, as :func:`read` does."""
    starts, _, old_columns, old_values = packed
    kinds, columns, values, where, _, _ = changes
    if where[i] < 0:
        read(kinds[begin:end], old_columns, old_values, starts[i], length, rows, used)
    else:
        read(kinds[begin:end], columns, values, where[i], length, rows, used)


@inlined
def write_changed(i, begin, end, length, rows, used, changes):
    """Packs new rows of example i into the changes."""
    kinds, columns, values, where, reserved, taken = changes
    entries = _mark_used(length, rows, used, kinds[begin:end])
    if where[i] < 0 or entries > reserved[i]:
        reserved[i] = entries if where[i] < 0 else min(2 * entries, (end - begin) * rows.shape[1])
        where[i] = take(taken, reserved[i])
    _write(rows, kinds[begin:end], columns, values, where[i])


@entry_point
def count_changed(offsets, states, kinds, starts):
    """Writes where the entries of each example start, if they are in the order of the examples."""
    starts[0] = 0
    for i in range(offsets.shape[0] - 1):
        begin, end = rows_of(i, offsets, states)
        starts[i + 1] = starts[i]
        for r in range(begin, end):
            starts[i + 1] += _entries(kinds[r])


@entry_point
def gather_changed(packed, changes, starts, columns, values):
    """Writes the entries of all examples, changed or not, in the order of the examples."""
    old_starts, _, old_columns, old_values = packed
    _, new_columns, new_values, where, _, _ = changes
    for i in range(where.shape[0]):
        entries, start = starts[i + 1] - starts[i], starts[i]
        for e in range(entries):
            if where[i] < 0:
                columns[start + e], values[start + e] = old_columns[old_starts[i] + e], old_values[old_starts[i] + e]
            else:
                columns[start + e], values[start + e] = new_columns[where[i] + e], new_values[where[i] + e]
