"""Windows over the pieces of sentences."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from structsmooth.encoders.windows import windows


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=30),
    room=st.integers(2, 12),
    context=st.integers(0, 6),
    data=st.data(),
)
def test_every_word_is_taken_once_from_the_window_that_shows_it_best(
    sizes: list[int], room: int, context: int, data: st.DataObject
) -> None:
    first = np.cumsum([0, *sizes])
    start = data.draw(st.integers(0, len(sizes) - 1))
    words = range(start, data.draw(st.integers(start + 1, len(sizes))))
    begin, end = int(first[words.start]), int(first[words.stop])
    around = range(max(0, begin - context), min(int(first[-1]), end + context))
    found = list(windows(first, words, around, room))
    assert np.concatenate([w.words for w in found]).tolist() == list(words)
    for w in found:
        assert around.start <= w.begin
        assert w.end <= min(around.stop, w.begin + room)
        for word in w.words.tolist():
            margin = min(first[word] - w.begin, w.end - 1 - first[word])
            assert margin >= 0
            assert all(min(first[word] - o.begin, o.end - 1 - first[word]) <= margin for o in found)
    if end - begin <= room:
        assert len(found) == 1
        assert found[0].end - found[0].begin == min(room, len(around))  # no piece of the context is left out in vain


def test_context_is_shared_evenly_and_where_one_side_lacks_it_the_other_has_more() -> None:
    first = np.arange(21)
    (middle,) = windows(first, range(8, 12), range(0, 20), 10)
    (early,) = windows(first, range(1, 5), range(0, 20), 10)
    assert (middle.begin, middle.end) == (5, 15)
    assert (early.begin, early.end) == (0, 10)
