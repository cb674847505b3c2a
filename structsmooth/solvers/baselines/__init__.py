"""Solvers that no measurement of ours prefers, and why each is kept.

Those of the papers, whose claims we measure, and those that the papers compare with:

* ``excessive_gap``: Algorithms 1 and 2 of Zhang et al. (2014), the only ones with a bound on the gap before the run.
* ``exponentiated``: a baseline of that paper, accelerated, whose iterate is a distribution for every example.
* ``batch_exponentiated``: the same with all examples at once, as in Collins et al. (2008).
* ``extragradient``: another of its baselines, the saddle point of weights and marginals (Taskar et al. 2006).
* ``smo``: another, by steps between pairs of outputs (Taskar et al. 2004).
* ``cutting_plane``: another, SVM-struct with one slack, or BMRM.
* ``frank_wolfe``: Algorithm 8 of Osokin et al. (2016): :class:`~structsmooth.BCFW` with all examples as one block.
* ``dlpw``: the baseline of Meshi et al. (2015) for soft agreement, whose weights move by subgradients.
* ``lbfgs``: what other libraries train the likelihoods of chains with.
"""
