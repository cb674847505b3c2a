"""Pictures of training runs."""

from typing import TYPE_CHECKING

from structsmooth.lazy import lazy_names

if TYPE_CHECKING:
    from structsmooth.plots.comparison import Bands as Bands
    from structsmooth.plots.comparison import plot_comparison as plot_comparison
    from structsmooth.plots.regularization_path import plot_path as plot_path
    from structsmooth.plots.regularization_path import plot_path_costs as plot_path_costs
    from structsmooth.plots.training import plot_history as plot_history
    from structsmooth.plots.training import plot_tuning as plot_tuning
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "structsmooth.plots.comparison": "Bands plot_comparison",
            "structsmooth.plots.regularization_path": "plot_path plot_path_costs",
            "structsmooth.plots.training": "plot_history plot_tuning",
        },
    )
