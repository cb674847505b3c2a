"""Hidden Markov models with the words of hmmlearn: a base, and a class for each family of emissions."""

from structsmooth.estimators.hidden_markov.base import ConvergenceMonitor, HiddenMarkovEstimator
from structsmooth.estimators.hidden_markov.symbols import CategoricalHMM
from structsmooth.estimators.hidden_markov.vectors import GMMHMM, GaussianHMM, PoissonHMM

__all__ = ["GMMHMM", "CategoricalHMM", "ConvergenceMonitor", "GaussianHMM", "HiddenMarkovEstimator", "PoissonHMM"]
