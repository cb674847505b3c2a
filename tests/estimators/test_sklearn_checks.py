"""The checks that scikit-learn has for estimators; most of them are for estimators whose input is a matrix."""

import pytest
from sklearn.exceptions import SkipTestWarning
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from structsmooth import LinearScore
from structsmooth.estimators import (
    GraphSegmenter,
    MulticlassSVM,
    MultiLabelClassifier,
    SequenceTagger,
    StructuredEstimator,
)

WITHIN_TOL = {
    f"check_sample_weight_equivalence_on_{kind}_data": "both solutions are within tol of the optimum, but do not agree "
    "in seven digits"
    for kind in ("dense", "sparse")
}
NOT_THE_CONTRACT = {
    MulticlassSVM: WITHIN_TOL,
    MultiLabelClassifier: {
        **WITHIN_TOL,
        "check_classifiers_train": "a matrix with one label is predicted as a matrix, not a vector",
    },
}


# They check behaviour, and few passes are enough for that.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [
        MulticlassSVM(max_iter=100, tol=1e-2),
        MultiLabelClassifier(max_iter=30),
    ],
    expected_failed_checks=lambda estimator: NOT_THE_CONTRACT.get(type(estimator), {}),
)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", [SequenceTagger(), GraphSegmenter(), StructuredEstimator(LinearScore(3, 2))])
def test_estimators_of_other_inputs_say_so(estimator):
    with pytest.warns(SkipTestWarning, match="requires input"):
        check_estimator(estimator)
