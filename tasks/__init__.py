"""Tasks: data reading, features, costs, metrics and defaults that worked."""

from structsmooth.tasks.base import TASKS, Task, load_task

__all__ = ["TASKS", "Task", "load_task"]
