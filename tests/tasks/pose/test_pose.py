"""Poses: files, features, skeletons, costs, metrics and pictures."""

import io
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
import torchvision
from images import zipped
from pose_images import HEADER, HEIGHT, WIDTH, figure, table, write_all
from torch.testing import assert_close

from structsmooth import L2, LinearModuleProblem, Max, ProximalBCFW, train
from structsmooth.cli import main
from structsmooth.markup import Table
from structsmooth.plain import from_plain, plain
from structsmooth.problems import DifferenceProblem
from structsmooth.solvers import ConvexConcave
from structsmooth.solvers.bcfw.active_set import Cache, DualIterate
from structsmooth.solvers.bcfw.steps import epoch
from structsmooth.tasks import Pose
from structsmooth.tasks.pose import FittedPose, complete
from structsmooth.tasks.pose.data import Person, person_size, read_people
from structsmooth.tasks.pose.features import FEATURES, Cells, oriented_gradients
from structsmooth.tasks.pose.network import NETWORK_FEATURES
from structsmooth.tasks.pose.results import measures
from structsmooth.tasks.pose.results import table as pose_table
from structsmooth.tasks.pose.score import PoseScore
from structsmooth.tasks.pose.skeleton import Skeleton

TASK = Pose(window=3, cell=4, longest=52, torso="head,foot")
ENDS = ("head", "foot")


@pytest.fixture
def folder(tmp_path) -> Path:
    return Path(write_all(tmp_path / "people", 4))


@pytest.fixture(scope="module")
def people(tmp_path_factory) -> list[Person]:
    return read_people(write_all(tmp_path_factory.mktemp("figures") / "people", 4))


def person(name: str = "p", size: tuple[int, int] = (20, 30), **joints: tuple[float, float]) -> Person:
    return Person(name, np.zeros((*size, 3), np.uint8), joints)


# Files.


def test_reads_folders_zip_files_and_parts(folder):
    people = read_people(str(folder))
    assert [p.name for p in people] == ["p00", "p01", "p02", "p03"]
    image, joints = figure(2)
    assert people[2].joints == joints
    assert np.array_equal(people[2].image, image)
    for path in (f"{folder}#3", f"{zipped(folder)}#3-3"):
        (own,) = read_people(path)
        assert (own.name, own.joints) == ("p02", joints)


def test_joints_without_a_line_are_not_known(folder, capsys):
    lines = table({"p00": figure(0)[1], "p01": figure(1)[1], "p03": figure(3)[1]}).splitlines()
    (folder / "joints.csv").write_text("\n".join(lines[:-1]) + "\n")
    people = read_people(str(folder))
    assert [len(p.joints) for p in people] == [3, 3, 0, 2]
    assert [p.name for p in complete(people[:2] + people[3:], ["head", "hand", "foot"])] == ["p00", "p01"]
    with pytest.raises(ValueError, match="p02 has no joints"):
        TASK.read(str(folder))
    assert len(TASK.read(f"{folder}#1-2")) == 2
    assert not capsys.readouterr().err
    (folder / "images" / "p02.png").unlink()
    assert len(TASK.read(str(folder), "test")) == 3
    assert not capsys.readouterr().err
    TASK.read(str(folder))
    assert "1 of 3 images lack joints, and are not trained on" in capsys.readouterr().err
    assert TASK.fit(people[:2] + people[3:]).problem(people[:2] + people[3:]).n == 2


def test_reads_the_crops_of_lspet(tmp_path):
    folder = tmp_path / "lspet"
    folder.mkdir()
    images = Path(write_all(folder / "lspet400_crops", 3, joints=False))
    zipped(images)
    places = np.array([list(figure(seed)[1].values()) for seed in range(3)], np.float32)
    places[1, 2] = np.nan
    np.savez(
        folder / "lspet400.npz",
        joints_crop=places,
        joint_names=np.array(["head", "hand", "foot"]),
        filenames=np.array([f"p{seed:02d}.png" for seed in range(3)]),
    )
    people = read_people(f"{folder}#1-2")
    assert people[0].joints == figure(0)[1]
    assert people[1].joints.keys() == {"head", "hand"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("image,joint,x,y\n", rf"joints.csv:1: expected the header {HEADER}"),
        (f"{HEADER}\np00.png,head,1\n", r"joints.csv:2: expected a file, a joint and two numbers"),
        (f"{HEADER}\np00.png,head,1,nan\n", r"joints.csv:2: expected a file, a joint and two numbers"),
        (f"{HEADER}\np00.png,,1,2\n", r"joints.csv:2: expected a file, a joint and two numbers"),
        (f"{HEADER}\np00.png,head,1,2\nq.png,head,1,2\n", r"joints.csv:3: there is no image q.png"),
        (f"{HEADER}\np00.png,head,1,2\np00.png,head,1,3\n", r"joints.csv:3: p00.png has the joint head twice"),
        (
            f"{HEADER}\np00.png,head,1,66\n",
            rf"joints.csv: head of p00 at 1, 66 is outside the image of {WIDTH} x {HEIGHT}",
        ),
    ],
)
def test_refuses_malformed_tables_by_place(folder, content, message):
    (folder / "joints.csv").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_people(str(folder))


def test_columns_that_are_not_needed_are_ignored(folder):
    (folder / "joints.csv").write_text("joint,visible,x,y,file\nhead,0,3,4,p01.png\n")
    assert read_people(str(folder))[1].joints == {"head": (3.0, 4.0)}


def test_refuses_too_many_images_and_options_that_make_no_sense(folder):
    with pytest.raises(ValueError, match="there are 4 images, counted from 1"):
        read_people(f"{folder}#1-5")
    for options, message in (
        ({"window": 4}, "window must be an odd number from 1, got 4"),
        ({"cell": 1}, "cell must be at least 2, got 1"),
        ({"longest": 11}, "longest must be at least 16, got 11"),
        ({"torso": "head"}, "torso must be two joints, separated by a comma, got 'head'"),
    ):
        with pytest.raises(ValueError, match=message):
            Pose(**options)


def test_training_needs_somebody_with_all_joints():
    with pytest.raises(ValueError, match=r"none of the images has all joints \(head, hand\): training needs some"):
        TASK.fit([person(head=(1, 2)), person(hand=(3, 4))])


# Features.


def test_gradients_are_those_of_their_cells():
    image = np.zeros((24, 30, 3), np.uint8)
    image[:, 21:] = 255  # a vertical edge through the middle of the column of cells 3, of side 6
    features = oriented_gradients(image, 6)
    assert features.shape == (4, 5, FEATURES)
    horizontal = features[..., [0, 8]].sum(2)  # 0 and 180 degrees are the ends of two bins
    assert (horizontal.argmax(1) == 3).all()
    assert not horizontal[:, :2].any()
    assert not features[..., 2:7].any()
    assert (features[:, 3, 9:13] > 0).all()


def test_cells_cover_the_image_and_images_are_made_smaller():
    image = figure(0)[0]
    cells = Cells.of(image, 26, 4, 2)
    assert cells.shape == (6, 6)  # of 26 x 22 pixels
    assert cells.features.shape == (10, 10, FEATURES)
    assert (cells.features[:2, :, -1] == 1).all()
    assert (cells.features[2:-2, 2:-2, -1] == 0).all()
    assert_close(cells.centres(np.array(5)), np.array([WIDTH * 11 / 12, HEIGHT / 12]))


# Skeletons and scores.


def test_the_skeleton_is_the_tree_of_least_variance():
    rng = np.random.default_rng(0)
    hip = rng.normal(size=(50, 2)) * 9
    knee = hip + np.array([0, 5]) + rng.normal(size=(50, 2))
    foot = knee + np.array([1, 5]) + rng.normal(size=(50, 2))
    skeleton = Skeleton.fit(("foot", "hip", "knee"), np.stack([foot, hip, knee], 1))
    assert skeleton.parents == (-1, 2, 0)
    assert skeleton.limbs == [("hip", "knee"), ("knee", "foot")]
    assert_close(np.array(skeleton.anchors), np.array([[0.0, 0.0], [0.0, -5.0], [-1.0, -5.0]]), atol=0.5, rtol=0)
    assert_close(np.array(skeleton.scales), np.array([[0.5, 0.5], [1.0, 1.0], [1.0, 1.0]]), atol=0.3, rtol=0)
    assert from_plain(Skeleton, plain(skeleton), "skeleton") == skeleton


def test_scores_by_hand():
    skeleton = Skeleton(("a", "b"), (-1, 0), ((0.0, 0.0), (1.0, 0.0)), ((0.5, 0.5), (2.0, 1.0)))
    module, x = PoseScore(skeleton, 3), torch.rand(1, 5, 6, FEATURES, dtype=torch.float64)
    torch.nn.init.normal_(module.filters)
    torch.nn.init.uniform_(module.springs)
    structure = module(x)
    assert structure.unary.shape == (1, 2, 3, 4)
    filters = module.filters.view(2, FEATURES, 3, 3)
    expected = [(filters[v] * x[0, r : r + 3, c : c + 3].movedim(2, 0)).sum() for v, r, c in ((0, 1, 0), (1, 2, 3))]
    features = torch.tensor([2 / 2, (2 / 2) ** 2, 1 / 1, 1 / 1]).double()
    score = structure.score(torch.tensor([[4, 11]]))  # 3 to the right of the other, 1 below
    assert_close(score, (sum(expected) - 0.1 * module.springs[0] @ features).view(1))
    lower, upper = module.bounds()
    assert upper.isinf().all()
    assert lower.isfinite().nonzero().flatten().tolist() == [2 * 9 * FEATURES + 1, 2 * 9 * FEATURES + 3]


def test_costs_are_squares_of_distances_up_to_one(people):
    fitted = TASK.fit(people)
    problem = fitted.problem(people)
    for i, own in enumerate(people):
        _, (y, cost) = problem.dataset[i]
        cells = TASK.cells(own)
        height, width = cells.shape
        assert cost.shape == (3, height, width)
        assert cost.flatten(1).gather(1, y[:, None]).tolist() == [[0.0]] * 3
        assert cost.max() == pytest.approx(1 / 3)
        size = person_size(own.joints, ENDS)
        v, place = 1, np.array([0, 3])
        label = np.array([int(y[v]) % width, int(y[v]) // width])
        distance = (((place - label) * cells.pixels / size) ** 2).sum()
        assert cost[v, 3, 0] == pytest.approx(min(1.0, distance) / 3)
        joint = np.array(list(own.joints.values()))[v]
        assert (abs(cells.centres(y[v].numpy()) - joint) <= cells.pixels / 2 + 1e-9).all()


def hiding(people):
    """The same people, of whom every second one has a joint that is not known."""
    return [
        Person(p.name, p.image, {name: at for name, at in p.joints.items() if i % 2 == 0 or name != "hand"})
        for i, p in enumerate(people)
    ]


def test_hidden_joints_may_be_anywhere(people):
    """The loss is that of partial labels: the best pose with costs, less the best one that agrees."""
    task, hidden = replace(TASK, hidden="partial"), hiding(people)
    fitted, left_out = task.fit(hidden), TASK.fit(hidden)
    assert left_out.problem(hidden).n == 2
    problem = fitted.problem(hidden)
    assert isinstance(problem, DifferenceProblem)
    assert problem.n == 4
    w = problem.problem.within_bounds(torch.randn(problem.dim, generator=torch.Generator().manual_seed(0)).double())
    module, losses = PoseScore(fitted.skeleton, 3), []
    torch.nn.utils.vector_to_parameters(w, module.parameters())
    joints = fitted.skeleton.names
    for i, own in enumerate(hidden):
        x, (y, costs) = problem.problem.dataset[i]
        with torch.no_grad():
            structure = module(x[None])
            allowed = torch.ones_like(costs, dtype=torch.bool)
            for joint, name in enumerate(joints):
                if name in own.joints:
                    allowed[joint] = (torch.arange(costs[0].numel()) == y[joint]).view_as(costs[0])
                else:
                    assert not costs[joint].any()
            losses.append(structure.plus_costs(costs[None]).max()[0] - structure.restrict(allowed[None]).max()[0])
    assert problem.loss(w) == pytest.approx(float(torch.cat(losses).mean()), rel=1e-10)
    assert fitted.problem(people).n == 4
    assert not isinstance(fitted.problem(people), DifferenceProblem)


def test_training_with_hidden_joints(people, folder, capsys):
    hidden = hiding(people)
    task = replace(TASK, hidden="partial")
    solver = ConvexConcave(inner=ProximalBCFW(steps="fw"), inner_passes=5)
    model = train(task, hidden, solver=solver, lam=0.01, passes=30)
    # The hand that nobody has marked is found, too.
    assert model.score(people)["pck"] > 0.7
    lines = table({f"p{i:02d}": own.joints for i, own in enumerate(hidden)})
    (folder / "joints.csv").write_text(lines)
    task.read(str(folder))
    assert "lack joints" not in capsys.readouterr().err
    with pytest.raises(TypeError, match="needs complete labels, since partial ones have no dual: take ConvexConcave"):
        train(task, hidden, solver=ProximalBCFW(), passes=1)
    assert task.preferred_solver == "convex-concave"


def test_features_of_a_network(people, tmp_path):
    layers = torchvision.models.squeezenet1_0(weights=None).features
    path = str(tmp_path / "weights.npz")
    np.savez(path, **{f"features.{name}": own.numpy() for name, own in layers.state_dict().items()})
    task = replace(TASK, network=path, window=1)
    cells = task.cells(people[0])
    assert cells.features.shape == (*cells.shape, NETWORK_FEATURES)
    assert np.linalg.norm(cells.features[..., :-1], axis=2).mean() == pytest.approx(1, rel=1e-4)
    assert not cells.features[..., -1].any()
    model = train(task, people, lam=1e-4, passes=60)
    assert model.score(people)["pck"] > 0.7
    assert [type(own) for own in task.fit(people).show_weights(model.weights, people)] == [Table]
    with pytest.raises(FileNotFoundError, match=r"none\.npz: no such file of weights"):
        replace(TASK, network=str(tmp_path / "none.npz")).cells(people[0])


def test_there_may_be_a_single_joint(people):
    heads = [Person(p.name, p.image, {"head": p.joints["head"]}) for p in people]
    fitted = TASK.fit(heads)
    result = ProximalBCFW().solve(fitted.problem(heads), lam=0.1, passes=5)
    assert result.history[-1].gap < 0.5 * result.history[0].gap
    assert fitted.skeleton.limbs == []
    poses = [ranked[0][1] for ranked in fitted.predict(result.weights, heads)]
    metrics, _ = fitted.measure(heads, poses)
    assert metrics["pcp"] == 0


def test_products_are_the_gradients(people):
    fitted = TASK.fit(people)
    problem = fitted.problem(people)
    plain = LinearModuleProblem(problem.module, problem.dataset, None, bounds=problem.bounds, chunk_size=1)
    w = problem.within_bounds(torch.randn(problem.dim, generator=torch.Generator().manual_seed(0)).double())
    for block in range(problem.n):
        augmented = problem.augmented(w, block)
        assert_close(augmented, plain.augmented(w, block))
        own, expected = problem.oracle(augmented, block), plain.oracle(augmented, block)
        assert_close((own.value, own.statistics, own.atom), (expected.value, expected.statistics, expected.atom))
        assert_close(problem.parts(own.atom, block), plain.parts(own.atom, block))
        for statistics in (own.statistics, augmented):
            assert_close(problem.adjoint(statistics, block), plain.adjoint(statistics, block))
    for smoother in (Max(), L2(1.0, 3)):
        weighted = torch.arange(1.0, problem.n + 1)
        a, b = (q.weighted(weighted).full_pass(w, smoother, with_loss=True) for q in (problem, plain))
        assert_close((a.gradient, a.loss, a.expected_cost), (b.gradient, b.loss, b.expected_cost))
        a, b = (q.full_pass(w, smoother, with_loss=True) for q in (problem, plain))
        assert_close((a.gradient, a.loss, a.expected_cost), (b.gradient, b.loss, b.expected_cost))
        v, batch = problem.within_bounds(-w), torch.tensor([1])
        changes = (q.gradient_change(v, full, batch) for q, full in ((problem, a), (plain, b)))
        assert_close(next(changes), next(changes))
    part = problem.subset(torch.tensor([2, 0]))
    assert type(part) is type(problem)
    assert_close(part.potentials(w, 1), problem.potentials(w, 0))


@pytest.mark.parametrize("steps", ["fw", "pairwise"])
def test_steps_are_those_of_a_plain_problem(people, steps):
    problem = TASK.fit(people).problem(people)
    plain = LinearModuleProblem(problem.module, problem.dataset, None, bounds=problem.bounds, chunk_size=1)
    # At random weights, no two poses have the same score.
    w = torch.randn(problem.dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sets = problem.label_sets(capacity=3)
    point = DualIterate(w, problem.label_statistics(), torch.full((problem.n,), 0.1, dtype=torch.float64), *sets)
    order, cache = torch.tensor([2, 0, 1, 3, 1, 0, 2, 2]), Cache(factor=0.25, least=0.0)
    ends = [epoch(q, point, order, lam=1e3, steps=steps, cache=cache)[0] for q in (problem, plain)]
    assert not torch.equal(ends[0].outputs, point.outputs)
    assert problem.oracle_calls == plain.oracle_calls < len(order)
    assert_close(vars(ends[0]), vars(ends[1]), rtol=0, atol=1e-10)


def test_springs_hold_together(people):
    problem = TASK.fit(people).problem(people)
    weights = problem.within_bounds(torch.full((problem.dim,), -1.0, dtype=torch.float64))
    springs = weights[-2 * 4 :].view(2, 4)
    assert springs.tolist() == [[-1.0, 0.01, -1.0, 0.01]] * 2


# Metrics, predictions and pictures.


def test_measures_by_hand():
    truth = person(neck=(10, 0), hip=(10, 10), foot=(10, 30))
    pose = {"neck": (11, 0), "hip": (10, 12), "foot": (16, 30)}
    limbs = [("hip", "neck"), ("foot", "hip"), ("foot", "hand")]
    assert measures([truth], [pose], limbs, ("neck", "hip")) == {
        "pck": 2 / 3,
        "pck10": 1 / 3,
        "pcp": 1.0,
        "error": pytest.approx(0.3),
    }
    short = measures([truth], [pose | {"neck": (10, 5.1)}], limbs, ("neck", "hip"))
    assert short == {"pck": 1 / 3, "pck10": 0.0, "pcp": 0.5, "error": pytest.approx(13.1 / 30)}


def test_the_table_has_every_joint():
    truth = [person("a", neck=(10, 0), hip=(10, 10)), person("b", hip=(10, 10), neck=(10, 0))]
    found = [{"neck": (10, 0), "hip": (10, 14)}, {"neck": (10, 0), "hip": (10, 10)}]
    assert [line.split() for line in pose_table(truth, found, [("hip", "neck")], ("neck", "hip")).splitlines()] == [
        ["pck", "75.00%"],
        ["pck10", "75.00%"],
        ["pcp", "100.00%"],
        ["neck", "100.00%"],
        ["hip", "50.00%"],
        ["error", "0.100"],
        ["images", "2"],
    ]


def test_size_of_people():
    joints = {"neck": (10.0, 0.0), "hip": (13.0, 4.0), "foot": (10.0, 30.0)}
    assert person_size(joints, ("neck", "hip")) == 5
    assert person_size(joints, ("neck", "hand")) == 12
    assert person_size({"neck": (1.0, 2.0)}, ("neck", "hip")) == 1


def test_joints_that_are_not_known_do_not_count():
    truth = [person("a", neck=(10, 0)), person("b", hip=(10, 10))]
    found = measures(truth, [{"neck": (10, 0), "hip": (0, 0)}] * 2, [("hip", "neck")], ("neck", "hip"))
    assert found == {"pck": 0.5, "pck10": 0.5, "pcp": 0.0, "error": pytest.approx(50**0.5)}


def test_predictions_are_in_pixels_of_the_image(people):
    fitted = TASK.fit(people)
    large = [Person(p.name, cv2.resize(p.image, None, fx=3, fy=3, interpolation=cv2.INTER_NEAREST), {}) for p in people]
    weights = torch.randn(fitted.problem(people).dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights = fitted.problem(people).within_bounds(weights)
    for ranked in fitted.predict(weights, large):
        places = np.array(list(ranked[0][1].values()))
        assert (places > 0).all()
        assert (places < [3 * WIDTH, 3 * HEIGHT]).all()
        assert places.max() > max(WIDTH, HEIGHT)


def test_pictures_show_found_and_true_joints(people, tmp_path):
    fitted = TASK.fit(people)
    assert isinstance(fitted, FittedPose)
    pose = {joint: (x + 5, y) for joint, (x, y) in people[0].joints.items()}
    fitted.draw(people[:1], [[(0.0, pose)]], tmp_path / "drawn")
    drawn = cv2.imread(str(tmp_path / "drawn" / "p00.png"))
    scale = drawn.shape[0] / HEIGHT
    assert drawn.shape[0] == 480
    for joints, colour in ((pose, (0, 220, 0)), (people[0].joints, (0, 0, 255))):
        x, y = joints["hand"]
        assert tuple(drawn[round(scale * y), round(scale * x)]) == colour


def test_paths_may_come_from_standard_input(folder):
    files = io.StringIO(f"{folder / 'images' / 'p01.png'}\n{folder}#1\n")
    assert [p.name for p in TASK.read(files, "predict")] == ["p01", "p00"]


def test_command_line_of_a_comparison(folder, tmp_path, capsys):
    flags = ["--cell", "4", "--window", "1", "--longest", "52", "--torso", "head,foot"]
    solvers = ["--solvers", "bcfw", "bcfw:cache=true"]
    options = ["--train", str(folder), "--passes", "2", "--lam", "0.1", "--out", str(tmp_path / "out")]
    assert main(["compare", "pose", *options, *flags, *solvers]) == 0
    assert "cache=true" in capsys.readouterr().out
