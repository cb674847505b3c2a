"""Object localization: the box around the only object of a class in an image."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, TextIO

import torch
from torch import Tensor, nn

from structsmooth.costs import OneMinusIoU
from structsmooth.markup import Block, Markup
from structsmooth.problems import LinearModuleProblem, ModuleProblem, Problem
from structsmooth.settings import Positive, PositiveInt, check_choice
from structsmooth.tasks.base import FittedTask, Predictions, Split, Task, best_outputs
from structsmooth.tasks.localization.annotations import read_annotations, write_box_table
from structsmooth.tasks.localization.box_features import (
    BACKBONES,
    BoxFeatures,
    FeatureType,
    fingerprint,
    load_backbone,
    load_features,
    parted,
)
from structsmooth.tasks.localization.examples import Detection, Example, make_examples, overlaps, wanted_examples
from structsmooth.tasks.localization.heads import HEADS, ClassHeads, TunedHead
from structsmooth.tasks.localization.proposals import SearchMode, SelectiveSearch
from structsmooth.tasks.localization.results import (
    class_table,
    example_markup,
    localization_metrics,
    overlap,
    save_picture,
)

Head = Literal["linear", "elu"]

# Images whose features are in memory at once.
_CHUNK = 4
# Norm of the features of an average box, as Girshick et al. (2014) scale them.
_NORM = 20.0
_DATA = "voc2012_animals/voc2012_animals_single_333.zip"


@dataclass(frozen=True)
class FittedLocalization(FittedTask):
    """A localizer with the classes of its training data, and the scale and shape (C, H, W) of the features of a box.

    Attributes:
        tuned: fingerprint of the layers that are tuned, as they were at first; empty if none are.
        described: name of the folder of features of training, which has the fingerprint of the layers that made them.
    """

    task: "Localization"
    scale: Positive
    shape: tuple[PositiveInt, PositiveInt, PositiveInt]
    tuned: str = ""
    described: str = ""

    example_type: ClassVar[type] = Example
    input_json: ClassVar[Mapping[str, str]] = {"image": "name", "class": "label"}

    def problem(self, examples: Sequence[Example]) -> Problem:
        """Structural hinge losses of the proposed boxes; each image is an example."""
        data = [(e, int(overlaps(e.boxes, e.truth).argmax())) for e in examples if e.truth]
        problem = LinearModuleProblem if self.task.head == "linear" and not self.task.last else ModuleProblem
        return problem(self.module(), data, OneMinusIoU(), batch_size=1, collate=_batch, chunk_size=_CHUNK)

    def predict(self, weights: Tensor, examples: Sequence[Example], k: int = 1) -> Predictions:
        """The k best of the proposed boxes with their scores.

        Raises:
            ValueError: features of other weights of the network than those of training.
        """
        if self.described and any(one.features.parent.name != self.described for one in examples):
            raise self._changed("it learned from features of others")
        found = zip(examples, best_outputs(self.module(), weights, ([one] for one in examples), k), strict=True)
        return [[(score, Detection(tuple(one.boxes[y].tolist()), score)) for score, y in best] for one, best in found]

    def measure(self, examples: Sequence[Example], outputs: Sequence[Detection]) -> tuple[dict[str, float], str]:
        """CorLoc, mean IoU and average precision, averaged over classes.

        CorLoc is the fraction of objects whose box overlaps by more than 0.5. Average precision ranks all images, also
        images without the class, by the scores of their boxes.
        """
        _require_boxes(examples)
        return localization_metrics(examples, outputs)

    def write(self, examples: Sequence[Example], predictions: Predictions, stream: TextIO) -> None:
        """CSV file with a row for each box, best first; it can be read as annotations."""
        pairs = zip(examples, predictions, strict=True)
        write_box_table(((e.name, e.label, found.box, score) for e, ranked in pairs for score, found in ranked), stream)

    def output_to_json(self, output: Detection) -> dict[str, Any]:
        """The ``box`` of a detection: left, top, right and bottom edge in pixels."""
        return {"box": list(output.box)}

    def output_from_json(self, values: Mapping[str, Any]) -> Detection:
        """The inverse of :meth:`output_to_json`."""
        return Detection(tuple(values["box"]), values["score"])

    def draw(self, examples: Sequence[Example], predictions: Predictions, folder: Path) -> None:
        """A picture of each image: the true box in green, the best detection in red, with their overlap."""
        folder.mkdir(parents=True, exist_ok=True)
        for example, ranked in zip(examples, predictions, strict=True):
            save_picture(folder, example, ranked[0][1])

    def show_example(self, example: Example, ranked: Sequence[tuple[float, Detection]]) -> Markup:
        """The image with the true box in green and the best detection in red."""
        return example_markup(example, ranked)

    def mistake(self, example: Example, output: Detection) -> float:
        """1 − IoU with the true box; 0 where there is no object."""
        _require_boxes([example])
        return 0.0 if example.truth is None else 1 - overlap(example, output)

    def show_results(self, examples: Sequence[Example], outputs: Sequence[Detection]) -> list[Block]:
        """The metrics of each class."""
        return [class_table(examples, outputs)]

    @property
    def dim(self) -> int:
        """Weights of all classes."""
        with torch.device("meta"):
            head = HEADS[self.task.head](self.shape)
        parts = (head, self.task.tuned_layers)
        return len(self.task.classes) * sum(p.numel() for part in parts for p in part.parameters())

    def module(self) -> ClassHeads:
        """Score modules of the classes with their first weights."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.task.seed)
            heads = [HEADS[self.task.head](self.shape) for _ in self.task.classes]
        layers = self.task.tuned_layers
        if self.tuned and fingerprint(layers) != self.tuned:
            raise self._changed("its layers moved from others")
        tuned = [TunedHead(layers, head) for head in heads] if self.task.last else heads
        return ClassHeads(tuned, self.task.classes, self.scale)

    def _changed(self, why: str) -> ValueError:
        return ValueError(
            f"the weights of {self.task.backbone} have changed since the model was trained: {why}; give the file of "
            "then as backbone_weights"
        )


@dataclass(frozen=True)
class Localization(Task):
    """Localization by scores of boxes that selective search proposes, trained with 1 − IoU as cost.

    A network that is not trained gives the features of a box. Scores are linear in these features, or a small network
    of them, perhaps behind the last layers of the network, which are tuned. Each class has a model of its own. The
    training label is the proposed box that overlaps the true box most.

    Args:
        classes: classes to find; all classes of the training data if not given.
        head: score of a box: "linear" in its features, or "elu" for a 1 × 1 convolution to 16 channels, ELU and a
            linear map.
        backbone: network that describes boxes; "squeezenet-caffe" was trained on other scales of colours.
        tune: last:K tunes its last K layers, too, for each class; the objective regularizes how far they move.
        backbone_weights: its weights, a .pt, .safetensors or .npz file. If not given, torchvision downloads them, but
            squeezenet-caffe takes squeezenet_v10/squeezenet1_0_imagenet_rgb.npz from the folder that STRUCTSMOOTH_DATA
            names.
        features_cache: where proposals and features are kept.
        proposals: number of boxes of an image, at most.
        search: mode of selective search; "quality" searches more color spaces and takes several times as long.
        jobs: processes of selective search; one for each processor if not given.
        feature_dtype: type in which features are kept.
        negatives: number of images without the class that count in average precision, for each class.
        images: folder of the images that CSV and JSON files name; the folder of the file if not given.
        seed: same seed, same first weights.

    Reference:
        Pillutla et al. (2019), section 7.1.2.
    """

    classes: list[str] = field(default_factory=list, metadata={"flag": "--class", "metavar": "CLASS"})
    head: Head = "elu"
    backbone: str = field(default="squeezenet-caffe", metadata={"choices": BACKBONES, "metavar": None})
    tune: str | None = field(default=None, metadata={"metavar": "last:K"})
    backbone_weights: str | None = field(default=None, metadata={"metavar": "FILE"})
    features_cache: str = field(default="runs/features", metadata={"metavar": "DIR"})
    proposals: PositiveInt = 1000
    search: SearchMode = "fast"
    jobs: PositiveInt | None = None
    feature_dtype: FeatureType = "float16"
    negatives: int = 0
    images: str | None = field(default=None, metadata={"metavar": "DIR"})
    seed: int = field(default=0, metadata={"flag": None})

    summary: ClassVar[str] = "object localization: boxes in images, PASCAL VOC, COCO or CSV"
    files: ClassVar[str] = (
        "A folder or zip file in the layout of PASCAL VOC, as PATH#train; a .csv file with the columns "
        "image,class,xmin,ymin,xmax,ymax; or a COCO .json file. Images alone to predict."
    )
    # Animals of PASCAL VOC 2012.
    data: ClassVar[Mapping[str, str]] = {"train": f"{_DATA}#train", "test": f"{_DATA}#val"}
    example: ClassVar[str] = "--train 'VOC2007#train' --test 'VOC2007#val'"
    headline: ClassVar[str] = "corloc"
    passes: ClassVar[int] = 30
    solver: ClassVar[str] = "incremental-prox-linear"
    fitted_type: ClassVar[type[FittedTask]] = FittedLocalization

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("backbone", self.backbone, tuple(BACKBONES))
        _ = self.last  # which refuses others

    @property
    def last(self) -> int:
        """How many of the last layers of the network are tuned."""
        if self.tune is None:
            return 0
        kind, _, number = self.tune.partition(":")
        if kind != "last" or not number.isdecimal() or int(number) < 1:
            raise ValueError(f"tune must be last:K, such as last:1, got {self.tune!r}")
        return int(number)

    @cached_property
    def tuned_layers(self) -> nn.Module:
        """These layers as they are before they are tuned; none without ``tune``."""
        if not self.last:
            return nn.Identity()
        return parted(load_backbone(self.backbone, self.backbone_weights), self.last)[1].eval()

    def read(self, path: str | TextIO, split: Split = "train") -> list[Example]:
        """Images with exactly one object of a class, difficult objects aside, for each class; or images without boxes.

        Proposals and features that the cache lacks are computed. Images that cannot be used are left out and named on
        standard error. Images without the class, ``negatives`` of them, are added except for training.

        Raises:
            ValueError: a malformed file, or no image that can be used.
        """
        annotated, faults = read_annotations(path, self.images)
        classes = self.classes or sorted({entry.label for image in annotated for entry in image.objects or ()})
        wanted = wanted_examples(annotated, classes, 0 if split == "train" else self.negatives)
        backbone = load_backbone(self.backbone, self.backbone_weights)
        if self.last:
            backbone, _ = parted(backbone, self.last)
        features = BoxFeatures(backbone, self.features_cache, self.feature_dtype)
        search = SelectiveSearch(self.features_cache, self.proposals, self.search, self.jobs)
        examples = make_examples(wanted, search, features, faults)
        for label in sorted({*classes} - {label for _, label in wanted}):
            faults.add("class without images that have exactly one of it", label)
        name = path if isinstance(path, str) else "standard input"
        if not examples:
            raise ValueError("; ".join([f"{name}: no images to use", *str(faults).splitlines()]))
        if faults:
            print(f"{name}: faults in the data\n{faults}", file=sys.stderr)
        if split in ("dev", "test"):
            _require_boxes(examples)
        return examples

    def fit(self, examples: Sequence[Example]) -> FittedLocalization:
        """Classes that have images, and shape and scale of the features: an average box gets norm 20."""
        labelled = [example for example in examples if example.truth is not None]
        if not labelled:
            raise ValueError("these images have no boxes: training needs them")
        with torch.inference_mode():
            layers = self.tuned_layers
            _, channels, height, width = layers(load_features(labelled[0].features).float()).shape
            norms = torch.cat([layers(load_features(e.features).float()).flatten(1).norm(dim=1) for e in labelled])
        task = replace(self, classes=sorted({example.label for example in labelled}))
        tuned = fingerprint(layers) if self.last else ""
        scale, described = _NORM / max(float(norms.mean()), 1e-12), labelled[0].features.parent.name
        return FittedLocalization(task, scale, (channels, height, width), tuned, described)


def _batch(pairs: Sequence[tuple[Example, int]]) -> tuple[tuple[Example, ...], Tensor]:
    """Examples and labels [B]."""
    examples, y = zip(*pairs, strict=True)
    return examples, torch.tensor(y)


def _require_boxes(examples: Sequence[Example]) -> None:
    if not all(example.known for example in examples):
        raise ValueError("these images have no boxes: evaluation needs them")
