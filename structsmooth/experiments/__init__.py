"""Experiments: runs of solvers with their folders, records and logs, below the commands and the estimators."""

from structsmooth.experiments.experiment import Experiment
from structsmooth.experiments.folder import RunFolder
from structsmooth.experiments.logs import Logs, RunLog, file_name, open_logs

__all__ = ["Experiment", "Logs", "RunFolder", "RunLog", "file_name", "open_logs"]
