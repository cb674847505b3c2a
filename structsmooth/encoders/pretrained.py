"""Pretrained encoders of transformers: networks with their tokenizers, which run no code of a folder or a hub."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from structsmooth.encoders.windows import Numbers, Window, windows
from structsmooth.files import keep
from structsmooth.messages import counted, stage

# What an encoder is, by which it is known again: not what its folder says about it.
_FILES = ("config.json", "model*.safetensors", "pytorch_model*.bin", "tokenizer*", "vocab*", "merges*", "*.model")
OWN = "encoder"
"""Folder of an encoder inside that of a model."""

_LENGTH = 512  # where neither the network nor its tokenizer has a limit
# Pieces of a batch, padding included. What layers compute of more would leave the cache of a processor.
_PIECES, _PIECES_ON_GPU = 1 << 10, 1 << 14
_BLOCK = 1 << 20
_INSTALL = "encoders need transformers: pip install 'structsmooth[encoders]'"


class Pieces(NamedTuple):
    """The pieces of the words of a text: ``ids`` [pieces], and where each word begins, ``first`` [words + 1]."""

    ids: Numbers
    first: Numbers


class PretrainedEncoder:
    """A network with its tokenizer.

    Args:
        tokenizer: a fast one of transformers.
        network: a model of transformers without a head, whose ``hidden_states`` are the features of pieces.
        digest: of its files, by which it is known again.

    Attributes:
        width: number of features of a piece in one layer.
        depth: number of layers; layer 0 has the embeddings, and layer ``depth`` the last features.
        before: ids of the pieces that stand before every text.
        after: ids of those behind it.
        unknown: id of the piece for words that no other stands for.
        room: number of pieces that the network reads at once, beside those that stand around every text.
    """

    def __init__(self, tokenizer: Any, network: nn.Module, digest: str) -> None:
        self.tokenizer, self.network, self.digest = tokenizer, network, digest
        config: Any = network.config
        self.width, self.depth = int(config.hidden_size), int(config.num_hidden_layers)
        self.unknown = next(i for i in (tokenizer.unk_token_id, tokenizer.pad_token_id, 0) if i is not None)
        bare, framed = (_ids(tokenizer, [["a"]], add_special_tokens=framed)[0] for framed in (False, True))
        before = next(i for i in range(len(framed)) if framed[i : i + len(bare)] == bare)
        self.before, self.after = framed[:before], framed[before + len(bare) :]
        self.room = _longest(tokenizer, network) - len(self.before) - len(self.after)
        if self.room < 2:
            raise ValueError(f"the network reads {self.room} pieces at once, which is too few")

    @property
    def _device(self) -> torch.device:
        return next(self.network.parameters()).device

    @property
    def layers(self) -> nn.ModuleList:
        """The layers 1 to ``depth`` of the network."""
        lists = (module for module in self.network.modules() if isinstance(module, nn.ModuleList))
        return next(found for found in lists if len(found) == self.depth)

    @classmethod
    def open(cls, place: str, *, download: bool = True) -> "PretrainedEncoder":
        """The encoder in a folder, or of a name in the hub of Hugging Face; each is read once.

        Args:
            place: the folder, or the name.
            download: whether what is not on this machine may be taken from the hub.

        Raises:
            ImportError: transformers is not installed.
            FileNotFoundError: no such encoder.
            ValueError: one that would need code of its own, or that lacks weights; a tokenizer that is not a fast one.
        """
        place = absolute(place)
        if place not in _known:
            _known[place] = _opened(place, _folder(place, download))
        return _known[place]

    @classmethod
    def own(cls, place: str) -> "PretrainedEncoder":
        """A copy that may be changed; see :meth:`open`."""
        return _opened(place, _folder(place))

    def save(self, folder: Path) -> None:
        """Write network and tokenizer into a folder, which is made if need be."""
        network: Any = self.network
        with _quiet():
            network.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
        _known.clear()  # the folder may have had another encoder

    def pieces(self, words: Sequence[str], numbers: NDArray[np.int32]) -> Pieces:
        """The pieces of a text.

        A word that no piece stands for, such as a control character, has the piece of unknown words, so that every word
        has features of its own.

        Args:
            words: different words.
            numbers: the words of the text as numbers among them.
        """
        found = [
            ids or [self.unknown] for ids in _ids(self.tokenizer, [[word] for word in words], add_special_tokens=False)
        ]
        sizes = np.array([len(ids) for ids in found], dtype=np.int64)
        first = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes[numbers])])
        return Pieces(np.array([i for number in numbers.tolist() for i in found[number]], dtype=np.int64), first)

    def features(
        self, pieces: Pieces, seen: Sequence[Window], layers: Sequence[int]
    ) -> Iterator[tuple[Numbers, Tensor]]:
        """What :meth:`rows` gives, for windows of similar lengths at a time, the longest first."""
        order = sorted(range(len(seen)), key=lambda i: seen[i].end - seen[i].begin)
        most = _PIECES if self._device.type == "cpu" else _PIECES_ON_GPU
        while order:
            longest = seen[order[-1]].end - seen[order[-1]].begin + len(self.before) + len(self.after)
            batch = [seen[order.pop()] for _ in range(min(len(order), max(1, most // longest)))]
            yield np.concatenate([w.words for w in batch]), self.rows(pieces, batch, layers)

    def rows(self, pieces: Pieces, seen: Sequence[Window], layers: Sequence[int]) -> Tensor:
        """The features of the words of some windows, in their order; differentiable.

        Args:
            pieces: of the text.
            seen: windows of it.
            layers: numbers of layers, from 0 to ``depth``.

        Returns:
            The hidden layers of the first pieces of the words, joined: [words, layers · width].
        """
        hidden = self._hidden([pieces.ids[w.begin : w.end] for w in seen], layers)
        places = [torch.from_numpy(w.places) + len(self.before) for w in seen]
        return torch.cat([hidden[i, at.to(hidden.device)] for i, at in enumerate(places)])

    def windows(self, pieces: Pieces, offsets: Numbers, documents: Numbers, context: int) -> list[list[Window]]:
        """The windows of each sentence, with pieces of their neighbours in the same document on either side.

        Args:
            pieces: of all sentences.
            offsets: sentence i has words offsets[i] to offsets[i + 1] - 1: int64 [n + 1].
            documents: number of the document of each sentence, which does not fall: int64 [n].
            context: number of pieces on either side.
        """
        bounds = pieces.first[offsets]
        begins, ends = np.searchsorted(documents, documents, "left"), np.searchsorted(documents, documents, "right")
        lowest = np.maximum(bounds[:-1] - context, bounds[begins])
        highest = np.minimum(bounds[1:] + context, bounds[ends])
        places = zip(offsets.tolist(), offsets[1:].tolist(), lowest.tolist(), highest.tolist(), strict=False)
        return [list(windows(pieces.first, range(a, b), range(c, d), self.room)) for a, b, c, d in places]

    def _hidden(self, texts: Sequence[Numbers], layers: Sequence[int]) -> Tensor:
        """Hidden layers of pieces, joined: [B, T, layers · width]."""
        rows = [torch.tensor([*self.before, *text.tolist(), *self.after]) for text in texts]
        ids, mask = (pad_sequence(x, batch_first=True) for x in (rows, [torch.ones_like(row) for row in rows]))
        device = self._device
        out: Any = self.network(input_ids=ids.to(device), attention_mask=mask.to(device), output_hidden_states=True)
        return torch.cat([out.hidden_states[layer] for layer in layers], 2)


_known: dict[str, PretrainedEncoder] = {}


def absolute(place: str) -> str:
    """The place of an encoder as it is seen from any folder."""
    return str(Path(place).resolve()) if Path(place).exists() else place


def _opened(place: str, folder: Path) -> PretrainedEncoder:
    try:
        from safetensors import SafetensorError
        from transformers import AutoModel, AutoTokenizer
    except ImportError:
        raise ImportError(_INSTALL) from None
    if not (folder / "config.json").is_file():
        inside = f": give {place}/{OWN}" if (folder / OWN).is_dir() else ", which has a config.json"
        raise ValueError(f"{place}: not the folder of a pretrained encoder{inside}")
    try:
        with stage(f"opening the encoder {place}"), _quiet():
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, use_fast=True)
            network, report = AutoModel.from_pretrained(
                folder, local_files_only=True, dtype=torch.float32, output_loading_info=True
            )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"{place}: not a pretrained encoder that transformers opens ({first})") from error
    if not tokenizer.is_fast:
        raise ValueError(f"{place}: the tokenizer is no fast one, which says what pieces a word has")
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ValueError(
            f"{place}: the tokenizer knows no words: a file such as tokenizer.json or vocab.txt is missing"
        )
    encoder = network.get_encoder() if network.config.is_encoder_decoder else network
    _check_weights(place, network, encoder, report["missing_keys"])
    return PretrainedEncoder(tokenizer, encoder.eval().requires_grad_(False), digest_of(folder))


def _check_weights(place: str, network: nn.Module, encoder: nn.Module, missing: Iterable[str]) -> None:
    """Refuse an encoder with weights that its files lack, which would be random; that of whole texts is not used."""
    used = {id(parameter) for name, parameter in encoder.named_parameters() if not name.startswith("pooler.")}
    random = sorted(name for name, p in network.named_parameters() if name in {*missing} and id(p) in used)
    if random:
        some = f", such as {random[0]}" if len(random) > 1 else f" {random[0]}"
        raise ValueError(f"{place}: the files of the encoder lack {counted(len(random), 'weight')}{some}")


@contextmanager
def _quiet() -> Iterator[None]:
    """In this block, transformers draws no bars and says nothing but errors."""
    from transformers import utils

    logging: Any = utils.logging
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()


def _folder(place: str, download: bool = True) -> Path:
    """The folder of an encoder: ``place`` itself, or where transformers keeps what has this name."""
    if Path(place).exists():
        return Path(place)
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ImportError(_INSTALL) from None
    try:
        try:
            return Path(snapshot_download(place, allow_patterns=list(_FILES), local_files_only=True))
        except OSError:  # not there yet
            if not download:
                raise
            return Path(snapshot_download(place, allow_patterns=list(_FILES)))
    except (OSError, ValueError) as error:
        if not download:
            raise FileNotFoundError(
                f"{place}: the encoder that the model was trained with is not there. Put it back, or copy it into the "
                f"folder of the model, as {OWN}; --embed-encoder does so when a model is trained"
            ) from error
        raise FileNotFoundError(f"{place}: no such folder, and no encoder of this name is to be had") from error


def copy_files(place: str, folder: Path) -> None:
    """Copy an encoder into a folder, which is made if need be; not onto itself."""
    if (source := _folder(place)).resolve() == folder.resolve():
        return
    folder.mkdir(parents=True, exist_ok=True)
    for path in _files(source):
        keep(folder / path.name, partial(shutil.copyfile, path))


def _files(folder: Path) -> list[Path]:
    return sorted({path for pattern in _FILES for path in folder.glob(pattern) if path.is_file()})


def digest_of(folder: Path) -> str:
    """A digest of the files of an encoder."""
    total = sha256()
    for path in _files(folder):
        total.update(path.name.encode())
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                total.update(block)
    return total.hexdigest()


def _ids(tokenizer: Any, texts: Sequence[list[str]], *, add_special_tokens: bool) -> list[list[int]]:
    found: list[list[int]] = tokenizer(
        list(texts), is_split_into_words=True, add_special_tokens=add_special_tokens, verbose=False
    ).input_ids
    return found


def _longest(tokenizer: Any, network: nn.Module) -> int:
    """Number of pieces that a network reads at once, with those around a text."""
    limits = [int(tokenizer.model_max_length)]
    positions: Any = getattr(getattr(network, "embeddings", None), "position_embeddings", None)
    if isinstance(positions, nn.Embedding):  # of which networks like RoBERTa use those behind the padding
        limits.append(positions.num_embeddings - (0 if positions.padding_idx is None else positions.padding_idx + 1))
    return min(found) if (found := [limit for limit in limits if limit < 1 << 20]) else _LENGTH
