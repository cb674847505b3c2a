"""Words of tokenizers that split them: which sub-words begin a word, and labels of words at these."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

WordIds = Sequence[int | None]
"""The word that each sub-word is a part of, as ``word_ids()`` of fast tokenizers gives it; ``None`` for others."""


def first_subwords(word_ids: WordIds | Sequence[WordIds]) -> Tensor:
    """Which sub-words begin a word: a mask for chains over words.

    Args:
        word_ids: of one input, or of each of a batch.

    Returns:
        bool [T], or [B, T] for a batch, false at padding.

    Example:
        >>> first_subwords([None, 0, 1, 1, 2, None])
        tensor([False,  True,  True, False,  True, False])
    """
    if any(isinstance(word, Sequence) for word in word_ids):
        return pad_sequence([first_subwords(cast(WordIds, words)) for words in word_ids], batch_first=True)
    before = [None, *word_ids][: len(word_ids)]
    pairs = zip(word_ids, before, strict=True)
    return torch.tensor([word is not None and word != last for word, last in pairs], dtype=torch.bool)


def at_first_subwords(labels: Sequence[Sequence[int]], word_ids: Sequence[WordIds], fill: int = -100) -> Tensor:
    """Labels of words at their first sub-words, and a number elsewhere: int64 [B, T].

    Args:
        labels: of the words of each input.
        word_ids: of each input.
        fill: the number.

    Raises:
        ValueError: other numbers of inputs, or a word without a label.

    Example:
        >>> at_first_subwords([[3, 1]], [[None, 0, 1, 1, None]])
        tensor([[-100,    3,    1, -100, -100]])
    """
    if len(labels) != len(word_ids):
        raise ValueError(f"labels must be of {len(word_ids)} inputs, as word_ids are, got {len(labels)}")
    mask = first_subwords(word_ids)
    found = torch.full(mask.shape, fill)
    for row, (of_words, words) in enumerate(zip(labels, word_ids, strict=True)):
        places = mask[row].nonzero().flatten().tolist()
        numbers = [cast(int, words[place]) for place in places]
        if numbers and max(numbers) >= len(of_words):
            raise ValueError(f"input {row} has a word {max(numbers)}, and labels of {len(of_words)} words")
        found[row, places] = torch.tensor([of_words[number] for number in numbers], dtype=torch.int64)
    return found
