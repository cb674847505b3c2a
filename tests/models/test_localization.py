"""Backbones and scores of candidate boxes: against torchvision, direct computations, files of weights, training."""

import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.testing import assert_close
from torchvision.transforms import functional as transforms

from structsmooth import L2, CasimirSVRG, ModuleProblem, ProxLinear, StructuralHinge
from structsmooth.checkpoint import load_state, save_state
from structsmooth.models import (
    AlexNetConv4,
    AlexNetConv4ELU,
    AlexNetConv4Linear,
    BoxELU,
    BoxLinear,
    BoxScore,
    SqueezeNetFire9,
    collate_boxes,
    crop_boxes,
)

SHAPE = (4, 2, 2)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def alexnet() -> AlexNetConv4:
    with pytest.warns(UserWarning, match="AlexNetConv4 has random weights"):
        return AlexNetConv4(None)


@pytest.fixture
def maps() -> Tensor:
    return torch.randn(3, 5, *SHAPE)


def backbone() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(2))


HEADS: dict[str, Callable[..., BoxScore]] = {"linear": BoxLinear, "elu": BoxELU}
every_head = pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())


def test_alexnet_is_that_of_torchvision(tmp_path: Path) -> None:
    whole = torchvision.models.alexnet(weights=None)
    torch.save({name: value for name, value in whole.state_dict().items() if "features" in name}, tmp_path / "a.pt")
    ours = AlexNetConv4(tmp_path / "a.pt")
    crops = torch.rand(2, 3, 64, 64)
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    expected = whole.features[:9]((crops - mean.view(3, 1, 1)) / deviation.view(3, 1, 1))
    assert ours(crops).shape == (2, *AlexNetConv4.shape)
    assert_close(ours(crops), expected)
    assert_close(ours((crops * 255).to(torch.uint8)), ours((crops * 255).floor() / 255))


@pytest.mark.parametrize("normalization", ["imagenet", "caffe"])
def test_squeezenet_is_that_of_torchvision(normalization: Any, tmp_path: Path) -> None:
    whole = torchvision.models.squeezenet1_0(weights=None)
    np.savez(tmp_path / "s.npz", **{name: value.numpy() for name, value in whole.state_dict().items()})
    ours = SqueezeNetFire9(tmp_path / "s.npz", normalization).double()
    crops = torch.rand(2, 3, 64, 64, dtype=torch.float64)
    pixels = 255 * crops - torch.tensor([123.0, 117.0, 104.0]).view(3, 1, 1)
    if normalization == "imagenet":
        mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
        pixels = (crops - mean.view(3, 1, 1)) / deviation.view(3, 1, 1)
    assert ours(crops).shape == (2, *SqueezeNetFire9.shape)
    assert_close(ours(crops), whole.double().features(pixels), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ending", [".pt", ".pth", ".safetensors", ".npz"])
@pytest.mark.parametrize("prefix", ["features.", ""])
def test_weights_from_files(ending: str, prefix: str, tmp_path: Path) -> None:
    random, path = alexnet(), tmp_path / f"weights{ending}"
    values = {prefix + name: value for name, value in random.layers.state_dict().items()}
    if ending == ".npz":
        np.savez(path, **{name: value.numpy() for name, value in values.items()})
    else:
        (save_file if ending == ".safetensors" else torch.save)(values, path)
    crops = torch.rand(1, 3, 64, 64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(AlexNetConv4(path)(crops), random(crops))


def test_files_that_are_no_weights(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.pt: no such file of weights; or take 'pretrained', or None"):
        AlexNetConv4(tmp_path / "none.pt")
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(ValueError, match=r"a\.txt: weights must be a \.pt, \.pth, \.safetensors or \.npz file"):
        AlexNetConv4(tmp_path / "a.txt")
    values = alexnet().layers.state_dict()
    save_file({name: value for name, value in values.items() if name != "3.bias"}, tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=r"a\.safetensors: no weights for features\.3\.bias"):
        AlexNetConv4(tmp_path / "a.safetensors")
    save_file(values | {"3.bias": torch.zeros(2)}, tmp_path / "b.safetensors")
    with pytest.raises(ValueError, match=r"features\.3\.bias must have shape \(192,\), got \(2,\)"):
        AlexNetConv4(tmp_path / "b.safetensors")


class Harmful:
    """Would run code, if it were unpickled."""

    def __reduce__(self) -> Any:
        return (print, ("harm",))


def test_weights_execute_no_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"features.0.weight": Harmful()}, tmp_path / "a.pt")
    with pytest.raises(Exception, match=r"[Ww]eights only load failed"):
        AlexNetConv4(tmp_path / "a.pt")
    assert capsys.readouterr().out == ""


def test_a_download_that_fails_names_the_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", refuse)
    with pytest.raises(OSError, match=r"could not be downloaded \(no network\)\. Give a file .* or None for random"):
        AlexNetConv4Linear()


def test_without_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    assert alexnet()(torch.rand(1, 3, 64, 64)).shape == (1, 256, 3, 3)
    for make in (lambda: AlexNetConv4(), lambda: SqueezeNetFire9(None)):
        with pytest.raises(ImportError, match=re.escape("pip install structsmooth[images]")):
            make()


def test_crops_of_boxes() -> None:
    image = torch.rand(3, 90, 120)
    boxes = torch.tensor([[0, 0, 120, 90], [10, 20, 15, 80], [7, 3, 71, 67], [119, 89, 120, 90]])
    crops = crop_boxes(image, boxes)
    assert torch.equal(crops[2], image[:, 3:67, 7:71])
    for crop, (x1, y1, x2, y2) in zip(crops, boxes.tolist(), strict=True):
        expected = transforms.resized_crop(image, y1, x1, y2 - y1, x2 - x1, [64, 64], antialias=True)
        assert_close(crop, expected)
    whole = (image * 255).to(torch.uint8)
    assert_close(crop_boxes(whole, boxes, 32), crop_boxes(whole.float() / 255, boxes, 32))


@pytest.mark.parametrize("box", [[0, 0, 0, 5], [5, 5, 4, 9], [-1, 0, 5, 5], [0, 0, 121, 5], [0, 0, 5, 91]])
def test_boxes_outside_are_refused(box: list[int]) -> None:
    with pytest.raises(ValueError, match="boxes must lie within the image"):
        crop_boxes(torch.rand(3, 90, 120), torch.tensor([box]))


def test_scores_against_direct_computation(maps: Tensor) -> None:
    linear, elu = BoxLinear(SHAPE), BoxELU(SHAPE, hidden=3)
    assert not linear.weight.any()
    linear.weight.data.normal_()
    u, v = elu.convolution.weight[:, :, 0, 0], elu.linear.weight.view(3, 2, 2)
    for b in range(3):
        for m in range(5):
            assert_close(linear(maps).scores[b, m], (maps[b, m] * linear.weight).sum())
            hidden = torch.einsum("oc,chw->ohw", u, maps[b, m])
            hidden = torch.where(hidden >= 0, hidden, hidden.exp() - 1)
            assert_close(elu(maps).scores[b, m], (hidden * v).sum())
    assert (linear.affine, elu.affine) == (True, False)


@every_head
def test_crops_and_features_in_advance_score_alike(head: Any) -> None:
    module = head(SHAPE, backbone())
    module.train()
    crops = torch.rand(2, 3, 3, 16, 16)
    features = module.feature_maps(crops.flatten(0, 1)).view(2, 3, *SHAPE)
    assert not features.requires_grad
    assert torch.equal(module(crops).scores, module(features).scores)
    assert torch.equal(head(SHAPE)(features.half()).mask, torch.ones(2, 3, dtype=torch.bool))


@every_head
def test_padding_changes_nothing(head: Any, maps: Tensor) -> None:
    module, counts = head(SHAPE), torch.tensor([5, 1, 3])
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    candidates = module((maps, counts))
    StructuralHinge(L2(0.5, 3), torch.ones(3, 5))(candidates, torch.tensor([4, 0, 2])).backward()
    gradients = [parameter.grad.clone() for parameter in module.parameters()]
    module.zero_grad()
    inside = torch.arange(5) < counts[:, None]
    other = torch.where(inside[..., None, None, None], maps, 7.0)
    StructuralHinge(L2(0.5, 3), torch.ones(3, 5))(module((other, counts)), torch.tensor([4, 0, 2])).backward()
    assert torch.equal(candidates.max()[1], module((other, counts)).max()[1])
    for parameter, gradient in zip(module.parameters(), gradients, strict=True):
        assert_close(parameter.grad, gradient)


def test_a_frozen_backbone_is_a_copy_that_stays() -> None:
    given = backbone()
    module = BoxLinear(SHAPE, given)
    assert all(p.requires_grad for p in given.parameters())
    assert [name for name, p in module.named_parameters() if p.requires_grad] == ["weight"]
    module.train()
    module(torch.rand(2, 3, 3, 16, 16))
    assert module.backbone[1].num_batches_tracked == 0
    trained = BoxLinear(SHAPE, given, freeze=False)
    assert trained.backbone is given
    assert not trained.affine
    trained.weight.data.normal_()
    trained(torch.rand(2, 3, 3, 16, 16)).scores.sum().backward()
    assert given[0].weight.grad.any()


def test_the_models_of_the_paper(tmp_path: Path) -> None:
    save_file(alexnet().layers.state_dict(), tmp_path / "a.safetensors")
    crops = torch.rand(1, 2, 3, 64, 64)
    linear, elu = AlexNetConv4Linear(tmp_path / "a.safetensors"), AlexNetConv4ELU(tmp_path / "a.safetensors")
    trained = [sum(p.numel() for p in module.parameters() if p.requires_grad) for module in (linear, elu)]
    assert trained == [3 * 3 * 256, 256 * 16 + 16 * 3 * 3]
    assert linear(crops).scores.tolist() == [[0.0, 0.0]]
    assert elu(crops).scores.shape == (1, 2)


def localization(head: BoxScore) -> ModuleProblem:
    """Images with 2 to 6 boxes; the right one has the largest mean square of features in its first channel."""
    data = []
    for i in range(24):
        maps = torch.randn(2 + i % 5, *SHAPE)
        quality = maps[:, 0].square().mean((1, 2))
        y = quality.argmax()
        data.append((maps, (y, 1 - quality / quality[y])))
    return ModuleProblem(head, data, cost=None, batch_size=4, collate=collate_boxes)


@pytest.mark.parametrize(
    ("head", "solver"),
    [(BoxELU, ProxLinear(inner=CasimirSVRG(schedule="constant", k=10))), (BoxLinear, CasimirSVRG(k=10))],
)
def test_training_with_costs_of_boxes(head: Any, solver: Any) -> None:
    problem = localization(head(SHAPE))
    history = solver.solve(problem, lam=1e-3, passes=40).history
    assert history[-1].objective < (0.7 if head is BoxELU else 0.99) * history[0].objective


def test_collate() -> None:
    maps = [torch.randn(m, *SHAPE) for m in (2, 3)]
    (x, counts), y = collate_boxes([(maps[0], 1), (maps[1], 2)])
    assert (x.shape, counts.tolist(), y.tolist()) == ((2, 3, *SHAPE), [2, 3], [1, 2])
    assert torch.equal(x[0, :2], maps[0])
    assert not x[0, 2].any()
    costs = [torch.tensor([0.5, 0.0]), torch.tensor([1.0, 0.2, 0.0])]
    _, (y, padded) = collate_boxes([(maps[i], (i + 1, costs[i])) for i in range(2)])
    assert y.tolist() == [1, 2]
    assert torch.equal(padded, torch.tensor([[0.5, 0.0, 0.0], [1.0, 0.2, 0.0]]))


@every_head
def test_saved_and_loaded_without_change(head: Any, maps: Tensor, tmp_path: Path) -> None:
    module, other = head(SHAPE), head(SHAPE)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    save_state(tmp_path / "head.safetensors", module.state_dict(), {})
    other.load_state_dict(load_state(tmp_path / "head.safetensors")[0])
    assert torch.equal(other(maps).scores, module(maps).scores)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: BoxLinear(SHAPE)(torch.zeros(2, *SHAPE)), r"x must have shape \[B, M, C, H, W\], got \(2, 4, 2, 2\)"),
        (lambda: BoxLinear(SHAPE)(torch.zeros(1, 2, 3, 64, 64)), r"no backbone"),
        (
            lambda: BoxLinear(SHAPE)((torch.zeros(1, 2, *SHAPE), torch.ones(2))),
            r"counts must have shape \[B\] = \(1,\)",
        ),
        (lambda: BoxLinear((4, 9, 9), backbone())(torch.zeros(1, 2, 3, 16, 16)), r"backbone must give maps of shape"),
        (lambda: BoxELU(SHAPE, hidden=0), "hidden must be at least 1, got 0"),
        (lambda: SqueezeNetFire9(None, "none"), 'normalization must be "imagenet" or "caffe"'),
        (lambda: crop_boxes(torch.zeros(4, 4), torch.zeros(1, 4)), r"image must have shape \[3, H, W\]"),
        (lambda: crop_boxes(torch.zeros(3, 4, 4), torch.zeros(4)), r"boxes must have shape \[M, 4\]"),
        (lambda: alexnet()(torch.zeros(3, 64, 64)), r"crops must have shape \[N, 3, H, W\]"),
    ],
)
def test_refuses(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
