"""The prox-linear algorithm, and how its convex models are minimized."""

from structsmooth.solvers.prox_linear.solver import ProxLinear as ProxLinear
