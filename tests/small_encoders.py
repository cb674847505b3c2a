"""A tiny encoder with random weights and a vocabulary of a few words, as a folder of transformers."""

from pathlib import Path

import torch

WORDS = ["smith", "lent", "money", "the", "bank", "of", "ohio", "paid", "jones", "left", "old", "dog", "cat", "child"]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "see", "like", "##s", "."]


def write(folder: Path, *, layers: int = 1, pieces: int = 32, dropout: float = 0.1, seed: int = 0) -> str:
    """Save an encoder that reads so many pieces at once: the path of its folder."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    sizes = {"hidden_size": 16, "num_hidden_layers": layers, "num_attention_heads": 2, "intermediate_size": 16}
    drops = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    torch.manual_seed(seed)
    config = BertConfig(vocab_size=len(PIECES), max_position_embeddings=pieces, **sizes, **drops)
    BertModel(config).save_pretrained(folder)
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(PIECES), encoding="utf-8")
    BertTokenizerFast(str(vocabulary), model_max_length=pieces).save_pretrained(folder)
    return str(folder)
