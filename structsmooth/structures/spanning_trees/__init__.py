"""What :class:`~structsmooth.SpanningTree` computes with: contraction of cycles, and elimination of words."""
