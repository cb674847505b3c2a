"""Sums over the trees of grammars, span by span: inside and outside sums in the linear domain."""
