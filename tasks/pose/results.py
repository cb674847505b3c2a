"""Metrics of poses: shares of joints and limbs that are found, and distances."""

import math
from collections.abc import Sequence

import numpy as np

from structsmooth.tasks.pose.data import Joints, Person, known_joints, person_size

Limbs = Sequence[tuple[str, str]]
# Errors of joints that count as found, in sizes of the person.
_LIMITS = {"pck": 0.2, "pck10": 0.1}


def measures(
    people: Sequence[Person], poses: Sequence[Joints], limbs: Limbs, torso: tuple[str, str]
) -> dict[str, float]:
    """``pck``, ``pck10``, ``pcp`` and ``error``.

    ``pck`` and ``pck10`` are the shares of joints found within 0.2 and 0.1 times the size of the person (percentage of
    correct keypoints; Yang and Ramanan 2013), ``pcp`` is the share of limbs both ends of which are found within half of
    the limb's length (percentage of correct parts, strict; Ferrari et al. 2008), and ``error`` is the mean distance of
    found joints from known ones, in sizes of the person. Joints that are not known do not count, and neither do limbs
    without two known ends.

    Args:
        people: with known joints.
        poses: where the joints were found.
        limbs: the two joints of each.
        torso: two joints whose distance is the size of a person; see :func:`~structsmooth.tasks.pose.data.person_size`.

    Raises:
        ValueError: a person without known joints.
    """
    errors = [_errors(person, pose) for person, pose in zip(people, poses, strict=True)]
    sizes = [person_size(person.joints, torso) for person in people]
    relative = [error / size for distances, size in zip(errors, sizes, strict=True) for error in distances.values()]
    found = {name: _share([error <= limit for error in relative]) for name, limit in _LIMITS.items()}
    correct = [_is_found(p, distances, limb) for p, distances in zip(people, errors, strict=True) for limb in limbs]
    pcp = _share([found for found in correct if found is not None])
    return found | {"pcp": pcp, "error": float(np.mean([error for error in relative if error < math.inf]))}


def table(people: Sequence[Person], poses: Sequence[Joints], limbs: Limbs, torso: tuple[str, str]) -> str:
    """The metrics, and the share of each joint that is found within 0.2 times the size of the person."""
    metrics = measures(people, poses, limbs, torso)
    mean_error = metrics.pop("error")
    lines = [f"{name:16} {value:8.2%}" for name, value in metrics.items()]
    lines += [f"  {joint:14} {share:8.2%}" for joint, share in found_by_joint(people, poses, torso).items()]
    return "\n".join([*lines, f"error            {mean_error:8.3f}", f"images           {len(people):8}"])


def found_by_joint(people: Sequence[Person], poses: Sequence[Joints], torso: tuple[str, str]) -> dict[str, float]:
    """The share of each joint that is found within 0.2 times the size of the person."""
    by_joint: dict[str, list[bool]] = {}
    for person, pose in zip(people, poses, strict=True):
        limit = _LIMITS["pck"] * person_size(person.joints, torso)
        for joint, error in _errors(person, pose).items():
            by_joint.setdefault(joint, []).append(error <= limit)
    return {joint: _share(found) for joint, found in by_joint.items()}


def _errors(person: Person, pose: Joints) -> dict[str, float]:
    """Distances in pixels of the joints that are known; infinite for those that the pose has not."""
    known = known_joints(person).items()
    return {name: math.dist(pose[name], place) if name in pose else math.inf for name, place in known}


def _is_found(person: Person, errors: dict[str, float], limb: tuple[str, str]) -> bool | None:
    """Whether both ends of a limb are within half of its length; ``None`` if one of them is not known."""
    if not all(name in errors for name in limb):
        return None
    first, second = (person.joints[name] for name in limb)
    return max(errors[name] for name in limb) <= math.dist(first, second) / 2


def _share(found: Sequence[bool]) -> float:
    return float(np.mean(found)) if found else 0.0
