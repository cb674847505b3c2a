"""Object localization: the box around the only object of a class in an image."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TextIO, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from structsmooth.costs import OneMinusIoU
from structsmooth.metrics import average_precision
from structsmooth.models.backbones import PRETRAINED, AlexNetConv4, SqueezeNetFire9
from structsmooth.models.localization import BoxELU, BoxLinear, BoxScore
from structsmooth.problems import LinearModuleProblem, ModuleProblem, Problem
from structsmooth.scores import ScoreModule
from structsmooth.structures import BoxCandidates
from structsmooth.structures.candidates import intersection_over_union
from structsmooth.tasks.base import Task
from structsmooth.tasks.files import DATA_VARIABLE, data_file
from structsmooth.tasks.localization.annotations import (
    AnnotatedImage,
    Box,
    BoxedObject,
    Faults,
    ImageFile,
    clip_box,
    decode,
    read_annotations,
)
from structsmooth.tasks.localization.box_features import BoxFeatures, FeatureType, load_features
from structsmooth.tasks.localization.proposals import Proposals, SearchMode, SelectiveSearch

Head = Literal["linear", "elu"]

# A box is right if it overlaps the true one by more.
_RIGHT = 0.5
# Images whose features are in memory at once.
_CHUNK = 4
# Norm of the features of an average box, as Girshick et al. (2014) scale them.
_NORM = 20.0


class Detection(NamedTuple):
    """A box (xmin, ymin, xmax, ymax) in pixels, and the score that the model gives it."""

    box: Box
    score: float


@dataclass(frozen=True)
class Example:
    """An image in which an object of a class is to be found.

    Attributes:
        name: of the image.
        file: where it is.
        label: the class.
        boxes: that were proposed, [M, 4].
        features: file with theirs.
        truth: the box of the object; none where there is no such object, or where that is not known.
        known: whether it is known.
    """

    name: str
    file: ImageFile
    label: str
    boxes: Tensor
    features: Path
    truth: Box | None
    known: bool


class ClassHeads(ScoreModule):
    """A score module of boxes for each class, independent of each other.

    With λ = c/n the weights of each class are those of a problem of its own with its n' examples and λ' = c/n'.

    Args:
        heads: of each class.
        classes: their names.
        scale: factor of the features.
    """

    def __init__(self, heads: Iterable[BoxScore], classes: Sequence[str], scale: float) -> None:
        super().__init__()
        heads = list(heads)
        self.heads, self.classes, self.scale = nn.ModuleList(heads), list(classes), scale
        self.affine = all(head.affine for head in heads)

    def forward(self, x: Sequence[Example]) -> BoxCandidates:
        """Boxes of each example, scored by the head of its class; features are read where they are needed."""
        sizes = [len(example.boxes) for example in x]
        mask = torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]
        scores, boxes = pad_sequence([self._scores(example) for example in x], batch_first=True), self._boxes(x)
        return BoxCandidates(scores, boxes.to(scores.device), mask.to(scores.device))

    def _scores(self, example: Example) -> Tensor:
        """Scores [M] of the boxes of an example."""
        head = cast(BoxScore, self.heads[self.classes.index(example.label)])
        maps = head.feature_maps(load_features(example.features).to(next(head.parameters())))
        return head.score_maps(maps.mul_(self.scale))  # the file stays as it is: it is mapped copy-on-write

    @staticmethod
    def _boxes(x: Sequence[Example]) -> Tensor:
        return pad_sequence([example.boxes for example in x], batch_first=True)


@dataclass
class Localization(Task):
    """Localization by scores of boxes that selective search proposes, trained with 1 − IoU as cost.

    Boxes are described by a network that is not trained. Scores are linear in these features, or a small network of
    them. Each class has a model of its own. Training labels are the proposed boxes that overlap the true ones most.

    Args:
        classes: to be localized; all in the training data if there are none.
        head: ``"linear"``, or ``"elu"`` for a 1 × 1 convolution to 16 channels, ELU and a linear map.
        backbone: network that describes boxes, one of :data:`BACKBONES`.
        backbone_weights: file with its weights.
        features_cache: folder where proposals and features are kept.
        proposals: number of boxes of an image.
        search: mode of selective search, see :class:`~structsmooth.tasks.localization.proposals.SelectiveSearch`.
        jobs: processes that search; all processors if not given.
        feature_dtype: in which features are kept, ``"float16"`` or ``"float32"``.
        negatives: number of images without the class that count in the average precision, of each class.
        images: folder of the images that CSV and JSON files name; that of the file if not given.
        seed: of the first weights.
        scale: factor of the features; set by :meth:`fit`.
        shape: (C, H, W) of the features of a box; set by :meth:`fit`.

    Reference:
        Pillutla et al. (2019), section 7.1.2.
    """

    classes: list[str] = field(default_factory=list)
    head: Head = "elu"
    backbone: str = "squeezenet-caffe"
    backbone_weights: str | None = None
    features_cache: str = "runs/features"
    proposals: int = 1000
    search: SearchMode = "fast"
    jobs: int | None = None
    feature_dtype: FeatureType = "float16"
    negatives: int = 0
    images: str | None = None
    seed: int = 0
    scale: float = 0.0
    shape: tuple[int, int, int] | None = None

    summary: ClassVar[str] = "object localization: boxes in images, PASCAL VOC, COCO or CSV"
    headline: ClassVar[str] = "corloc"
    lam: ClassVar[str] = "1/n"
    passes: ClassVar[int] = 30

    def __post_init__(self) -> None:
        if self.head not in get_args(Head):
            raise ValueError(f"head must be one of {', '.join(get_args(Head))}, got {self.head!r}")
        if self.negatives < 0:
            raise ValueError(f"negatives must be at least 0, got {self.negatives}")
        self._search = SelectiveSearch(self.features_cache, self.proposals, self.search, self.jobs)
        backbone = load_backbone(self.backbone, self.backbone_weights)
        self._features = BoxFeatures(backbone, self.features_cache, self.feature_dtype)
        self._training = self.shape is None

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Options of classes, features and score."""
        parser.add_argument("--class", dest="classes", nargs="+", default=[], help="classes (default: all)")
        parser.add_argument("--head", choices=get_args(Head), default="elu", help="score of boxes (default: elu)")
        parser.add_argument(
            "--backbone",
            choices=list(BACKBONES),
            default=_CAFFE,
            help=f"network that describes boxes; caffe: trained on other scales of colours (default: {_CAFFE})",
        )
        parser.add_argument(
            "--backbone-weights",
            metavar="FILE",
            help="its weights: .pt, .safetensors or .npz (default: download; for squeezenet-caffe, the file "
            f"{_WEIGHTS} in the folder that {DATA_VARIABLE} names)",
        )
        parser.add_argument(
            "--features-cache",
            metavar="DIR",
            default="runs/features",
            help="where proposals and features are kept (default: runs/features)",
        )
        parser.add_argument("--proposals", type=int, default=1000, help="boxes of an image, at most (default: 1000)")
        parser.add_argument(
            "--search", choices=get_args(SearchMode), default="fast", help="mode of selective search (default: fast)"
        )
        parser.add_argument("--jobs", type=int, help="processes of selective search (default: all processors)")
        parser.add_argument(
            "--feature-dtype", choices=get_args(FeatureType), default="float16", help="default: float16"
        )
        parser.add_argument(
            "--negatives",
            type=int,
            default=0,
            help="images without the class that count in average precision, for each class (default: 0)",
        )
        parser.add_argument(
            "--images", metavar="DIR", help="images that CSV and JSON files name (default: folder of the file)"
        )

    @classmethod
    def from_options(cls, options: Namespace) -> Localization:
        """An untrained model."""
        names = {f.name for f in fields(cls)} - {"scale", "shape"}
        return cls(**{name: value for name, value in vars(options).items() if name in names})

    @classmethod
    def default_solver(cls, options: Namespace) -> str:
        """Prox-linear where scores are not linear."""
        return "prox-linear" if options.head == "elu" else super().default_solver(options)

    @classmethod
    def default_files(cls) -> dict[str, str]:
        """Animals of PASCAL VOC 2012, in the folder of larger data sets."""
        return {"train": data_file("localization", f"{_DATA}#train"), "test": data_file("localization", f"{_DATA}#val")}

    def read(self, path: str | TextIO) -> list[Example]:
        """Images with exactly one object of a class, difficult ones aside, for each class; or images without boxes.

        Looks for proposals and computes features, unless the cache has them. Images that cannot be used are left out,
        and named on standard error. The first file that an untrained task reads is taken as training data: there, no
        images without the class are added.

        Raises:
            ValueError: a malformed file, or no image that can be used.
        """
        annotated, faults = read_annotations(path, self.images)
        training, self._training = self._training, False
        if not self.classes:
            self.classes = sorted({entry.label for image in annotated for entry in image.objects or ()})
        wanted = [(image, label) for label in self.classes for image in _images_with(annotated, label)]
        wanted += [(image, label) for label in self.classes for image in annotated if image.objects is None]
        if not training:
            wanted += [(i, label) for label in self.classes for i in _images_without(annotated, label, self.negatives)]
        examples = self._examples(wanted, faults)
        for label in set(self.classes) - {example.label for example in examples}:
            faults.add("class without images that have exactly one of it", label)
        name = path if isinstance(path, str) else "standard input"
        if not examples:
            raise ValueError("; ".join([f"{name}: no images to use", *str(faults).splitlines()]))
        if faults:
            print(f"{name}: faults in the data\n{faults}", file=sys.stderr)
        return examples

    def fit(self, examples: Sequence[Example]) -> None:
        """Classes that have images, shape of the features, and their scale: an average box gets norm 20."""
        labelled = [example for example in examples if example.truth is not None]
        if not labelled:
            raise ValueError("these images have no boxes: training needs them")
        self.classes = sorted({example.label for example in labelled})
        _, *shape = load_features(labelled[0].features).shape
        self.shape = (shape[0], shape[1], shape[2])
        norms = torch.cat([load_features(e.features).float().flatten(1).norm(dim=1) for e in labelled])
        self.scale = _NORM / max(float(norms.mean()), 1e-12)

    def problem(self, examples: Sequence[Example]) -> Problem:
        """Structural hinge losses of the proposed boxes; each image is an example."""
        data = [
            (example, int(_overlap(example.boxes, example.truth).argmax())) for example in examples if example.truth
        ]
        problem = LinearModuleProblem if self.head == "linear" else ModuleProblem
        return problem(self.module(), data, OneMinusIoU(), batch_size=1, collate=_batch, chunk_size=_CHUNK)

    def predict(self, weights: Tensor, examples: Sequence[Example], k: int = 1) -> list[list[tuple[float, Detection]]]:
        """The k best of the proposed boxes with their scores."""
        module = self.module()
        nn.utils.vector_to_parameters(weights, module.parameters())
        predictions = []
        for example in examples:
            with torch.no_grad():
                values, y = module([example]).topk(min(k, len(example.boxes)))
            boxes = example.boxes[y[0]].tolist()
            predictions.append(
                [(v, Detection(tuple(box), v)) for v, box in zip(values[0].tolist(), boxes, strict=True)]
            )
        return predictions

    def measure(self, examples: Sequence[Example], outputs: Sequence[Detection]) -> tuple[dict[str, float], str]:
        """CorLoc, mean IoU and average precision, averaged over classes.

        CorLoc is the fraction of objects whose box overlaps by more than 0.5. Average precision ranks all images, those
        without the class too, by the scores of their boxes.
        """
        if not all(example.known for example in examples):
            raise ValueError("these images have no boxes: evaluation needs them")
        labels = sorted({example.label for example in examples if example.truth is not None})
        if not labels:
            raise ValueError("none of these images has an object of the classes")
        pairs = list(zip(examples, outputs, strict=True))
        rows = {label: _scores([(e, d) for e, d in pairs if e.label == label]) for label in labels}
        names = list(next(iter(rows.values())))
        means = {name: sum(row[name] for row in rows.values()) / len(rows) for name in names}
        metrics = {name: value for name, value in means.items() if name != _COUNT}
        return metrics, _table(rows if len(rows) == 1 else rows | {"mean": means})

    def write(
        self, examples: Sequence[Example], predictions: Sequence[list[tuple[float, Detection]]], stream: TextIO
    ) -> None:
        """CSV file with a row for each box, best first; it can be read as annotations."""
        import csv

        rows = csv.writer(stream, lineterminator="\n")
        rows.writerow(["image", "class", "xmin", "ymin", "xmax", "ymax", "score"])
        for example, ranked in zip(examples, predictions, strict=True):
            for score, detection in ranked:
                rows.writerow([example.name, example.label, *(f"{e:.6g}" for e in detection.box), f"{score:.6g}"])

    def draw(
        self, examples: Sequence[Example], predictions: Sequence[list[tuple[float, Detection]]], folder: Path
    ) -> None:
        """A picture of each image: the true box in green, the best one in red, with their overlap."""
        from PIL import Image, ImageDraw

        folder.mkdir(parents=True, exist_ok=True)
        for example, ranked in zip(examples, predictions, strict=True):
            picture = Image.fromarray(decode(example.file.read_bytes()))
            pen = ImageDraw.Draw(picture)
            ((score, best),) = ranked[:1]
            text = f"{example.label} {score:.3g}"
            if example.truth is not None:
                pen.rectangle(_corners(example.truth), outline="lime", width=2)
                text += f", IoU {float(_overlap(torch.tensor([best.box]), example.truth)):.2f}"
            pen.rectangle(_corners(best.box), outline="red", width=2)
            pen.text((best.box[0] + 4, best.box[1] + 4), text, fill="white", stroke_width=1, stroke_fill="black")
            name = Path(example.name).with_suffix("").as_posix().replace("/", "_")
            picture.save(folder / f"{name}-{example.label}.png")

    def to_dict(self) -> dict[str, Any]:
        """Settings, classes and scale."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Localization:
        """The model that :meth:`to_dict` was called on."""
        return cls(**(data | {"shape": tuple(data["shape"])}))

    def module(self) -> ClassHeads:
        """Score modules of the classes with their first weights."""
        assert self.shape is not None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            heads = [_HEADS[self.head](self.shape) for _ in self.classes]
        return ClassHeads(heads, self.classes, self.scale)

    def _examples(self, wanted: Sequence[tuple[AnnotatedImage, str]], faults: Faults) -> list[Example]:
        """Examples of the images that can be used, each with a class."""
        files = list(dict.fromkeys(image.file for image, _ in wanted))
        found, unsearched = self._search.run(files)
        faults.update(unsearched)
        truths: dict[tuple[str, str], Box | None] = {}
        for image, label in wanted:
            if image.file in found:
                with faults.noting(image.name):
                    truths[image.name, label] = _truth(image, label, found[image.file], faults)
        used = {image.file for image, label in wanted if (image.name, label) in truths}
        features, unread = self._features.run({file: found[file] for file in files if file in used})
        faults.update(unread)
        return [
            Example(
                image.name,
                image.file,
                label,
                found[image.file].boxes,
                features[image.file],
                truths[image.name, label],
                image.objects is not None,
            )
            for image, label in wanted
            if (image.name, label) in truths and image.file in features
        ]


def _batch(pairs: Sequence[tuple[Example, int]]) -> tuple[tuple[Example, ...], Tensor]:
    """Examples and labels [B]."""
    examples, y = zip(*pairs, strict=True)
    return examples, torch.tensor(y)


def load_backbone(name: str, weights: str | None = None) -> nn.Module:
    """A network that describes boxes: crops [M, 3, 64, 64], RGB from 0 to 1, to features [M, C, H, W].

    Args:
        name: one of :data:`BACKBONES`.
        weights: file with its weights, see :class:`~structsmooth.models.backbones.Backbone`. If not given, torchvision
            downloads them; but those of ``squeezenet-caffe`` are in the folder that ``STRUCTSMOOTH_DATA`` names.

    Raises:
        ValueError: no such network, or no weights.
        OSError: weights that cannot be read or downloaded.
    """
    if name not in BACKBONES:
        raise ValueError(f"backbone must be one of {', '.join(BACKBONES)}, got {name!r}")
    if weights is None and name == _CAFFE:
        if not os.environ.get(DATA_VARIABLE):
            raise ValueError(
                f"{name} needs weights: give --backbone-weights, or set {DATA_VARIABLE} to a folder that has "
                f"{_WEIGHTS}; or take --backbone squeezenet, whose weights torchvision downloads"
            )
        weights = data_file("localization", _WEIGHTS)
    return BACKBONES[name](PRETRAINED if weights is None else weights)


def _images_with(annotated: Sequence[AnnotatedImage], label: str) -> list[AnnotatedImage]:
    """Images with exactly one object of the class that is not difficult."""
    return [image for image in annotated if len(_objects(image, label)) == 1]


def _images_without(annotated: Sequence[AnnotatedImage], label: str, count: int) -> list[AnnotatedImage]:
    """Images without the class, as many, evenly spread."""
    without = [i for i in annotated if i.objects is not None and all(entry.label != label for entry in i.objects)]
    count = min(count, len(without))
    return [without[i * len(without) // count] for i in range(count)]


def _objects(image: AnnotatedImage, label: str) -> list[BoxedObject]:
    return [entry for entry in image.objects or () if entry.label == label and not entry.difficult]


def _truth(image: AnnotatedImage, label: str, found: Proposals, faults: Faults) -> Box | None:
    """The box of the object, within the image; none where there is none.

    Raises:
        ValueError: an image or a box that is of no use.
    """
    if not len(found.boxes):
        raise ValueError("no boxes proposed")
    objects = _objects(image, label)
    if not objects:
        return None
    box = clip_box(objects[0].box, found.width, found.height)
    if box != objects[0].box:
        faults.add("box clipped to the image", image.name)
    return box


def _overlap(boxes: Tensor, box: Box | Tensor) -> Tensor:
    """Intersection over union of boxes [M, 4] with another one: [M]."""
    return intersection_over_union(boxes, torch.as_tensor(box, dtype=boxes.dtype))


def _scores(pairs: Sequence[tuple[Example, Detection]]) -> dict[str, float]:
    """Metrics of one class."""
    found = [float(_overlap(torch.tensor([d.box]), e.truth)) if e.truth else 0.0 for e, d in pairs]
    best = [float(_overlap(e.boxes, e.truth).max()) for e, _ in pairs if e.truth]
    right, scores, images = [overlap > _RIGHT for overlap in found], [d.score for _, d in pairs], len(best)
    return {
        _COUNT: images,
        "corloc": sum(right) / images,
        "mean_iou": sum(found) / images,
        "ap": average_precision(scores, right, images),
        "ap_11_points": average_precision(scores, right, images, points=11),
        "best_proposal_iou": sum(best) / images,
    }


def _table(rows: dict[str, dict[str, float]]) -> str:
    width = max(map(len, [*rows, "class"]))
    names = list(next(iter(rows.values())))
    lines = ["  ".join([f"{'class':{width}}", *names])]
    for label, row in rows.items():
        cells = [f"{row[name]:>{len(name)}.{0 if name == _COUNT else 4}f}" for name in names]
        lines.append("  ".join([f"{label:{width}}", *cells]))
    return "\n".join(lines)


def _corners(box: Box) -> tuple[float, float, float, float]:
    """Centres of the outermost pixels."""
    xmin, ymin, xmax, ymax = box
    return xmin, ymin, max(xmin, xmax - 1), max(ymin, ymax - 1)


_COUNT = "images"
_CAFFE = "squeezenet-caffe"
_DATA = "voc2012_animals/voc2012_animals_single_333.zip"
_WEIGHTS = "squeezenet_v10/squeezenet1_0_imagenet_rgb.npz"
_HEADS: dict[str, type[BoxLinear | BoxELU]] = {"linear": BoxLinear, "elu": BoxELU}

BACKBONES: dict[str, Callable[[str], nn.Module]] = {
    _CAFFE: partial(SqueezeNetFire9, normalization="caffe"),
    "squeezenet": SqueezeNetFire9,
    "alexnet": AlexNetConv4,
}
"""Networks that describe boxes by name, each built from a file of weights."""
