"""The checks that scikit-learn has for estimators whose input is a matrix."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from structsmooth.estimators import MulticlassSVM, MultiLabelClassifier

WITHIN_TOL = "both solutions are within tol of the optimum, but do not agree in seven digits"
NOT_THE_CONTRACT = {
    MulticlassSVM: {f"check_sample_weight_equivalence_on_{kind}_data": WITHIN_TOL for kind in ("dense", "sparse")},
    MultiLabelClassifier: {"check_classifiers_train": "a matrix with one label is predicted as a matrix, not a vector"},
}


# They check behaviour, and few passes are enough for that.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [MulticlassSVM(max_iter=100, tol=1e-2), MultiLabelClassifier(max_iter=30)],
    expected_failed_checks=lambda estimator: NOT_THE_CONTRACT.get(type(estimator), {}),
)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)
