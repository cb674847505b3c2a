"""Models in other programs: graphs of ``torch.export`` and ONNX whose sizes are left open."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from importlib.metadata import version
from inspect import Parameter, signature
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from structsmooth.files import writing
from structsmooth.structures import Structure
from structsmooth.structures.checks import plain_torch_exported


@contextmanager
def exporting(*, plain_torch: bool = False) -> Iterator[None]:
    """Trace graphs that hold for batches and lengths of one, too, and if need be without operators of this library.

    ``torch.export`` by itself takes sizes of one, and those of sequences of two positions, for special cases: its
    graphs refuse them. To trace models for ``torch.onnx.export``, ``plain_torch`` is not needed.

    Args:
        plain_torch: ``backend="auto"`` takes the recursions in plain torch, so that a program that was saved runs
            without this library. What has none raises ``NotImplementedError``.
    """
    sizes: Any = import_module("torch.fx.experimental._config")
    chosen = plain_torch_exported.set(plain_torch)
    try:
        # Not yet there in torch 2.5.
        patch = sizes.patch(backed_size_oblivious=True) if hasattr(sizes, "backed_size_oblivious") else nullcontext()
        with patch:
            yield
    finally:
        plain_torch_exported.reset(chosen)


class Decoder(nn.Module):
    """The best outputs of what a score module returns, as a module of tensors.

    Args:
        scores: a score module, or a function, from x to a structure; x is a tensor or a tuple of tensors.
        k: how many outputs.
    """

    def __init__(self, scores: Callable[[Any], Structure], k: int = 1) -> None:
        super().__init__()
        self.scores, self.k = scores, k

    def forward(self, *x: Tensor) -> tuple[Tensor, Tensor]:
        """Values [B] and outputs [B, ...] or, for several outputs, [B, k] and [B, k, ...]."""
        structure = self.scores(x if len(x) > 1 else x[0])
        return structure.max() if self.k == 1 else structure.topk(self.k)


class Exported(NamedTuple):
    """A module with what ``torch.export`` and ``torch.onnx.export`` need to trace it.

    Attributes:
        module: from tensors to tensors.
        inputs: an example of them.
        sizes: of each input, the names of the dimensions that are left open.
        input_names: of the inputs; some that torch makes if not given.
        output_names: of the outputs, likewise.
        says: what else a saved program says of itself, such as the names of labels, as plain JSON.
    """

    module: nn.Module
    inputs: tuple[Tensor, ...]
    sizes: tuple[dict[int, str], ...]
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    says: dict[str, Any] = {}  # noqa: RUF012 - never changed

    @property
    def metadata(self) -> dict[str, str]:
        """What a saved program says of itself, in JSON by names: the version, names and ``says``."""
        values = {"structsmooth": version("structsmooth"), "inputs": self.input_names, "outputs": self.output_names}
        return {name: json.dumps(value) for name, value in (values | self.says).items()}

    def save(self, path: str | Path, form: Literal["pt2", "onnx"]) -> None:
        """Write the program to a file. A saved ``.pt2`` runs with torch alone.

        :attr:`metadata` is in the ``metadata_props`` of ONNX, and in the extra file ``metadata.json`` of a ``.pt2``.

        Raises:
            NotImplementedError: a structure that has no recursion in plain torch.
            ImportError: onnx and onnxscript are not installed.
        """
        with writing(path):
            self._save(path, form)

    def _save(self, path: str | Path, form: Literal["pt2", "onnx"]) -> None:
        if form == "pt2":
            sizes = [dict.fromkeys(names, torch.export.Dim.DYNAMIC) for names in self.sizes]
            with exporting(plain_torch=True):
                program = torch.export.export(
                    self.module.eval(), self.inputs, dynamic_shapes=self._shapes(sizes), strict=False
                )
            # A file that torch writes itself ends in a stack of C++ when the disk is full.
            whole = BytesIO()
            torch.export.save(program, whole, extra_files={"metadata.json": json.dumps(self.metadata)})
            Path(path).write_bytes(whole.getvalue())
        else:
            # Of sizes that several inputs share, the first is named: torch warns of more.
            seen, named = set[str](), []
            for names in self.sizes:
                named.append({d: torch.export.Dim.DYNAMIC if name in seen else name for d, name in names.items()})
                seen |= {*names.values()}
            of_tensors = {"input_names": self.input_names or None, "output_names": self.output_names or None}
            options: Any = {"dynamo": True, "dynamic_shapes": self._shapes(named), "verbose": False} | of_tensors
            written: Any = torch.onnx.export(self.module.eval(), self.inputs, **options)
            written.model.metadata_props.update(self.metadata)
            written.save(path)

    def _shapes(self, sizes: Sequence[Any]) -> Any:
        """Sizes of inputs as torch takes them, in a tuple of their own where the module takes ``*x``."""
        kinds = {parameter.kind for parameter in signature(self.module.forward).parameters.values()}
        return (tuple(sizes),) if Parameter.VAR_POSITIONAL in kinds else tuple(sizes)
