"""Pictures of training runs."""

from typing import TYPE_CHECKING

from structsmooth.lazy import lazy_names

if TYPE_CHECKING:
    from structsmooth.plots.comparison import Bands, plot_comparison
    from structsmooth.plots.regularization_path import plot_path, plot_path_costs
    from structsmooth.plots.training import plot_history
    from structsmooth.plots.tuning import plot_tuning
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = ["Bands", "plot_comparison", "plot_history", "plot_path", "plot_path_costs", "plot_tuning"]
