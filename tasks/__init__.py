"""Tasks: data reading, features, costs, metrics and defaults that worked."""

from structsmooth.tasks.base import Task
from structsmooth.tasks.registry import TASKS, load_task

__all__ = ["TASKS", "Task", "load_task"]
