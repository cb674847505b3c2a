"""Pose estimation: where the joints of a person are, by filters over an image and springs between joints."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from structsmooth.markup import Block, Markup, Table
from structsmooth.messages import tracked
from structsmooth.problems import DifferenceProblem
from structsmooth.settings import Interval, PositiveInt
from structsmooth.tasks.base import FittedTask, LastResultCache, Predictions, Split, Task, best_outputs, labelled
from structsmooth.tasks.images import read_listed, save_png
from structsmooth.tasks.pose.data import Joints, Person, Point, known_joints, person_size, read_people
from structsmooth.tasks.pose.features import FEATURES, Cells
from structsmooth.tasks.pose.network import NETWORK_FEATURES, network_features
from structsmooth.tasks.pose.picture import drawn_pose, filter_pictures, person_markup, spring_table
from structsmooth.tasks.pose.problem import PoseProblem
from structsmooth.tasks.pose.results import found_by_joint, measures, table
from structsmooth.tasks.pose.score import PoseScore
from structsmooth.tasks.pose.skeleton import Skeleton

Hidden = Literal["left-out", "partial"]


@dataclass(frozen=True)
class FittedPose(FittedTask):
    """A pose estimator with its skeleton."""

    task: "Pose"
    skeleton: Skeleton

    example_type: ClassVar[type] = Person
    output_json: ClassVar[tuple[str, Any]] = ("joints", dict[str, Point])

    def problem(self, examples: Sequence[Person]) -> PoseProblem | DifferenceProblem:
        """Structural hinge losses of the people whose joints are all known, with springs that hold together.

        With partial labels, also those of people some of whose joints are known.
        """
        names, is_partial = self.skeleton.names, self.task.hidden == "partial"
        people = [person for person in examples if known_joints(person)] if is_partial else complete(examples, names)
        pairs = zip(people, self._cells(people), strict=True)
        data = [(torch.from_numpy(cells.features), self._labels(person, cells)) for person, cells in pairs]
        known = [torch.tensor([name in person.joints for name in names]) for person in people]
        if all(bool(visible.all()) for visible in known):
            return PoseProblem.of(self._module(), data)
        return PoseProblem.of_hidden(self._module(), data, known)

    def predict(self, weights: Tensor, examples: Sequence[Person], k: int = 1) -> Predictions:
        """The k best poses of each image with their scores: x and y of each joint."""
        every = self._cells(examples)
        inputs = (torch.from_numpy(cells.features).unsqueeze(0) for cells in every)
        found = zip(every, best_outputs(self._module(), weights, inputs, k), strict=True)
        return [[(score, self._pose(cells.centres(y.numpy()))) for score, y in ranked] for cells, ranked in found]

    def measure(self, examples: Sequence[Person], outputs: Sequence[Joints]) -> tuple[dict[str, float], str]:
        """Percentages of correct keypoints and parts."""
        arguments = examples, outputs, self.skeleton.limbs, self.task.ends
        return measures(*arguments), table(*arguments)

    def input_to_json(self, example: Person) -> dict[str, Any]:
        """The name of its ``image``, and its ``size``: height and width."""
        return {"image": example.name, "size": list(example.image.shape[:2])}

    def draw(self, examples: Sequence[Person], predictions: Predictions, folder: Path) -> None:
        """A PNG file of each image: its best pose in green, the known one in red."""
        folder.mkdir(parents=True, exist_ok=True)
        for person, ranked in zip(examples, predictions, strict=True):
            save_png(folder / f"{person.name}.png", drawn_pose(person, ranked[0][1], self.skeleton.limbs))

    def show_example(self, example: Person, ranked: Sequence[tuple[float, Joints]]) -> Markup:
        """The image with its best pose in green and the known one in red."""
        return person_markup(example, ranked, self.skeleton.limbs)

    def show_results(self, examples: Sequence[Person], outputs: Sequence[Joints]) -> list[Block]:
        """How often each joint is found."""
        shares = found_by_joint(examples, outputs, self.task.ends)
        rows = [(joint, f"{share:.1%}") for joint, share in shares.items()]
        return [Table("Joints found within 0.2 times the size of the person", ("joint", "found"), rows)]

    def show_weights(self, weights: Tensor, examples: Sequence[Person]) -> list[Block]:
        """The springs along each limb, and the filters of the joints as pictures."""
        module = self._module()
        nn.utils.vector_to_parameters(weights, module.parameters())
        springs = spring_table(self.skeleton, module.springs)
        if self.task.network is not None:
            return [springs]
        return [springs, filter_pictures(self.skeleton.names, module.filters, self.task.window)]

    @property
    def dim(self) -> int:
        """Weights of filters and springs."""
        joints = len(self.skeleton.names)
        return joints * self.task.features * self.task.window**2 + 4 * (joints - 1)

    def _module(self) -> PoseScore:
        return PoseScore(self.skeleton, self.task.window, self.task.features)

    @cached_property
    def _cells(self) -> LastResultCache[list[Cells]]:
        return LastResultCache(lambda people: [self.task.cells(person) for person in tracked(people, "features")])

    def _pose(self, places: NDArray[np.float64]) -> Joints:
        return {name: (x, y) for name, (x, y) in zip(self.skeleton.names, places.tolist(), strict=True)}

    def _labels(self, person: Person, cells: Cells) -> tuple[Tensor, Tensor]:
        """Positions of the joints, and the costs of others: squares of distances, in sizes of the person, up to 1.

        Hidden joints are in the first cell.
        They are divided by the number of joints (Osokin et al. 2016, appendix I.4, with the minimum that is meant).
        """
        height, width = cells.shape
        joints = np.array([person.joints.get(name, (0.0, 0.0)) for name in self.skeleton.names])
        nearest = (joints / cells.pixels).astype(int).clip(0, [width - 1, height - 1])
        everywhere = np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1)
        distances = (everywhere - nearest[:, None, None]) * cells.pixels / person_size(person.joints, self.task.ends)
        costs = np.minimum(1.0, (distances**2).sum(3)) / len(joints)
        return torch.from_numpy(nearest[:, 1] * width + nearest[:, 0]), torch.from_numpy(costs)


@dataclass(frozen=True)
class Pose(Task):
    """Joints of a person: histograms of gradients under filters, and springs along a tree of joints.

    Args:
        window: width and height of the filter of a joint in cells, an odd number.
        cell: width and height of a cell in pixels.
        longest: largest size of the longer side of an image in pixels; larger ones are made smaller.
        hidden: what becomes of people some of whose joints are not known: they are left out, or train by all poses that
            agree with the known joints (partial), by the solver convex-concave unless another one is given.
        network: file of weights of SqueezeNet 1.0, trained on ImageNet by Caffe, whose features take the place of
            histograms of gradients; histograms if not given.
        torso: two joints, separated by a comma, whose distance is the size of a person, which costs and metrics are
            relative to; 0.4 times the longer side of the box of all known joints where one of them is not known.

    Reference:
        Felzenszwalb and Huttenlocher (2005), "Pictorial Structures for Object Recognition"; Osokin et al. (2016),
        appendix I.4.
    """

    window: PositiveInt = 5
    cell: Annotated[int, Interval(2)] = 8
    longest: int = 180
    hidden: Hidden = "left-out"
    network: str | None = field(default=None, metadata={"metavar": "FILE"})
    torso: str = "left_shoulder,right_hip"

    summary: ClassVar[str] = "joints of people: filters over images, springs along a tree"
    files: ClassVar[str] = (
        "A folder or zip file with images/, one person each, and joints.csv with the columns file,joint,x,y; "
        "PATH#1-200 selects images. Images alone to predict."
    )
    # The first 300 and the last 100 of 400 images of LSPET.
    data: ClassVar[Mapping[str, str]] = {"train": "lspet#1-300", "test": "lspet#301-400"}
    example: ClassVar[str] = "--train 'people.zip#1-200' --test 'people.zip#201-400'"
    headline: ClassVar[str] = "pck"
    lam: ClassVar[str] = "30/n"
    passes: ClassVar[int] = 20
    solver: ClassVar[str] = "proximal-bcfw"
    partial_option: ClassVar[str] = "hidden"
    hyperparameters: ClassVar[Mapping[str, Any]] = {"steps": "fw"}
    fitted_type: ClassVar[type[FittedTask]] = FittedPose

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window % 2 == 0:
            raise ValueError(f"window must be an odd number from 1, got {self.window}")
        if self.longest < 2 * self.cell:
            raise ValueError(f"longest must be at least {2 * self.cell}, got {self.longest}")
        if len(self.torso.split(",")) != 2:
            raise ValueError(f"torso must be two joints, separated by a comma, got {self.torso!r}")

    @property
    def features(self) -> int:
        """Number of features of a cell."""
        return FEATURES if self.network is None else NETWORK_FEATURES

    @property
    def ends(self) -> tuple[str, str]:
        """The two joints of the torso."""
        first, second = self.torso.split(",")
        return first, second

    def read(self, path: str | TextIO, split: Split = "train") -> list[Person]:
        """People in images; see :func:`~structsmooth.tasks.pose.data.read_people`.

        Images to train on that lack joints are named on standard error: they are left out of training.
        """
        people = labelled(read_listed(path, read_people), split, known_joints)
        if split == "train":
            lacking = len(people) - len(complete(people, joint_names(people)))
            if lacking and self.hidden == "left-out":
                name = path if isinstance(path, str) else "standard input"
                print(f"{name}: {lacking} of {len(people)} images lack joints, and are not trained on", file=sys.stderr)
        return people

    def fit(self, examples: Sequence[Person]) -> FittedPose:
        """The estimator with the tree of joints, their mean displacements and the deviations from these."""
        names = joint_names(examples)
        people = complete(examples, names)
        places = [np.array([p.joints[name] for name in names]) / self.cells(p).pixels for p in people]
        return FittedPose(self, Skeleton.fit(names, np.stack(places)))

    def cells(self, person: Person) -> Cells:
        """The cells of an image."""
        described = None if self.network is None else partial(network_features, weights=self.network)
        return Cells.of(person.image, self.longest, self.cell, self.window // 2, described)


def joint_names(people: Sequence[Person]) -> list[str]:
    """All joints that are known of somebody, in the order of the data."""
    return list(dict.fromkeys(name for person in people for name in person.joints))


def complete(people: Sequence[Person], names: Sequence[str]) -> list[Person]:
    """The people all of whose joints are known.

    Raises:
        ValueError: there are none.
    """
    found = [person for person in people if known_joints(person).keys() >= set(names)]
    if not found:
        raise ValueError(f"none of the images has all joints ({', '.join(names)}): training needs some that have")
    return found
