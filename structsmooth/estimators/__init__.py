"""Estimators in the form of scikit-learn: ``fit``, ``predict``, ``score``, pipelines and grid searches."""

from importlib.util import find_spec

if find_spec("sklearn") is None:
    raise ImportError("structsmooth.estimators needs scikit-learn: pip install 'structsmooth[sklearn]'")

from structsmooth.estimators.hidden_markov import GMMHMM, CategoricalHMM, GaussianHMM, PoissonHMM
from structsmooth.estimators.multiclass import MulticlassSVM
from structsmooth.estimators.multilabel import MultiLabelClassifier
from structsmooth.estimators.segmenter import GraphSegmenter
from structsmooth.estimators.structured import StructuredEstimator
from structsmooth.estimators.tagger import SequenceTagger

__all__ = [
    "GMMHMM",
    "CategoricalHMM",
    "GaussianHMM",
    "GraphSegmenter",
    "MultiLabelClassifier",
    "MulticlassSVM",
    "PoissonHMM",
    "SequenceTagger",
    "StructuredEstimator",
]
