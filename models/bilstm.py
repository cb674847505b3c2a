"""A bidirectional LSTM over token ids under a linear chain."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from structsmooth.scores import ScoreModule
from structsmooth.structures import LinearChain


class BiLSTMTagger(ScoreModule):
    """Embeddings, a bidirectional LSTM and a linear layer give the unary scores of a chain with learned transitions.

    Transitions are zero at first. Padding may have any valid ids: they change no score inside a sequence.

    Args:
        vocabulary: number of token ids; they are below it.
        states: number S of labels.
        embedding: size of a token's embedding.
        hidden: size of the LSTM's state in each direction.
        layers: number of layers of the LSTM.

    Raises:
        ValueError: a size below 1.

    Reference:
        Huang et al. (2015), "Bidirectional LSTM-CRF Models for Sequence Tagging".

    Example:
        >>> tagger = BiLSTMTagger(vocabulary=100, states=3)
        >>> chain = tagger((torch.randint(100, (2, 7)), torch.tensor([7, 4])))
        >>> chain.max()[1].shape
        torch.Size([2, 7])
    """

    def __init__(self, vocabulary: int, states: int, embedding: int = 64, hidden: int = 64, layers: int = 1) -> None:
        super().__init__()
        names = ("vocabulary", "states", "embedding", "hidden", "layers")
        for name, size in zip(names, (vocabulary, states, embedding, hidden, layers), strict=True):
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(2 * hidden, states)
        self.transition = nn.Parameter(torch.zeros(states, states))

    if TYPE_CHECKING:

        def __call__(self, x: Tensor | tuple[Tensor, Tensor]) -> LinearChain:
            """As :meth:`forward`."""

    def forward(self, x: Tensor | tuple[Tensor, Tensor]) -> LinearChain:
        """Chain over the labels of ``x``.

        Args:
            x: integer token ids [B, T], alone or with lengths [B] from 1 to T.

        Raises:
            ValueError: token ids of another shape.
        """
        ids, lengths = x if isinstance(x, tuple) else (x, x.new_full(x.shape[:1], x.shape[-1], dtype=torch.int64))
        if ids.dim() != 2:
            raise ValueError(f"token ids must have shape [B, T], got {tuple(ids.shape)}")
        # Packed, so that the backward direction starts at the end of each sequence, not at the end of the batch.
        packed = pack_padded_sequence(self.embedding(ids), lengths.cpu(), batch_first=True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=ids.shape[1])
        return LinearChain(self.linear(hidden), self.transition, lengths)
